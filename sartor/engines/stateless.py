"""A bench: clients' computations with their states handed in and out, for engines that keep states elsewhere."""

from __future__ import annotations

import torch
from torch import Tensor

from ..client_table import Memory, Rows, span
from ..core import Stage, State
from .local import LocalEngine


class _Handed(Memory):
    """The rows of a few clients, by rising number, as they were handed in."""

    def __init__(self, ids: Tensor, rows: Tensor) -> None:
        self.ids, self.rows, self.fresh = ids, rows, False

    def read(self, ids: Tensor) -> Tensor:
        return self.rows[self._places(ids)]

    def write(self, ids: Tensor, values: Tensor) -> None:
        self.rows[self._places(ids)] = values

    def _places(self, ids: Tensor) -> slice | Tensor:
        return span(torch.searchsorted(self.ids, ids))


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
        """New states, messages and steps of the clients `ids`, whose numbers rise; `state` is overwritten."""
        engine, m = self.engine, self.engine.clients
        engine.states = {k: Rows(m, start, _Handed(ids, state[k])) for k, start in self.start.items()}
        engine.visits[ids] = visits
        before = engine.taken(ids)
        _, message = engine.map(stage, round, ids, down, shared)
        return {k: state[k] for k in self.start}, message, engine.taken(ids) - before
