"""Some parameters are each client's own, the others are shared: a method made of a method that shares a global model.

    θ = (w, p_i):   `inner` sends and averages w; its clients train both; p_i stays at client i
    client:   what inner's client makes of (the received w, its own p_i);   send the same, without p_i's coordinates
    server:   inner's, of what is shared

So in p_i's coordinates the mean is over client i alone. The personal model is inner's; where inner has none, (w, p_i).
There is no global model: it would lack a part.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from ...core import Blocks, ClientStack, Method, Problem, Server, State
from ...couplings import Free
from ...errors import SartorError, need
from ...solvers import Solver
from .other_losses import ModelPart

WORDS = ("bias", "norm", "head")
_OWN = "own part"  # the name of p_i in a client's state


def last_layers(owner: str, blocks: Blocks, count: int) -> list[str]:
    """The parameters of the last `count` layers, the head; a model that has no more than those is refused."""
    need(count >= 1, f"{owner} needs a head of at least 1 layer; got {count}.")
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in blocks))
    need(
        len(layers) > count,
        f"{owner} splits a model into representation and head; this one has {len(layers)} layer"
        f"{'s' * (len(layers) != 1)} and its head takes {count}. Use a deeper model (mlp, 2nn, cnn) or a smaller head.",
    )
    return [name for name in blocks if name.rpartition(".")[0] in layers[-count:]]


def last_coordinates(blocks: Blocks, count: int) -> slice:
    """The coordinates in θ of the last `count` layers; of a model with no more, all."""
    owners = list(dict.fromkeys(name.rpartition(".")[0] for name in blocks))[-count:]
    first = min(at.start for name, at in blocks.items() if name.rpartition(".")[0] in owners)
    return slice(first, max(at.stop for at in blocks.values()))


def matching(text: str, blocks: Blocks) -> list[str]:
    """The parameters that a list of words and globs means: "bias,norm,*.lora_B". A glob is for names of parameters or
    of modules that have them."""
    found: set[str] = set()
    for word in (part.strip() for part in text.split(",")):
        if word == "head":
            here = last_layers("--personal head", blocks, 1)
        elif word == "norm":
            here = [name for name in blocks if name in blocks.norms]
        elif word == "bias":
            here = [name for name in blocks if name.rpartition(".")[2] == "bias"]
        else:
            here = [name for name in blocks if fnmatchcase(name, word) or fnmatchcase(name, f"{word}.*")]
        need(
            bool(here),
            f"--personal {word!r} matches no parameter; there are {_listed(list(blocks))}. "
            f"Use their names, globs of them, or {', '.join(WORDS)}.",
        )
        found |= set(here)
    need(
        len(found) < len(blocks),
        f"--personal {text!r} matches all parameters ({_listed(list(blocks))}), so nothing is left to share; match "
        "fewer, or use --method local.",
    )
    return [name for name in blocks if name in found]


def _listed(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


class OwnParts(Method):
    """`inner`, whose clients keep the parameters `own_names` to themselves."""

    @property
    @abstractmethod
    def inner(self) -> Method:
        """The method that shares the rest."""

    @abstractmethod
    def own_names(self, blocks: Blocks) -> list[str]:
        """The parameters that stay at the clients."""

    # --- coordinates --------------------------------------------------------------------------------------------------

    def places(self, blocks: Blocks) -> tuple[Tensor, Tensor]:
        """Coordinates in θ: [k] those that are shared, [d − k] those of the clients' own."""
        names = set(self.own_names(blocks))
        own = torch.zeros(max(at.stop for at in blocks.values()), dtype=torch.bool)
        for name, at in blocks.items():
            own[at] = name in names
        return torch.nonzero(~own)[:, 0], torch.nonzero(own)[:, 0]

    def whole(self, state: State, down: State, local: ClientStack) -> Tensor:
        """The models [c, d]: what was received, with each client's own part."""
        common, own = self.places(local.blocks)
        w, p = down["w"], state[_OWN]
        theta = w.new_empty(len(w), len(common) + len(own))
        theta[:, common], theta[:, own] = w, p
        return theta

    def _inside(self, state: State) -> State:
        return {k: v for k, v in state.items() if k != _OWN}

    # --- the algorithm ------------------------------------------------------------------------------------------------

    def init(self, problem: Problem) -> tuple[Server, State]:
        common, own = self.places(problem.blocks)
        self._check(problem)
        rest = {n: at for n, at in problem.blocks.items() if n not in self.own_names(problem.blocks)}
        blocks, end = Blocks(), 0
        for name, at in rest.items():
            blocks[name] = slice(end, end := end + at.stop - at.start)
        server, _ = self.inner.init(replace(problem, start=problem.start[common], blocks=blocks))
        return server, self.inner.init(problem)[1] | {_OWN: problem.start[own]}

    def _check(self, problem: Problem) -> None:
        """Refuse a method that does not send one global model and get one back."""
        server, _ = self.inner.init(problem)
        down = self.inner.downlink(server, torch.arange(1), 0)
        one = {k: v.shape for k, v in down.items()} == {"w": (1, len(problem.start))} and len(self.inner.sends) == 1
        if not one or self.inner.shared(server) is None:
            raise SartorError(
                f"personal parts need a method that shares one global model and nothing else; {self.inner.name} does "
                "not. Use fedavg, ditto, pfedme, flame or the like."
            )

    def downlink(self, server: Server, ids: Tensor, round: int) -> State:
        return self.inner.downlink(server, ids, round)

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        common, own = self.places(local.blocks)
        new, message = self.inner.client(self._inside(state), {"w": self.whole(state, down, local)}, local)
        model = message[self.inner.sends[0].name]
        return new | {_OWN: model[:, own]}, message | {self.inner.sends[0].name: model[:, common]}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        return self.inner.server(server, ids, messages, weights, round)

    def shared(self, server: Server) -> None:
        return None

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        theta = self.whole(state, down, local)
        found = self.inner.personal(self._inside(state), {"w": theta}, local)
        return theta if found is None else found

    # --- joining ------------------------------------------------------------------------------------------------------

    def fresh(self, problem: Problem, server: Server) -> State:
        common, own = self.places(problem.blocks)
        start = problem.start.clone()
        w = self.inner.shared(server)
        assert w is not None
        start[common] = w
        return self.inner.init(replace(problem, start=start))[1] | {_OWN: start[own]}

    def join(self, state: State, down: State, local: ClientStack) -> State:
        """The own part is trained under the received one, which is not a newcomer's to change; where the method has
        personal models of its own, as in a round."""
        solver = getattr(self.inner, "solver", None)
        if self._inside(state) or solver is None:
            return self.client(state, down, local)[0]
        return {_OWN: self.own_part(state, down, local, solver)}

    def own_part(self, state: State, down: State, local: ClientStack, solver: Solver, stream: int = 0) -> Tensor:
        """The clients' own part, trained alone under the received one."""
        _, own = self.places(local.blocks)
        view = ModelPart(local, self.whole(state, down, local), own)
        return solver.minimise(view, state[_OWN], Free(), stream=stream)
