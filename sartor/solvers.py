"""Solvers: approximate argmin_θ f_i(θ) + λ·g(θ, anchor_i) for a stack of clients, over minibatches or exactly.

A solver is a frozen dataclass; every call starts fresh (no momentum is kept between rounds). One whose gradients can be
counted beforehand has `lasting(steps)`: the same solver with so many minibatch steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from .core import ClientStack, Coupling, Plan
from .errors import need, not_negative, positive


class Solver(Protocol):
    """Gives back the minimiser's approximation, started from `theta`, which it leaves as it is."""

    def minimise(
        self, local: ClientStack, theta: Tensor, coupling: Coupling, start: int = 0, stream: int = 0
    ) -> Tensor:
        """[c, d] → [c, d]. `start` and `stream` choose the batches (see ClientStack.batches)."""
        ...


def _check_schedule(owner: str, epochs: int, steps: int | None, batch: int) -> None:
    need(epochs >= 1, f"{owner} needs epochs >= 1; got {epochs}.")
    need(steps is None or steps >= 1, f"{owner} needs steps >= 1 (or none, to count epochs); got {steps}.")
    need(
        steps is None or epochs == 1,
        f"{owner} trains for epochs or for steps, not both; got epochs = {epochs} and steps = {steps}.",
    )
    need(batch >= 1, f"{owner} needs batch >= 1; got {batch}.")


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent: `epochs` passes over the client's data, or `steps` minibatch steps.

    `reuse` takes all steps on one minibatch (pFedMe's K steps on D).
    """

    lr: float = 0.1
    epochs: int = 1
    steps: int | None = None
    batch: int = 20
    momentum: float = 0.0
    weight_decay: float = 0.0
    reuse: bool = False

    def __post_init__(self) -> None:
        positive("SGD", lr=self.lr)
        not_negative("SGD", momentum=self.momentum, weight_decay=self.weight_decay)
        need(self.momentum < 1, f"SGD needs momentum < 1; got {self.momentum}.")
        need(not self.reuse or self.steps is not None, "SGD with reuse needs steps: how many to take on the one batch.")
        _check_schedule("SGD", self.epochs, self.steps, self.batch)

    def lasting(self, steps: int) -> SGD:
        """The same with so many steps."""
        return replace(self, epochs=1, steps=steps)

    def minimise(
        self, local: ClientStack, theta: Tensor, coupling: Coupling, start: int = 0, stream: int = 0
    ) -> Tensor:
        theta = theta.clone()
        speed = torch.zeros_like(theta) if self.momentum else None
        steps, repeats = (1, self.steps or 1) if self.reuse else (self.steps, 1)
        if speed is None and not self.weight_decay:
            local.descend_(theta, Plan(self.batch, self.epochs, steps, start, stream, repeats, self.lr), coupling)
            return theta
        for a, batch in local.batches(self.batch, epochs=self.epochs, steps=steps, start=start, stream=stream):
            now = theta[:a]
            for _ in range(repeats):
                g = local.grad(now, batch)
                coupling.add_grad_(g, now)
                if self.weight_decay:
                    g.add_(now, alpha=self.weight_decay)
                if speed is not None:
                    g = speed[:a].mul_(self.momentum).add_(g)
                now.sub_(g, alpha=self.lr)
        return theta


@dataclass(frozen=True)
class Adam:
    """Adam with fresh moments at every call; weight decay is added to the gradient."""

    lr: float = 1e-3
    epochs: int = 1
    steps: int | None = None
    batch: int = 20
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.0
    eps: float = 1e-8

    def __post_init__(self) -> None:
        positive("Adam", lr=self.lr, eps=self.eps)
        not_negative("Adam", weight_decay=self.weight_decay)
        need(
            0 <= self.beta1 < 1 and 0 <= self.beta2 < 1,
            f"Adam needs beta1 and beta2 in [0, 1); got {self.beta1} and {self.beta2}.",
        )
        _check_schedule("Adam", self.epochs, self.steps, self.batch)

    def lasting(self, steps: int) -> Adam:
        """The same with so many steps."""
        return replace(self, epochs=1, steps=steps)

    def minimise(
        self, local: ClientStack, theta: Tensor, coupling: Coupling, start: int = 0, stream: int = 0
    ) -> Tensor:
        theta = theta.clone()
        m, v = torch.zeros_like(theta), torch.zeros_like(theta)
        schedule = local.batches(self.batch, epochs=self.epochs, steps=self.steps, start=start, stream=stream)
        for t, (a, batch) in enumerate(schedule, start=1):
            now = theta[:a]
            g = local.grad(now, batch)
            coupling.add_grad_(g, now)
            if self.weight_decay:
                g.add_(now, alpha=self.weight_decay)
            m[:a].lerp_(g, 1 - self.beta1)
            v[:a].mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
            scale = (v[:a] / (1 - self.beta2**t)).sqrt_().add_(self.eps)
            now.addcdiv_(m[:a], scale, value=-self.lr / (1 - self.beta1**t))
        return theta


@dataclass(frozen=True)
class Early:
    """SGD for at most `epochs` epochs; each client keeps its best model on its own validation data.

    A client stops after `patience` epochs without a better one; the start counts as a model. One without validation
    samples trains for all epochs. Momentum starts anew with every epoch.
    """

    lr: float = 0.1
    epochs: int = 20
    patience: int = 3
    batch: int = 20
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        self._epoch()
        _check_schedule("early stopping", self.epochs, None, self.batch)
        need(self.patience >= 1, f"early stopping needs patience >= 1; got {self.patience}.")

    def _epoch(self) -> SGD:
        return SGD(self.lr, 1, None, self.batch, self.momentum, self.weight_decay)

    def minimise(
        self, local: ClientStack, theta: Tensor, coupling: Coupling, start: int = 0, stream: int = 0
    ) -> Tensor:
        best, lowest = theta.clone(), local.validation(theta)[1]
        blind = torch.isnan(lowest)
        waited = torch.zeros_like(lowest)
        for epoch in range(self.epochs):
            at_work = local.counting(waited < self.patience)  # who has stopped is only computed along
            theta = self._epoch().minimise(at_work, theta, coupling, start, stream + 1000 * epoch)
            loss = local.validation(theta)[1]
            better = (blind | (loss < lowest)) & (waited < self.patience)
            best = torch.where(better[:, None], theta, best)
            lowest = torch.where(better, loss, lowest)
            waited = torch.where(better, 0.0, waited + 1)
            if bool((waited >= self.patience).all()):
                break
        return best


@dataclass(frozen=True)
class Exact:
    """The exact minimiser, by the normal equations. Only for quadratic tasks (a linear model with squared error)."""

    def minimise(
        self, local: ClientStack, theta: Tensor, coupling: Coupling, start: int = 0, stream: int = 0
    ) -> Tensor:
        A, b = local.quadratic()
        A_g, b_g = coupling.normal_terms(theta)
        solution: Tensor = torch.linalg.solve(A + A_g, b + b_g)
        return solution


@dataclass(frozen=True)
class Inexact:
    """Gradient descent on all of a client's data until ‖∇(f_i + λg)‖² ≤ ε_i (FLAME eq. (17)), at most `max_steps`.

    ε_i starts at `eps` and shrinks by `shrink` each time the client takes part (eq. (18)). The paper's α_i² is part
    of ε_i.
    """

    lr: float = 0.1
    eps: float = 1e-2
    shrink: float = 0.9
    max_steps: int = 1000

    def __post_init__(self) -> None:
        positive("the inexact solver", lr=self.lr, eps=self.eps)
        need(0 < self.shrink < 1, f"the inexact solver needs 0 < shrink < 1; got {self.shrink}.")
        need(self.max_steps >= 1, f"the inexact solver needs max_steps >= 1; got {self.max_steps}.")

    def tolerance(self, visits: Tensor) -> Tensor:
        """ε_i [c] of clients that have taken part `visits` [c] times, this one included."""
        return self.eps * self.shrink ** (visits - 1)

    def minimise(
        self, local: ClientStack, theta: Tensor, coupling: Coupling, start: int = 0, stream: int = 0
    ) -> Tensor:
        theta = theta.clone()
        enough = self.tolerance(local.visits)
        at_work = torch.ones_like(enough, dtype=torch.bool)
        for _ in range(self.max_steps):
            g = local.counting(at_work).full_grad(theta)
            coupling.add_grad_(g, theta)
            at_work = g.square().sum(1) > enough
            if not bool(at_work.any()):
                break
            theta.sub_(torch.where(at_work[:, None], g, 0.0), alpha=self.lr)  # a client that is done stays where it is
        return theta


NAMES: dict[str, type[SGD] | type[Adam] | type[Early] | type[Exact] | type[Inexact]] = {
    "sgd": SGD,
    "adam": Adam,
    "early": Early,
    "exact": Exact,
    "inexact": Inexact,
}
