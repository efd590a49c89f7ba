"""What an aggregator is, the plain mean, and how messages are weighed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..core import Server, State
from ..errors import need

_COLUMNS = 1 << 16  # looked at in one go, so that a long message takes little memory beside itself


class Aggregator(ABC):
    """Many messages become one: a frozen dataclass of settings that is called like a function.

    It is a field of the methods that take a mean, and no neutral one: docs/aggregators.md says per method what it does
    to clean data.
    """

    paper: ClassVar[str] = "-"
    needs_losses: ClassVar[bool] = False  # of the received model at each client; see wrappers/losses.py
    by_products: ClassVar[bool] = False  # sees messages only through their inner products: has `of_products`

    @abstractmethod
    def __call__(
        self, messages: Tensor, weights: Tensor, reference: Tensor | None = None, losses: Tensor | None = None
    ) -> Tensor:
        """[n, k], weights [n] → [k].

        `reference` [k] is the point from which messages are updates: the server's value before (none: zero). `losses`
        [n] are those of `needs_losses`. The order of the messages does not matter; all of them are finite.
        """

    def of_products(self, G: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        """As the call, from inner products [n, n] about any origin that a server has kept up to date (`regram`)."""
        raise NotImplementedError(f"{type(self).__name__} needs the messages themselves")

    def check(self, n: int) -> None:
        """Refuse n messages a round where the rule has no meaning for so many; `n` is 1 or more.

        A round may still bring fewer, as clients fail: then the rule takes the largest setting that fits.
        """
        return


@dataclass(frozen=True)
class Mean(Aggregator):
    """The weighted mean; one hostile message can move it anywhere."""

    def __call__(
        self, messages: Tensor, weights: Tensor, reference: Tensor | None = None, losses: Tensor | None = None
    ) -> Tensor:
        return (weights / weights.sum()) @ messages


mean = Mean()


def client_weights(rule: str, share: Tensor, ids: Tensor) -> Tensor:
    """[n] the weights of the clients that answered: all alike ("uniform") or by their number of samples ("size")."""
    return share[ids] if rule == "size" else share.new_ones(len(ids))


def averaged(aggregate: Aggregator, weighting: str, server: Server, ids: Tensor, messages: State) -> Tensor:
    """[k] the server's next "w": the aggregate of the messages' "w", weighed by the rule, as updates of the last."""
    weights = client_weights(weighting, server["share"], ids)
    return aggregate(messages["w"], weights, server["w"], messages.get("loss"))


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
