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

import math
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ..compressors import HEADER, Code, Compressor, Draws, Raw, decode, encode, lengths, received
from ..core import ClientStack, Method, Problem, Sent, Server, State
from ..errors import need
from .base import Wrapper

_OURS = "compress."  # what the names of our own client states begin with

# Notes that compression leaves in messages, [c, 2]: the bytes that were sent, and the most that the next can be.
UP, DOWN = "bytes up", "bytes down"
Spec = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]  # name → type and shape of one client's row


class Asked(Protocol):
    """Of a stack of clients what codes are drawn from: which clients, in which round."""

    round: int
    ids: np.ndarray


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
        notes, after = {}, local.round + 1
        if self.down is not None:
            notes[DOWN] = _note(done.down, self.most_down(spec_of(down), after), local)
        if self.up is not None:
            notes[UP] = _note(done.up, self.most_up(spec_of(done.messages), after), local)
        return done.state, done.messages | notes

    def most_up(self, messages: Spec, round: int) -> dict[str, int]:
        """The most bytes that the frame of each part of a client's message can take in this round."""
        assert self.up is not None
        named = {k for k, (_, shape) in messages.items() if k in self.named and len(shape) > 0}
        return _most(self.up, messages, named, round)

    def most_down(self, down: Spec, round: int) -> dict[str, int]:
        """The same of what a client is sent."""
        assert self.down is not None
        return _most(self.down, down, {k for k, (_, shape) in down.items() if math.prod(shape) > 1}, round)

    def exchange(self, state: State, down: State, local: ClientStack) -> Exchange:
        """What `client` does, with the codes."""
        own, inner = ours(state), {k: v for k, v in state.items() if not k.startswith(_OURS)}
        got, down_codes, kept = self.coded_down(own, down, local)
        new, messages = self.method.client(inner, got, local)
        own |= kept
        up_codes: dict[str, Code] = {}
        out: State = {}
        for key, x in messages.items():
            if self.up is None:
                out[key] = x
            elif x.dim() > 1 and key in self.named:
                out[key], up_codes[key], kept = self._sent(key, x, got, own, local)
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

    def coded_down(self, own: State, down: State, local: Asked) -> tuple[State, dict[str, Code], State]:
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
            x, h, codes[key], memory = self._relative(
                self.down, x, own[f"held.{key}"], memory, self._draws(f"compress down {key}", local)
            )
            out[key] = x.view(v.shape)
            kept |= {f"held.{key}": h} | _named(f"down.{key}", memory)
        return out, codes, kept

    def read_down(self, own: State, frames: Mapping[str, bytes], like: Spec) -> tuple[State, State]:
        """What one client [1, ...] makes of its frames: the downlink, and what it keeps. As `coded_down` says it."""
        assert self.down is not None
        out, kept = State(), State()
        for key, (_, shape) in like.items():
            size = math.prod(shape)
            if size == 1:
                out[key] = decode(frames[key], size).view(1, *shape)
                continue
            value, memory = received(self.down, frames[key], size, _under(f"down.{key}.", own))
            x, h = taken(self.down, value, own[f"held.{key}"])
            out[key] = x.view(1, *shape)
            kept |= {f"held.{key}": h} | _named(f"down.{key}", memory)
        return out, kept

    def read_up(self, own: State, down: State, frames: Mapping[str, bytes], like: Spec) -> tuple[State, State]:
        """What the server makes of one client's frames: its message [1, ...], and what the server keeps of it. `down`
        is what the client was sent, as it got it. As `exchange` says it at the client."""
        assert self.up is not None
        out, kept = State(), State()
        for key, (_, shape) in like.items():
            size = math.prod(shape)
            if key not in self.named or not shape:
                out[key] = decode(frames[key], size).view(1, *shape)
                continue
            sent = self.named[key]
            value, memory = received(self.up, frames[key], size, _under(f"up.{key}.", own))
            kept |= _named(f"up.{key}", memory)
            if sent.against == "last":
                out[key], kept[f"last.{key}"] = taken(self.up, value, own[f"last.{key}"])
            else:
                out[key] = (down[sent.down] if sent.against == "down" else 0.0) + value
        return out, kept

    def server_memory(self, own: State) -> State:
        """Of a client's own state, what the server must know as well: what it sends and is sent refers to it."""
        refers = self.up is not None and self.up.refers
        names = ("held.", "down.", "last.") + (("up.",) if refers else ())
        return {k: v for k, v in ours(own).items() if k.startswith(names)}

    def _sent(self, key: str, x: Tensor, down: State, own: State, local: ClientStack) -> tuple[Tensor, Code, State]:
        """A part of the messages as the server gets it, its code, and what the clients keep."""
        assert self.up is not None
        sent, memory = self.named[key], _under(f"up.{key}.", own)
        draws = self._draws(f"compress up {key}", local)
        if sent.against == "last":
            x, h, code, memory = self._relative(self.up, x, own[f"last.{key}"], memory, draws)
            return x, code, {f"last.{key}": h} | _named(f"up.{key}", memory)
        base = down[sent.down] if sent.against == "down" else 0.0
        difference = x - base
        if not self._feeds_back(sent):
            code, after = self.up.encode(difference, memory, draws)
            return base + self._value(code, memory), code, _named(f"up.{key}", after)
        difference += own[f"error.{key}"]
        code, after = self.up.encode(_gamma(self.up, x) * difference, memory, draws)
        value = self._value(code, memory)
        return base + value, code, {f"error.{key}": difference - value} | _named(f"up.{key}", after)

    def _relative(
        self, C: Compressor, x: Tensor, h: Tensor, memory: State, draws: Draws
    ) -> tuple[Tensor, Tensor, Code, State]:
        """x as the receiver has it, and both sides' new h."""
        code, after = C.encode(_gamma(C, x) * (x - h) if C.feedback else x - h, memory, draws)
        return *taken(C, self._value(code, memory), h), code, after

    def _value(self, code: Code, memory: State) -> Tensor:
        """[c, size] what the receiver makes of a code; `memory` is the sender's, before it."""
        return code.value()

    def _draws(self, purpose: str, local: Asked) -> Draws:
        return Draws(self.seed, purpose, local.round, local.ids)

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor | None:
        return self.method.personal(state, self.coded_down(ours(state), down, local)[0], local)

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return self.method.diagnose(state, self.coded_down(ours(state), down, local)[0], local)


