"""Aggregators: many messages become one.

A plain function ([n, k], weights [n]) → [k], and a field of the methods that take a mean.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Aggregator = Callable[[Tensor, Tensor], Tensor]


def mean(messages: Tensor, weights: Tensor) -> Tensor:
    """The weighted mean. Weights need not sum to one."""
    return (weights / weights.sum()) @ messages


def weigh(rule: str, share: Tensor, ids: Tensor) -> Tensor:
    """[n] the weights of the clients that answered: all alike ("uniform") or by their number of samples ("size")."""
    return share[ids] if rule == "size" else share.new_ones(len(ids))


NAMES: dict[str, Aggregator] = {"mean": mean}
