"""Client-level differential privacy: what a client adds to the federation is clipped, and noise hides the rest.

    Δ_i = m_i − d_i,   Δ'_i = Δ_i · min(1, C/‖Δ_i‖)         (m_i: a client's message, d_i: what it answers, C: `clip`)
    client:   send d_i + Δ'_i + zC·N(0, I)                                  each message is private by itself
    server:   (1/n) Σ_i Δ'_i + (zC/n)·N(0, I)                               the mean is; whoever computes it is trusted
    sum:      send d_i + Δ'_i + (zC/√k)·N(0, I)                       the sum of k or more is; single ones nobody sees

z is `noise`, n the cohort (the expected one where it is drawn by chance: dividing by the number that came would leak
it). Whatever a method does with a private message or a private mean costs nothing more. So with noise at the client any
method will do that sends one vector; with noise at the server it must take a plain mean of them. All clients weigh
alike: sizes are data, too. Where a server keeps every client's last message (FLAME, FedADMM, L2SGD) a private one
cannot, as taking an old message back would take its noise back: a client that sat out counts with the server's own w,

    w = w + (1/m) ( Σ_i Δ'_i + zC·N(0, I) )   over those that answered; with everyone this is the method's own mean

Noise is a function of the seed, so that a simulation can be repeated; in a federation that is for real a site draws it
from its own entropy (federation/os_noise.py). docs/privacy.md says what the guarantee covers, method by method;
run/privacy_account.py computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..aggregators import mean
from ..client_table import Rows
from ..core import ClientStack, Method, Problem, Server, State
from ..errors import need, not_negative, one_of, positive
from ..seeds import stream
from .base import Wrapper, sent

NoiseSource = Callable[[int, int, int, int], np.ndarray]  # (size, round, client, step) → [size] N(0, 1)
UNITS = ("client", "sample")
PLACES, ACCOUNTANTS = ("server", "client"), ("rdp", "prv")


@dataclass(frozen=True)
class Privacy:
    """How private a run is: the noise, or the ε for which it is to be found.

    For example:

        >>> private = st.Privacy(noise=1.0, clip=0.5)
        >>> result = st.fit(st.FedAvg(), model, clients, rounds=2, privacy=private)
        >>> bool(result.summary["privacy"]["epsilon"] > 0)
        True
    """

    noise: float | None = None  # z: the noise's standard deviation is zC
    clip: float = 1.0  # C
    delta: float = 1e-5
    where: str = "server"
    epsilon: float | None = None  # in place of the noise
    accountant: str = "rdp"  # or "prv", tighter, but numerical
    # Who is protected: all data of a client, or each sample (sample_privacy.py: clip and noise are then of gradients).
    unit: str = "client"
    planned: int | None = None  # with an epsilon of samples: the rounds that it is to last for; none: all of the run

    def __post_init__(self) -> None:
        one = (self.noise is None) != (self.epsilon is None)
        need(one, f"privacy needs either noise or epsilon; got noise={self.noise}, epsilon={self.epsilon}.")
        if self.epsilon is not None:
            positive("privacy", epsilon=self.epsilon)
        not_negative("privacy", noise=self.noise or 0.0)
        told = not self.noise or 1e-100 <= self.noise <= 1e100  # beyond, epsilon cannot be computed, and says nothing
        need(told, f"privacy needs noise = 0, or from 1e-100 to 1e100; got {self.noise}.")
        need(self.clip > 0, f"privacy needs clip > 0; got {self.clip}.")
        need(
            math.isfinite(self.clip) or self.noise == 0,
            "noise is a multiple of the clip: with noise the clip must be finite; got inf.",
        )
        lasting = self.planned is None or (self.unit == "sample" and self.epsilon is not None and self.planned >= 1)
        need(lasting, f"privacy's planned rounds are of an epsilon of samples, and at least 1; got {self.planned}.")
        need(0 < self.delta < 1, f"privacy needs delta in (0, 1), far below one over the clients; got {self.delta}.")
        one_of("privacy", "where", self.where, PLACES)
        one_of("privacy", "unit", self.unit, UNITS)
        one_of("privacy", "accountant", self.accountant, ACCOUNTANTS)


def clipped(messages: Tensor, base: Tensor, clip: float) -> Tensor:
    """[n, k] messages whose distance from the base is at most `clip`; those that are near enough stay as they are."""
    delta = messages - base
    length = torch.linalg.vector_norm(delta, dim=1, keepdim=True, dtype=torch.float64)
    factor = (clip / length.clamp(min=torch.finfo(torch.float64).tiny)).to(delta.dtype)
    return torch.where(length <= clip, messages, base + factor * delta)


class Private(Wrapper):
    """`method` with messages that are clipped and noisy."""

    def __init__(
        self,
        method: Method,
        privacy: Privacy,
        cohort: int,
        seed: int,
        source: NoiseSource | None = None,
        together: int | None = None,
    ) -> None:
        """`source`: where a real site's noise comes from; none: it is a function of the seed. `together`: only the sum
        of at least so many messages is seen (secure_sum.py), and it is the sum that carries the noise."""
        super().__init__(method)
        self.source = source
        assert privacy.noise is not None, "the noise is found before the run is made"
        self.privacy, self.cohort, self.seed = privacy, cohort, seed
        self.clip, self.noise = privacy.clip, privacy.noise
        self.std = self.noise * self.clip if self.noise else 0.0  # 0·inf is no number
        self.std /= 1.0 if together is None else math.sqrt(together)
        self.at_clients = privacy.where == "client" or together is not None
        _check(method, privacy.where)

    def init(self, problem: Problem) -> tuple[Server, State]:
        """Nobody is told who has how many samples."""
        m = problem.clients
        return self.method.init(replace(problem, share=torch.full_like(problem.share, 1 / m)))

    def client_weights(self, share: Tensor) -> Tensor:
        return torch.ones_like(share)

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        new, messages = self.method.client(state, down, local)
        if not self.at_clients:
            return new, messages
        key, u = self._vector(messages)
        u = clipped(u, sent(key, u, down), self.clip)
        if self.std:
            u = u + torch.stack([self._draw(u, local.round, int(i)) for i in local.ids])
        return new, {key: u}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        if self.at_clients:
            return self.method.server(server, ids, messages, weights, round)
        key, u = self._vector(messages)
        base = sent(key, u, self.method.downlink(server, ids, round))
        u, k = clipped(u, base, self.clip), len(ids)
        averaging = self.method.averaging()
        keeps = averaging is not None and averaging.keeps_last
        if not keeps and k != self.cohort:
            u = base + (u - base) * (k / self.cohort)  # a mean of k becomes a sum over n
        if self.std:
            u = u + self._draw(u, round) / (k if keeps else self.cohort)
        if not keeps:
            return self.method.server(server, ids, {key: u}, weights, round)
        m, w = len(server["u"]), server["w"]
        forgetful = server | {"u": Rows(m, w), "sum": m * w.double()}
        return self.method.server(forgetful, ids, {key: u}, weights, round) | {"u": server["u"]}

    def _draw(self, like: Tensor, round: int, client: int | None = None) -> Tensor:
        """[k] zC·N(0, I), of a client or of the server."""
        if client is None:
            drawn = stream(self.seed, "privacy", round, 0).standard_normal(like.shape[1])
        else:
            drawn = (self.source or self.simulated)(like.shape[1], round, client, 0)
        return self.std * torch.from_numpy(drawn).to(like)

    def simulated(self, size: int, round: int, client: int, step: int) -> np.ndarray:
        """[size] N(0, 1) of a client."""
        return stream(self.seed, "privacy of a client", round, client).standard_normal(size)

    def _vector(self, messages: State) -> tuple[str, Tensor]:
        """The only thing that a client may send."""
        found = list(messages.items())
        name = (self.method.averaging() or self.method).name
        need(
            len(found) == 1 and found[0][1].dim() == 2,
            f"a private message is one vector; {name} sends {', '.join(messages) or 'nothing'}.",
        )
        return found[0]


def _check(method: Method, where: str) -> None:
    """Refuse what clipping and noise cannot make private, with the reason."""
    averaging, reason = method.averaging(), method.exposes()
    name, rule = (averaging or method).name, None if averaging is None else averaging.aggregate
    need(not reason, f"{name} cannot be made private, as it exposes {reason}.")
    need(
        where == "client" or rule is not None,
        f"{name}'s server takes no mean of the messages, so noise on the mean cannot make it private; "
        "add it at the clients (--dp-where client), or use a method that averages.",
    )
    need(
        where == "client" or rule == mean,
        f"noise at the server is made for the mean, whose sensitivity is known; got {type(rule).__name__}. "
        "Use the mean, or add noise at the clients (--dp-where client).",
    )
    need(
        rule is None or not rule.needs_losses,
        f"{type(rule).__name__} needs every client's loss, which would leave the client without noise; "
        "use another aggregator.",
    )
