"""A given number of gradients per client and round: every method takes exactly so many, and none is miscounted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from every_method import METHODS, SOLVER, make
from method_runs import FULL, play, shared, states

import sartor as st
from sartor.core import Back, Batch, Method
from sartor.errors import SartorError
from sartor.tasks import compiled
from sartor.tasks.convex import OneLayer
from sartor.tasks.task import ModelTask
from sartor.testing import SIZES, ragged, start
from sartor.wrappers.dynamic_lam import DynamicLam

STEPS = 12  # goes into twos, threes and fours
# The methods (with the settings of every_method.py) whose gradients are not a number that can be chosen, and why.
OWN = {
    "mocha": "dual coordinate steps",
    "l2gd": "coin",
    "fedlbfgs": "gradients over all",
    **dict.fromkeys(("mixed-effects", "random-intercept", "own-intercept", "fednewton"), "solve to the end"),
    "scaffold": "option I takes a pass",  # with momentum, which option II does not allow
    "ditto-scaffold": "option I takes a pass",
    "flame-inexact": "the inexact solver",
    "fedadmm-size": "the inexact solver",
    "mapper-inexact": "the inexact solver",
}


class Counter:
    """Gradients at the task itself, which knows nothing of a stack's own count; one client at a time."""

    def __init__(self) -> None:
        self.batches, self.passes, self.inside = 0, 0, False


@contextmanager
def counted() -> Iterator[Counter]:
    """What every task computes meanwhile; a gradient that takes others does not count them again."""
    found = Counter()
    grad, descend_, vjp, one_layer = ModelTask.grad, ModelTask.descend_, ModelTask.vjp, OneLayer.grad

    def counting_grad(task: ModelTask, theta: torch.Tensor, batch: Batch, train: bool = True) -> torch.Tensor:
        if not found.inside:
            found.batches, found.passes = found.batches + train, found.passes + (not train)
        return grad(task, theta, batch, train)

    def counting_descent(task: ModelTask, *arguments: Any) -> None:
        found.batches, found.inside = found.batches + 1, True
        descend_(task, *arguments)
        found.inside = False

    def counting_vjp(task: ModelTask, theta: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, Back]:
        outputs, back = vjp(task, theta, batch)

        def again(slope: torch.Tensor) -> torch.Tensor:
            found.batches += 1
            return back(slope)

        return outputs, again

    def counting_pass(layer: OneLayer, theta: torch.Tensor) -> torch.Tensor:
        found.passes += 1
        return one_layer(layer, theta)

    with (
        mock.patch.object(OneLayer, "grad", counting_pass),
        mock.patch.object(ModelTask, "grad", counting_grad),
        mock.patch.object(ModelTask, "descend_", counting_descent),
        mock.patch.object(ModelTask, "vjp", counting_vjp),
        mock.patch.object(compiled, "available", lambda: False),  # steps that no task computes
    ):
        yield found


def batch_of(method: Method) -> int:
    return int(getattr(getattr(method, "solver", None), "batch", None) or 20)


