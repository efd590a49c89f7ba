"""What leaves a site: messages, scores, names of columns, and once a few sums over many rows."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from sites import NAMES, QUICK, Federation

from sartor.federation.released_scores import released, rounded
from sartor.federation.rounds import Message, decode
from sartor.judge import SHARES
from sartor.run.recipe import Recipe


def test_only_messages_scores_and_names_of_columns_cross(tmp_path: Path, paths: dict[str, Path]) -> None:
    """Everything that passed, both ways: its kinds, names, shapes; no row or column of the data, no path, no file."""
    fed = Federation(tmp_path, Recipe(method="flame", **QUICK), paths)
    calls = fed.calls()
    result = fed.play(calls)
    d = result.run.problem.start.numel()
    allowed = {(1, d), (1,)}
    numbers, measured = set(), list[str]()
    for _, site, data in calls.seen:
        message = decode(data)
        for name, array in message.arrays.items():
            models = set(name.split("/")[0].split("&"))  # of a score, or of the covariance of two models' gains
            if message.kind == "measured":
                assert name in {"counts", "means", "squares"} and array.shape == (1, 2)  # age and dose
                measured.append(site)
            else:
                assert name in {"w", "message/u", "steps", "validation/samples"} or models <= SHARES.keys()
                assert array.shape in allowed, name
            numbers |= set(np.asarray(array, dtype=np.float32).ravel().tolist())
        assert set(message.note) <= _NOTES, message.note
        assert str(tmp_path).encode() not in data and b".csv" not in data and os.sep.encode() not in _words(message)
        assert site in NAMES
    for name in NAMES:
        table = fed.member(name).table
        values = {float(np.float32(v)) for v in table.x[:, :2].ravel()}
        assert len(values) > 50 and not values & numbers  # no single number of the data is among all that were sent
    kinds = [decode(d).kind for way, _, d in calls.seen if way == "up"]
    assert set(kinds) == {"joined", "measured", "ready", "answer", "noted"}
    assert sorted(measured) == sorted(3 * NAMES)  # each once


_NOTES = {
    "recipe",
    "sartor",  # the version
    "revoked",  # the list of certificates that are no longer accepted
    "schema",
    "counts",
    "terms",
    "clients",
    "total",
    "largest",
    "first",
    "stage",
    "instance_id",
    "scale",
}


def _words(message: Message) -> bytes:
    """What a note says in words, without the recipe that the server sent."""
    note = {k: v for k, v in message.note.items() if k not in ("recipe", "terms")}
    return repr(note).encode()


def test_scores_can_be_withheld(tmp_path: Path, paths: dict[str, Path]) -> None:
    scores = {"personal/test/loss": torch.tensor([1.0, 3.0, torch.nan])}
    rows = {"test": torch.tensor([9, 9, 0])}
    assert released(scores, rows, "mean", 1, 4)["personal/test/loss"].tolist() == [2.0, 2.0, 2.0]
    assert bool(released(scores, rows, "none", 1, 4)["personal/test/loss"].isnan().all())
    fed = Federation(tmp_path, Recipe(**QUICK, method="flame"), {"a": paths["all"]}, key="hospital", share="mean")
    found = fed.play(fed.calls(["a"]))
    assert found.summary["personal"]["accuracy_std"] == 0 and found.summary["personal"]["accuracy_mean"] > 0


def test_scores_of_few_rows_stay_and_the_others_are_rounded() -> None:
    scores = {
        "personal/test/loss": torch.tensor([1 / 3, 200 / 3, 5.0]),
        "personal/steps": torch.tensor([7.0, 8.0, 9.0]),
    }
    rows = {"test": torch.tensor([5, 6, 4])}
    out = released(scores, rows, "each", 5, 4)
    assert out["personal/test/loss"][:2].tolist() == torch.tensor([0.3333, 66.67]).tolist()
    assert bool(out["personal/test/loss"][2].isnan()) and out["personal/steps"].tolist() == [7.0, 8.0, 9.0]
    values = torch.tensor([0.0, -1.23456e-7, 9.99951, 1e30, torch.nan, torch.inf], dtype=torch.float64)
    found = rounded(values, 4).tolist()
    assert [f"{v:.3e}" for v in found[:4]] == [f"{float(f'{v:.3e}'):.3e}" for v in values[:4].tolist()]
    assert found[4] != found[4] and found[5] == float("inf") and rounded(values, 17) is values
