"""A run is declared once: everything else is made from run/recipe.py, and old recipes are read."""

from __future__ import annotations

import ast
import dataclasses
import datetime
import inspect
import tomllib
from pathlib import Path

import pytest

import sartor as st
from sartor.cli.commands import COMMANDS, load
from sartor.run.play import fit
from sartor.run.recipe import GROUPS, SETTINGS, SOLVER_OPTIONS, Recipe, flat, tables

PACKAGE = Path(st.__file__).parent
# A word that means something else there.
OTHERWISE = {
    ("cli/tune.py", "budget"): "trials of each method, not bytes",
    ("cli/predict.py", "data"): "the samples to predict",
    ("cli/predict.py", "model"): "which of a client's models",
    ("cli/predict.py", "client"): "whose model",
    ("cli/reproduce.py", "rounds"): "in place of an experiment's own",
    ("cli/reproduce.py", "model"): "in place of an experiment's own",
    ("cli/federation.py", "data"): "the site's own file, without a default",
}


def declarations() -> list[tuple[str, str]]:
    """(file, name) of every field of a class and every option of a command that has a setting's name and a default."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        file = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.value or node.target).startswith("setting("):
                found.append((file, ast.unparse(node.target)))
            if isinstance(node, ast.FunctionDef) and file.startswith("cli/"):
                words = [a for a in (*node.args.args, *node.args.kwonlyargs) if a.annotation is not None]
                found += [(file, a.arg) for a in words if "typer.Option" in ast.unparse(a.annotation or a)]
    return [(file, name) for file, name in found if name in SETTINGS]


def test_every_setting_is_declared_in_one_place() -> None:
    known = declarations()
    elsewhere = [d for d in known if d[0] != "run/recipe.py" and d not in OTHERWISE]
    assert elsewhere == []
    assert sorted(name for file, name in known if file == "run/recipe.py") == sorted(SETTINGS)


def test_options_have_the_settings_defaults() -> None:
    options = {p.name: p for p in load("run").params}
    for name, about in SETTINGS.items():
        if name in ("settings", "solver"):
            continue
        default = options[name].default
        wanted = about.default
        wanted = None if name in ("leave_out", "text") else ",".join(map(str, wanted)) if name == "parts" else wanted
        assert default == wanted, name
    assert set(SOLVER_OPTIONS) <= set(options)


def test_the_options_that_most_people_need_come_first() -> None:
    shown = [p for p in load("run").params if getattr(p, "rich_help_panel", None) is None]
    names = {p.name for p in shown}
    assert {"data", "target", "client_key", "method", "model", "rounds", "cohort", "seed"} <= names
    assert len(names) <= 20


def test_fit_takes_groups_with_types() -> None:
    parameters = inspect.signature(fit).parameters
    assert all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    for name, group in (("federation", st.Federation), ("execution", st.Execution), ("traffic", st.Traffic)):
        assert group.__name__ in str(parameters[name].annotation)
    assert parameters["rounds"].default == SETTINGS["rounds"].default


def test_a_recipe_is_a_table_for_each_group_and_comes_back() -> None:
    recipe = Recipe(method="ditto", settings={"lam": 0.3}, solver={"lr": 0.1}, rounds=7, attackers=1 / 3, budget="4MB")
    text = recipe.toml()
    found = tomllib.loads(text)
    assert found["method"]["rounds"] == 7 and found["method"]["settings"] == {"lam": 0.3}
    assert [group.title for group in GROUPS if group.title in found] == list(found)
    assert Recipe.of(flat(found)) == recipe
    assert flat(tables(recipe.values())) == {k: v for k, v in recipe.values().items() if v is not None and v != {}}


def test_a_recipe_from_before_the_groups_is_read(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text('method = "ditto"\nrounds = 7\ndata = "digits"\n[settings]\nlam = 0.3\n')
    assert Recipe.load(tmp_path / "old.toml") == Recipe(method="ditto", rounds=7, settings={"lam": 0.3})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rounds": 0}, "rounds is a whole number of at least 1; got 0"),
        ({"rounds": "many"}, "rounds is a whole number"),
        ({"rounds": True}, "rounds is a whole number"),
        ({"seed": 2**63}, "seed is a whole number below 9223372036854775808"),
        ({"minimum": 2**31}, "minimum is a whole number below 2147483648; got 2147483648"),
        ({"budget": 2**63}, "budget is text or a whole number below 9223372036854775808"),
        ({"method": datetime.date(2020, 1, 1)}, "method is text; got datetime.date(2020, 1, 1)"),
        ({"compress": datetime.time(7)}, "compress is text; got datetime.time(7, 0)"),
        ({"parts": [0.5, "x"]}, "parts is a list of numbers"),
        ({"settings": 3}, "settings is a table"),
        ({"drop": 1.0}, "drop is a share of clients"),
        ({"stale": "maybe"}, "stale to be one of 'use', 'discard'"),
        ({"diagnostics": "no"}, "diagnostics is true or false"),
        ({"ronds": 3}, "did you mean rounds"),
    ],
)
def test_a_wrong_value_is_refused_in_a_line(values: dict[str, object], words: str) -> None:
    with pytest.raises(st.SartorError) as caught:
        Recipe.of(values, "here")
    assert "here" in str(caught.value) and words in str(caught.value)


def test_whole_numbers_become_floats_where_floats_are_meant() -> None:
    recipe = Recipe(attackers=0, parts=[1, 0, 0])
    assert isinstance(recipe.attackers, float) and all(isinstance(p, float) for p in recipe.parts)


def test_groups_share_no_name_and_every_command_is_there() -> None:
    names = [f.name for group in GROUPS for f in dataclasses.fields(group)]  # type: ignore[arg-type]
    assert len(names) == len(set(names)) == len(SETTINGS)
    for command in COMMANDS:
        assert load(command).help
