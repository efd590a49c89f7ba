"""A stack of clients in one round: the `ClientStack` that a method sees, and the scores of models on its data."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..client_table import row_of
from ..core import WHOLE, Back, Batch, ClientLoss, Coupling, Dense, Plan, State, Task, weights_of
from ..couplings import Free, Quadratic, first, subtract_
from ..data.clients import Clients
from ..errors import SartorError, need
from ..judge.metric_intervals import values
from ..judge.prediction_metrics import METRICS
from ..seeds import hashes, orders
from ..tasks import compiled, convex, dense_steps
from ..tasks.neighbours import best_share, losses_of
from ..tasks.shared_layer import SharedLayer, worth_it
from .predictions import kind_of, merit_of_each, predicted

_SWEEP = 128  # samples of each client that a pass without training looks at in one go: in larger ones most is padding
_SWEEP_STEPS = 1 << 13  # the same of sequences, in steps: a network of them has hundreds of numbers for each in memory
_KEPT = 1024  # validation samples of a client of which it is kept what models say
_BATCH = 20  # samples of a minibatch, where a client has drawn none: those of the solvers' defaults
_NUMBERS = 1 << 24  # of samples' gradients in memory at a time
_LAYERS = 8  # objectives of all samples that are kept from round to round
_HELD = 1 << 22  # numbers of a part's samples that are gathered once for several passes
_SMALL, _LAID_OUT = 1 << 16, 32  # samples of all epochs whose batches' places are kept, and for how many stacks
_DISTANCES = 1 << 22  # to remembered samples, of one client at a time
_STATISTICS = 2048  # training samples of each client behind its batch-normalisation statistics
_JUDGED = ("validation", "test")
Said = tuple[Tensor, Batch, Tensor]  # places in the stack, their samples, what models say of them
Judged = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], Tensor]  # scores on validation and test data, and merits


class _Work:
    """What the clients of a stack, and of those taken from it, have computed; the last place counts for nobody."""

    def __init__(self, clients: int) -> None:
        self.taken = np.zeros(clients + 1, dtype=np.int64)  # minibatch gradients
        self.passes = np.zeros(clients + 1, dtype=np.int64)  # gradients over all data
        self.batch: int | None = None  # the smallest batches that were drawn


class Stack:
    """Clients `ids`, by falling number of training samples, with their data and the random order of their batches.

    In a stack of several runs (engines/joint.py) the data are all runs', `at` says where in them a client is, and
    `ids` and `seed` [c] are those of its own run, as what it draws must not depend on company.
    """

    def __init__(
        self, task: Task, data: Clients, ids: np.ndarray, visits: Tensor, round: int, seed: int | np.ndarray
    ) -> None:
        self.task, self.data, self.ids, self.round, self.seed = task, data, ids, round, seed
        self.at = ids
        self.layers: dict[bytes, SharedLayer] | None = None  # a place for what does not change from round to round
        self.clients, self.kind, self.blocks = len(data), task.kind, task.blocks
        self.counts = data.counts("train")[ids]
        share = torch.as_tensor(self.counts / data.trained_on, dtype=data.x.dtype, device=data.x.device)
        self.share = share[:, None]
        self.visits = visits
        self.samples = torch.as_tensor(self.counts, device=data.x.device)
        self.most_steps: int | None = None  # of a client in this round; none: as many as the method likes
        self.mixes = True  # whether mixtures of the personal and the global model are scored, too
        self._work, self._places = _Work(len(ids)), np.arange(len(ids))
        self._one_layer: _Counted | _CountedShared | None = None  # what `objective` has gathered
        self._orders: dict[tuple[int, int], tuple[np.ndarray, tuple[Tensor, Tensor, Tensor]]] = {}
        self._parts: dict[tuple[str, int], list[tuple[Tensor, Batch]]] = {}  # whole parts that were gathered
        self._remembers = task.neighbours is not None

    # --- training ---------------------------------------------------------------------------------------------------

    def batches(
        self, size: int, *, epochs: int = 1, steps: int | None = None, start: int = 0, stream: int = 0
    ) -> Iterator[tuple[int, Batch]]:
        takes = self._takes(size, epochs, steps)
        until = start + int(takes.max())
        index, ys, weights = (v[start:until].unbind() for v in self._order(stream, size, start + takes))
        keys = self._keys(stream)
        for t, a in enumerate(_at_work(takes)):
            rows, y, weight, key = index[t], ys[t], weights[t], keys + (start + t) if self.task.random else keys
            if a < len(keys):
                rows, y, weight, key = rows[:a], y[:a], weight[:a], key[:a]
            yield a, Batch(self._inputs(rows), y, weight, key)

    def _takes(self, size: int, epochs: int, steps: int | None) -> np.ndarray:
        """[c] how many batches each client takes."""
        self._work.batch = min(self._work.batch or size, size)
        per_epoch: np.ndarray = -(-self.counts // size)
        self._afford(int(per_epoch.max()) * epochs if steps is None else steps)  # Python's whole numbers: no overflow
        return per_epoch * epochs if steps is None else np.full(len(self.ids), steps)

    def _afford(self, steps: int | np.ndarray) -> None:
        """Refuse steps beyond what is allowed, before memory is taken for their batches."""
        if self.most_steps is not None:  # at a site only: a simulation pays nothing
            gone = int(self._work.taken.max()) + int(self._work.passes.max())
            text = f"a client would take more than {self.most_steps} local steps in this round"
            need(gone + int(np.max(steps)) <= self.most_steps, f"{text}; the method or its solver asks for too many.")

    def _order(self, stream: int, size: int, until: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, targets and weights [batches, c, size] of everyone's batches up to the number `until` [c]: epoch after
        epoch, each in a new order.

        A short last batch is padded with weight 0. What was drawn once in a round is kept.
        """
        per_epoch = -(-self.counts // size)
        each = -(-until // per_epoch)  # epochs
        if (stream, size) in self._orders:
            held, drawn = self._orders[stream, size]
            if (held >= each).all():
                return drawn
            each = np.maximum(held, each)
        order = orders(self.seed, f"batches {stream}", self.round, self.ids, self.counts, each)
        small = order.size <= _SMALL
        laid_out = _laid_out if small else _laid_out.__wrapped__
        at, there, weight = laid_out(self.counts.tobytes(), each.astype(np.int64).tobytes(), size, self.data.x.dtype)
        rows = order.reshape(-1)[at] + self.data.bounds[self.at, :1]
        index = torch.from_numpy(np.where(there, rows, 0)).to(self.data.x.device)
        y = self.data.y[index]
        drawn = index, y, self._class_weighted(y, weight.to(self.data.x.device))
        self._orders[stream, size] = (each, drawn)
        return drawn

    def _class_weighted(self, y: Tensor, weight: Tensor) -> Tensor:
        """Samples' weights in training times those of their classes, where classes have any."""
        return weight if self.task.class_weights is None else weight * self.task.class_weights[y]

    def _keys(self, stream: int) -> Tensor:
        if not self.task.random:
            return torch.zeros(len(self.ids), dtype=torch.int64, device=self.data.x.device)
        drawn = hashes(self.seed, f"layers {stream}", self.round, self.ids, np.zeros(1, dtype=np.int64))
        return torch.from_numpy((drawn[:, 0] >> np.uint64(2)).astype(np.int64)).to(self.data.x.device)

    def _inputs(self, rows: Tensor) -> Tensor:
        x = self.data.x.index_select(0, rows.reshape(-1))
        return x.view(rows.shape + x.shape[1:])

    def grad(self, theta: Tensor, batch: Batch) -> Tensor:
        self._count(len(theta))
        return self.task.grad(theta, batch)

    def clipped_grad(self, theta: Tensor, batch: Batch, clip: float) -> Tensor:
        """Each sample as a client of its own, with a copy of its client's model; some at a time."""
        self._count(len(theta))
        total, (a, b) = torch.zeros_like(theta), batch.weight.shape
        together = max(1, _NUMBERS // max(1, theta.numel()))
        for at in range(0, b, together):
            x, y, weight = (v[:, at : at + together] for v in (batch.x, batch.y, batch.weight))
            width = weight.shape[1]
            key = (batch.key[:, None] + torch.arange(at, at + width, device=batch.key.device)).view(-1)
            alone = Batch(x.flatten(0, 1)[:, None], y.flatten(0, 1)[:, None], weight.reshape(-1, 1), key)
            each = self.task.grad(theta.repeat_interleave(width, 0), alone)
            if clip < torch.inf:
                length = torch.linalg.vector_norm(each, dim=1, keepdim=True, dtype=torch.float64)
                each *= (clip / length.clamp(min=clip)).to(each.dtype)
            total += each.view(a, width, -1).sum(1)
        return total

    def descend_(self, theta: Tensor, plan: Plan, coupling: Coupling) -> None:
        """Compiled where the model is fully connected and the coupling pulls straight, else step by step."""
        if self._compiled(theta, plan, coupling):
            self._descend_compiled_(theta, plan, coupling)
            return
        now = theta
        schedule = self.batches(plan.size, epochs=plan.epochs, steps=plan.steps, start=plan.start, stream=plan.stream)
        for a, batch in schedule:
            now = theta[:a] if a != len(now) else now
            for _ in range(plan.repeats):
                self._count(a)
                if isinstance(plan.lr, Tensor):
                    g = self.task.grad(now, batch)
                    coupling.pull_(now, plan.lr[:a])
                    subtract_(now, g, plan.lr)
                else:
                    self.task.descend_(now, batch, plan.lr, coupling.pull_)

    def _compiled(self, theta: Tensor, plan: Plan, coupling: Coupling) -> bool:
        dense = self.task.dense
        plain = dense is not None and dense_steps.worth_it(dense, plan.size)
        lam = coupling.lam if isinstance(coupling, Quadratic) else 0.0
        each_weight = isinstance(lam, Tensor) and lam.shape[1] > 1  # its own pull, as EWC has it, not a client's
        straight = isinstance(coupling, Free | Quadratic) and not each_weight
        return plain and straight and theta.device.type == "cpu" and compiled.available()

    def _descend_compiled_(self, theta: Tensor, plan: Plan, coupling: Coupling) -> None:
        dense = self.task.dense
        assert dense is not None
        takes = self._takes(plan.size, plan.epochs, plan.steps)
        rows, y, weight = (v[plan.start :] for v in self._order(plan.stream, plan.size, plan.start + takes))
        self._count(len(theta), takes * plan.repeats)
        lam, anchor = (coupling.lam, coupling.anchor) if isinstance(coupling, Quadratic) else (0.0, None)
        lr, lam = first(plan.lr, len(theta)), first(lam, len(theta))  # of those at work
        net, steps = (dense.loss, dense.sizes, dense.biases), (takes, plan.repeats, lr)
        dense_steps.descend_(*net, theta, self.data.x, rows, y, weight, *steps, lam, anchor)

    # --- whole parts ------------------------------------------------------------------------------------------------

    def _sweep(self, part: str, size: int) -> Iterator[tuple[Tensor, Batch]]:
        """A part's samples in order, `size` of each client at a time: (places in the stack, batch of weights 1/n_i)."""
        counts = self.data.counts(part)[self.at]
        most = int(counts.max(initial=0))
        size = min(size, most)
        if (part, size) in self._parts:
            yield from self._parts[part, size]
            return
        first = self.data.bounds[self.at, ("train", "validation", "test").index(part)]
        kept: list[tuple[Tensor, Batch]] = []
        for at in range(0, most, max(1, size)):
            here = np.flatnonzero(counts > at)
            width = int(min(size, counts[here].max() - at))
            rows = at + np.arange(width)[None, :]
            valid = rows < counts[here, None]
            index = torch.from_numpy(np.where(valid, first[here, None] + rows, first[here, None]))
            weight = torch.from_numpy(valid / counts[here, None]).to(self.data.x)
            key = torch.zeros(len(here), dtype=torch.int64, device=self.data.x.device)
            rows_here = index.to(self.data.x.device)
            batch = Batch(self._inputs(rows_here), self.data.y[rows_here], weight, key)
            found = torch.from_numpy(here).to(self.data.x.device), batch
            kept.append(found)
            if sum(batch.x.numel() for _, batch in kept) > _HELD:
                kept.clear()
            elif at + size >= most and len(kept) == -(-most // size):
                self._parts[part, size] = kept
            yield found

    @property
    def _at_once(self) -> int:
        """Samples of each client that a pass looks at in one go."""
        steps = self.data.steps if self.task.dense is None else 1
        most = max(1, min(_SWEEP, _SWEEP_STEPS // steps))
        return max(1, min(most, _DISTANCES // self._room)) if self._remembers else most

    def full_loss(self, theta: Tensor) -> Tensor:
        total = theta.new_zeros(len(theta))
        for here, batch in self._sweep("train", self._at_once):
            own = batch._replace(weight=self._class_weighted(batch.y, batch.weight))
            total[here] += self.task.loss(_those(theta, here), own, train=False)
        return total

    def full_grad(self, theta: Tensor) -> Tensor:
        total = torch.zeros_like(theta)
        self._count_pass()
        for here, batch in self._sweep("train", self._at_once):
            own = batch._replace(weight=self._class_weighted(batch.y, batch.weight))
            slope = self.task.grad(_those(theta, here), own, train=False)
            if len(here) == len(theta) and self.counts.max() <= self._at_once:
                return slope  # of everybody's samples in one go
            total[here] += slope
        return total

    def quadratic(self) -> tuple[Tensor, Tensor]:
        _, batch = next(self._sweep("train", int(self.counts.max())))
        return self.task.quadratic(batch)

    def objective(self) -> ClientLoss:
        dense = convex.one_layer(self.task.dense)
        if dense is None:
            return _FullPasses(self)
        if self._one_layer is None:
            copies = self._copies()
            shared = self._shared_layer(dense, copies) if copies > 1 else None
            self._one_layer = _Counted(self, dense, self._whole()) if shared is None else _CountedShared(self, shared)
        return self._one_layer

    def _whole(self) -> Batch:
        """All training samples, as they count in training."""
        _, batch = next(self._sweep("train", int(self.counts.max())))
        return batch._replace(weight=self._class_weighted(batch.y, batch.weight))

    def _copies(self) -> int:
        """S, where all clients come in groups of S after each other that have the same data; else 1."""
        edges = np.flatnonzero(np.diff(self.data.bounds[self.at, :2], axis=0).any(1)) + 1
        copies = int(edges[0]) if len(edges) else len(self.at)
        regular = len(self.at) % copies == 0 and np.array_equal(edges, np.arange(copies, len(self.at), copies))
        return copies if regular else 1

    def _shared_layer(self, dense: Dense, copies: int) -> SharedLayer | None:
        """The objective of such groups, kept from round to round where there is a place for it."""
        mark = self.at.tobytes()
        if self.layers is not None and mark in self.layers:
            return self.layers[mark]
        batch = self.take(torch.arange(0, len(self.at), copies))._whole()
        made = SharedLayer(dense, batch, copies) if worth_it(batch, copies) else None
        if self.layers is not None and made is not None:
            if len(self.layers) >= _LAYERS:
                self.layers.clear()
            self.layers[mark] = made
        return made

    def validation(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        count = torch.as_tensor(self.data.counts("validation")[self.at], device=theta.device)
        return count, self.score(theta, "validation")[0]

    def class_shares(self) -> Tensor:
        k, y = self.data.classes, self.data.y
        need(
            k is not None and not y.is_floating_point() and y.dim() == 1, "targets that are no classes have no shares."
        )
        counts = [torch.bincount(y[self.data.rows(int(i), "train")], minlength=k or 0) for i in self.at]
        return torch.stack(counts).to(self.data.x) / self.samples.to(self.data.x)[:, None]

    def take(self, places: Tensor) -> Stack:
        here, rows = places.numpy(), places.to(self.visits.device)
        seed = self.seed if isinstance(self.seed, int) else self.seed[here]
        made = Stack(self.task, self.data, self.at[here], self.visits[rows], self.round, seed)
        made.ids, made.clients, made.share = self.ids[here], self.clients, self.share[rows]
        made.most_steps, made._work, made._places = self.most_steps, self._work, self._places[here]
        return made

    def counting(self, rows: Tensor) -> Stack:
        made = copy.copy(self)
        made._one_layer = None  # it counts at this one
        made._places = np.where(rows.cpu().numpy(), self._places, len(self._work.taken) - 1)
        return made

    def gradients(self) -> np.ndarray:
        """[c] the minibatch gradients that each client has evaluated. One over all of its data counts as the batches
        that it consists of: of the (smallest) size that was drawn in this round, or of 20 where none was."""
        each: np.ndarray = -(-self.counts // (self._work.batch or _BATCH))
        found: np.ndarray = self._work.taken[:-1] + self._work.passes[:-1] * each
        return found

    def _count(self, a: int, steps: int | np.ndarray = 1) -> None:
        """The first `a` clients have taken so many steps; a stack taken from another counts there."""
        self._afford(steps)
        np.add.at(self._work.taken, self._places[:a], steps)

    def _count_pass(self, at_work: Tensor | None = None) -> None:
        """Every client (or those at work) has evaluated one gradient over all of its data."""
        self._afford(1)
        places = self._places if at_work is None else self._places[at_work.cpu().numpy()]
        np.add.at(self._work.passes, places, 1)

    def vjp(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Back]:
        outputs, back = self.task.vjp(theta, batch)

        def counted(slope: Tensor) -> Tensor:
            self._count(len(theta))
            return back(slope)

        return outputs, counted

    def design(self) -> tuple[Tensor, Tensor, Tensor]:
        _, batch = next(self._sweep("train", int(self.counts.max())))
        return self.task.design(batch.x), batch.y, batch.weight > 0

    def order(self, epochs: int = 1, stream: int = 0) -> Iterator[tuple[int, Tensor]]:
        takes = self.counts * epochs
        index, _, _ = self._order(stream, 1, takes)
        first = torch.as_tensor(self.data.bounds[self.at, 0], device=index.device)
        for t, a in enumerate(_at_work(takes)):
            yield a, index[t, :a, 0] - first[:a]

    # --- scores -----------------------------------------------------------------------------------------------------

    def statistics(self, theta: Tensor) -> State:
        """What each client's model needs of the client's own training data: batch-normalisation statistics, remembered
        samples; empty for other models."""
        own: State = {}
        if self.task.has_statistics:
            _, batch = next(self._sweep("train", _STATISTICS))
            own = self.task.statistics(theta, batch)
        return own | self._remembered(theta, own) if self._remembers else own

    def forgetful(self) -> Stack:
        """The same stack for models that are nobody's own: they remember no samples."""
        made = copy.copy(self)
        made._remembers = False
        return made

    @property
    def _room(self) -> int:
        """How many samples a client remembers at most; the same for all, so that memories are one tensor."""
        capacity = None if self.task.neighbours is None else self.task.neighbours.capacity
        return int(self.data.counts("train").max()) if capacity is None else capacity

    def _remembered(self, theta: Tensor, own: State) -> State:
        """Which samples are kept where there are too many does not depend on seed or round: models of a run can be made
        again. Nothing is known of padding: features 0, label −1."""
        once = np.ones_like(self.ids)
        order = orders(0, "remembered", 0, np.zeros_like(self.ids), self.counts, once)[0, :, : self._room]
        there = np.arange(order.shape[1]) < self.counts[:, None]
        rows = torch.from_numpy(np.where(there, order, 0) + self.data.bounds[self.at, :1]).to(self.data.x.device)
        valid = torch.from_numpy(there).to(self.data.x.device)
        parts = [self.task.features(theta, self._inputs(some), own) for some in torch.split(rows, self._at_once, 1)]
        found = torch.cat(parts, 1)
        features = found.new_zeros(len(theta), self._room, found.shape[-1])
        labels = self.data.y.new_full((len(theta), self._room), -1)
        features[:, : rows.shape[1]] = torch.where(valid[..., None], found, 0)
        labels[:, : rows.shape[1]] = torch.where(valid, self.data.y[rows], -1)
        return self.task.remembered(features, labels, self._shares(theta, own, features, labels))

    def _shares(self, theta: Tensor, own: State, features: Tensor, labels: Tensor) -> Tensor:
        """[c] λ: what was asked for, or the best on each client's validation samples; a half where it has none."""
        assert self.task.neighbours is not None
        if (fixed := self.task.neighbours.share) is not None:
            return theta.new_full((len(theta),), fixed)
        votes_alone = own | self.task.remembered(features, labels, theta.new_ones(len(theta)))
        total: Tensor | None = None
        for here, batch in self._sweep("validation", self._at_once):
            models = _those(theta, here)
            said = self.task.predict(models, batch.x, {k: v[here] for k, v in own.items()}).softmax(-1)
            voted = self.task.predict(models, batch.x, {k: v[here] for k, v in votes_alone.items()}).exp()
            losses = torch.where(batch.weight[..., None] > 0, losses_of(voted, said, batch.y), 0).sum(1)
            total = losses.new_zeros(len(theta), losses.shape[1]) if total is None else total
            total[here] += losses
        if total is None:
            return theta.new_full((len(theta),), 0.5)
        none = torch.from_numpy(self.data.counts("validation")[self.at] == 0).to(theta.device)
        return torch.where(none, 0.5, best_share(total)).to(theta)

    @torch.no_grad()
    def score(self, theta: Tensor, part: str) -> tuple[Tensor, Tensor]:
        """Mean loss and accuracy (R² for regression; the user's own metric; or the named one, with the sign that makes
        it the higher the better) [c] of each client's model on a part; NaN where it is empty, and where the named
        metric is not defined (AUROC of one class)."""
        return self._score(theta, part, self._said(theta, part))

    @torch.no_grad()
    def judged(self, theta: Tensor) -> Judged:
        """`score` on validation and on test data, and `merits`; what models say of validation data is computed once,
        unless it is much."""
        if self.data.counts("validation")[self.at].max(initial=0) > _KEPT:
            return self.score(theta, "validation"), self.score(theta, "test"), self.merits(theta)
        own = self.statistics(theta)
        said, test = list(self._said(theta, "validation", own)), self._said(theta, "test", own)
        return self._score(theta, "validation", said), self._score(theta, "test", test), self._merits(theta, said)

    @property
    def mixes_outputs(self) -> bool:
        """Whether what a mixture of two models says is the mixture of what both say: so it is with one linear layer."""
        dense = self.task.dense
        return dense is not None and len(dense.biases) == 1 and self.task.named_metric is None and not self._remembers

    @torch.no_grad()
    def judged_mixtures(self, one: Tensor, other: Tensor, shares: Iterable[float]) -> Iterator[Judged]:
        """`judged` of models that have these shares of `one`, and the rest of `other`."""
        said = {(i, part): self._kept(theta, part) for i, theta in enumerate((one, other)) for part in _JUDGED}
        for share in shares:
            validation, test = (
                [
                    (here, batch, torch.lerp(theirs, mine, share))
                    for (here, batch, mine), (_, _, theirs) in zip(said[0, part], said[1, part], strict=True)
                ]
                for part in _JUDGED
            )
            scores = self._score(one, "validation", validation), self._score(one, "test", test)
            yield *scores, self._merits(one, validation)

    def _kept(self, theta: Tensor, part: str) -> list[Said]:
        """What models say of a part's samples, without the samples."""
        return [(here, batch._replace(x=batch.x[:0]), output) for here, batch, output in self._said(theta, part)]

    def _said(self, theta: Tensor, part: str, own: State | None = None) -> Iterator[Said]:
        """What models say of a part's samples: (places in the stack, batch, outputs); `own`: their statistics."""
        own = self.statistics(theta) if own is None else own
        for here, batch in self._sweep(part, self._at_once):
            yield here, batch, self.task.predict(_those(theta, here), batch.x, {k: v[here] for k, v in own.items()})

    def _named(self, theta: Tensor, part: str, name: str) -> Tensor:
        kind, found = kind_of(self.task, self.data), []
        for client, output in zip(self.at, self.outputs(theta, part), strict=True):
            y = self.data.y[self.data.rows(int(client), part)]
            said = predicted(kind, y.cpu().numpy(), output.double().cpu().numpy(), self.data.inputs)
            value = values([name], said)[name]
            found.append(np.nan if value is None else METRICS[name].sign * value)
        return torch.tensor(found, dtype=torch.float64, device=theta.device)

    def _score(self, theta: Tensor, part: str, said: Iterable[Said]) -> tuple[Tensor, Tensor]:
        loss, score = self._mean_score(theta, part, said)
        return loss, score if self.task.named_metric is None else self._named(theta, part, self.task.named_metric)

    def _mean_score(self, theta: Tensor, part: str, said: Iterable[Said]) -> tuple[Tensor, Tensor]:
        count = torch.as_tensor(self.data.counts(part)[self.at], dtype=torch.float64, device=theta.device)
        loss, right, square = (torch.zeros_like(count) for _ in range(3))
        total, total_square = torch.zeros_like(count), torch.zeros_like(count)
        classify = self.data.classes is not None or self.task.metric is not None
        for here, batch, output in said:
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

    @torch.no_grad()
    def outputs(self, theta: Tensor, part: str) -> list[Tensor]:
        """Of each client [n_i, ...] what its model says of every sample of a part."""
        own, found = self.statistics(theta), [list[Tensor]() for _ in self.ids]
        for here, batch, output in self._said(theta, part, own):
            for at, row, weight in zip(here.tolist(), output, batch.weight, strict=True):
                found[at].append(row[: int((weight > 0).sum())])
        empty = self.task.predict(theta[:1], self.data.x[:1][None], {k: v[:1] for k, v in own.items()})[0, :0]
        return [torch.cat(rows) if rows else empty for rows in found]

    @torch.no_grad()
    def merits(self, theta: Tensor) -> Tensor:
        """[c, n] how good each client's model is on each of its validation samples, NaN where it has no more: 1 where
        the class is right and else 0 (or the user's own metric); for regression 1 − squared error / variance of the
        client's training targets. R² itself would divide by the variance of what may be two samples. With a named
        metric what it is, or what stands for it, of a single sample (`merit_of_each`)."""
        return self._merits(theta, self._said(theta, "validation"))

    def _merits(self, theta: Tensor, said: Iterable[Said]) -> Tensor:
        counts, at = self.data.counts("validation")[self.at], 0
        out = torch.full((len(theta), int(counts.max(initial=0))), torch.nan, dtype=torch.float64, device=theta.device)
        unit = None if self.data.classes is not None or self.task.metric is not None else self._target_variance()
        for here, batch, output in said:
            if self.task.named_metric is not None:
                kind = kind_of(self.task, self.data)
                found = merit_of_each(self.task.named_metric, kind, output, batch.y, self._class_shares(here))
            elif unit is None:
                found = self.task.correct(output, batch.y)
            else:
                found = 1 - (output.reshape(batch.y.shape) - batch.y).to(torch.float64) ** 2 / unit[here, None]
            out[here, at : at + found.shape[1]] = torch.where(batch.weight > 0, found, torch.nan)
            at += self._at_once
        return out

    def _class_shares(self, here: Tensor) -> Tensor:
        """[a, k] of each client's validation samples those of each class, times the classes that it has."""
        if self.data.classes is None:
            return torch.ones(0)
        rows = []
        for at in here.tolist():
            y = self.data.y[self.data.rows(int(self.at[at]), "validation")]
            counts = torch.bincount((y > 0).long() if y.is_floating_point() else y, minlength=self.data.classes)
            rows.append((counts > 0).sum() * counts.double() / len(y))
        return torch.stack(rows)

    def _target_variance(self) -> Tensor:
        """[c] of each client's training targets; 1 where they are all alike."""
        each = [self.data.y[self.data.rows(i, "train")].double() for i in self.at]
        spread = torch.stack([y.var(correction=0) for y in each])
        size = torch.stack([(y**2).mean() for y in each])
        return torch.where(spread > 1e-12 * size, spread, 1.0)


class _Counted(convex.OneLayer):
    """One linear layer over all training data; what is evaluated is counted at the stack."""

    def __init__(self, stack: Stack, dense: Dense, batch: Batch) -> None:
        super().__init__(dense, batch)
        self._stack = stack

    def grad(self, theta: Tensor, at_work: Tensor | None = None) -> Tensor:
        self._stack._count_pass(at_work)
        return super().grad(theta)


class _CountedShared:
    """The same where several clients have the same data."""

    def __init__(self, stack: Stack, of: SharedLayer) -> None:
        self._stack, self.penalised, self.equations = stack, of.penalised, of.equations
        self.loss, self.hessian, self._grad = of.loss, of.hessian, of.grad

    def grad(self, theta: Tensor, at_work: Tensor | None = None) -> Tensor:
        self._stack._count_pass(at_work)
        return self._grad(theta)


class _FullPasses:
    """Any other model: passes over all training data, without curvature."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self.penalised = stack, weights_of(stack.task.blocks, stack.data.x.new_ones(stack.task.size))

    def loss(self, theta: Tensor) -> Tensor:
        return self._stack.full_loss(theta)

    def grad(self, theta: Tensor, at_work: Tensor | None = None) -> Tensor:
        return (self._stack if at_work is None else self._stack.counting(at_work)).full_grad(theta)

    def hessian(self, theta: Tensor, part: slice = WHOLE) -> Tensor:
        task = self._stack.task
        raise SartorError(
            "the newton solver needs a linear model (linear, softmax, or svm with squared-hinge loss); got "
            f"{task.kind} loss on a model of {task.size} parameters; use lbfgs or sgd."
        )


@lru_cache(maxsize=_LAID_OUT)
def _laid_out(counts: bytes, each: bytes, size: int, dtype: torch.dtype) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """Of clients with so many samples, who go through them so often (`each` [c]), in batches of this size: their places
    in the orders [epochs, c, n], where there are samples at all, and weights, [batches, c, size] each. The same in
    every round."""
    n_i, epochs = np.frombuffer(counts, np.int64), np.frombuffer(each, np.int64)
    (n, c), per_epoch = (int(n_i.max()), len(n_i)), -(-n_i // size)
    # A client with few batches begins its next epoch at once.
    epoch, batch = np.divmod(np.arange((epochs * per_epoch).max())[:, None], per_epoch)
    place = batch[..., None] * size + np.arange(min(size, n))  # in its epoch; a wider batch would be padding
    there = place < n_i[:, None]
    line = epoch.clip(max=int(epochs.max()) - 1) * c + np.arange(c)
    valid = torch.from_numpy(there)
    weight = valid.to(dtype) / valid.sum(-1, keepdim=True).clamp(min=1)
    return line[..., None] * n + place.clip(max=n - 1), there, weight.contiguous()


def _those(theta: Tensor, here: Tensor) -> Tensor:
    """The rows `here`, which are in order."""
    return theta if len(here) == len(theta) else row_of(theta, here)


def _at_work(takes: np.ndarray) -> list[int]:
    """For each step, how many clients take it: the first so many, as they are ordered by size."""
    counts: list[int] = (takes[None, :] > np.arange(int(takes.max()))[:, None]).sum(1).tolist()
    return counts
