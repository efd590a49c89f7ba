"""The work that all benchmark programs do: federations, models and methods, the same for us and for whom we measure.

Data: Fashion-MNIST where its files are found (nothing is downloaded), else random images with a linear rule behind
their labels. The samples are dealt in shards of one label, two to a client, so that clients differ. Sequences are
random: numbers of the shape of HAR's, letters of that of Shakespeare's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

import sartor as st
from sartor.core import Method
from sartor.data.clients import Clients
from sartor.errors import SartorError
from sartor.run.assemble import prepare
from sartor.run.rounds import Run
from sartor.seeds import orders, stream

SEED = 0
SHAPE = (1, 28, 28)
CLASSES = 10
TEST = 50  # test samples of each client; scored by the programs that evaluate


@dataclass(frozen=True)
class Work:
    """A federation: so many clients with so many training samples each, and the model that they train."""

    model: str
    clients: int
    samples: int
    batch: int
    lr: float
    shape: tuple[int, ...] = SHAPE
    outputs: int = CLASSES
    tokens: bool = False  # sequences of tokens, whose next ones are to be said

    def build(self) -> nn.Module:
        """The model, not yet started from the seed."""
        return st.models.build(self.model, self.shape, self.outputs, self.tokens)

    @property
    def steps(self) -> int:
        """Local steps in one epoch of one client."""
        return -(-self.samples // self.batch)


WORKS = {
    "softmax": Work("softmax", clients=100, samples=200, batch=20, lr=0.01),
    "mlp": Work("dnn", clients=100, samples=200, batch=20, lr=0.01),  # 784-100-10
    "cnn": Work("cnn", clients=10, samples=200, batch=100, lr=0.01),
}
SEQUENCES = {
    "gru": Work("gru", clients=30, samples=60, batch=20, lr=0.01, shape=(9, 128), outputs=6),
    "transformer": Work("transformer", clients=30, samples=60, batch=20, lr=0.01, shape=(64,), outputs=65, tokens=True),
}

# One epoch a round. pFedMe: R = 10 minibatches (an epoch) with K = 5 steps on each, as its authors run it.
LAM, RHO, MU, ETA, LOCAL_STEPS = 0.1, 0.03, 0.1, 0.5, 5
METHODS: dict[str, Callable[[Work], Method]] = {
    "fedavg": lambda k: st.FedAvg(solver=st.SGD(lr=k.lr, batch=k.batch)),
    "fedprox": lambda k: st.FedAvg(mu=MU, solver=st.SGD(lr=k.lr, batch=k.batch)),
    "flame": lambda k: st.FLAME(lam=LAM, rho=RHO, anchor="local", solver=st.SGD(lr=k.lr, batch=k.batch)),
    "pfedme": lambda k: st.PFedMe(
        lam=LAM, eta=ETA, R=k.steps, solver=st.SGD(lr=k.lr, batch=k.batch, steps=LOCAL_STEPS, reuse=True)
    ),
    "ditto": lambda k: st.Ditto(lam=LAM, solver=st.SGD(lr=k.lr, batch=k.batch)),
}


@lru_cache(maxsize=1)
def _source(wanted: int) -> tuple[str, Tensor, Tensor]:
    """(name, x, y): Fashion-MNIST where found, else made."""
    try:
        found = st.data.load("fashion-mnist", download=False)
        return "Fashion-MNIST", torch.as_tensor(found.x).float() / 255, torch.as_tensor(found.y).long()
    except SartorError:
        draw = torch.Generator().manual_seed(SEED)
        x = torch.rand(wanted, *SHAPE, generator=draw)
        rule = torch.randn(x[0].numel(), CLASSES, generator=draw)
        return "random images", x, (x.flatten(1) @ rule).argmax(1)


def _sequences(work: Work) -> Clients:
    """Clients with random sequences."""
    draw = stream(SEED, "benchmark data")

    def part(n: int) -> tuple[np.ndarray, np.ndarray]:
        if work.tokens:
            text = draw.integers(work.outputs, size=(n, work.shape[0] + 1))
            return text[:, :-1].astype(np.float32), text[:, 1:]
        return draw.normal(size=(n, *work.shape)).astype(np.float32), draw.integers(work.outputs, size=n)

    parts = [{"train": part(work.samples), "test": part(TEST)} for _ in range(work.clients)]
    return replace(Clients.from_parts(parts, work.outputs), about={"source": "random sequences"})


def federation(work: Work) -> Clients:
    """The clients' data: equally many samples each, two shards of (mostly) one label."""
    if work.shape != SHAPE:
        return _sequences(work)
    each = work.samples + TEST
    name, x, y = _source(40_000)
    draw = stream(SEED, "benchmark data")
    taken = draw.permutation(len(y))[: work.clients * each]
    shards = taken[np.argsort(y.numpy()[taken], kind="stable")].reshape(2 * work.clients, each // 2)
    rows = shards[draw.permutation(len(shards))].reshape(work.clients, each)
    rows = draw.permuted(rows, axis=1).reshape(-1)
    first = np.arange(work.clients, dtype=np.int64)[:, None] * each
    bounds = first + np.array([0, work.samples, work.samples, each])
    names = [str(i) for i in range(work.clients)]
    return Clients(x[rows].contiguous(), y[rows].contiguous(), bounds, names, CLASSES, {"source": name})


@lru_cache(maxsize=4)
def epoch(round: int, clients: int, samples: int, order: int = 0) -> Tensor:
    """[clients, samples] the order in which every client goes through its samples in this round, for all programs."""
    counts, once = np.full(clients, samples), np.ones(clients, dtype=int)
    return torch.from_numpy(orders(SEED, f"batches {order}", round, np.arange(clients), counts, once)[0])


def start(work: Work, method: str, data: Clients, **options: object) -> Run:
    """Our run, before its first round."""
    loss, execution = "next-token" if work.tokens else None, st.Execution(**options)  # type: ignore[arg-type]
    return prepare(METHODS[method](work), work.build(), data, seed=SEED, loss=loss, execution=execution).run


def outcome(run: Run) -> dict[str, Tensor]:
    """The global model and the clients' personal ones, by their names in the paper."""
    kept = run.engine.save()
    personal = {k: kept[f"state/{k}"] for k in ("theta", "v") if f"state/{k}" in kept}
    return {"w": run.server["w"]} | personal
