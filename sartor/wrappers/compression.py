"""Compression: a method whose messages, downlinks or both go through a lossy code (sartor/compressors).

What is compressed is always a difference to something that both sides know. Each method says for the vectors that it
sends (`Method.sends`) which:

    "down"   message − downlink: the message is the received model, trained on (FedAvg, Ditto, pFedMe, Lp-Proj's w̃, ...)
    "last"   message − h, the client's own last message as the server has it: a message that does not settle at what
             was received (FLAME's u_i = w_i + π_i/ρ, FedAMP's, RSA's and L2SGD's personal models)
    "sum"    the message itself: a difference already, which the server adds up (SCAFFOLD's Δc, MOCHA's Δv)

    down, no feedback:   send C(x − down)                            with feedback:  send C(γ(e + x − down)), keep e
    sum:                 send C(γ(e + x)), keep e: what is lost must come later, as the server adds up
    last, no feedback:   send C(x − h);      h = h + γ C(x − h)      (DIANA, Mishchenko et al. 2019: server takes h + C)
    last, with feedback: send C(γ(x − h));   h = h + C(γ(x − h))     (EF21, Richtárik et al. 2021: server takes h)

γ = 1/(1 + ω) makes an unbiased code a contraction; it is 1 for a code that is one. A downlink is always "last": what
the client holds is what it was sent so far, also when it sat out for some rounds. e and h are client state. The server
has the same h; a simulation keeps one of the two. Single numbers (a loss, MOCHA's σ), and what `sends` does not name
(IFCA's choice), go as they are. Attackers compress like everybody else.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..compressors import HEADER, Code, Compressor, Draws, Raw, encode, lengths
from ..core import ClientStack, Method, Problem, Sent, Server, State
from ..errors import need
from .base import Wrapper

_OURS = "compress."  # what the names of our own client states begin with

# Notes that compression leaves in messages, [c, 2]: the bytes that were sent, and the most that the next can be.
UP, DOWN = "bytes up", "bytes down"


class Exchange(NamedTuple):
    """One round of c clients: their new states, their messages as the server has them, and what went over the wire."""

    state: State
    messages: State
    down: dict[str, Code]
    up: dict[str, Code]


class Compressed(Wrapper):
    """`method` with messages compressed by `up`, and downlinks by `down`; none: as they are."""

    def __init__(self, method: Method, up: Compressor | None, down: Compressor | None, seed: int) -> None:
        super().__init__(method)
        self.up, self.down, self.seed = up, down, seed
        why = self.method.uncompressed
        need(not why, f"{method.name} cannot be compressed: {why}. Leave compression out, or take mr-mtl.")
        self.named = {sent.name: sent for sent in self.sends}
        points = sorted(k for k, sent in self.named.items() if sent.against != "down")
        need(
            up is None or not (up.only_updates and points),
            f"{type(up).__name__.lower()} carries momentum over updates of a received model; what is sent here as "
            f"{', '.join(points)} is none. Use top-k.",
        )
        need(
            down is None or not down.only_updates,
            f"{type(down).__name__.lower()} is for what clients send; compress downlinks with another, as top-k.",
        )

    def init(self, problem: Problem) -> tuple[Server, State]:
        server, state = self.method.init(problem)
        first = self.method.downlink(server, torch.arange(1), 0)
        own: State = {}
        for key, v in first.items():
            if self.down is not None and v[0].numel() > 1:
                held = v[0].reshape(-1)
                own |= {f"held.{key}": held} | _named(f"down.{key}", self.down.memory(0 * held))
        for key, sent in self.named.items():
            if self.up is not None and sent.down in first:
                x = first[sent.down][0]
                x = x.reshape(-1, x.shape[-1])[0]  # of several models (IFCA) the first
                own |= _named(f"up.{key}", self.up.memory(0 * x))
                if sent.against == "last":
                    own[f"last.{key}"] = x
                elif self._feeds_back(sent):
                    own[f"error.{key}"] = 0 * x
        return server, state | _named(_OURS[:-1], own)

    def _feeds_back(self, sent: Sent) -> bool:
        return self.up is not None and (self.up.feedback or sent.against == "sum") and not self.up.only_updates

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        done = self.exchange(state, down, local)
        notes = {}
        if self.down is not None:
            notes[DOWN] = _note(self.down, done.down, down, local)
        if self.up is not None:
            notes[UP] = _note(self.up, done.up, done.messages, local)
        return done.state, done.messages | notes

    def exchange(self, state: State, down: State, local: ClientStack) -> Exchange:
        """What `client` does, with the codes."""
        own, inner = _ours(state), {k: v for k, v in state.items() if not k.startswith(_OURS)}
        received, down_codes, kept = self._received(own, down, local)
        new, messages = self.method.client(inner, received, local)
        own |= kept
        up_codes: dict[str, Code] = {}
        out: State = {}
        for key, x in messages.items():
            if self.up is None:
                out[key] = x
            elif x.dim() > 1 and key in self.named:
                out[key], up_codes[key], kept = self._sent(key, x, received, own, local)
                own |= kept
            else:
                out[key], up_codes[key] = x, Raw(x.reshape(len(x), -1))
        vectors = [k for k, x in messages.items() if x.dim() > 1]
        need(
            self.up is None or not vectors or any(k in self.named for k in vectors),
            f"{type(self.method).__name__} sends {', '.join(vectors)}, which its `sends` does not name: say there "
            "what it is compressed against.",
        )
        return Exchange(new | _named(_OURS[:-1], own), out, down_codes, up_codes)

    def _received(self, own: State, down: State, local: ClientStack) -> tuple[State, dict[str, Code], State]:
        """The downlink as the clients get it, its codes, and what the clients keep."""
        if self.down is None or not own:  # a client that joins when training is over is sent all as it is
            return down, {}, {}
        out, kept = dict(down), State()
        codes: dict[str, Code] = {}
        for key, v in down.items():
            x = v.reshape(len(v), -1)
            if x.shape[1] == 1:
                codes[key] = Raw(x)
                continue
            memory = _under(f"down.{key}.", own)
            x, h, codes[key], memory = _relative(
                self.down, x, own[f"held.{key}"], memory, self._draws(f"compress down {key}", local)
            )
            out[key] = x.view(v.shape)
            kept |= {f"held.{key}": h} | _named(f"down.{key}", memory)
        return out, codes, kept

    def _sent(self, key: str, x: Tensor, down: State, own: State, local: ClientStack) -> tuple[Tensor, Code, State]:
        """A part of the messages as the server gets it, its code, and what the clients keep."""
        assert self.up is not None
        sent, memory = self.named[key], _under(f"up.{key}.", own)
        draws = self._draws(f"compress up {key}", local)
        if sent.against == "last":
            x, h, code, memory = _relative(self.up, x, own[f"last.{key}"], memory, draws)
            return x, code, {f"last.{key}": h} | _named(f"up.{key}", memory)
        base = down[sent.down] if sent.against == "down" else 0.0
        difference = x - base
        if not self._feeds_back(sent):
            code, memory = self.up.encode(difference, memory, draws)
            return base + code.value(), code, _named(f"up.{key}", memory)
        difference += own[f"error.{key}"]
        code, memory = self.up.encode(_gamma(self.up, x) * difference, memory, draws)
        value = code.value()
        return base + value, code, {f"error.{key}": difference - value} | _named(f"up.{key}", memory)

    def _draws(self, purpose: str, local: ClientStack) -> Draws:
        return Draws(self.seed, purpose, local.round, local.ids)

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor | None:
        return self.method.personal(state, self._received(_ours(state), down, local)[0], local)

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return self.method.diagnose(state, self._received(_ours(state), down, local)[0], local)


def message(codes: dict[str, Code], row: int) -> bytes:
    """All that one client sends, or is sent: a frame for each part, by name."""
    return b"".join(encode(codes[key], row) for key in sorted(codes))


def _note(C: Compressor, codes: dict[str, Code], vectors: State, local: ClientStack) -> Tensor:
    """[c, 2] bytes of what each client sends or is sent, and the most that it can be in the next round."""
    spent, most = torch.zeros(len(local.ids), dtype=torch.float64), 0
    for key, code in codes.items():
        size, element = vectors[key][0].numel(), vectors[key].element_size()
        spent += lengths(code)
        most += HEADER + (size * element if isinstance(code, Raw) else C.most(size, element, local.round + 1))
    return torch.stack([spent, torch.full_like(spent, most)], dim=1)


def _relative(C: Compressor, x: Tensor, h: Tensor, memory: State, draws: Draws) -> tuple[Tensor, Tensor, Code, State]:
    """x as the receiver has it, and both sides' new h."""
    gamma = _gamma(C, x)
    if C.feedback:
        code, memory = C.encode(gamma * (x - h), memory, draws)
        h = h + code.value()
        return h, h, code, memory
    code, memory = C.encode(x - h, memory, draws)
    value = code.value()
    return h + value, h + gamma * value, code, memory


def _gamma(C: Compressor, x: Tensor) -> float:
    return 1 / (1 + C.omega(x.shape[1]))


def _named(prefix: str, state: State) -> State:
    return {f"{prefix}.{k}": v for k, v in state.items()}


def _under(prefix: str, state: State) -> State:
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def _ours(state: State) -> State:
    return _under(_OURS, state)
