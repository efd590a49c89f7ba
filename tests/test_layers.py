"""Imports run one way: from a floor of the house to those below it. This test reads them and fails when one goes up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "sartor"
# From the ground up. A room stands on one floor and may use every floor below it; rooms on the same floor do not know
# each other. A part of a room that stands lower than the rest is named by itself.
FLOORS = (
    ("errors", "seeds", "exact_sums"),
    ("core", "spelling"),
    ("couplings", "storage", "client_table", "models", "judge"),
    ("solvers", "aggregators", "compressors", "data", "tasks", "federation.rounds"),
    ("methods", "engines"),
    ("wrappers",),
    ("run",),
    ("study", "testing", "estimators", "search"),
    ("report", "federation"),
    ("papers",),
    ("cli",),
)
# Below its own floor, what a room is still not to know, and why.
NEVER = {
    "methods": {"data", "tasks", "storage", "models"},  # a method sees a stack of clients, not where it comes from
    "aggregators": {"storage", "client_table"},  # plain functions of messages
    "wrappers": {"engines", "tasks"},  # a method made of a method
    "federation.rounds": {"models"},  # exactly once, whatever is played
}
# Inside rooms: what stands below the rest of its room, and uses none of it.
GROUND = ("methods.parts", "data.partitions", "federation.rounds")


def modules() -> dict[str, Path]:
    """Every module by its name below the package; the package itself is ""."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str) -> Iterator[str]:
    """The modules of the package that a module imports, anywhere in it."""
    path = MODULES[name]
    inside = path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "sartor":
                    yield alias.name.removeprefix("sartor").removeprefix(".")
        if not isinstance(node, ast.ImportFrom):
            continue
        words = (node.module or "").split(".") if node.module else []
        if node.level == 0:
            if words[:1] != ["sartor"]:
                continue
            base = words[1:]
        else:
            base = [*inside[: len(inside) - node.level + 1], *words]
        for alias in node.names:
            full = ".".join([*base, alias.name])
            yield full if full in MODULES else ".".join(base)


def room(module: str) -> str:
    """Where a module stands: its room, or the part of it that has a floor of its own."""
    named = [r for floor in FLOORS for r in floor if module == r or module.startswith(f"{r}.")]
    return max(named, key=len) if named else module.split(".")[0]


FLOOR = {name: at for at, floor in enumerate(FLOORS) for name in floor}


def test_every_module_stands_on_a_floor() -> None:
    assert {room(m) for m in MODULES if m} == set(FLOOR)


@pytest.mark.parametrize("module", [m for m in MODULES if m])
def test_nothing_is_imported_from_above(module: str) -> None:
    own = room(module)
    up = [
        other
        for other in imports(module)
        if other and room(other) != own and (FLOOR[room(other)] >= FLOOR[own] or room(other) in NEVER.get(own, ()))
    ]
    assert up == []


@pytest.mark.parametrize("ground", GROUND)
def test_what_stands_lower_in_a_room_uses_nothing_of_the_rest(ground: str) -> None:
    around = ground.rpartition(".")[0]
    lower = [m for m in MODULES if m == ground or m.startswith(f"{ground}.")]
    up = [
        f"{m} imports {other}"
        for m in lower
        for other in imports(m)
        if (other == around or other.startswith(f"{around}."))
        and not (other == ground or other.startswith(f"{ground}."))
    ]
    assert up == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Also inside rooms, and also where an import stands in a function."""
    known = {m: {i for i in imports(m) if i in MODULES and i != m} for m in MODULES if m}
    known = {m: others - {""} for m, others in known.items()}  # the package's own names come when they are asked for
    done: set[str] = set()
    while left := {m for m in known if m not in done}:
        ready = {m for m in left if known[m] <= done | {m}}
        assert ready, f"a circle among {sorted(left)}"
        done |= ready


def test_no_class_has_the_name_of_another() -> None:
    names = [
        node.name
        for path in MODULES.values()
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    ]
    twice = {name for name in names if names.count(name) > 1}
    assert twice <= {"FedMGDA"}, f"a class name says one thing: {sorted(twice)}"
