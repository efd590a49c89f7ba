"""Dynamic λ: every client picks its own λ from a list by its validation data, for any method with a λ.

Ditto, Appendix D.2. In every round a client tries each candidate from the state it is in, in one pass over stacked
copies of itself (the same batches for each), and keeps the one whose personal model has the lowest validation loss;
that candidate's state and message go on. Test data are never seen here.

With fewer than `few` validation samples there is nothing to choose by. The paper then fixes λ = 0.1 where it chooses
from {0.05, 0.1, 0.2}, and λ = 1 where it chooses from {0.1, 1, 2}: the middle candidate, and so do we. It leaves 4 and
5 samples open; they choose here. A client that has not yet taken part has the middle candidate, too.

The authors' code chooses anew at every step; here once a round. FLAME recovers its dual π_i = λα_i(θ_i − w_i) with the
round's λ, so a client that changes λ rescales π_i; where the choices settle, so does FLAME.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..client_table import rows_of
from ..core import ClientStack, Method, Problem, Server, State
from ..errors import SartorError, need
from ..methods.parts.split_steps import each_of
from .base import Wrapper

_SAME = 1e-5  # losses that differ by less are the same: rounding must not choose (a client's first step knows no λ)


class DynamicLam(Wrapper):
    """A method whose clients choose λ from a list, each on its own validation data.

    One with fewer than `few` validation samples takes the middle candidate.

        >>> result = st.fit(st.DynamicLam(st.Ditto(), (0.1, 1.0)), model, clients, rounds=2)
    """

    def __init__(self, method: Method, lams: tuple[float, ...], few: int = 4) -> None:
        super().__init__(method)
        self.lams, self.few = lams, few
        has = is_dataclass(method) and any(f.name == "lam" for f in fields(method))
        need(has, f"dynamic λ needs a method with a lam; {method.name} has none.")
        need(len(lams) > 0, "dynamic λ needs at least one candidate.")
        need(len(set(lams)) == len(lams), f"a λ is listed twice: {', '.join(map(str, lams))}.")
        need(few >= 1, f"dynamic λ needs few >= 1: without validation data nobody can choose; got {few}.")
        for lam in lams:
            replace(method, lam=lam)  # type: ignore[type-var]  # each is checked as the method checks its own
        self.method = replace(method, lam=self.middle)  # type: ignore[type-var]  # what FLAME's ρ is measured by

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DynamicLam) and self._settings() == other._settings()

    def __hash__(self) -> int:
        return hash(self._settings())

    def _settings(self) -> tuple[Method, tuple[float, ...], int]:
        return self.method, self.lams, self.few

    @property
    def middle(self) -> float:
        """The candidate for those who cannot choose."""
        return sorted(self.lams)[len(self.lams) // 2]

    def at(self, lam: Any) -> Method:
        """The method with this λ: a number, or [c, 1]."""
        return self.method.with_lam(lam)

    def spending(self, steps: int) -> Method:
        """Every candidate is trained, so each has its share."""
        k = len(self.lams)
        share = each_of(f"{self.name} with {k} candidates for λ", k, steps)
        try:
            return DynamicLam(self.method.spending(share), self.lams, self.few)
        except SartorError as e:
            raise SartorError(f"{e} Each of the {k} candidates for λ has its share of local_steps = {steps}.") from e

    def init(self, problem: Problem) -> tuple[Server, State]:
        server, state = self.at(self.middle).init(problem)
        return server, state | {"lam": problem.start.new_tensor([self.middle])}

    def fresh(self, problem: Problem, server: Server) -> State:
        lam = problem.start.new_tensor([self.middle])
        return self.at(self.middle).fresh(problem, server) | {"lam": lam}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        lams, c, k = state["lam"].new_tensor(self.lams), len(state["lam"]), len(self.lams)
        inner = {name: v for name, v in state.items() if name != "lam"}
        if k == 1:  # no choice: the method itself
            new, message = self.at(self.lams[0]).client(inner, down, local)
            return new | {"lam": lams.expand(c, 1)}, message
        places = torch.arange(c).repeat_interleave(k)  # client 0 with each λ, client 1 with each λ, ...
        copies, lam = local.take(places), lams.repeat(c)[:, None]
        method, down = self.at(lam), rows_of(down, places)
        new, message = method.client(rows_of(inner, places), down, copies)
        theta = method.personal(new, down, copies)
        assert theta is not None, "a method with a λ has personal models"
        count, loss = copies.validation(theta)
        loss = torch.where(count < self.few, (lam[:, 0] - self.middle).abs().to(loss), loss).view(c, k)
        best = loss <= loss.amin(1, keepdim=True) * (1 + _SAME)
        kept = torch.arange(c) * k + best.int().argmax(1).cpu()  # the first of the best
        return rows_of(new | {"lam": lam}, kept), rows_of(message, kept)

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor | None:
        lam = self.lams[0] if len(self.lams) == 1 else state["lam"]
        return self.at(lam).personal(state, down, local)

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        """The method's own, each client with the λ that it keeps; and that λ."""
        found: State = {}
        for lam in sorted(set(state["lam"][:, 0].tolist())):
            here = torch.nonzero(state["lam"][:, 0] == lam)[:, 0].cpu()
            theirs = self.at(lam).diagnose(rows_of(state, here), rows_of(down, here), local.take(here))
            for name, value in theirs.items():
                whole = found.setdefault(name, value.new_empty(len(state["lam"]), *value.shape[1:]))
                whole[here] = value
        return found | {"lam": state["lam"][:, 0]}

    def warnings(self, server: Server, round: int, facts: Mapping[str, float]) -> list[str]:
        return self.at(max(self.lams)).warnings(server, round, facts)  # the largest λ is the first to overshoot
