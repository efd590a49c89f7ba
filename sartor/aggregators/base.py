"""The plain mean, and what aggregators share. What an aggregator is: core.Aggregator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..core import Aggregator
from ..errors import need

_COLUMNS = 1 << 16  # looked at in one go, so that a long message takes little memory beside itself


@dataclass(frozen=True)
class Mean(Aggregator):
    """The weighted mean; one hostile message can move it anywhere.

    For example:

        >>> import torch
        >>> messages, weights = torch.tensor([[1.0], [2.0], [3.0], [4.0], [90.0]]), torch.ones(5)
        >>> st.aggregators.Mean()(messages, weights)
        tensor([20.])
    """

    def __call__(
        self, messages: Tensor, weights: Tensor, reference: Tensor | None = None, losses: Tensor | None = None
    ) -> Tensor:
        return (weights / weights.sum()) @ messages


mean = Mean()


def updates(messages: Tensor, reference: Tensor | None) -> tuple[Tensor, Tensor]:
    """(messages − reference [n, k], reference [k])."""
    start = messages.new_zeros(messages.shape[1]) if reference is None else reference
    return messages - start, start


def by_columns(messages: Tensor, rule: Callable[[Tensor], Tensor]) -> Tensor:
    """A rule that treats every coordinate alone: [k, n] → [k], for some coordinates at a time."""
    return torch.cat([rule(part.T.contiguous()) for part in torch.split(messages, _COLUMNS, dim=1)])


def gram(messages: Tensor, reference: Tensor | None = None) -> Tensor:
    """[n, n] inner products of the updates, in double precision, by matrix products."""
    total = torch.zeros(len(messages), len(messages), dtype=torch.float64, device=messages.device)
    for start in range(0, messages.shape[1], _COLUMNS):
        part = messages[:, start : start + _COLUMNS].double()
        part = part if reference is None else part - reference[start : start + _COLUMNS].double()
        total += part @ part.T
    return total


def regram(G: Tensor, messages: Tensor, changed: Tensor) -> Tensor:
    """`gram(messages)`, from G of before, when only the messages at the places `changed` are new."""
    if len(changed) == len(messages):
        return gram(messages)
    rows = G.new_zeros(len(changed), len(messages))
    for part in torch.split(messages, _COLUMNS, dim=1):
        whole = part.double()
        rows += whole[changed] @ whole.T
    G = G.clone()
    G[changed] = rows
    G[:, changed] = rows.T
    return G


def rank(values: np.ndarray, messages: Tensor) -> Tensor:
    """[n] places of the messages by rising value.

    What is equal to nine digits is ordered by the messages' own sums, so that the order of arrival decides nothing.
    """
    rounded = np.array([float(f"{v:.9e}") for v in values.tolist()])
    order = np.lexsort((messages.sum(1, dtype=torch.float64).cpu().numpy(), rounded))
    return torch.from_numpy(order).to(messages.device)


def at_most(owner: str, name: str, value: int | None, most: int, n: int) -> None:
    """Refuse a setting that is larger than n messages allow."""
    need(value is None or value <= most, f"{owner} of {n} messages a round needs {name} <= {most}; got {value}.")
