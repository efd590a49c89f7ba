"""Who is hostile, what stays as it was, and what is scored."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from attacked_runs import METHODS, SOLVER, fixed, messages, ready
from federations import quadratics, ragged
from subsets import diagonal

import sartor as st
from sartor import spelling
from sartor.errors import SartorError
from sartor.models import layers
from sartor.run.assemble import prepare
from sartor.run.named_parts import attack
from sartor.run.result import Result
from sartor.seeds import stream
from sartor.wrappers import Attack, hostile_clients
from sartor.wrappers.attacks import NAMES


def test_the_hostile_are_a_function_of_the_seed_and_nested_in_their_share() -> None:
    sets = [hostile_clients(50, share, seed=1) for share in (0.0, 0.1, 0.2, 0.5, 0.8)]
    assert [len(s) for s in sets] == [0, 5, 10, 25, 40]
    assert all(a < b for a, b in itertools.pairwise(sets))
    assert hostile_clients(50, 0.5, 1) == sets[3] != hostile_clients(50, 0.5, 2)
    counts = np.zeros(20)
    for seed in range(2000):
        counts[list(hostile_clients(20, 0.25, seed))] += 1
    assert np.abs(counts / 2000 - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 2000)


@pytest.mark.parametrize("share", [1.0, -0.1, float("nan"), float("inf"), 0.96, 0.04])
def test_refused_shares(share: float) -> None:
    with pytest.raises(SartorError, match="attackers"):
        hostile_clients(10, share, 0)


@pytest.mark.parametrize(("text", "name"), diagonal(NAMES, METHODS))
def test_benign_clients_are_untouched(text: str, name: str) -> None:
    """In the first round all are sent the same with and without attackers, so every benign bit must be the same."""
    clean, under = ready(name, "none", 0.0), ready(name, text)
    hostile = under.run.hostile
    assert hostile.sum() == 3
    before, after = messages(clean)[0], messages(under)[0]
    assert before.keys() == after.keys()
    different = False
    for k in before:
        assert torch.equal(before[k][~hostile], after[k][~hostile])
        different |= not torch.equal(before[k][hostile], after[k][hostile])
    assert different or name == "local" or (text == "alie" and name != "local")  # z = 0 for so few: see below
    for result in (clean, under):
        result.run.step()
    for k, v in clean.run.engine.save().items():
        assert torch.equal(v[~hostile], under.run.engine.save()[k][~hostile]), k
    for part in ("train", "validation", "test"):
        for i in np.flatnonzero(~hostile):
            rows = clean.data.rows(int(i), part)
            assert torch.equal(clean.data.y[rows], under.data.y[rows])
            assert torch.equal(clean.data.x[rows], under.data.x[rows])


def play(result: Result, rounds: int = 3) -> Result:
    for _ in range(rounds):
        result.run.step()
    result.run.evaluate(diagnose=True)
    return result


def equal(a: Result, b: Result, tolerance: float = 0.0) -> None:
    assert a.run.method.hostile == b.run.method.hostile
    for x, y in ((a.run.engine.save(), b.run.engine.save()), (a.run.scores, b.run.scores)):
        for k in x:
            one, two = torch.as_tensor(x[k]), torch.as_tensor(y[k])
            torch.testing.assert_close(one, two, atol=tolerance, rtol=tolerance, equal_nan=True)
    w = [r.run.method.shared(r.run.server) for r in (a, b)]
    if w[0] is not None:
        torch.testing.assert_close(w[0], w[1], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("text", "name"), diagonal(["gaussian", "alie(z=1)", "scaled-poison(std=0.5)", "gradient-flip"], METHODS)
)
@pytest.mark.filterwarnings("ignore:3 workers")
def test_engine_chunks_and_workers_change_nothing(text: str, name: str) -> None:
    options = {"cohort": 5, "drop": 0.2, "stragglers": 0.3}
    one = play(ready(name, text, **options))
    for more in ({"engine": "serial"}, {"chunk": 1}, {"chunk": 3, "workers": 3}):
        equal(one, play(ready(name, text, **options, **more)), 1e-8)
    equal(one, play(ready(name, text, **options)))


@pytest.mark.parametrize("name", ["flame", "pfedme", "fedamp", "fedavg"])
@pytest.mark.parametrize("store", [False, True], ids=["memory", "disk"])
def test_a_resumed_run_equals_an_unbroken_one(name: str, store: bool, tmp_path: Path) -> None:
    def make(folder: str) -> Result:
        place = tmp_path / folder if store else None
        return ready(name, "gaussian", cohort=4, drop=0.2, stragglers=0.5, store=place)

    whole = make("a")
    for _ in range(5):
        whole.run.step()
    broken = make("b")
    for _ in range(3):
        broken.run.step()
    assert broken.run.late is not None  # so that the test tests something
    broken.run.save(tmp_path / "state", "same")
    broken.run.step()
    again = make("b")
    again.run.restore(tmp_path / "state", "same")
    again.run.step()
    again.run.step()
    assert again.run.counts == whole.run.counts
    for result in (whole, again):
        result.run.evaluate(diagnose=False)
    for k, v in whole.run.scores.items():
        np.testing.assert_array_equal(v, again.run.scores[k])


def test_scores_are_of_benign_clients_only() -> None:
    result = st.fit(
        st.FLAME(solver=SOLVER),
        layers(5, 4),
        fixed(),
        2,
        evaluation=st.Evaluation(evaluate_every=1),
        attack=st.Attacked(attack=attack("same-value"), attackers=0.5),
    )
    rows, summary = result.clients, result.summary
    assert sum(r["hostile"] for r in rows) == summary["hostile"] == 6
    benign = [r["personal_test_accuracy"] for r in rows if not r["hostile"]]
    assert summary["personal"]["accuracy_mean"] == pytest.approx(np.mean(benign))
    assert summary["personal"]["clients_scored"] == 6
    assert all(r["personal_test_accuracy"] is None for r in rows if r["hostile"])
    assert summary["attack"] == "same-value" and summary["attackers"] == 0.5
    assert "(hostile)" in result.table()


def test_attackers_without_an_attack_are_only_left_out() -> None:
    """So that a clean run can be compared on the very clients that are benign under attack."""
    runs = [
        st.fit(
            st.FedAvg(solver=SOLVER),
            layers(5, 4),
            fixed(),
            2,
            attack=st.Attacked(attackers=share, attack="none"),
        )
        for share in (0.0, 0.5)
    ]
    assert torch.equal(*(r.run.server["w"] for r in runs))
    left = ~runs[1].run.hostile
    np.testing.assert_array_equal(
        runs[0].scores["global/test/accuracy"][left], runs[1].scores["global/test/accuracy"][left]
    )
    assert np.isnan(runs[1].scores["global/test/accuracy"][~left]).all()
    assert runs[1].summary["attack"] == "none"


class Poison(Attack):
    """Sends NaN, Inf, or numbers whose square is none."""

    def message(self, honest: torch.Tensor, base: torch.Tensor, draw: np.random.Generator, cohort: int) -> torch.Tensor:
        bad = honest.clone()
        bad[0] = draw.choice([np.nan, np.inf, -np.inf, 1e300])
        return bad


@pytest.mark.parametrize("name", METHODS)
def test_a_message_that_is_no_number_is_left_out_and_counted(name: str) -> None:
    """The server's state is as if the hostile had not answered at all, and the run goes on."""
    result = prepare(
        METHODS[name],
        layers(5, 6, 3),
        ragged(),
        seed=3,
        execution=st.Execution(dtype=torch.float64),
        attack=st.Attacked(attack=Poison(), attackers=0.4),
    )
    run = result.run
    benign = torch.from_numpy(np.flatnonzero(~run.hostile))
    alone = ready(name, "none", 0.0).run
    for r in range(3):
        run.step()
        down = alone.method.downlink(alone.server, torch.arange(7), r)
        _, sent = alone.engine.map("train", r, torch.arange(7), down)
        weights = alone.method.client_weights(alone.problem.share[benign])
        alone.server = alone.method.server(alone.server, benign, {k: v[benign] for k, v in sent.items()}, weights, r)
    assert run.counts["excluded"] == (0 if name == "local" else 9)
    run.evaluate(diagnose=True)
    assert run.history[-1]["excluded"] == run.counts["excluded"]
    shared = run.method.shared(run.server)
    if shared is not None:
        assert torch.isfinite(shared).all() and torch.equal(shared, alone.server["w"])


def test_a_hostile_client_that_overflows_stops_nobody_and_an_honest_one_does() -> None:
    world = quadratics(m=6)
    method = st.FedAvg(solver=st.SGD(lr=1e200, steps=4))
    run = prepare(
        method,
        world.model(),
        world.clients,
        execution=st.Execution(dtype=torch.float64),
        attack=st.Attacked(attack=attack("gradient-flip"), attackers=0.5),
    ).run
    with pytest.raises(st.Diverged):
        run.step()
    run.method.hostile = frozenset(range(6))
    run.step()
    assert run.counts["excluded"] == 6 and run.counts["skipped"] == 1


def test_hostile_streams_do_not_meet_those_of_others() -> None:
    """A draw for an attack is another than the batches' or the cohort's of the same round and client."""
    draws = [stream(3, p, 1, 2).random() for p in ("attack w", "attack u", "batches 0", "cohort", "hostile", "labels")]
    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize("text", [*NAMES, "sign-flip(std=3, like=lp-proj)", "dirty-labels(0.4)", "alie(z=1.5)"])
def test_text_gives_the_attack_back(text: str) -> None:
    made = attack(text)
    assert made is not None and attack(spelling.write(NAMES, made)) == made
    assert attack("none") is None
