"""Recipes with any values: assembled, or refused with one line. The values are drawn for run/recipe.py's settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from fuzzing import NAMES, NESTED, NUMBERS, TEXTS, examples, refused_or_fine, spelled
from hypothesis import given
from hypothesis import strategies as st

from sartor import methods, solvers
from sartor.run.assemble import assembled
from sartor.run.complete import clients_of, resolve
from sartor.run.recipe import GROUPS, SETTINGS, Recipe

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]
BASE = {"data": "digits", "clients": 3, "rounds": 1, "model": "softmax", "partition": "iid"}


@st.composite
def of_method(draw: Any, name: str) -> dict[str, Any]:
    """Settings of a method: its fields, and those of its solvers, with any values."""
    made = methods.entry(name).make
    fields = [f.name for f in dataclasses.fields(made)]  # type: ignore[arg-type]
    inner = [f"{f}.{s}" for f in fields if "solver" in f or f == "finetune" for s in ("lr", "steps", "batch", "kind")]
    return dict(
        draw(
            st.dictionaries(
                st.sampled_from([*fields, *inner]), st.one_of(NUMBERS, NUMBERS, NUMBERS, NESTED), max_size=2
            )
        )
    )


SOLVER = st.dictionaries(
    st.one_of(
        st.sampled_from([f.name for s in solvers.NAMES.values() for f in dataclasses.fields(s)]), st.just("kind")
    ),
    st.one_of(NUMBERS, st.sampled_from(sorted(solvers.NAMES)), NESTED),
    max_size=3,
)


def values(name: str) -> st.SearchStrategy[Any]:
    """For a setting: mostly what has its type, whatever the value is; now and then anything."""
    about, some = SETTINGS[name], []
    if about.names:
        some.append(spelled(NAMES[about.names]))
    if about.choices:
        some.append(st.sampled_from([c for c in about.choices if c != "ray"]))
    if "int" in about.type or "float" in about.type:
        some.append(NUMBERS)
    if "list[float]" in about.type:
        some.append(st.lists(NUMBERS, max_size=4))
    if "bool" in about.type:
        some.append(st.booleans())
    if name == "solver":
        some.append(SOLVER)
    return st.one_of(*some, *some, *some, TEXTS if "str" in about.type else NESTED, NESTED)


def plausible(name: str) -> st.SearchStrategy[Any]:
    """For a setting: what its declaration allows, so that it is refused further in, if at all."""
    about = SETTINGS[name]
    if about.choices:
        return st.sampled_from([c for c in about.choices if c != "ray"])
    if about.names:
        return spelled(NAMES[about.names])
    if about.type.startswith("int"):
        few = st.integers(about.least or 0, 6)
        return st.one_of(few, few, st.integers(about.least or 0, about.below - 1))
    if about.type.startswith("float"):
        return st.one_of(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True), NUMBERS)
    kinds = {"bool": st.booleans(), "list[float]": st.just([0.5, 0.25, 0.25]), "list[str]": st.just([])}
    kinds |= {"dict[str, Any]": SOLVER if name == "solver" else st.just({})}
    return kinds.get(about.type, TEXTS)


CLOSED = ("target", "client_key", "address", "data", "leave_out", "text", "settings")
OPEN = [name for name in SETTINGS if name not in CLOSED]


@st.composite
def recipes(draw: Any) -> dict[str, Any]:
    """A few settings with any values, or several with values that are allowed one by one."""
    if draw(st.booleans()):
        names = draw(st.lists(st.sampled_from(sorted(SETTINGS)), min_size=1, max_size=3, unique=True))
        found = BASE | {name: draw(values(name)) for name in names}
    else:
        names = draw(st.lists(st.sampled_from(OPEN), min_size=1, max_size=5, unique=True))
        found = BASE | {name: draw(plausible(name)) for name in names}
    if isinstance(found["rounds"], int) and 1000 < found["rounds"] < 2**31:
        found["rounds"] = 1  # what differential privacy spends is added up round by round
    if draw(st.booleans()):
        found["method"] = draw(st.sampled_from(sorted(methods.NAMES)))
        found["settings"] = draw(of_method(found["method"]))
    if draw(st.integers(0, 3)) == 0:
        return found  # as before there were tables
    tables: dict[str, Any] = {group.title: {} for group in GROUPS}
    for name, value in found.items():
        tables[SETTINGS[name].group][name] = value
    return tables


def attempt(path: Path) -> None:
    recipe = resolve(Recipe.load(path))
    assembled(recipe, clients_of(recipe))


@given(recipes())
@examples(1000)
def test_values_of_any_kind(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    path = _place(tmp_path_factory) / "recipe.toml"
    path.write_text(tomli_w.dumps(values), encoding="utf-8")
    with refused_or_fine():
        attempt(path)


@given(st.one_of(st.text(max_size=60), st.sampled_from(["[" * 5000, "a = 0x" + "f" * 8000, "a." * 3000 + "b = 1"])))
@examples(200)
def test_files_that_are_no_toml(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = _place(tmp_path_factory) / "recipe.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with refused_or_fine():
        Recipe.load(path)


def _place(factory: pytest.TempPathFactory) -> Path:
    place = factory.getbasetemp() / "fuzz"
    place.mkdir(exist_ok=True)
    return place
