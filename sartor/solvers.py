"""Solvers: approximate argmin_θ f_i(θ) + λ·g(θ, anchor_i) for a stack of clients, over minibatches or exactly.

A solver is a frozen dataclass; every call starts fresh (no momentum is kept between rounds). One whose gradients can be
counted beforehand has `lasting(steps)`: the same solver with so many minibatch steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor

from .core import ClientLoss, ClientStack, Coupling, Number, Plan
from .couplings import Free, Quadratic, subtract_
from .errors import need, not_negative, positive

Rate = TypeVar("Rate", float, Tensor)  # one step size, or a column
DENSE = 256  # parameters up to which a curvature [d, d] of each client is cheaper than more steps
_HALVINGS = 40  # of a step that does not descend


class Solver(Protocol):
    """Gives back the minimiser's approximation, started from `theta`, which it leaves as it is."""

    def minimise(
        self, local: ClientStack, theta: Tensor, coupling: Coupling, start: int = 0, stream: int = 0
    ) -> Tensor:
        """[c, d] → [c, d]. `start` and `stream` choose the batches (see ClientStack.batches)."""
        ...


def _decayed(lr: Rate, decay: float | None, local: ClientStack) -> Rate:
    """The step size in this round."""
    return lr if decay is None else lr * decay**local.round


