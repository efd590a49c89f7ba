"""What server and sites must agree on, and what a real federation does not take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sites import QUICK, Federation

from sartor.errors import SartorError
from sartor.federation.rounds.agreement import differences, digest
from sartor.run.recipe import Recipe


def test_other_settings_are_refused_with_the_field(flame: Federation, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('method = "flame"\nmodel = "softmax"\nseed = 3\n[settings]\nlam = 0.7\n')
    calls = flame.calls()
    member = flame.member("b")
    member.own = replace(member.own, recipe=str(mine))
    calls.members["b"] = member.answer
    flame.play(calls)
    line = "site b is left out: it refused (the server and this side disagree: settings.lam is 0.3 there and 0.7 here."
    assert any(s.startswith(line) for s in flame.said)
    assert not list(flame.folder.glob("b/*/client-*")) and list(flame.folder.glob("a/*/client-*"))


def test_where_too_few_sites_are_left_the_reasons_are_said(flame: Federation, tmp_path: Path) -> None:
    text = flame.paths["b"].read_text().replace("dose", "amount", 1)
    (tmp_path / "b.csv").write_text(text)
    flame.paths = flame.paths | {"b": tmp_path / "b.csv"}
    flame.waiting = replace(flame.waiting, clients=3)
    with pytest.raises(SartorError, match=r"only 2 of at least 3 sites can take part; site b is left out: .*'dose'"):
        flame.play()


def test_a_server_that_changed_its_settings_is_refused(flame: Federation) -> None:
    flame.play()
    flame.recipe = Recipe(method="flame", settings={"lam": 0.2}, **QUICK)
    with pytest.raises(SartorError, match=r"settings.lam is 0.3 there and 0.2 here"):
        flame.play()


def test_a_table_with_other_columns_is_refused_by_name(flame: Federation, tmp_path: Path) -> None:
    text = flame.paths["b"].read_text().replace("dose", "amount", 1)
    (tmp_path / "b.csv").write_text(text)
    flame.paths = flame.paths | {"b": tmp_path / "b.csv"}
    result = flame.play()
    line = "site b is left out: the table of site b has no column 'dose', which that of site a has."
    assert line in flame.said and result.data.names == ["a", "c"]


def test_a_table_that_changed_after_joining_is_refused_by_name(flame: Federation, tmp_path: Path) -> None:
    flame.play()
    (tmp_path / "b.csv").write_text(flame.paths["b"].read_text().replace("dose", "amount", 1))
    flame.paths = flame.paths | {"b": tmp_path / "b.csv"}
    flame.recipe = flame.recipe.replace(rounds=5)
    flame.limits = replace(flame.limits, most_rounds=5)
    flame.play()
    line = "site b is left out: it refused (the table of site b has no column 'dose'"
    assert any(said.startswith(line) for said in flame.said)


def test_a_new_text_is_refused_without_being_told(flame: Federation, tmp_path: Path) -> None:
    calls = flame.calls()
    flame.play(calls)
    (tmp_path / "b.csv").write_text(flame.paths["b"].read_text().replace("east", "secret-ward", 1))
    flame.paths = flame.paths | {"b": tmp_path / "b.csv"}
    flame.recipe = flame.recipe.replace(rounds=5)
    flame.limits = replace(flame.limits, most_rounds=5)
    calls = flame.calls()
    flame.play(calls)
    assert any("column 'ward' of site b holds a text that was not agreed on" in s for s in flame.said)
    assert not any(b"secret-ward" in d for _, _, d in calls.seen)


def test_differences_name_every_field() -> None:
    a, b = {"settings": {"lam": 1.0, "rho": 2.0}, "seed": 0}, {"settings": {"lam": 1.5, "rho": 2.0}, "dtype": "x"}
    assert differences(a, b) == [
        'dtype is absent there and "x" here',
        "seed is 0 there and absent here",
        "settings.lam is 1.0 there and 1.5 here",
    ]
    assert digest(a) == digest({"seed": 0, "settings": {"rho": 2.0, "lam": 1.0}}) != digest(b)


@pytest.mark.parametrize(("field", "value"), [("attack", "sign-flip"), ("drop", 0.2), ("unseen", 0.2)])
def test_a_real_federation_pretends_nothing(field: str, value: object, flame: Federation) -> None:
    flame.recipe = flame.recipe.replace(**{field: value})
    with pytest.raises(SartorError, match=f"{field} works only in a simulation"):
        flame.play()


@pytest.mark.parametrize(("field", "value"), [("class_weights", "balanced")])
def test_what_a_real_federation_cannot_do_yet_is_refused(field: str, value: object, flame: Federation) -> None:
    flame.recipe = flame.recipe.replace(**{field: value})
    with pytest.raises(SartorError, match=f"has no {field} yet"):
        flame.play()
