"""A model's parameter vector cut in two: the representation (body) and the last layers (head)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ...core import ClientStack, Method, Problem, Server, State
from ...couplings import Free
from ...errors import need
from ...solvers import Solver
from .other_losses import ModelPart


def body_and_head(owner: str, problem: Problem, head: int) -> tuple[slice, slice]:
    """The coordinates of the body and of the head, the last `head` layers; a model without both is refused."""
    need(head >= 1, f"{owner} needs a head of at least 1 layer; got {head}.")
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in problem.blocks))
    need(
        len(layers) > head,
        f"{owner} splits a model into representation and head; this one has {len(layers)} layer"
        f"{'s' * (len(layers) != 1)} and its head takes {head}. Use a deeper model (mlp, 2nn, cnn) or a smaller head.",
    )
    first = next(at.start for name, at in problem.blocks.items() if name.rpartition(".")[0] == layers[-head])
    return slice(0, first), slice(first, len(problem.start))


class SplitModel(Method):
    """One part of the model is each client's own, the other is averaged. Both are trained together.

    The personal model is the client's part with the latest other one; there is no global model. A newcomer trains its
    own part only: the other is not its to change.
    """

    head: int
    solver: Solver
    own: ClassVar[str]  # what stays at the client: "body" or "head"

    def init(self, problem: Problem) -> tuple[Server, State]:
        body, head = body_and_head(self.name, problem, self.head)
        own, common = (body, head) if self.own == "body" else (head, body)
        return {"w": problem.start[common]}, {self.own: problem.start[own]}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        whole = self.solver.minimise(local, self.whole(state, down), Free())
        body, head = self.parts(state, down)
        own, common = (body, head) if self.own == "body" else (head, body)
        return {self.own: whole[:, own]}, {"w": whole[:, common]}

    def shared(self, server: Server) -> None:
        return None

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return self.whole(state, down)

    def join(self, state: State, down: State, local: ClientStack) -> State:
        return {self.own: self.own_part(state, down, local, self.solver)}

    def own_part(self, state: State, down: State, local: ClientStack, solver: Solver, stream: int = 0) -> Tensor:
        """The clients' own part, trained alone under the received one."""
        part = self.parts(state, down)[self.own == "head"]
        return solver.minimise(ModelPart(local, self.whole(state, down), part), state[self.own], Free(), stream=stream)

    def whole(self, state: State, down: State) -> Tensor:
        """The models [c, d]."""
        mine, common = state[self.own], down["w"]
        return torch.cat([mine, common] if self.own == "body" else [common, mine], dim=1)

    def parts(self, state: State, down: State) -> tuple[slice, slice]:
        """The coordinates of body and head."""
        k = (state[self.own] if self.own == "body" else down["w"]).shape[1]
        return slice(0, k), slice(k, None)
