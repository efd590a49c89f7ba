"""Who is hostile, and a method in which they attack while everybody else does what the method says."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ...core import WHOLE, Back, Batch, ClientLoss, ClientStack, Coupling, Method, Plan, Server, State
from ...errors import need
from ...methods.parts.other_losses import View
from ...seeds import stream
from ..base import Wrapper, sent
from .attack import Attack


def check_attackers(share: float) -> None:
    """Refuse what is no share of attackers."""
    need(0 <= share < 1, f"attackers must be a share in [0, 1), so that some clients are benign; got {share}.")


def hostile_clients(m: int, share: float, seed: int) -> frozenset[int]:
    """The share of m clients that is hostile, a function of the seed; those of a smaller share are among them."""
    check_attackers(share)
    count = math.floor(share * m + 0.5)
    need(count > 0 or share == 0, f"attackers = {share:g} of {m} clients is nobody; take at least {0.5 / m:.3g}, or 0.")
    need(count < m, f"attackers = {share:g} of {m} clients is all of them; take at most {(m - 0.6) / m:.3g}.")
    return frozenset(stream(seed, "hostile").permutation(m)[:count].tolist()) if count else frozenset()


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


class Tampered(View):
    """A stack of clients whose hostile rows have their gradients multiplied by `factor`."""

    def __init__(self, local: ClientStack, rows: Tensor, factor: float) -> None:
        super().__init__(local)
        self._rows, self._factor = rows, factor
        self._aside = local.counting(torch.zeros(len(local.ids), dtype=torch.bool))  # an attacker's own work

    def _tamper(self, g: Tensor) -> Tensor:
        """In place: the stack's first len(g) rows are at work."""
        g[self._rows[self._rows < len(g)]] *= self._factor
        return g

    def grad(self, theta: Tensor, batch: Batch) -> Tensor:
        return self._tamper(self.local.grad(theta, batch))

    def descend_(self, theta: Tensor, plan: Plan, coupling: Coupling) -> None:
        """Everyone steps as if honest, so that benign rows stay as they are; then the hostile are moved by the rest:
        both slopes are at the old theta, so a difference of steps is exact."""
        at_work = self.local
        schedule = self.batches(plan.size, epochs=plan.epochs, steps=plan.steps, start=plan.start, stream=plan.stream)
        for t, (a, batch) in enumerate(schedule):
            at_work = at_work if a == len(at_work.ids) else self.local.take(torch.arange(a))
            now, hostile = theta[:a], self._rows[self._rows < a]
            one = plan._replace(epochs=1, steps=1, start=plan.start + t, repeats=1)
            for _ in range(plan.repeats):
                g = self._aside.grad(now, batch)[hostile]
                at_work.descend_(now, one, coupling)
                now[hostile] += plan.lr * (1 - self._factor) * g

    def vjp(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Back]:
        outputs, back = self.local.vjp(theta, batch)
        return outputs, lambda slope: self._tamper(back(slope))

    def full_loss(self, theta: Tensor) -> Tensor:
        return self.local.full_loss(theta)

    def full_grad(self, theta: Tensor) -> Tensor:
        return self._tamper(self.local.full_grad(theta))

    def quadratic(self) -> tuple[Tensor, Tensor]:
        A, b = self.local.quadratic()
        return self._tamper(A.clone()), self._tamper(b.clone())

    def objective(self) -> ClientLoss:
        return _TamperedObjective(self.local.objective(), self._tamper)

    def counting(self, rows: Tensor) -> ClientStack:
        return Tampered(self.local.counting(rows), self._rows, self._factor)

    def take(self, places: Tensor) -> ClientStack:
        hostile = torch.nonzero(torch.isin(places, self._rows))[:, 0]
        return Tampered(self.local.take(places), hostile, self._factor)


class _TamperedObjective:
    """A stack's objective whose hostile rows are multiplied by a factor."""

    def __init__(self, honest: ClientLoss, tamper: Callable[[Tensor], Tensor]) -> None:
        self.honest, self.tamper, self.penalised = honest, tamper, honest.penalised

    def loss(self, theta: Tensor) -> Tensor:
        return self.tamper(self.honest.loss(theta))

    def grad(self, theta: Tensor, at_work: Tensor | None = None) -> Tensor:
        return self.tamper(self.honest.grad(theta, at_work))

    def hessian(self, theta: Tensor, part: slice = WHOLE) -> Tensor:
        return self.tamper(self.honest.hessian(theta, part))
