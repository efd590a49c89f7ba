"""Frozen weights in a federation: never in a message, and refused where they differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sites import QUICK, Federation, tables
from torch import nn

from sartor import models
from sartor.errors import SartorError
from sartor.federation.rounds import decode
from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe

BODY = {"weight": 0.1}


def with_body(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Any frozen body under a head."""
    body = nn.Linear(shape[0], 50).requires_grad_(False)
    nn.init.constant_(body.weight, BODY["weight"])
    nn.init.zeros_(body.bias)
    return nn.Sequential(body, nn.Tanh(), nn.Linear(50, outputs))


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(models.NAMES, "with-body", ("a frozen body under a head", with_body))
    monkeypatch.setitem(BODY, "weight", 0.1)
    yield


def recipe(**own: object) -> Recipe:
    return Recipe(**QUICK | {"model": "with-body", "method": "ditto"} | own)


def test_messages_hold_what_is_trained(tmp_path: Path) -> None:
    federation = Federation(tmp_path, recipe(), tables(tmp_path / "data"))
    calls = federation.calls()
    result = federation.play(calls)
    sizes = {v.size for _, _, data in calls.seen for v in decode(data, 1 << 30).arrays.values() if v.ndim}
    assert max(sizes) == result.task.size == 51 * 3
    stored = [f for f in tmp_path.rglob("*.safetensors") if f.stat().st_size > 4 * 50 * 3 * 51 // 10 + 40_000]
    assert stored == []


def test_other_frozen_weights_at_a_site_are_refused(tmp_path: Path) -> None:
    federation = Federation(tmp_path, recipe(), tables(tmp_path / "data"))
    calls = federation.calls()
    honest = calls.members["b"]

    def other(data: bytes) -> bytes | None:
        BODY["weight"] = 0.2
        try:
            return honest(data)
        finally:
            BODY["weight"] = 0.1

    calls.members["b"] = other
    result = federation.play(calls)
    assert any("frozen weights is" in text and "disagree" in text for text in federation.said), federation.said
    assert result.run.counts["trained"] == 2 * result.run.round


def test_a_run_goes_on_only_with_the_same(tmp_path: Path) -> None:
    own = recipe(data=str(tables(tmp_path)["all"]), target="outcome", client_key="hospital", rounds=2)
    clients = clients_of(own)
    list(play_recipe(own, clients, tmp_path / "run"))
    list(play_recipe(own.replace(rounds=3), clients, tmp_path / "run"))
    BODY["weight"] = 0.2
    with pytest.raises(SartorError, match="belongs to a run with other settings"):
        list(play_recipe(own.replace(rounds=4), clients, tmp_path / "run"))