def _check_schedule(owner: str, epochs: int, steps: int | None, batch: int, decay: float | None = None) -> None:
    need(decay is None or 0 < decay <= 1, f"{owner} needs a decay above 0 and up to 1; got {decay}.")
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

    `decay` multiplies the step size after each round. `reuse` takes all steps on one minibatch (pFedMe's K steps on D).

        >>> method = st.FLAME(solver=st.SGD(lr=0.05, epochs=2, batch=32, momentum=0.9))
    """

    lr: float = 0.1
    epochs: int = 1
    steps: int | None = None
    batch: int = 20
    momentum: float = 0.0
    weight_decay: float = 0.0
    reuse: bool = False
    decay: float | None = None
    columns: ClassVar[tuple[str, ...]] = ("lr", "weight_decay")

    def __post_init__(self) -> None:
        positive("SGD", lr=self.lr)
        not_negative("SGD", momentum=self.momentum, weight_decay=self.weight_decay)
        need(self.momentum < 1, f"SGD needs momentum < 1; got {self.momentum}.")
        need(not self.reuse or self.steps is not None, "SGD with reuse needs steps: how many to take on the one batch.")
        _check_schedule("SGD", self.epochs, self.steps, self.batch, self.decay)

    def lasting(self, steps: int) -> SGD:
        """The same with so many steps."""
        return replace(self, epochs=1, steps=steps)

    def minimise(
        self, local: ClientStack, theta: Tensor, coupling: Coupling, start: int = 0, stream: int = 0
    ) -> Tensor:
        theta, lr = theta.clone(), _decayed(self.lr, self.decay, local)
        speed = torch.zeros_like(theta) if self.momentum else None
        steps, repeats = (1, self.steps or 1) if self.reuse else (self.steps, 1)
        if speed is None and not _is_some(self.weight_decay):
            local.descend_(theta, Plan(self.batch, self.epochs, steps, start, stream, repeats, lr), coupling)
            return theta
        for a, batch in local.batches(self.batch, epochs=self.epochs, steps=steps, start=start, stream=stream):
            now = theta[:a]
            for _ in range(repeats):
                g = local.grad(now, batch)
                coupling.add_grad_(g, now)
                if _is_some(self.weight_decay):
                    subtract_(g, now, -self.weight_decay)
                if speed is not None:
                    g = speed[:a].mul_(self.momentum).add_(g)
                subtract_(now, g, lr)
        return theta


@dataclass(frozen=True)
class Adam:
    """Adam with fresh moments at every call; weight decay is added to the gradient. `decay` as in SGD.

    For example:

        >>> method = st.Ditto(solver=st.Adam(lr=0.001))
    """

    lr: float = 1e-3
    epochs: int = 1
    steps: int | None = None
    batch: int = 20
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.0
    eps: float = 1e-8
    decay: float | None = None

    def __post_init__(self) -> None:
        positive("Adam", lr=self.lr, eps=self.eps)
        not_negative("Adam", weight_decay=self.weight_decay)
        need(
            0 <= self.beta1 < 1 and 0 <= self.beta2 < 1,
            f"Adam needs beta1 and beta2 in [0, 1); got {self.beta1} and {self.beta2}.",
        )
        _check_schedule("Adam", self.epochs, self.steps, self.batch, self.decay)

    def lasting(self, steps: int) -> Adam:
        """The same with so many steps."""
        return replace(self, epochs=1, steps=steps)

    def minimise(
        self, local: ClientStack, theta: Tensor, coupling: Coupling, start: int = 0, stream: int = 0
    ) -> Tensor:
        theta, lr = theta.clone(), _decayed(self.lr, self.decay, local)
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
            now.addcdiv_(m[:a], scale, value=-lr / (1 - self.beta1**t))
        return theta


@dataclass(frozen=True)
class Early:
    """SGD for at most `epochs` epochs; each client keeps its best model on its own validation data.

    A client stops after `patience` epochs without a better one; the start counts as a model. One without validation
    samples trains for all epochs. Momentum starts anew with every epoch.

        >>> alone = st.fit(st.LocalOnly(solver=st.Early(epochs=10, patience=2)), model, clients, rounds=1)
    """

    lr: float = 0.1
    epochs: int = 20
    patience: int = 3
    batch: int = 20
    momentum: float = 0.0
    weight_decay: float = 0.0
    columns: ClassVar[tuple[str, ...]] = ("lr", "weight_decay")

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
    """The exact minimiser, by the normal equations. Only for quadratic tasks (a linear model with squared error).

    For example:

        >>> x, hospital = [[0.1 * i] for i in range(40)], ["north", "south"] * 20
        >>> table = st.data.from_arrays(x, [2 * a + 1 for (a,) in x], hospital, task="regression")
        >>> data = table.split("natural", seed=0)
        >>> exact = st.LocalOnly(solver=st.Exact())
        >>> alone = st.fit(exact, st.models.layers(1, 1), data, rounds=1, loss="squared")
        >>> bool((alone.personal(0)(data.x)[:, 0] - data.y).abs().max() < 1e-4)  # the line itself
        True
    """

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
    of ε_i. With `batch` it descends on one minibatch D of that size, until ‖∇(f_i(·; D) + λg)‖² ≤ ν: pFedMe's (8) and
    Lp-Proj's (4), whose ν is `eps` with `shrink` = 1.

        >>> method = st.FLAME(solver=st.Inexact(lr=0.1, eps=0.1, max_steps=100))
        >>> result = st.fit(method, model, clients, rounds=2)
    """

    lr: float = 0.1
    eps: float = 1e-2
    shrink: float = 0.9
    max_steps: int = 1000
    batch: int | None = None  # none: all of the client's data

    def __post_init__(self) -> None:
        positive("the inexact solver", lr=self.lr, eps=self.eps)
        need(0 < self.shrink <= 1, f"the inexact solver needs shrink above 0 and up to 1; got {self.shrink}.")
        need(self.max_steps >= 1, f"the inexact solver needs max_steps >= 1; got {self.max_steps}.")
        need(self.batch is None or self.batch >= 1, f"the inexact solver needs batch >= 1; got {self.batch}.")

    def tolerance(self, visits: Tensor) -> Tensor:
        """ε_i [c] of clients that have taken part `visits` [c] times, this one included."""
        return self.eps * self.shrink ** (visits - 1)

    def minimise(
        self, local: ClientStack, theta: Tensor, coupling: Coupling, start: int = 0, stream: int = 0
    ) -> Tensor:
        theta = theta.clone()
        enough = self.tolerance(local.visits)
        at_work = torch.ones_like(enough, dtype=torch.bool)
        D = None if self.batch is None else next(local.batches(self.batch, steps=1, start=start, stream=stream))[1]
        for _ in range(self.max_steps):
            counted = local.counting(at_work)
            g = counted.full_grad(theta) if D is None else counted.grad(theta, D)
            coupling.add_grad_(g, theta)
            at_work = g.square().sum(1) > enough
            if not bool(at_work.any()):
                break
            theta.sub_(torch.where(at_work[:, None], g, 0.0), alpha=self.lr)  # a client that is done stays where it is
        return theta


@dataclass(frozen=True)
class Newton:
    """Newton's method (iteratively reweighted least squares) to the minimiser itself, for a linear model under a convex
    loss: cross-entropy, squared or squared hinge. With all of a client's data, and of each client on its own.

    `ridge` adds ridge/(2n) ‖weights‖², n the client's samples, intercepts left out: scikit-learn's 1/C. It bounds what
    separable data would let grow for ever. A step that overshoots is halved. With more than 256 parameters L-BFGS steps
    take its place, to a slope of 1e-6.

        >>> result = st.fit(st.LocalOnly(solver=st.Newton(ridge=1.0)), model, clients, rounds=1)
    """

    ridge: float = 1.0
    tol: float = 1e-9  # the largest slope that is left
    max_steps: int = 50
    columns: ClassVar[tuple[str, ...]] = ("ridge",)

    def __post_init__(self) -> None:
        not_negative("the newton solver", ridge=self.ridge)
        positive("the newton solver", tol=self.tol)
        need(self.max_steps >= 1, f"the newton solver needs max_steps >= 1; got {self.max_steps}.")

    def minimise(
        self, local: ClientStack, theta: Tensor, coupling: Coupling, start: int = 0, stream: int = 0
    ) -> Tensor:
        if theta.shape[1] > DENSE:
            return LBFGS(self.ridge, max(self.tol, 1e-6), 10 * self.max_steps).minimise(local, theta, coupling)
        phi = _Penalised(local.objective(), coupling, _of_each(self.ridge) / local.samples)
        smaller = getattr(phi.f, "equations", None)  # where rows share their data (tasks/shared_layer.py)
        held = phi.ridge + coupling.lam if isinstance(coupling, Quadratic) else phi.ridge
        bend, _ = coupling.normal_terms(theta.double())

        def direction(now: Tensor, g: Tensor) -> Tensor:
            if smaller is not None and isinstance(coupling, Free | Quadratic):
                H, slope, whole = smaller(now, g, held)
                step: Tensor = whole(newton_step(H, slope))
                return -step
            return -newton_step(phi.f.hessian(now) + bend + torch.diag_embed(phi.ridge.expand_as(now)), g)

        return _descend(phi, theta, self.tol, self.max_steps, direction)


@dataclass(frozen=True)
class LBFGS:
    """L-BFGS on all of a client's data, each client on its own: for linear models that are too large for `newton`, and
    for small networks. `ridge` as there, on all parameters but those called bias.

        >>> result = st.fit(st.LocalOnly(solver=st.LBFGS(ridge=1.0)), model, clients, rounds=1)
    """

    ridge: float = 1.0
    tol: float = 1e-6  # the largest slope that is left
    max_steps: int = 200
    memory: int = 10
    columns: ClassVar[tuple[str, ...]] = ("ridge",)

    def __post_init__(self) -> None:
        not_negative("the lbfgs solver", ridge=self.ridge)
        positive("the lbfgs solver", tol=self.tol)
        need(self.max_steps >= 1, f"the lbfgs solver needs max_steps >= 1; got {self.max_steps}.")
        need(self.memory >= 1, f"the lbfgs solver needs memory >= 1; got {self.memory}.")

    def minimise(
        self, local: ClientStack, theta: Tensor, coupling: Coupling, start: int = 0, stream: int = 0
    ) -> Tensor:
        phi = _Penalised(local.objective(), coupling, _of_each(self.ridge) / local.samples)
        pairs: list[tuple[Tensor, Tensor, Tensor]] = []  # steps s, changes of slope y, 1/(sᵀy)
        last: list[Tensor] = []

        def direction(now: Tensor, g: Tensor) -> Tensor:
            if last:
                s, y = now - last[0], g - last[1]
                curve = (s * y).sum(1, keepdim=True)
                good = curve > 1e-10 * y.square().sum(1, keepdim=True)
                pairs.append((s, y, torch.where(good, 1 / curve, 0.0)))  # a pair that says nothing changes nothing
                del pairs[: -self.memory]
            last[:] = now, g
            return -_two_loops(g, pairs)

        return _descend(phi, theta, self.tol, self.max_steps, direction)


def _of_each(value: Number) -> Number:
    """A number, or [c] of a column."""
    return value[:, 0] if isinstance(value, Tensor) else value


def _is_some(value: Number) -> bool:
    """Whether it is not 0 for everybody; in a column of numbers that differ it is not."""
    return isinstance(value, Tensor) or value != 0


class _Penalised:
    """f_i + Σ_j ridge_ij θ_j²/2 + λg, its slope, and its value."""

    def __init__(self, f: ClientLoss, coupling: Coupling, ridge: Tensor) -> None:
        self.f, self.coupling, self.ridge = f, coupling, ridge[:, None].to(f.penalised) * f.penalised

    def value(self, theta: Tensor) -> Tensor:
        return self.f.loss(theta) + 0.5 * (self.ridge * theta**2).sum(1) + self.coupling.value(theta)

    def slope(self, theta: Tensor, at_work: Tensor) -> Tensor:
        g = self.f.grad(theta, at_work) + self.ridge * theta
        self.coupling.add_grad_(g, theta)
        return g


def _descend(
    phi: _Penalised, theta: Tensor, tol: float, most: int, direction: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Steps along `direction`, halved until they descend, until each client's slope is at most `tol`. A client that is
    there, or can get no lower, stays where it is, whatever the others do."""
    now = theta.to(phi.f.penalised.dtype)
    value, at_work = phi.value(now), torch.ones(len(now), dtype=torch.bool, device=now.device)
    for _ in range(most):
        g = phi.slope(now, at_work)
        at_work = at_work & (g.abs().amax(1) > tol)
        if not bool(at_work.any()):
            break
        step = direction(now, g)
        descent = (g * step).sum(1)
        length, moved = torch.ones_like(value), torch.zeros_like(at_work)
        for _ in range(_HALVINGS):
            there = now + length[:, None] * step
            reached = phi.value(there)
            enough = reached <= value + 1e-4 * length * descent + 1e-15 * value.abs()
            take = at_work & ~moved & enough & (descent < 0)
            if bool(take.all()):
                now, value = there, reached  # the tensor whose outputs are known (tasks/shared_layer.py)
            else:
                now, value = torch.where(take[:, None], there, now), torch.where(take, reached, value)
            moved = moved | take
            if bool((moved | ~at_work).all()):
                break
            length = torch.where(moved, length, length / 2)
        at_work = at_work & moved
    return now.to(theta.dtype)


def newton_step(H: Tensor, g: Tensor) -> Tensor:
    """H⁻¹ g for a stack [c, d, d], [c, d] of positive semidefinite curvatures. Where H is flat (the classes' intercepts
    may all be raised alike) or bends down, as much is added to its diagonal as makes it positive."""
    size = H.diagonal(dim1=1, dim2=2).abs().mean(1, keepdim=True).clamp(min=torch.finfo(H.dtype).tiny)
    added = torch.full_like(size, 1e-9)
    while True:
        raised = H.clone()
        raised.diagonal(dim1=1, dim2=2).add_(added * size)
        L, failed = torch.linalg.cholesky_ex(raised)
        if not bool(failed.any()) or bool((added > 1e9).any()):
            return torch.cholesky_solve(g[..., None], L)[..., 0]
        added = torch.where(failed[:, None] > 0, added * 100, added)


def _two_loops(g: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """L-BFGS's product of its inverse curvature with g [c, d]; of no pairs g, no longer than 1."""
    if not pairs:
        length: Tensor = g.norm(dim=1, keepdim=True)
        return g / length.clamp(min=1.0)
    q, kept = g.clone(), []
    for s, y, inverse in reversed(pairs):
        a = inverse * (s * q).sum(1, keepdim=True)
        q = q - a * y
        kept.append(a)
    s, y, inverse = pairs[-1]
    scale = 1 / (inverse * y.square().sum(1, keepdim=True))
    q = q * torch.where(torch.isfinite(scale), scale, 1.0)
    for (s, y, inverse), a in zip(pairs, reversed(kept), strict=True):
        q = q + s * (a - inverse * (y * q).sum(1, keepdim=True))
    return q


NAMES: dict[str, type[SGD] | type[Adam] | type[Early] | type[Exact] | type[Inexact] | type[Newton] | type[LBFGS]] = {
    "sgd": SGD,
    "adam": Adam,
    "early": Early,
    "exact": Exact,
    "inexact": Inexact,
    "newton": Newton,
    "lbfgs": LBFGS,
}


def batch_sizes(part: Any) -> list[int]:
    """The sizes of the minibatches of all solvers in a method."""
    own = [part.batch] if isinstance(getattr(part, "batch", None), int) else []
    inside = [getattr(part, f.name) for f in fields(part)] if is_dataclass(part) else []
    return own + [size for field in inside for size in batch_sizes(field)]
