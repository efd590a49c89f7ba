"""Solvers against PyTorch's own, against each other, and against their stopping rules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics, ragged
from method_runs import quadratic_stack, random, random_models, stack_of
from torch import Tensor

import sartor as st
from sartor.core import ClientStack
from sartor.couplings import Free, Quadratic
from sartor.engines.stack import Stack
from sartor.errors import SartorError
from sartor.models import layers
from sartor.solvers import Solver
from sartor.tasks.task import ModelTask

DOUBLE = torch.float64


def one_client(client: int = 5) -> Stack:
    return Stack(
        ModelTask(layers(5, 4, 3).to(DOUBLE)), ragged().to(dtype=DOUBLE), np.array([client]), torch.ones(1), 0, 0
    )


@pytest.mark.parametrize(
    ("solver", "theirs"),
    [
        (st.SGD(lr=0.1, epochs=3, batch=7), lambda p: torch.optim.SGD(p, 0.1)),
        (
            st.SGD(lr=0.1, epochs=2, batch=7, momentum=0.9, weight_decay=0.02),
            lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.02),
        ),
        (st.SGD(lr=0.1, steps=5, batch=7), lambda p: torch.optim.SGD(p, 0.1)),
        (st.Adam(lr=0.01, epochs=3, batch=7, weight_decay=0.1), lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1)),
    ],
)
def test_solvers_step_like_pytorch_s(solver: Solver, theirs: object) -> None:
    s = one_client()
    start, anchor, lam = s.task.init(1), s.task.init(2), 0.3
    ours = solver.minimise(s, start[None], Quadratic(lam, anchor[None]))
    theta = start.clone().requires_grad_()
    assert callable(theirs)
    optimiser = theirs([theta])
    schedule = {"epochs": solver.epochs, "steps": solver.steps}  # type: ignore[attr-defined]
    for _, batch in s.batches(7, **schedule):
        optimiser.zero_grad()
        (s.task.loss(theta[None], batch).sum() + lam / 2 * ((theta - anchor) ** 2).sum()).backward()
        optimiser.step()
    torch.testing.assert_close(ours[0], theta.detach())
    assert torch.equal(start, s.task.init(1))  # the start is left as it was


@pytest.mark.parametrize("solver", [st.SGD, st.Adam])
def test_steps_become_shorter_from_round_to_round(solver: type[st.SGD] | type[st.Adam]) -> None:
    """In round 3 a decay of 1/2 has made the step an eighth of the first."""
    s = one_client()
    s.round = 3
    start = s.task.init(1)[None]
    ours = solver(lr=0.1, steps=4, batch=7, decay=0.5).minimise(s, start, Free())
    assert torch.equal(ours, solver(lr=0.0125, steps=4, batch=7).minimise(s, start, Free()))
    assert not torch.equal(ours, solver(lr=0.1, steps=4, batch=7).minimise(s, start, Free()))
    for bad in (0.0, 1.1, float("nan")):
        with pytest.raises(st.SartorError, match="a decay above 0 and up to 1"):
            solver(decay=bad)


def test_reuse_takes_all_steps_on_one_batch() -> None:
    s = one_client()
    start = s.task.init(1)[None]
    ours = st.SGD(lr=0.1, steps=4, batch=7, reuse=True).minimise(s, start, Free(), start=2)
    _, batch = next(iter(s.batches(7, steps=1, start=2)))
    theta = start.clone()
    for _ in range(4):
        theta = theta - 0.1 * s.grad(theta, batch)
    torch.testing.assert_close(ours, theta)


def test_exact_and_long_gradient_descent_agree() -> None:
    q = quadratics()
    s = quadratic_stack(q)
    coupling = Quadratic(0.5, random(q.m, q.d))
    exact = st.Exact().minimise(s, torch.zeros(q.m, q.d, dtype=DOUBLE), coupling)
    slow = st.SGD(lr=0.2, steps=3000, batch=1000).minimise(s, torch.zeros(q.m, q.d, dtype=DOUBLE), coupling)
    torch.testing.assert_close(exact, slow, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("visits", [1, 4])
def test_inexact_stops_when_and_only_when_equation_17_holds(visits: int) -> None:
    q = quadratics()
    s = quadratic_stack(q, visits)
    coupling, solver = Quadratic(0.5, random(q.m, q.d)), st.Inexact(lr=0.1, eps=1e-3, shrink=0.1, max_steps=5000)
    theta = solver.minimise(s, torch.zeros(q.m, q.d, dtype=DOUBLE), coupling)

    def gap(theta: Tensor) -> Tensor:
        g = s.full_grad(theta)
        coupling.add_grad_(g, theta)
        return g.square().sum(1)

    assert float(gap(theta).max()) <= 1e-3 * 0.1 ** (visits - 1)
    assert float(gap(theta).min()) > 1e-3 * 0.1 ** (visits - 1) * 0.1  # and no further than asked


@pytest.mark.parametrize("stream", [0, 3])  # on other minibatches steps of 0.1 go to and fro over a kink for ever
def test_inexact_on_a_minibatch_stops_when_and_only_when_pfedme_s_8_holds(stream: int) -> None:
    """Each client on its own minibatch D, until ‖∇(f_i(·; D) + λ/2 ‖· − w‖²)‖² ≤ ν; its steps are counted."""
    local, nu, lr = stack_of(ragged(), layers(5, 4, 3)), 1e-3, 0.1
    start = random_models(local, 3)
    coupling, solver = Quadratic(0.5, 0 * start), st.Inexact(lr=lr, eps=nu, shrink=1.0, max_steps=5000, batch=6)
    before = local.gradients()
    theta = solver.minimise(local, start, coupling, start=2, stream=stream)
    taken = local.gradients() - before
    _, D = next(local.batches(6, steps=1, start=2, stream=stream))

    def slope(theta: Tensor) -> Tensor:
        g = local.grad(theta, D)
        coupling.add_grad_(g, theta)
        return g

    steps = np.zeros(len(start), dtype=np.int64)
    by_hand = start.clone()
    for i in range(len(start)):  # one client after the other, step by step
        while float((g := slope(by_hand))[i].square().sum()) > nu:
            by_hand[i] -= lr * g[i]
            steps[i] += 1
            assert steps[i] < 5000
    torch.testing.assert_close(theta, by_hand)
    assert float(slope(theta).square().sum(1).max()) <= nu and len(set(steps.tolist())) > 1
    assert taken.tolist() == (steps + 1).tolist()  # and the gradient that told it to stop


def test_inexact_on_all_data_is_what_a_minibatch_of_all_data_gives() -> None:
    q = quadratics()
    coupling, start = Quadratic(0.5, random(q.m, q.d)), torch.zeros(q.m, q.d, dtype=DOUBLE)
    tight = {"lr": 0.1, "eps": 1e-22, "shrink": 1.0, "max_steps": 5000}
    near = st.Inexact(**tight, batch=1000).minimise(quadratic_stack(q), start, coupling)
    torch.testing.assert_close(near, st.Exact().minimise(quadratic_stack(q), start, coupling), atol=1e-9, rtol=0)
    with pytest.raises(SartorError, match="batch >= 1"):
        st.Inexact(batch=0)
    with pytest.raises(SartorError, match="shrink above 0 and up to 1"):
        st.Inexact(shrink=1.5)


def local_protocol(s: Stack) -> ClientStack:
    return s  # the type checker's proof that a Stack is what methods are promised


def test_early_stopping_keeps_the_best_epoch_on_validation() -> None:
    local = stack_of(ragged(), layers(5, 6, 3))
    start, epochs = random_models(local, 7), 12
    early = st.Early(lr=0.3, epochs=epochs, patience=3, batch=7)
    ours = early.minimise(local, start, Free(), stream=1)
    theta, trail = start, [start]
    for e in range(epochs):
        theta = st.SGD(lr=0.3, batch=7).minimise(local, theta, Free(), stream=1 + 1000 * e)
        trail.append(theta)
    losses = torch.stack([local.validation(t)[1] for t in trail])  # [epochs + 1, c]
    kept = set()
    for i in range(7):
        best = 0
        for e in range(1, epochs + 1):
            if losses[e, i] < losses[best, i]:
                best = e
            elif e - best >= 3:
                break
        torch.testing.assert_close(ours[i], trail[best][i])
        kept.add(best)
    assert len(kept) > 2  # clients did stop at different epochs
