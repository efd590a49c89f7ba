"""Every public name and every contract has an example in its docstring; they run and give what they say."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sartor as st
from sartor import core

API = Path(__file__).parents[2] / "docs" / "api"
INSIDE = {  # what the pages of the API show of the modules that are public names
    "data": ["load", "from_arrays", "Dataset", "parse"],
    "models": ["layers", "cnn", "build"],
    "attacks": [kind.__name__ for kind in st.attacks.NAMES.values()],
    "aggregators": [kind.__name__ for kind in st.aggregators.NAMES.values()],
    "compressors": [kind.__name__ for kind in st.compressors.NAMES.values()],
}
PUBLIC = {
    **{name: getattr(st, name) for name in st.__all__},
    **{f"{module}.{name}": getattr(getattr(st, module), name) for module, names in INSIDE.items() for name in names},
}
# The contracts that docs/api/core.md shows, and what the module says of a State.
LISTED = re.findall(r"^::: sartor.core\n.*\n *members: \[(.*)\]", (API / "core.md").read_text(encoding="utf-8"), re.M)
PUBLIC |= {"core": core, **{f"core.{name}": getattr(core, name) for name in LISTED[0].split(", ")}}
EXAMPLES = {name: thing.__doc__ or "" for name, thing in PUBLIC.items()}


def ran(name: str, space: dict[str, Any]) -> dict[str, Any]:
    """Run the example of a name in a namespace, which it may change."""
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], space, name, None, 0)
    said: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=said.append, clear_globs=False)
    assert result.attempted > 0, f"{name} has no example (>>>) in its docstring"
    assert result.failed == 0, "".join(said)
    return test.globs


@pytest.fixture(scope="module")
def begun() -> dict[str, Any]:
    """What st.fit's own example leaves behind, with which the others go on."""
    return ran("fit", {})


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"fit"}))
def test_a_public_name_has_an_example_that_runs(
    name: str, begun: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran(name, dict(begun))


def test_examples_are_shown_as_code() -> None:
    """Indented by four: else the pages would show ">>>" as nested quotations."""
    for name, text in EXAMPLES.items():
        assert re.findall(r"^( *)>>>", inspect.cleandoc(text), re.M)[0] == "    ", name


def test_the_pages_of_the_api_show_every_public_name() -> None:
    """By itself or as a member of its module; methods have pages of their own, which docs/fill.py writes."""
    shown = set()
    for page in API.glob("*.md"):
        for place, options in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", page.read_text(encoding="utf-8"), re.M):
            members = re.search(r"members: \[(.*)\]", options)
            shown |= {place.rsplit(".", 1)[1], *(members[1].split(", ") if members else [])}
    methods = {kind.class_name for kind in st.methods.NAMES.values()}
    names = {name.rsplit(".", 1)[-1] for name, thing in PUBLIC.items() if not isinstance(thing, ModuleType)}
    assert names - methods <= shown
