"""Small runs of one method, and what they leave: for tests that hold a method against an answer known without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from federations import Quadratics, ragged
from groups import grouped
from torch import Tensor, nn
from torch.func import functional_call

import sartor as st
from sartor.client_table import Rows
from sartor.core import Method
from sartor.engines.stack import Stack
from sartor.models import layers
from sartor.tasks.task import ModelTask

EXACT = st.Exact()
SGD = st.SGD(lr=0.1, epochs=2, batch=7, momentum=0.5, weight_decay=0.01)
FULL = 10_000  # a batch that holds all of a client's data


def one_step(lr: float) -> st.SGD:
    return st.SGD(lr=lr, steps=1, batch=FULL)


def play(method: Method, rounds: int = 4, model: nn.Module | None = None, **options: Any) -> st.Result:
    return st.fit(
        method,
        model or layers(5, 6, 3),
        options.pop("clients", ragged()),
        rounds,
        **grouped(dtype=torch.float64, evaluate_every=rounds, diagnostics=False, **options),
    )


# --- what a run leaves ------------------------------------------------------------------------------------------------


def states(result: st.Result) -> dict[str, Tensor]:
    return {k.removeprefix("state/"): v for k, v in result.run.engine.save().items()}


def state(result: st.Result, name: str) -> np.ndarray:
    return states(result)[name].numpy()


def shared(result: st.Result) -> np.ndarray:
    w = result.run.server["w"]
    return (w.whole() if isinstance(w, Rows) else w).numpy()


def personal(result: st.Result) -> np.ndarray:
    return result.run.query_clients("personal")["personal"].numpy()


# --- answers known without it -----------------------------------------------------------------------------------------


def optimum(q: Quadratics, weights: np.ndarray | None = None) -> np.ndarray:
    weights = np.full(q.m, 1 / q.m) if weights is None else weights
    return np.linalg.solve(np.einsum("i,ijk->jk", weights, q.A), weights @ q.b)


def lp_proj_2_fixed_point(q: Quadratics, lam: float, P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    inverse = np.linalg.inv(q.A + lam * P.T @ P)
    left = np.eye(len(P)) - lam * np.mean(P @ inverse @ P.T, axis=0)
    w = np.linalg.solve(left, np.mean(np.einsum("kd,ide,ie->ik", P, inverse, q.b), axis=0))
    return w, np.einsum("ijk,ik->ij", inverse, q.b + lam * P.T @ w)


# --- gradients by plain PyTorch ---------------------------------------------------------------------------------------


def stack_of(clients: st.Clients, model: nn.Module, loss: str = "cross-entropy", seed: int = 0) -> Stack:
    """All clients, by falling size, in double precision."""
    clients = clients.to(dtype=torch.float64)
    ids = np.argsort(-clients.counts("train"), kind="stable")
    return Stack(ModelTask(model.double(), loss), clients, ids, torch.ones(len(ids)), 0, seed)


def quadratic_stack(q: Quadratics, visits: int = 1) -> Stack:
    """The clients of a quadratic federation, by falling size."""
    ids = np.argsort(-q.clients.counts("train"), kind="stable")
    task = ModelTask(q.model().double(), "squared")
    return Stack(task, q.clients.to(dtype=torch.float64), ids, torch.full((q.m,), visits), 0, 0)


def random(*shape: int) -> Tensor:
    return torch.as_tensor(np.random.default_rng(sum(shape)).normal(size=shape))


def random_models(local: Stack, seed: int = 0, scale: float = 0.5) -> Tensor:
    rng = np.random.default_rng(seed)
    return torch.as_tensor(scale * rng.normal(size=(len(local.ids), local.task.size)))


def client_batch(local: Stack, i: int, part: str = "train") -> tuple[Tensor, Tensor]:
    rows = local.data.rows(int(local.ids[i]), part)
    return local.data.x[rows], local.data.y[rows]


def autograd_loss(local: Stack, i: int, theta: Tensor) -> Tensor:
    """f_i(θ) of the i-th client of the stack."""
    task = local.task
    assert isinstance(task, ModelTask)
    x, y = client_batch(local, i)
    output = functional_call(task.original, dict(zip(task.names, task.unflatten(theta), strict=True)), (x,))
    return nn.functional.cross_entropy(output, y)
