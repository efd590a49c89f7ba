"""Models chosen by folds: who is held back when, that what is put together is what all samples say, and the cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from commandline import good, killed, refused
from federations import ragged

import sartor as st
from sartor.data import Clients
from sartor.errors import SartorError
from sartor.judge.choice import covariance, expected_gains
from sartor.models import layers
from sartor.run import folds
from sartor.run.lockstep import Play
from sartor.run.play import FOLDS
from sartor.run.result import Result
from sartor.storage import read_json

METHOD = st.Ditto(lam=0.5, solver=st.SGD(lr=0.1, batch=10))
RUN = ("run", "--method", "ditto", "--rounds", 3, "--folds", 3, "--clients", 5, "--model", "softmax")


def sized() -> Clients:
    """Seven clients of 3 to 40 samples, a fifth of them for validation and for testing each."""
    clients = ragged()
    bounds = clients.bounds.copy()
    each = bounds[:, 3] - bounds[:, 0]
    bounds[:, 2] = bounds[:, 3] - each // 5
    bounds[:, 1] = bounds[:, 2] - each // 5
    return Clients(clients.x, clients.y, bounds, clients.names, clients.classes)


def test_every_sample_that_is_not_test_data_is_held_back_once() -> None:
    clients, k = sized(), 4
    parts = [folds.held_back(clients, k, j, seed=3) for j in range(k)]
    for i in range(len(clients)):
        first, _, end, _ = clients.bounds[i]
        mine = sorted(map(tuple, clients.x[first:end].tolist()))
        back = [tuple(row) for p in parts for row in p.x[p.rows(i, "validation")].tolist()]
        assert sorted(back) == mine
        for p in parts:
            both = [*p.x[p.rows(i, "train")].tolist(), *p.x[p.rows(i, "validation")].tolist()]
            assert sorted(map(tuple, both)) == mine and len(p.x[p.rows(i, "test")]) == 0
    assert [len(p.x) for p in parts] == [int((clients.bounds[:, 2] - clients.bounds[:, 0]).sum())] * k
    one = Clients.from_parts([{"train": (np.ones((1, 2)), np.zeros(1, dtype=int))}] * 2)
    assert all(folds.held_back(one, 2, j, 0).counts("train").tolist() == [1, 1] for j in range(2))


def test_what_is_put_together_is_what_all_samples_say() -> None:
    """Merits of each sample by hand: mean, covariance and number over three folds of unequal size, one empty."""
    draw, names = np.random.default_rng(0), ("personal", "mix75", "mix50", "mix25", "global")
    merits = [{m: draw.normal(size=n) for m in names} for n in (4, 7, 0)]

    def told(of: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        n = len(of["personal"])
        mean = {m: np.array([v.mean() if n else np.nan]) for m, v in of.items()}
        out = {f"{m}/validation/merit": v for m, v in mean.items()}
        gaps = {m: v - of["personal"] for m, v in of.items()}
        for a in names[1:]:
            for b in names[1:]:
                value = ((gaps[a] - gaps[a].mean()) * (gaps[b] - gaps[b].mean())).mean() if n else np.nan
                out[covariance(a, b)] = np.array([value])
        return out | {"validation/samples": np.array([float(n)]), "personal/test/loss": np.array([0.1])}

    together = told({m: np.concatenate([f[m] for f in merits]) for m in names})
    with np.errstate(invalid="ignore"):
        found = folds.joined([told(f) for f in merits])
    assert found.keys() == together.keys() - {"personal/test/loss"}
    for name, value in found.items():
        np.testing.assert_allclose(value, together[name], rtol=1e-12, err_msg=name)


def test_the_delivered_models_are_trained_on_all_and_the_cost_is_counted() -> None:
    """Models to the bit those of a run whose validation samples train; gradients and bytes those of four runs."""
    clients, model = sized(), st.models.layers(5, 3)
    by_folds = st.fit(METHOD, model, clients, 2, evaluation=st.Evaluation(folds=3))
    whole = st.fit(METHOD, model, folds.whole(clients), 2)
    assert (by_folds.run.models()["client/personal"] == whole.run.models()["client/personal"]).all()
    assert by_folds.run.bytes_up == 4 * whole.run.bytes_up
    assert by_folds.run.counts["steps"] > 3 * whole.run.counts["steps"]
    assert by_folds.scores["validation/samples"].tolist() == (clients.bounds[:, 2] - clients.bounds[:, 0]).tolist()
    assert expected_gains(by_folds.scores) and not expected_gains(whole.scores)
    test = by_folds.scores["personal/test/accuracy"]
    assert np.array_equal(test, whole.scores["personal/test/accuracy"], equal_nan=True)
    warned = [w for w in by_folds.summary["warnings"] if "no client has validation data" in w]
    assert not warned and any("no client has validation data" in w for w in whole.summary["warnings"])


def test_a_run_that_goes_on_does_not_ask_the_folds_again(tmp_path: Path) -> None:
    good(*RUN, "--quiet", "--out", tmp_path / "A")
    killed(
        "from sartor.run.rounds import Run\nstep = Run.step\nplayed = []\ndef dying(run):\n"
        "    played.append(run)\n    if len(played) == 12:\n        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    step(run)\nRun.step = dying\n",
        *(*RUN, "--quiet", "--out", tmp_path / "B"),
    )
    assert (tmp_path / "B" / FOLDS).exists()
    good("run", "--resume", tmp_path / "B", "--quiet")
    a, b = (read_json(tmp_path / f / "summary.json") for f in "AB")
    assert {k: v for k, v in a.items() if k != "seconds"} == {k: v for k, v in b.items() if k != "seconds"}
    assert json.loads((tmp_path / "A" / "clients.json").read_text()) == read_json(tmp_path / "B" / "clients.json")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--folds", 1), "--folds takes 2 or more"),
        (("--dp-noise", 1.0, "--dp-clip", 1.0), "spend the privacy budget once for each fold"),
        (("--report", "best"), "--report best goes by validation samples"),
        (("--target-accuracy", 0.9), "--target-accuracy goes by validation samples"),
        (("--calibrate", "temperature"), "set by validation samples, and there are none"),
    ],
)
def test_what_does_not_go_with_folds_is_refused(more: tuple[object, ...], said: str) -> None:
    assert said in refused(*RUN, *more)


def test_folds_of_a_linear_model_are_played_in_lockstep(monkeypatch: pytest.MonkeyPatch) -> None:
    together = folds.play_together
    groups: list[int] = []

    def counted(plays: Sequence[Play]) -> Iterator[tuple[int, Result | SartorError]]:
        groups.append(len(plays))
        return together(plays)

    monkeypatch.setattr(folds, "play_together", counted)
    how = {"evaluation": st.Evaluation(folds=4, evaluate_every=3), "execution": st.Execution(workers=1)}
    stacked = st.fit(METHOD, layers(5, 3), sized(), 3, **how)  # type: ignore[arg-type]
    assert groups == [4]
    monkeypatch.setattr("sartor.run.play.at_once", lambda engine: 1)
    alone = st.fit(METHOD, layers(5, 3), sized(), 3, **how)  # type: ignore[arg-type]
    assert groups == [4] and stacked.run.counts == alone.run.counts and stacked.run.bytes_up == alone.run.bytes_up
    for name, value in alone.scores.items():
        np.testing.assert_allclose(stacked.scores[name], value, rtol=1e-6, atol=1e-6, err_msg=name)


def test_mixtures_are_scored_where_something_says_which_to_take() -> None:
    """By validation samples, or by folds; where there are neither everyone takes its personal model."""
    clients = sized()
    without = folds.whole(clients)

    def models(data: Clients, times: int = 0) -> set[str]:
        result = st.fit(METHOD, layers(5, 3), data, rounds=1, evaluation=st.Evaluation(folds=times))
        return {key.split("/")[0] for key in result.scores if key.endswith("/test/accuracy")} - {"chosen"}

    mixtures = {"mix75", "mix50", "mix25"}
    assert models(without) == {"personal", "global"}
    assert models(clients) == models(without, 2) == {"personal", "global"} | mixtures