@pytest.mark.parametrize("name", METHODS)
def test_the_count_of_a_round_is_the_task_s_own(name: str) -> None:
    """One client at a time: minibatches, and passes over all data as the batches that they consist of."""
    method = make(name)
    run = start(method, "serial", cohort=1)
    for _ in range(4):
        before = run.engine.visits.clone()  # type: ignore[attr-defined]
        was = run.counts["steps"]
        with counted() as found:
            run.step()
        asked = torch.nonzero(run.engine.visits - before)[:, 0].tolist()  # type: ignore[attr-defined]
        if found.passes:
            assert len(asked) == 1, "a pass counts as many batches as the client has"
        each = -(-SIZES[asked[0]] // batch_of(method))
        assert run.counts["steps"] - was == found.batches + found.passes * each
    assert method.models != "any" or run.counts["steps"] > 0


@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_exactly_the_steps_it_is_given(name: str) -> None:
    method = make(name)
    if name in OWN:
        assert OWN[name] in method.unsplit()
        with pytest.raises(SartorError, match="Leave local_steps out"):
            method.spending(STEPS)
        return
    spent = method.spending(STEPS)
    assert type(spent) is type(method) and spent.unsplit() == method.unsplit() == ""
    run = start(spent)
    for played in range(1, 3):
        run.step()
        assert run.counts["steps"] == STEPS * run.counts["trained"] > 0
        assert run.counts["trained"] == played * (7 if method.train_all else 4)


@pytest.mark.parametrize("name", [m for m in METHODS if m not in OWN])
def test_splitting_again_changes_nothing(name: str) -> None:
    """So a complete recipe, which holds both the steps and what they were split into, is read again."""
    for steps in (STEPS, 20, 44):
        spent = make(name).spending(steps)
        assert spent.spending(steps) == spent != make(name)


@pytest.mark.parametrize(
    ("method", "few", "least"),
    [
        (st.PFedMe(), 0, 1),
        (st.FLAME(), 0, 1),
        (st.LpProj(), 0, 1),
        (st.Ditto(), 1, 2),
        (st.FedRep(), 1, 2),
        (st.FedALA(), 1, 2),
        (st.Mapper(), 2, 3),
        (st.APFL(), 2, 3),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Method) else str(v),
)
def test_fewer_steps_than_a_method_has_loops_are_refused_with_the_least(method: Method, few: int, least: int) -> None:
    with pytest.raises(SartorError, match=f"needs local_steps >= {least}.*got {few}"):
        method.spending(few)
    method.spending(least)


@pytest.mark.parametrize(
    ("method", "steps", "near"),
    [
        (st.PerFedAvg(), 10, "multiple of 4; got 10, take 8 or 12"),
        (st.PerFedAvg(variant="FO"), 7, "multiple of 2; got 7, take 6 or 8"),
        (st.PerFedAvg(), 3, "multiple of 4; got 3, take 4"),
        (st.APFL(alpha_lr=0.0), 5, "multiple of 2; got 5, take 4 or 6"),
        (st.FedRoD(), 5, "multiple of 2; got 5, take 4 or 6"),
        (DynamicLam(st.Ditto(), (0.1, 1.0, 2.0)), 10, "multiple of 3; got 10, take 9 or 12"),
        (DynamicLam(st.Ditto(), (0.1, 1.0, 2.0)), 3, "Ditto needs local_steps >= 2.*Each of the 3 candidates"),
    ],
)
def test_steps_that_do_not_go_into_whole_ones_are_refused_with_the_nearest(
    method: Method, steps: int, near: str
) -> None:
    with pytest.raises(SartorError, match=near):
        method.spending(steps)


def test_how_steps_are_split() -> None:
    def pfedme(steps: int) -> tuple[int, int | None]:
        found: Any = st.PFedMe().spending(steps)
        return found.R, found.solver.steps

    assert [pfedme(n) for n in (50, 10, 12, 7, 1, 13)] == [(10, 5), (2, 5), (3, 4), (1, 7), (1, 1), (13, 1)]
    ditto: Any = st.Ditto().spending(7)
    assert (ditto.global_solver.steps, ditto.solver.steps) == (3, 4)
    uneven: Any = st.Ditto(solver=st.SGD(steps=9), global_solver=st.SGD(steps=3)).spending(8)
    assert (uneven.global_solver.steps, uneven.solver.steps) == (2, 6)
    inner: Any = st.Ditto(global_method=st.PFedMe()).spending(20)
    assert (inner.global_method.R, inner.global_method.solver.steps, inner.solver.steps) == (2, 5, 10)
    lp: Any = st.LpProj(R=4).spending(12)
    assert (lp.R, lp.solver.steps) == (4, 3)
    tuned: Any = st.FedAvg(finetune=st.SGD(epochs=5)).spending(9)
    assert (tuned.solver.steps, tuned.finetune.steps, tuned.finetune.epochs) == (9, 9, 1)
    early: Any = st.FedAvg(finetune=st.Early()).spending(9)
    assert early.finetune == st.Early() and early.solver.steps == 9
    mapper: Any = st.Mapper(lambdas=(0.0, 0.5, 1.0)).spending(11)
    assert (mapper.solver.steps, mapper.central_solver.steps) == (3, 5)
    assert st.SCAFFOLD().spending(6) == st.SCAFFOLD(option="II", solver=st.SGD(steps=6))


def test_wrapped_methods_hand_the_number_on() -> None:
    from sartor.wrappers import Attack, Compressed, Hostile, Privacy, Private, Reporting

    ditto, spent = st.Ditto(), st.Ditto().spending(8)
    for wrapped in (
        Private(ditto, Privacy(noise=1.0), 4, 0),
        Hostile(ditto, Attack(), frozenset({1}), 0, 4),
        Compressed(ditto, None, None, 0),
        Reporting(ditto, True),
    ):
        again: Any = wrapped.spending(8)
        assert type(again) is type(wrapped) and again.method == spent and wrapped.method == ditto
    assert DynamicLam(ditto, (0.1, 1.0)).spending(16) == DynamicLam(spent, (0.1, 1.0))


def test_every_candidate_for_lambda_counts() -> None:
    run = start(DynamicLam(st.Ditto(), (0.1, 1.0, 2.0)).spending(12))
    run.step()
    assert run.counts["steps"] == 12 * run.counts["trained"]


@pytest.mark.parametrize("solver", [st.Inexact(lr=0.2, eps=0.05, max_steps=20), st.Early(patience=1, epochs=6)])
def test_who_has_stopped_is_not_counted_while_others_of_its_stack_go_on(solver: Any) -> None:
    """The count is the client's own, not that of the clients that are computed beside it."""
    together, alone = (
        play(st.FLAME(solver=solver), 3, engine=kind).run.counts["steps"] for kind in ("local", "serial")
    )
    most = play(st.FLAME(solver=st.Inexact(lr=0.2, eps=1e-9, max_steps=20)), 3).run.counts["steps"]
    assert 0 < together == alone < most


def test_an_attacker_s_own_gradients_are_no_work() -> None:
    """To flip gradients one takes them a second time; nobody's count may double by that."""
    plain, attacked = (
        play(st.FedAvg(), 2, **who).run.counts for who in ({}, {"attack": st.attacks.GradientFlip(), "attackers": 0.3})
    )
    assert plain["steps"] == attacked["steps"] == 2 * (1 + 1 + 1 + 1 + 2 + 2 + 3)


def test_alpha_of_one_batch_that_holds_all_data_is_alpha_of_all_data() -> None:
    solver = st.SGD(lr=0.1, steps=3, batch=FULL)
    whole, batch = (play(st.APFL(solver=solver, alpha_batches=b), 4) for b in (None, 1))
    np.testing.assert_allclose(states(batch)["alpha"], states(whole)["alpha"], atol=1e-12)
    np.testing.assert_allclose(shared(batch), shared(whole), atol=1e-12)
    assert not np.allclose(shared(whole), shared(play(st.APFL(solver=SOLVER), 4)))
    with pytest.raises(SartorError, match="alpha_batches >= 1"):
        st.APFL(alpha_batches=0)


def test_training_alone_needs_nobody_s_invitation() -> None:
    """Every client trains in every round, whatever the cohort; nothing is sent."""
    few, all_ = (play(st.LocalOnly(), 3, cohort=c) for c in (1, 7))
    assert few.run.counts["trained"] == all_.run.counts["trained"] == 21
    torch.testing.assert_close(states(few)["theta"], states(all_)["theta"], rtol=0, atol=0)
    assert few.run.bytes_up == few.run.bytes_down == 0


def test_fit_takes_the_number_and_a_summary_says_it() -> None:
    from sartor.models import layers

    tuned = st.FedAvg(finetune=st.SGD())
    summary = st.fit(tuned, layers(5, 6, 3), ragged(), 3, local_steps=6, federation=st.Federation(cohort=7)).summary
    assert summary["local_steps"] == 6 and summary["own_work"] is None
    assert summary["gradients_per_client"] == {"training": 18.0, "finetuning": 6.0, "total": 24.0}
    own = st.fit(st.FLAME(solver=st.Inexact()), layers(5, 6, 3), ragged(), 1)
    assert own.summary["local_steps"] is None and "inexact" in own.summary["own_work"]
    assert own.history[-1]["gradients_per_client"] == own.summary["gradients_per_client"]
