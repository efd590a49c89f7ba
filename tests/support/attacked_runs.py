"""Runs under attack, the messages that were sent in them, and their moments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from federations import ragged
from groups import grouped

import sartor as st
from sartor.core import Method, Server, State
from sartor.data import Clients
from sartor.engines import LocalEngine
from sartor.models import layers
from sartor.run.assemble import prepare
from sartor.run.named_parts import attack
from sartor.run.result import Result

SOLVER = st.SGD(lr=0.1, epochs=1, batch=7)


METHODS: dict[str, Method] = {
    "flame": st.FLAME(solver=SOLVER),
    "pfedme": st.PFedMe(R=2, train_all=True, solver=st.SGD(lr=0.05, steps=2, reuse=True, batch=7)),
    "ditto": st.Ditto(solver=SOLVER),
    "lp-proj-1": st.LpProj(p=1.0, d_sub=4, solver=SOLVER),
    "flame-lp-proj": st.FlameLpProj(d_sub=4, solver=SOLVER),
    "fedamp": st.FedAMP(solver=SOLVER),
    "fedavg": st.FedAvg(solver=SOLVER),
    "local": st.LocalOnly(solver=SOLVER),
}


def fixed(m: int = 12, n: int = 24, classes: int = 4, seed: int = 0) -> Clients:
    """Clients of equal size, so that moments of their labels can be told."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(m):
        y = rng.integers(classes, size=n)
        x = rng.normal(size=(n, 5)) + y[:, None]
        parts.append({"train": (x, y), "validation": (x[:4], y[:4]), "test": (x[:6], y[:6])})
    return st.Clients.from_parts(parts, classes)


def ready(name: str, text: str, attackers: float = 0.4, clients: Clients | None = None, **options: object) -> Result:
    data = ragged() if clients is None else clients
    assert data.classes is not None
    return prepare(
        METHODS[name],
        layers(5, 6, data.classes),
        data,
        seed=3,
        **grouped(dtype=torch.float64, attack=attack(text) or "none", attackers=attackers, **options),
    )


def messages(result: Result, rounds: Sequence[int] = (0,)) -> list[State]:
    """What clients send in these rounds from the first states, and what becomes of it at the server's door."""
    run, found = result.run, []
    assert isinstance(run.engine, LocalEngine)
    kept = {k: v.clone() for k, v in run.engine.save().items()}
    everyone = torch.arange(run.problem.clients)
    for r in rounds:
        seen: list[State] = []
        inner = getattr(run.method, "method", run.method)
        _, sent = run.engine.map("train", r, everyone, run.method.downlink(run.server, everyone, r))
        run.engine.restore(kept)
        wrapped = inner.server

        def watch(
            server: Server,
            ids: torch.Tensor,
            arrived: State,
            weights: torch.Tensor,
            round: int,
            seen: list[State] = seen,
        ) -> Server:
            seen.append(arrived)
            return server

        object.__setattr__(inner, "server", watch)
        run.method.server(run.server, everyone, sent, run.method.client_weights(run.problem.share), r)
        object.__setattr__(inner, "server", wrapped)
        found.append(seen[0])
    return found


ROUNDS = range(150)


def drawn(text: str, name: str = "fedavg") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[rounds, hostile, k]: hostile messages, the honest ones in their place, and [k] what all were sent."""
    clients = fixed()
    under, clean = ready(name, text, 0.5, clients), ready(name, "none", 0.0, clients)
    key = "u" if name.startswith("flame") else "w"
    hostile = under.run.hostile
    bad = np.stack([m[key][hostile].numpy() for m in messages(under, ROUNDS)])
    honest = np.stack([m[key][hostile].numpy() for m in messages(clean, ROUNDS)])
    return bad, honest, under.run.server["w"].numpy()
