"""The examples in docstrings run and give what they say."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import sartor as st

FIRST = {  # what people meet first has an example; others may have one
    *("fit", "Result", "Clients", "Recipe", "load_model", "SartorError", "DynamicLam", "Privacy"),
    *(
        "Federation",
        "Attacked",
        "Execution",
        "Evaluation",
        "Traffic",
        "PersonalizedClassifier",
        "PersonalizedRegressor",
    ),
    *("FLAME", "Ditto", "PFedMe", "FedAvg", "FedAMP", "LocalOnly", "MixedEffects", "SGD", "Adam", "Newton"),
    *("Hybrid", "Dirichlet", "Labels", "Natural", "IID"),
}
EXAMPLES = {name: thing.__doc__ for name in st.__all__ if ">>>" in ((thing := getattr(st, name)).__doc__ or "")}
EXAMPLES["data.load"] = st.data.load.__doc__


def ran(name: str, space: dict[str, Any]) -> dict[str, Any]:
    """Run the example of a name in a namespace, which it may change."""
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], space, name, None, 0)
    said: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=said.append, clear_globs=False)
    assert result.failed == 0 and result.attempted > 0, "".join(said)
    return test.globs


@pytest.fixture(scope="module")
def begun() -> dict[str, Any]:
    """What st.fit's own example leaves behind, with which the others go on."""
    return ran("fit", {})


def test_what_people_meet_first_has_an_example() -> None:
    assert set(EXAMPLES) >= FIRST


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"fit"}))
def test_an_example_runs(name: str, begun: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran(name, dict(begun))


def test_examples_are_shown_as_code() -> None:
    """Indented by four: else the pages would show ">>>" as nested quotations."""
    for name, text in EXAMPLES.items():
        assert re.findall(r"^( *)>>>", inspect.cleandoc(text), re.M)[0] == "    ", name
