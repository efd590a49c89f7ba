"""Views: the same clients with another loss, so that every solver can train what is not simply f_i(θ).

A view says the gradient of its loss on a batch; the rest is the clients' own. Solvers that need more than minibatch
gradients (exact, inexact) are refused where a view does not give it.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from ...core import WHOLE, Back, Batch, ClientLoss, ClientStack, Coupling, Plan
from ...couplings import first, subtract_
from ...errors import SartorError


class View(ABC):
    """Clients whose loss is another function of what is trained."""

    def __init__(self, local: ClientStack) -> None:
        self.local = local
        self.round, self.clients, self.kind, self.ids = local.round, local.clients, local.kind, local.ids
        self.share, self.visits, self.samples, self.blocks = local.share, local.visits, local.samples, local.blocks

    @abstractmethod
    def grad(self, theta: Tensor, batch: Batch) -> Tensor:
        """[a, k] → [a, k], the gradient of this view's loss."""

    def batches(
        self, size: int, *, epochs: int = 1, steps: int | None = None, start: int = 0, stream: int = 0
    ) -> Iterator[tuple[int, Batch]]:
        return self.local.batches(size, epochs=epochs, steps=steps, start=start, stream=stream)

    def descend_(self, theta: Tensor, plan: Plan, coupling: Coupling) -> None:
        """Step by step, with this view's gradients."""
        schedule = self.batches(plan.size, epochs=plan.epochs, steps=plan.steps, start=plan.start, stream=plan.stream)
        for a, batch in schedule:
            now = theta[:a]
            for _ in range(plan.repeats):
                g = self.grad(now, batch)
                coupling.pull_(now, first(plan.lr, a))
                subtract_(now, g, plan.lr)

    def clipped_grad(self, theta: Tensor, batch: Batch, clip: float) -> Tensor:
        raise self._no()

    def _no(self) -> SartorError:
        return SartorError(f"{type(self).__name__} has minibatch gradients only; use the sgd or adam solver.")

    def full_loss(self, theta: Tensor) -> Tensor:
        raise self._no()

    def full_grad(self, theta: Tensor) -> Tensor:
        raise self._no()

    def validation(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        return self.local.validation(theta)

    def class_shares(self) -> Tensor:
        return self.local.class_shares()

    def take(self, places: Tensor) -> ClientStack:
        raise SartorError(f"{type(self).__name__} shows whole stacks only.")

    def counting(self, rows: Tensor) -> ClientStack:
        made = copy.copy(self)
        made.local = self.local.counting(rows)
        return made

    def quadratic(self) -> tuple[Tensor, Tensor]:
        raise self._no()

    def objective(self) -> ClientLoss:
        raise self._no()

    def vjp(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Back]:
        return self.local.vjp(theta, batch)

    def design(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.local.design()

    def order(self, epochs: int = 1, stream: int = 0) -> Iterator[tuple[int, Tensor]]:
        return self.local.order(epochs, stream)


class Affine(View):
    """θ is trained, f_i(J θ + rest) is the loss; a subclass says the model of θ, and pulls gradients back by Jᵀ."""

    @abstractmethod
    def model(self, theta: Tensor) -> Tensor:
        """[a, k] → [a, d], the models of the first a clients."""

    @abstractmethod
    def back(self, grad: Tensor) -> Tensor:
        """[a, d] → [a, k], Jᵀ of a gradient."""

    def grad(self, theta: Tensor, batch: Batch) -> Tensor:
        return self.back(self.local.grad(self.model(theta), batch))

    def full_loss(self, theta: Tensor) -> Tensor:
        return self.local.full_loss(self.model(theta))

    def full_grad(self, theta: Tensor) -> Tensor:
        return self.back(self.local.full_grad(self.model(theta)))

    def validation(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        return self.local.validation(self.model(theta))

    def objective(self) -> ClientLoss:
        return _Through(self, self.local.objective())

    @abstractmethod
    def bend(self, f: ClientLoss, model: Tensor) -> Tensor:
        """[c, k, k], Jᵀ H J with f's curvature H at the model."""

    @abstractmethod
    def trained(self, whole: Tensor) -> Tensor:
        """[d] → [k], of a number for each parameter those of what is trained."""


class _Through:
    """The objective of an affine view."""

    def __init__(self, view: Affine, of: ClientLoss) -> None:
        self.view, self.of, self.penalised = view, of, view.trained(of.penalised)

    def loss(self, theta: Tensor) -> Tensor:
        return self.of.loss(self.view.model(theta))

    def grad(self, theta: Tensor, at_work: Tensor | None = None) -> Tensor:
        return self.view.back(self.of.grad(self.view.model(theta), at_work))

    def hessian(self, theta: Tensor, part: slice = WHOLE) -> Tensor:
        return self.view.bend(self.of, self.view.model(theta))[:, part, part]


class ModelPart(Affine):
    """Only the coordinates `part` are trained; the others stay as in `whole` [c, d]."""

    def __init__(self, local: ClientStack, whole: Tensor, part: slice | Tensor) -> None:
        super().__init__(local)
        self.whole, self.part = whole, part

    def model(self, theta: Tensor) -> Tensor:
        full = self.whole[: len(theta)].to(theta.dtype, copy=True)
        full[:, self.part] = theta
        return full

    def back(self, grad: Tensor) -> Tensor:
        return grad[:, self.part].contiguous()

    def bend(self, f: ClientLoss, model: Tensor) -> Tensor:
        if isinstance(self.part, Tensor):
            return f.hessian(model)[:, self.part][:, :, self.part]
        return f.hessian(model, self.part)

    def trained(self, whole: Tensor) -> Tensor:
        return whole[self.part]


class Mixed(Affine):
    """The model is share·θ + (1 − share)·other; share is [c, 1] or a number."""

    def __init__(self, local: ClientStack, share: Tensor | float, other: Tensor) -> None:
        super().__init__(local)
        self.mix, self.other = torch.as_tensor(share, dtype=other.dtype).expand(len(other), 1), other

    def model(self, theta: Tensor) -> Tensor:
        other, mix = self.other[: len(theta)].to(theta.dtype), self.mix[: len(theta)].to(theta.dtype)
        return torch.lerp(other, theta, mix)

    def back(self, grad: Tensor) -> Tensor:
        return grad * self.mix[: len(grad)]

    def bend(self, f: ClientLoss, model: Tensor) -> Tensor:
        return f.hessian(model) * (self.mix**2)[..., None]

    def trained(self, whole: Tensor) -> Tensor:
        return whole
