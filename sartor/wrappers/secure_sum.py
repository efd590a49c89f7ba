"""Secure aggregation: the server gets the sum of the messages, and not one of them.

    client i:  q_i = round(2^F · a_i · x_i) mod 2^64      (x_i: its message, a_i: its weight, 1 or its share of samples)
    server:    x̄ = 2^−F Σ_i q_i / Σ_i a_i                 and the method's own step with x̄ in place of every message

Whole numbers are added modulo 2^64 without rounding, so masks that cancel in the sum change nothing (a real federation
has them: federation/masks.py; a simulation need not draw them, and gives the same bits). What is lost is the rounding
to a grid of 2^−F, and eight bytes are sent for each number.

A compressor that is linear (projection; sketch with one row: the same L for all clients in a round) goes with it, as
the sum of codes is the code of the sum: L(γ(e_i + x_i − w)) is sent, or L(γ(x_i − h_i)) of changes, with the error
feedback of compression.py at the client, and x̄ is read from the mean of the codes. So does a common grid: then the
whole numbers count its steps in place of 2^−F, and are added modulo 2^16 or 2^32, in two or four bytes each.

So the server's step may depend on the messages through their mean alone. Where it keeps every client's last message
(FLAME, FedADMM, L2SGD) clients send the change of theirs, and the server's mean moves by the sum of the changes. Where
messages have noise it moves by Σ_i (x_i − w) instead, as in privacy.py: taking a last message back would take its noise
back.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..aggregators import mean
from ..client_table import Rows
from ..compressors import CommonGrid, Compressor, Draws, RandomProjection, Sketch
from ..compressors.common_grid import WORDS
from ..compressors.projection import Shadow
from ..compressors.sketch import SketchCode
from ..core import ClientStack, Method, Problem, Server, State
from ..errors import Diverged, need
from .base import Wrapper

F = 32  # bits behind the point
LEAST = 3  # sites: of two, each would know the other's message from the sum
_FEWEST = 7  # multiples of a common grid's step on either side of 0, as int4 has them
_OURS = "secure."  # what the names of our own client states begin with


class SecureSum(Wrapper):
    """`method`, whose server sees sums of messages only. `noisy`: its messages have noise. `up`: how they are coded."""

    def __init__(self, method: Method, noisy: bool, up: Compressor | None = None, seed: int = 0) -> None:
        super().__init__(method)
        self.up, self.seed = up, seed
        linear = isinstance(up, RandomProjection | CommonGrid) or (isinstance(up, Sketch) and up.rows == 1)
        self.grid = up if isinstance(up, CommonGrid) else None
        need(
            up is None or (linear and up.feedback),
            f"secure aggregation adds up codes, and those of {type(up).__name__.lower()} cannot be added; compress "
            "with projection, sketch(rows=1) or grid and error feedback, or not at all.",
        )
        averaging = method.averaging()
        name, rule = (averaging or method).name, None if averaging is None else averaging.aggregate
        need(
            averaging is not None and rule is not None,
            f"{name} does not go with secure aggregation: its server takes no mean, it must see single messages. "
            "Use a method that averages, such as flame, ditto or fedavg.",
        )
        need(
            rule == mean,
            f"the aggregator {type(rule).__name__} does not go with secure aggregation: it compares single messages, "
            "which nobody sees. Use the mean.",
        )
        assert averaging is not None
        need(not averaging.unsummed, f"{name} does not go with secure aggregation: {averaging.unsummed}.")
        self.keeps_changes = averaging.keeps_last and not noisy
        self.forgets = averaging.keeps_last

    def init(self, problem: Problem) -> tuple[Server, State]:
        if self.grid is not None:
            levels = self.grid.levels(problem.clients)
            need(
                levels >= _FEWEST,
                f"a sum of {problem.clients} clients leaves each {levels} multiples of grid's step in a word of "
                f"{self.grid.bits} bits; at least {_FEWEST} are needed. Use grid(bits=32), projection or sketch.",
            )
        server, state = self.method.init(problem)
        down, own = self.method.downlink(server, torch.arange(1), 0), State()
        for sent in self.sends:
            if self.keeps_changes:
                own[f"{_OURS}{sent.name}"] = server["w"].double()
            elif self.up is not None:
                own[f"{_OURS}{sent.name}"] = 0 * down[sent.down][0].double()  # the error that is fed back
        return server, state | own

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        own = {k: v for k, v in state.items() if k.startswith(_OURS)}
        inner = {k: v for k, v in state.items() if k not in own}
        new, messages = self.method.client(inner, down, local)
        numbers = sorted(k for k, x in messages.items() if x.dim() < 2)
        need(not numbers, f"secure aggregation adds up vectors; {self.name} sends the number {', '.join(numbers)}.")
        weights = self.method.client_weights(local.share[:, 0])[:, None]
        unnamed = sorted(messages.keys() - {sent.name for sent in self.sends})
        need(
            self.grid is None or not unnamed,
            f"grid needs to know what a message is a change of, and {self.name} does not say it of "
            f"{', '.join(unnamed)}; use projection or sketch.",
        )
        out = {}
        for key, x in messages.items():
            h = own.get(f"{_OURS}{key}")
            if h is None:
                out[key] = fixed(x, local.clients, weights)
            elif self.keeps_changes:
                out[key] = self._whole(self._coded(x.double() - h, key, local.round), local.clients)
                own[f"{_OURS}{key}"] = h + self._read(self._worth(out[key]), key, local.round, x.shape[1])
            else:
                change = h + x.double() - self._base(key, down)
                code = self._coded(change, key, local.round)
                out[key] = self._whole(code, local.clients, weights)
                code = code if self.grid is None else self._worth(out[key]) / weights
                own[f"{_OURS}{key}"] = change - self._read(code, key, local.round, x.shape[1])
        return new | own, out

    def _whole(self, x: Tensor, clients: int, weights: Tensor | float = 1.0) -> Tensor:
        """Whole numbers of which `clients` can be added up: in units of 2^−F, or of the common grid's step."""
        if self.grid is None:
            return fixed(x, clients, weights)
        q = self.grid.nearest(x * weights, clients)
        if not bool(q.isfinite().all()):
            raise Diverged("a message holds NaN or Inf: it cannot be summed.")
        return q.to(WORDS[self.grid.bits])

    def _worth(self, q: Tensor) -> Tensor:
        """What such whole numbers, or their sum, are worth."""
        return value(q) if self.grid is None else q.double() * self.grid.step

    def _base(self, key: str, down: State) -> Tensor | float:
        """What a client was sent that its message is an update of; 0 where it is a difference already."""
        sent = next(sent for sent in self.sends if sent.name == key)
        return 0.0 if sent.against == "sum" else down[sent.down].double()

    def _coded(self, x: Tensor, key: str, round: int) -> Tensor:
        """[c, k] L(γx); x itself where nothing is compressed, or by whole numbers alone."""
        if self.up is None or self.grid is not None:
            return x
        code, _ = self.up.encode(x / (1 + self.up.omega(x.shape[1])), {}, self._draws(key, round))
        return code.z if isinstance(code, Shadow) else code.S.flatten(1)  # type: ignore[attr-defined]

    def _read(self, z: Tensor, key: str, round: int, size: int) -> Tensor:
        """[c, size] what a receiver makes of codes, or of their mean."""
        if self.up is None or self.grid is not None:
            return z
        if isinstance(self.up, RandomProjection):
            return Shadow(z, self._draws(key, round).key() if self.up.fresh else self.up.seed, size).value()
        return SketchCode(z[:, None], self._draws(key, round).key(), size).value()

    def _draws(self, key: str, round: int) -> Draws:
        """Of a round's L, the same for all clients."""
        return Draws(self.seed, f"compress up {key}", round, np.zeros(0, dtype=np.int64))

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        w: Tensor = server["w"]
        total = {k: self._worth(q.sum(0).to(q.dtype)) for k, q in messages.items()}  # modulo 2^64, 2^32 or 2^16
        down, divisor = self.method.downlink(server, ids[:1], round), weights.double().sum()
        means: State = {}
        for k, v in total.items():
            if self.keeps_changes:
                means[k] = w.double() + self._read(v[None] / len(ids), k, round, len(w))[0]
            elif self.up is None:
                means[k] = v / divisor
            else:
                size = down[next(s.down for s in self.sends if s.name == k)].shape[-1]
                means[k] = (self._base(k, down) + self._read(v[None] / divisor, k, round, size)).reshape(-1)
        alike = {k: v.to(w.dtype).expand(len(ids), -1) for k, v in means.items()}
        if not self.forgets:
            return self.method.server(server, ids, alike, weights, round)
        m = len(server["u"])
        forgetful = server | {"u": Rows(m, w), "sum": m * w.double()}
        return self.method.server(forgetful, ids, alike, weights, round) | {"u": server["u"]}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor | None:
        return self.method.personal(_inner(state), down, local)

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return self.method.diagnose(_inner(state), down, local)


def _inner(state: State) -> State:
    return {k: v for k, v in state.items() if not k.startswith(_OURS)}


def fixed(x: Tensor, clients: int, weights: Tensor | float = 1.0) -> Tensor:
    """x · weights in units of 2^−F, as whole numbers of which `clients` can be added up."""
    scaled = x.to(torch.float64, copy=True)
    scaled *= weights * 2.0**F  # a power of two changes no digit: one multiplication in place of two
    low, high = scaled.aminmax() if scaled.numel() else (scaled.new_zeros(()), scaled.new_zeros(()))
    if not (float(high) < 2.0**62 / clients and float(low) > -(2.0**62) / clients):  # false for NaN, too
        raise Diverged(f"a message holds NaN, or a number above {2.0 ** (62 - F) / clients:g}: too large to be summed.")
    return scaled.round_().to(torch.int64)


def value(q: Tensor) -> Tensor:
    """What whole numbers in units of 2^−F are worth."""
    return q.double().mul_(2.0**-F)
