"""Answers that do not come, come late or cannot be used; and how a round goes on with the others."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import Problem, State
from ..seeds import stream
from .recipe import Federation

Answers = tuple[Tensor, State]  # ids [n], and their messages, a row each


def draw_absences(federation: Federation, problem: Problem, round: int) -> tuple[Tensor | None, Tensor | None]:
    """[m], [m]: who is not reached in this round, and who would be late; None: nobody."""
    shares = ((federation.drop, "drop"), (federation.stragglers, "straggle"))
    dropped, slow = (
        torch.from_numpy(stream(problem.seed, purpose, round).random(problem.clients) < share) if share else None
        for share, purpose in shares
    )
    return dropped, slow


def pick(ids: Tensor, messages: State, which: Tensor) -> Answers:
    """Some of the answers; all of them are not copied."""
    if bool(which.all()):
        return ids, messages
    return ids[which], {k: v[which] for k, v in messages.items()}


def joined(late: Answers, fresh: Answers) -> Answers:
    """Late and fresh answers by client; of a client with both, the fresh one counts."""
    old, messages = pick(*late, ~torch.isin(late[0], fresh[0]))
    ids, order = torch.cat([old, fresh[0]]).sort()
    return ids, {k: torch.cat([v, fresh[1][k]])[order] if fresh[1] else v[order] for k, v in messages.items()}


def finite(messages: State, n: int) -> Tensor:
    """[n] True where a message can be computed with: no NaN, no Inf, and a length whose square is a number."""
    good = torch.ones(n, dtype=torch.bool)
    numbers = [v for v in messages.values() if v.numel() and v.is_floating_point()]
    if all(math.isfinite(torch.linalg.vector_norm(v)) for v in numbers):  # no row is longer than all of them
        return good
    for v in numbers:  # in the message's own precision: a length whose square overflows is Inf
        good &= torch.isfinite(torch.linalg.vector_norm(v.reshape(n, -1), dim=1)).cpu()
    return good
