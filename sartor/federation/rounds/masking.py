"""What rounds with secure aggregation need of the two sides; who the masks are from is not their business."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from ...exact_sums import LIMBS, from_words, to_words, whole, worth
from .messages import Damaged, Spec

SECURE = "secure"  # in the note of a request: the sites of the round, with their keys
KEY = "mask_key"  # in the note of a site that is ready: its own
SEED = "seed"  # the array in the answer to "unmask"
SEED_BYTES = 32
SUM = "sum"  # in the note of a request and of its answer: which sum of which sites the answer belongs to


class SumOf(NamedTuple):
    """What is summed over sites."""

    round: int
    stage: str = "train"
    asked: str = ""  # of this site in particular: for which of its clients, or what else


def clients_asked(clients: Sequence[int]) -> str:
    """`SumOf.asked` of a round."""
    return ",".join(map(str, clients))


class SiteMasking(Protocol):
    """A site's half."""

    most: int  # bytes of keys in a request

    def masked(self, of: SumOf, note: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What leaves in place of these rows."""
        ...

    def opened(self, of: SumOf, note: Any) -> bytes:
        """What takes off the mask that does not cancel; told once for a round."""
        ...


class ServerMasking(Protocol):
    """The server's half."""

    least: int  # sites in a sum

    @property
    def keys(self) -> Mapping[str, Any]:
        """Of the sites that have sent theirs."""
        ...

    def take(self, site: str, note: Any) -> None:
        """A site's key; refused where it is not its own."""
        ...

    def told(self, sites: list[str]) -> dict[str, list[str]]:
        """What these sites are told of each other."""
        ...

    def opened(self, arrays: Mapping[str, np.ndarray], seed: bytes) -> dict[str, np.ndarray]:
        """One site's rows without its own mask."""
        ...


# --- scores -----------------------------------------------------------------------------------------------------------


def summed_scores(scores: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By name [1, LIMBS + 1]: the exact sum of the clients' scores, and of how many; NaN is none."""
    out = {}
    for name, values in scores.items():
        there = [float(v) for v in values if not np.isnan(v)]
        out[name] = np.append(to_words([sum(map(whole, there))])[0], len(there))[None]
    return out


def scores_spec(scores: Spec) -> Spec:
    """What a site's answer looks like in place of these scores of a client."""
    return dict.fromkeys(scores, (torch.int64, (LIMBS + 1,)))


def mean_scores(total: Mapping[str, np.ndarray], clients: int) -> dict[str, float]:
    """The means in the sums [LIMBS + 1] over `clients` clients; NaN where nobody has such a score."""
    out = {}
    for name, words in total.items():
        count = int(words[-1])
        if not 0 <= count <= clients:
            raise Damaged(f"{name} is of {count} clients, where {clients} were asked")
        (value,) = from_words(words[None, :-1])
        out[name] = worth(value) / count if count else float("nan")
    return out
