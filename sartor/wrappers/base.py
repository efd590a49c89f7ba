"""A method made of a method: everything is the inner one's until a wrapper says otherwise."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from torch import Tensor

from ..core import ClientStack, Method, Neighbours, Problem, Server, State


class Wrapper(Method):
    """Does what `method` does."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.train_all = method.train_all
        self.hostile = method.hostile
        self.sends = method.sends

    @property
    def name(self) -> str:
        return self.method.name

    def client_weights(self, share: Tensor) -> Tensor:
        return self.method.client_weights(share)

    def averaging(self) -> Method | None:
        return self.method.averaging()

    def spending(self, steps: int) -> Method:
        made = copy.copy(self)
        made.method = self.method.spending(steps)
        return made

    def unsplit(self) -> str:
        return self.method.unsplit()

    def init(self, problem: Problem) -> tuple[Server, State]:
        return self.method.init(problem)

    def downlink(self, server: Server, ids: Tensor, round: int) -> State:
        return self.method.downlink(server, ids, round)

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        return self.method.client(state, down, local)

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        return self.method.server(server, ids, messages, weights, round)

    def shared(self, server: Server) -> Tensor | None:
        return self.method.shared(server)

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor | None:
        return self.method.personal(state, down, local)

    @property
    def neighbours(self) -> Neighbours | None:
        return self.method.neighbours

    def collaboration(self, server: Server) -> Tensor | None:
        return self.method.collaboration(server)

    def fresh(self, problem: Problem, server: Server) -> State:
        return self.method.fresh(problem, server)

    def welcome(self, server: Server, state: State, local: ClientStack) -> State:
        return self.method.welcome(server, state, local)

    def join(self, state: State, down: State, local: ClientStack) -> State:
        return self.method.join(state, down, local)

    def exposes(self) -> str:
        return self.method.exposes()

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return self.method.diagnose(state, down, local)

    def warnings(self, server: Server, round: int, facts: Mapping[str, float]) -> list[str]:
        return self.method.warnings(server, round, facts)


def sent(key: str, message: Tensor, down: State) -> Tensor:
    """What a client was sent that its message answers: the downlink of the same name or else shape; none: zero."""
    fits = [k for k, v in down.items() if v.shape == message.shape]
    if not fits:
        return message.new_zeros(message.shape)
    return down[key if key in fits else fits[0]]
