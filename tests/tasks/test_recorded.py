"""Recorded operations: the same numbers as the function itself, to the bit, whatever changes between the calls."""

from __future__ import annotations

import copy
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from sartor.core import Batch
from sartor.tasks.recorded import _OFTEN, Traced
from sartor.tasks.task import ModelTask


def unusual() -> nn.Module:
    """A model that has no hand-written gradient, with random layers and layers that know their batch."""
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Dropout(0.4), nn.BatchNorm1d(5), nn.Linear(5, 3))


def batch(clients: int, step: int) -> Batch:
    draw = torch.Generator().manual_seed(step)
    x = torch.randn(clients, 8, 6, generator=draw, dtype=torch.float64)
    y = torch.randint(0, 3, (clients, 8), generator=draw)
    return Batch(x, y, torch.full((clients, 8), 1 / 8, dtype=torch.float64), torch.arange(clients) + step)


def theta(task: ModelTask, clients: int) -> Tensor:
    draw = torch.Generator().manual_seed(clients)
    return torch.randn(clients, task.size, generator=draw, dtype=torch.float64)


def test_recorded_gradients_are_those_of_the_function() -> None:
    task = ModelTask(unusual().double())
    for step in range(2 * _OFTEN + 2):
        for clients, train in ((4, True), (3, True), (4, False)):
            now, b = theta(task, clients), batch(clients, step)
            assert torch.equal(task.grad(now, b, train), task._grad_by_vmap(train, now, *b))
    assert len(task._stacked_grad.recorded) == 3  # two shapes with random layers, one without
    other = copy.deepcopy(task)  # as the engine makes one for each of its threads
    assert other._stacked_grad.function.__self__ is other  # type: ignore[attr-defined]


def test_what_cannot_be_recorded_is_called() -> None:
    def looks_at_values(switch: bool, x: Tensor) -> Tensor:
        return 2 * x if x.sum() > 0 else -x

    f = Traced(looks_at_values, compile=False)
    for value in [1.0] * (_OFTEN + 3) + [-1.0]:
        assert torch.equal(f(True, torch.full((2,), value)), torch.full((2,), 2 * value if value > 0 else 1.0))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("default")  # PyTorch's own, of its compiler
def test_compiled_gradients_agree() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    plain, fast = ModelTask(model), ModelTask(model, compile=True)
    now, b = theta(plain, 4), batch(4, 0)
    torch.testing.assert_close(fast.grad(now, b), plain.grad(now, b), rtol=1e-10, atol=1e-12)
    assert len(fast._stacked_grad.recorded) == 1


def test_threads_that_record_at_once_leave_nothing_standing() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()

    def play(seed: int) -> None:
        task = ModelTask(model)
        for _ in range(6):
            task.grad(theta(task, 4), batch(4, seed))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(play, range(24)))
    assert not torch.fx._symbolic_trace.is_fx_tracing()  # else nothing could be compiled any more
