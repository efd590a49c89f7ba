"""Who is hostile, and a method in which they attack while everybody else does what the method says."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ...core import Batch, ClientStack, Method, Plan, Pull, Server, State
from ...errors import need
from ...seeds import stream
from ..base import Wrapper, sent
from .attack import Attack


def check_attackers(share: float) -> None:
    """Refuse what is no share of attackers."""
    need(0 <= share < 1, f"attackers is a share of clients in [0, 1), as somebody must be benign; got {share}.")


def hostile_clients(m: int, share: float, seed: int) -> frozenset[int]:
    """The share of m clients that is hostile, a function of the seed; those of a smaller share are among them."""
    check_attackers(share)
    count = math.floor(share * m + 0.5)
    need(count > 0 or share == 0, f"attackers = {share:g} of {m} clients is nobody; take at least {0.5 / m:.3g}, or 0.")
    need(count < m, f"attackers = {share:g} of {m} clients is all of them; take at most {(m - 0.6) / m:.3g}.")
    return frozenset(stream(seed, "hostile").permutation(m)[:count].tolist())


class Hostile(Wrapper):
    """`method` with clients that attack. Benign clients' data, gradients, states and messages stay as they are."""

    def __init__(self, method: Method, attack: Attack, hostile: frozenset[int], seed: int, cohort: int) -> None:
        super().__init__(method)
        self.attack, self.hostile, self.seed, self.cohort = attack, hostile, seed, cohort
        self._ids = np.array(sorted(hostile), dtype=np.int64)

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        here = np.flatnonzero(np.isin(local.ids, self._ids))
        if len(here) == 0:
            return self.method.client(state, down, local)
        rows = torch.from_numpy(here)
        if self.attack.gradient is not None:
            local = Tampered(local, rows, self.attack.gradient)
        new, messages = self.method.client(state, down, local)
        for key, honest in messages.items():
            if honest.dim() > 1:
                messages = messages | {key: self._own(key, honest, sent(key, honest, down), local, here)}
        return new, messages

    def _own(self, key: str, honest: Tensor, base: Tensor, local: ClientStack, here: np.ndarray) -> Tensor:
        """The messages with those of the hostile rows `here` replaced by what they send instead."""
        out = honest.clone()
        for i in here.tolist():
            draw = stream(self.seed, f"attack {key}", local.round, int(local.ids[i]))
            out[i] = self.attack.message(honest[i], base[i], draw, self.cohort)
        return out

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        """The attackers see all messages before the server does."""
        mask = torch.from_numpy(np.isin(ids.cpu().numpy(), self._ids)).to(ids.device)
        if self.attack.sees_all and bool(mask.any()) and not bool(mask.all()):
            down = self.method.downlink(server, ids, round)
            for key, honest in messages.items():
                if honest.dim() > 1:
                    out = honest.clone()
                    out[mask] = self.attack.together(honest, sent(key, honest, down), mask)
                    messages = messages | {key: out}
        return self.method.server(server, ids, messages, weights, round)


class Tampered:
    """A stack of clients whose hostile rows have their gradients multiplied by `factor`."""

    def __init__(self, local: ClientStack, rows: Tensor, factor: float) -> None:
        self._local, self._rows, self._factor = local, rows, factor
        self.round, self.clients, self.ids = local.round, local.clients, local.ids
        self.share, self.visits, self.samples, self.kind = local.share, local.visits, local.samples, local.kind

    def _tamper(self, g: Tensor) -> Tensor:
        """In place: the stack's first len(g) rows are at work."""
        g[self._rows[self._rows < len(g)]] *= self._factor
        return g

    def batches(
        self, size: int, *, epochs: int = 1, steps: int | None = None, start: int = 0, stream: int = 0
    ) -> Iterator[tuple[int, Batch]]:
        return self._local.batches(size, epochs=epochs, steps=steps, start=start, stream=stream)

    def loss(self, theta: Tensor, batch: Batch) -> Tensor:
        return self._local.loss(theta, batch)

    def grad(self, theta: Tensor, batch: Batch) -> Tensor:
        return self._tamper(self._local.grad(theta, batch))

    def descend_(self, theta: Tensor, batch: Batch, lr: float, pull: Pull) -> None:
        at = self._rows[self._rows < len(theta)]
        g = self._local.grad(theta, batch)[at]  # both slopes are at the old theta, so a difference of steps is exact
        self._local.descend_(theta, batch, lr, pull)
        theta[at] += lr * (1 - self._factor) * g

    def descend_all_(self, theta: Tensor, plan: Plan, lam: float | Tensor, anchor: Tensor | None) -> bool:
        return False  # step by step, with gradients that can be tampered with

    def outputs(self, theta: Tensor, batch: Batch) -> Tensor:
        return self._local.outputs(theta, batch)

    def pullback(self, theta: Tensor, batch: Batch, slope: Tensor) -> Tensor:
        return self._tamper(self._local.pullback(theta, batch, slope))

    def design(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._local.design()

    def order(self, epochs: int = 1, stream: int = 0) -> Iterator[tuple[int, Tensor]]:
        return self._local.order(epochs, stream)

    def full_loss(self, theta: Tensor) -> Tensor:
        return self._local.full_loss(theta)

    def full_grad(self, theta: Tensor) -> Tensor:
        return self._tamper(self._local.full_grad(theta))

    def quadratic(self) -> tuple[Tensor, Tensor]:
        A, b = self._local.quadratic()
        return self._tamper(A.clone()), self._tamper(b.clone())

    def validation(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        return self._local.validation(theta)

    def take(self, places: Tensor) -> ClientStack:
        hostile = torch.nonzero(torch.isin(places, self._rows))[:, 0]
        return Tampered(self._local.take(places), hostile, self._factor)
