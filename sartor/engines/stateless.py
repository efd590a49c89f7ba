"""A bench: clients' computations with their states handed in and out, for engines that keep states elsewhere."""

from __future__ import annotations

from torch import Tensor

from ..client_table import Rows
from ..core import Stage, State
from .local import LocalEngine


class StatelessEngine:
    """A local engine's work without its memory. It should have one worker: a site computes in its own process."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.start = {k: rows.start for k, rows in engine.states.items()}

    def __call__(
        self,
        stage: Stage,
        round: int,
        ids: Tensor,
        state: State,
        visits: Tensor,
        down: State,
        shared: Tensor | None = None,
    ) -> tuple[State, State, Tensor]:
        engine, m = self.engine, self.engine.clients
        engine.states = {k: Rows(m, start, None, ((ids, state[k]),)) for k, start in self.start.items()}
        engine.visits[ids] = visits
        before = engine.taken(ids)
        _, message = engine.map(stage, round, ids, down, shared)
        return {k: rows[ids] for k, rows in engine.states.items()}, message, engine.taken(ids) - before