def message(codes: dict[str, Code], row: int) -> bytes:
    """All that one client sends, or is sent: a frame for each part, by name."""
    return b"".join(encode(codes[key], row) for key in sorted(codes))


def _note(codes: dict[str, Code], most: Mapping[str, int], local: Asked) -> Tensor:
    """[c, 2] bytes of what each client sends or is sent, and the most that it can be in the next round."""
    spent = sum((lengths(code) for code in codes.values()), torch.zeros(len(local.ids), dtype=torch.float64))
    return torch.stack([spent, torch.full_like(spent, sum(most.values()))], dim=1)


def _most(C: Compressor, parts: Spec, coded: set[str], round: int) -> dict[str, int]:
    """By part: the most bytes of its frame; what is not in `coded` goes as it is."""
    found = {}
    for key, (dtype, shape) in parts.items():
        size, element = math.prod(shape), dtype.itemsize
        found[key] = HEADER + (C.most(size, element, round) if key in coded else size * element)
    return found


def spec_of(tensors: State) -> Spec:
    """Type and shape of one client's row of each."""
    return {k: (v.dtype, tuple(v.shape[1:])) for k, v in tensors.items()}


def taken(C: Compressor, value: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """x as the receiver has it once a code of x − h is worth `value`, and both sides' new h."""
    x = h + value
    return x, x if C.feedback else h + _gamma(C, value) * value


def _gamma(C: Compressor, x: Tensor) -> float:
    return 1 / (1 + C.omega(x.shape[1]))


def _named(prefix: str, state: State) -> State:
    return {f"{prefix}.{k}": v for k, v in state.items()}


def _under(prefix: str, state: State) -> State:
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def ours(state: State) -> State:
    return _under(_OURS, state)
