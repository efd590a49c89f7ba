"""A stack of clients in one round: the `Local` that a method sees, and the scores of models on the stack's data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ..core import Batch, Pull, State, Task
from ..data.clients import Clients
from ..seeds import stream as random_stream

_SWEEP = 1024  # samples of each client that a pass without training looks at in one go
_STATISTICS = 2048  # training samples of each client behind its batch-normalisation statistics


class Stack:
    """Clients `ids`, by falling number of training samples, with their data and the random order of their batches."""

    def __init__(self, task: Task, data: Clients, ids: np.ndarray, visits: Tensor, round: int, seed: int) -> None:
        self.task, self.data, self.ids, self.round, self.seed = task, data, ids, round, seed
        self.clients, self.kind = len(data), task.kind
        train = data.counts("train")
        self.counts = train[ids]
        share = torch.as_tensor(self.counts / train.sum(), dtype=data.x.dtype, device=data.x.device)
        self.share = share[:, None]
        self.visits = visits
        self.samples = torch.as_tensor(self.counts, device=data.x.device)
        self._orders: dict[tuple[int, int], tuple[int, tuple[Tensor, Tensor]]] = {}

    # --- training ---------------------------------------------------------------------------------------------------

    def batches(
        self, size: int, *, epochs: int = 1, steps: int | None = None, start: int = 0, stream: int = 0
    ) -> Iterator[tuple[int, Batch]]:
        per_epoch = -(-self.counts // size)
        takes = per_epoch * epochs if steps is None else np.full(len(self.ids), steps)
        index, weight = self._order(stream, size, int((-(-(start + takes) // per_epoch)).max()))
        keys = self._keys(stream)
        active = (takes[None, :] > np.arange(int(takes.max()))[:, None]).sum(1)
        for t, a in enumerate(active.tolist(), start):
            yield a, self._gather(index[:a, t], weight[:a, t], keys[:a] + t)

    def _order(self, stream: int, size: int, epochs: int) -> tuple[Tensor, Tensor]:
        """Rows and weights [c, batches, size] of everyone's batches, epoch after epoch, each epoch in a new order.

        A short last batch is padded with weight 0. What was drawn once in a round is kept.
        """
        held, drawn = self._orders.get((stream, size), (0, None))
        if drawn is not None and held >= epochs:
            return drawn
        per_epoch = -(-self.counts // size)
        width = int(min(size, self.counts.max()))  # nobody has more, so a wider batch would be padding
        rows = np.full((len(self.ids), int(per_epoch.max()) * epochs, width), -1, dtype=np.int64)
        for i, (client, count, steps) in enumerate(zip(self.ids, self.counts, per_epoch, strict=True)):
            draw = random_stream(self.seed, f"batches {stream}", self.round, int(client))
            padded = np.full((epochs, steps * width), -1, dtype=np.int64)
            for epoch in padded:
                epoch[:count] = self.data.bounds[client, 0] + draw.permutation(count)
            rows[i, : epochs * steps] = padded.reshape(-1, width)
        valid = torch.from_numpy(rows >= 0)
        weight = valid.to(self.data.x.dtype) / valid.sum(-1, keepdim=True).clamp(min=1)
        device = self.data.x.device
        drawn = torch.from_numpy(rows.clip(min=0)).to(device), weight.to(device)
        self._orders[stream, size] = (epochs, drawn)
        return drawn

    def _keys(self, stream: int) -> Tensor:
        if not self.task.random:
            return torch.zeros(len(self.ids), dtype=torch.int64, device=self.data.x.device)
        draws = [random_stream(self.seed, f"layers {stream}", self.round, int(i)).integers(2**62) for i in self.ids]
        return torch.tensor(draws, dtype=torch.int64, device=self.data.x.device)

    def _gather(self, index: Tensor, weight: Tensor, key: Tensor) -> Batch:
        flat = index.reshape(-1)
        x, y = self.data.x.index_select(0, flat), self.data.y.index_select(0, flat)
        return Batch(x.reshape(*index.shape, *x.shape[1:]), y.reshape(index.shape), weight, key)

    def loss(self, theta: Tensor, batch: Batch) -> Tensor:
        return self.task.loss(theta, batch)

    def grad(self, theta: Tensor, batch: Batch) -> Tensor:
        return self.task.grad(theta, batch)

    def descend_(self, theta: Tensor, batch: Batch, lr: float, pull: Pull) -> None:
        self.task.descend_(theta, batch, lr, pull)

    # --- whole parts ------------------------------------------------------------------------------------------------

    def _sweep(self, part: str, size: int) -> Iterator[tuple[Tensor, Batch]]:
        """A part's samples in order, `size` of each client at a time: (places in the stack, batch of weights 1/n_i)."""
        counts = self.data.counts(part)[self.ids]
        first = self.data.bounds[self.ids, ("train", "validation", "test").index(part)]
        for at in range(0, int(counts.max(initial=0)), size):
            here = np.flatnonzero(counts > at)
            width = int(min(size, counts[here].max() - at))
            rows = at + np.arange(width)[None, :]
            valid = rows < counts[here, None]
            index = torch.from_numpy(np.where(valid, first[here, None] + rows, first[here, None]))
            weight = torch.from_numpy(valid / counts[here, None]).to(self.data.x)
            key = torch.zeros(len(here), dtype=torch.int64, device=self.data.x.device)
            yield torch.from_numpy(here).to(self.data.x.device), self._gather(index.to(self.data.x.device), weight, key)

    def full_loss(self, theta: Tensor) -> Tensor:
        total = theta.new_zeros(len(theta))
        for here, batch in self._sweep("train", _SWEEP):
            total[here] += self.task.loss(theta[here], batch, train=False)
        return total

    def full_grad(self, theta: Tensor) -> Tensor:
        total = torch.zeros_like(theta)
        for here, batch in self._sweep("train", _SWEEP):
            total[here] += self.task.grad(theta[here], batch, train=False)
        return total

    def quadratic(self) -> tuple[Tensor, Tensor]:
        _, batch = next(self._sweep("train", int(self.counts.max())))
        return self.task.quadratic(batch)

    def validation_loss(self, theta: Tensor) -> Tensor:
        return self.score(theta, "validation")[0].to(theta.dtype)

    def outputs(self, theta: Tensor, batch: Batch) -> Tensor:
        return self.task.outputs(theta, batch)

    def pullback(self, theta: Tensor, batch: Batch, slope: Tensor) -> Tensor:
        return self.task.pullback(theta, batch, slope)

    def design(self) -> tuple[Tensor, Tensor, Tensor]:
        _, batch = next(self._sweep("train", int(self.counts.max())))
        return self.task.design(batch.x), batch.y, batch.weight > 0

    def order(self, epochs: int = 1, stream: int = 0) -> Iterator[tuple[int, Tensor]]:
        index, _ = self._order(stream, 1, epochs)
        first = torch.as_tensor(self.data.bounds[self.ids, 0], device=index.device)
        takes = self.counts * epochs
        active = (takes[None, :] > np.arange(int(takes.max()))[:, None]).sum(1)
        for t, a in enumerate(active.tolist()):
            yield a, index[:a, t, 0] - first[:a]

    # --- scores -----------------------------------------------------------------------------------------------------

    def statistics(self, theta: Tensor) -> State:
        """Batch-normalisation statistics of each client's model on its own training data; empty for other models."""
        if not self.task.has_statistics:
            return {}
        _, batch = next(self._sweep("train", _STATISTICS))
        return self.task.statistics(theta, batch)

    @torch.no_grad()
    def score(self, theta: Tensor, part: str) -> tuple[Tensor, Tensor]:
        """Mean loss and accuracy (R² for regression) [c] of each client's model on a part; NaN where it is empty."""
        count = torch.as_tensor(self.data.counts(part)[self.ids], dtype=torch.float64, device=theta.device)
        loss, right, square = (torch.zeros_like(count) for _ in range(3))
        total, total_square = torch.zeros_like(count), torch.zeros_like(count)
        classify = self.data.classes is not None
        own = self.statistics(theta)
        for here, batch in self._sweep(part, _SWEEP):
            models = theta if len(here) == len(theta) else _rows(theta, here)
            output = self.task.predict(models, batch.x, {k: v[here] for k, v in own.items()})
            valid = (batch.weight > 0).to(torch.float64)
            loss[here] += (self.task.errors(output, batch.y).to(torch.float64) * valid).sum(1)
            if classify:
                right[here] += (self.task.correct(output, batch.y) * valid).sum(1)
            else:
                y = batch.y.to(torch.float64)
                square[here] += ((output.reshape(y.shape).to(torch.float64) - y) ** 2 * valid).sum(1)
                total[here] += (y * valid).sum(1)
                total_square[here] += (y**2 * valid).sum(1)
        loss = torch.where(torch.isnan(loss), torch.inf, loss)  # a model that gives NaN is infinitely wrong
        if classify:
            return loss / count, right / count  # 0/0 is NaN: nothing to score
        spread = total_square - total**2 / count
        flat = spread <= 1e-12 * total_square  # one sample, or all targets alike: 1 if fitted exactly, else 0
        fit = torch.where(flat, (square <= 1e-12 * (1 + total_square)).to(torch.float64), 1 - square / spread)
        return loss / count, torch.where(count > 0, fit, torch.nan)


def _rows(theta: Tensor, here: Tensor) -> Tensor:
    """The rows `here`; one model expanded over all clients stays one model."""
    return theta[:1].expand(len(here), -1) if theta.stride(0) == 0 else theta[here]
