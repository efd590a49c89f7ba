"""A method's runs with several seeds go in lockstep: the same cells, folders and refusals as one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sartor.data import Dataset
from sartor.run import lockstep
from sartor.run.recipe import Recipe
from sartor.storage import read_lines
from sartor.study import compare as comparing
from sartor.study.compare import Comparison, compare

METHODS, SEEDS = ["ditto", "local"], [0, 1, 2]
BASE = Recipe(data="table", target="y", model="softmax", rounds=3, evaluate_every=1, workers=1, clients=3)


def table(seed: int = 0) -> Dataset:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(120, 4)).astype(np.float32)
    keys = np.repeat(np.arange(3), (60, 40, 20))
    y = (x @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.5 * keys > 0).astype(np.int64)
    return Dataset(x, y, 2, "table", keys=keys, key_names=("A", "B", "C"))


def played(folder: Path | None = None, together: bool = True, **options: Any) -> Comparison:
    *_, last = compare(BASE.replace(**options), METHODS, SEEDS, table(), folder, lockstep=together)
    return last.table


def rows(comparison: Comparison) -> list[dict[str, Any]]:
    return [{k: v for k, v in s.items() if k != "seconds"} for s in comparison.summaries()]


def history(folder: Path) -> list[dict[str, Any]]:
    """Scores and diagnostics of every round."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_lines(folder / "history.jsonl")]


def near(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(v, other[k]) for k, v in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(near, one, other))
    return bool(np.isclose(one, other, rtol=1e-6, atol=1e-6)) if isinstance(one, float) else one == other


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs were played together, each time."""
    found: list[int] = []
    whole = lockstep.play_together

    def counted(plays: Any) -> Any:
        found.append(len(plays))
        return whole(plays)

    monkeypatch.setattr(comparing, "play_together", counted)
    return found


def test_seeds_in_lockstep_are_the_same_cells(groups: list[int], tmp_path: Path) -> None:
    alone = played(tmp_path / "alone", together=False)
    assert groups == []
    for folder in (None, tmp_path / "together"):
        together = played(folder)
        assert near(rows(together), rows(alone))
        assert [c.seed for c in together.cells] == [c.seed for c in alone.cells] == [0, 0, 1, 1, 2, 2]
    assert groups == [3, 3, 3, 3] and together.together == {"ditto": 3, "local": 3}
    assert near(json.loads((tmp_path / "together" / "ditto-2" / "summary.json").read_text()), together.cells[4].summary)
    assert near(history(tmp_path / "together" / "ditto-2"), history(tmp_path / "alone" / "ditto-2"))
    again = played(tmp_path / "together")
    assert len(groups) == 4 and near(rows(again), rows(alone))


def test_weights_of_classes_are_those_of_a_seed(groups: list[int]) -> None:
    """Each seed's training samples have other shares of classes, so that their runs do not go into one stack."""
    assert near(rows(played(class_weights="balanced")), rows(played(together=False, class_weights="balanced")))
    assert groups == [3, 3]


def test_what_was_interrupted_goes_on_in_lockstep(groups: list[int], tmp_path: Path) -> None:
    alone = played(together=False)
    for step in compare(BASE.replace(checkpoint_every=1), METHODS, SEEDS, table(), tmp_path):
        if step.result is not None and step.result.run.round == 2:
            break
    assert not list(tmp_path.glob("*/summary.json"))
    rounds = {f.parent.parent.name for f in tmp_path.glob("*/state/checkpoint.safetensors")}
    assert rounds == {"ditto-0", "ditto-1", "ditto-2"}
    assert near(rows(played(tmp_path, checkpoint_every=1)), rows(alone))


def test_a_seed_that_diverges_leaves_the_others(monkeypatch: pytest.MonkeyPatch, groups: list[int]) -> None:
    """A step size at which some seeds' models run away is the same refusal as alone."""
    settings = {"ditto": {"solver.kind": "sgd", "solver.lr": 1e38}}

    def both(together: bool) -> list[dict[str, Any]]:
        *_, last = compare(BASE, METHODS, SEEDS, table(), None, settings, lockstep=together)
        return rows(last.table)

    found, alone = both(True), both(False)
    assert groups == [3, 3] and near(found, alone)
    assert all("diverged in round" in row["error"] for row in found[::2]) and "error" not in found[1]


def test_networks_go_alone(groups: list[int]) -> None:
    assert played(model="mlp(4)").together == {"ditto": 1, "local": 1}
    assert groups == []
