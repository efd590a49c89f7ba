"""The yardstick: FedAvg, FLAME, pFedMe and Ditto as plain loops over clients in PyTorch.

Written the way one would without a library, and not slowed down: one model object for all clients, its parameters
updated in place; one gather of a client's epoch and slices of it instead of a DataLoader; autograd's gradients used
directly instead of through an optimiser object; sums kept as they come in. Batches come in our order, drawn for
all clients at once, so both reach the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from work import ETA, LAM, LOCAL_STEPS, MU, RHO, Work, epoch

from sartor.data.clients import Clients

Model = list[Tensor]  # a model's parameters


class Loop:
    """A federation in a plain loop: what the methods share."""

    def __init__(self, work: Work, data: Clients, start: Tensor) -> None:
        self.work, self.data, self.round = work, data, 0
        self.model = work.build().to(start.dtype)
        self.parameters = list(self.model.parameters())
        sizes = [p.numel() for p in self.parameters]
        self.w = [v.view_as(p).clone() for v, p in zip(start.split(sizes), self.parameters, strict=True)]
        self.clients = range(len(data))
        self.x = [data.x[data.rows(i, "train")].to(start.dtype) for i in self.clients]
        self.y = [data.y[data.rows(i, "train")] for i in self.clients]

    def batches(self, client: int, order: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch of a client's minibatches."""
        x, y = self.x[client], self.y[client]
        rows = epoch(self.round, len(self.clients), len(y), order)[client]
        return zip(x[rows].split(self.work.batch), y[rows].split(self.work.batch), strict=True)

    def load(self, values: Model) -> None:
        """Put a client's model into the module."""
        with torch.no_grad():
            for p, v in zip(self.parameters, values, strict=True):
                p.copy_(v)

    def taken(self) -> Model:
        """A copy of the model that the module holds."""
        return [p.detach().clone() for p in self.parameters]

    def step(self, x: Tensor, y: Tensor, lam: float = 0.0, anchor: Model | None = None) -> None:
        """One step of gradient descent on f + λ/2 ‖θ − anchor‖²."""
        loss = F.cross_entropy(self.model(x).flatten(0, -2), y.flatten())  # of sequences: the mean over their places
        gradient = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            for k, (p, g) in enumerate(zip(self.parameters, gradient, strict=True)):
                if anchor is not None:
                    g.add_(p - anchor[k], alpha=lam)
                p.sub_(g, alpha=self.work.lr)

    def mean(self, each: Callable[[int], Model]) -> Model:
        """The mean of what the clients send, summed up as it comes in."""
        total = [torch.zeros_like(v) for v in self.w]
        for client in self.clients:
            for t, v in zip(total, each(client), strict=True):
                t.add_(v)
        return [t.div_(len(self.clients)) for t in total]

    def play(self) -> None:
        """One round."""
        self.w = self.mean(self.client)
        self.round += 1

    def client(self, i: int) -> Model:
        """A client's round; what it sends."""
        raise NotImplementedError

    def result(self) -> dict[str, Tensor]:
        """The global model and, by their names in the paper, the personal ones, as flat vectors."""
        return {"w": _flat(self.w)}


class FedAvg(Loop):
    """Steps from the global model; FedProx with a μ."""

    mu = 0.0

    def client(self, i: int) -> Model:
        self.load(self.w)
        for x, y in self.batches(i):
            self.step(x, y, self.mu, self.w if self.mu else None)
        return [p.detach() for p in self.parameters]


class FedProx(FedAvg):
    """FedAvg, tied to the global model."""

    mu = MU


class FLAME(Loop):
    """θ_i, w_i kept by the client; equations (11) to (14)."""

    def __init__(self, work: Work, data: Clients, start: Tensor) -> None:
        super().__init__(work, data, start)
        self.theta = [[v.clone() for v in self.w] for _ in self.clients]
        self.w_i = [[v.clone() for v in self.w] for _ in self.clients]

    def client(self, i: int) -> Model:
        la, w_i = LAM / len(self.clients), self.w_i[i]
        pi = [la * (t - w) for t, w in zip(self.theta[i], w_i, strict=True)]
        self.load(self.theta[i])
        for x, y in self.batches(i):
            self.step(x, y, LAM, w_i)
        self.theta[i] = self.taken()
        u = []
        for k, (t, w, p) in enumerate(zip(self.theta[i], self.w, pi, strict=True)):
            w_i[k] = (la * t + RHO * w - p) / (la + RHO)
            u.append(w_i[k] + (p + RHO * (w_i[k] - w)) / RHO)
        return u

    def result(self) -> dict[str, Tensor]:
        return super().result() | {"theta": _stacked(self.theta)}


class PFedMe(Loop):
    """R minibatches a round, K steps on each, then a step of w_i."""

    def __init__(self, work: Work, data: Clients, start: Tensor) -> None:
        super().__init__(work, data, start)
        self.theta = [[v.clone() for v in self.w] for _ in self.clients]

    def client(self, i: int) -> Model:
        w_i = [w.clone() for w in self.w]
        self.load(self.theta[i])
        for x, y in self.batches(i):
            for _ in range(LOCAL_STEPS):
                self.step(x, y, LAM, w_i)
            with torch.no_grad():
                for w, p in zip(w_i, self.parameters, strict=True):
                    w.lerp_(p, ETA * LAM)  # w − ηλ (w − θ)
        self.theta[i] = self.taken()
        return w_i

    def result(self) -> dict[str, Tensor]:
        return super().result() | {"theta": _stacked(self.theta)}


class Ditto(Loop):
    """FedAvg, and beside it a personal v tied to the global model."""

    def __init__(self, work: Work, data: Clients, start: Tensor) -> None:
        super().__init__(work, data, start)
        self.v = [[v.clone() for v in self.w] for _ in self.clients]

    def client(self, i: int) -> Model:
        self.load(self.v[i])
        for x, y in self.batches(i, order=1):
            self.step(x, y, LAM, self.w)
        self.v[i] = self.taken()
        self.load(self.w)
        for x, y in self.batches(i):
            self.step(x, y)
        return [p.detach() for p in self.parameters]

    def result(self) -> dict[str, Tensor]:
        return super().result() | {"v": _stacked(self.v)}


LOOPS: dict[str, type[Loop]] = {"fedavg": FedAvg, "fedprox": FedProx, "flame": FLAME, "pfedme": PFedMe, "ditto": Ditto}


def _flat(model: Model) -> Tensor:
    return torch.cat([v.detach().reshape(-1) for v in model])


def _stacked(models: list[Model]) -> Tensor:
    return torch.stack([_flat(model) for model in models])
