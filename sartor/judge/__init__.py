"""Judging: pure functions on scores, one number per client. Nothing here knows methods, engines or files."""

from .choice import SHARES, better_of_two, choose, expected_gains
from .fairness import entropy, gini, highest, jain, lowest
from .metrics import gains, judge, summarise, validated, with_chosen, with_hybrid
from .significance import Paired, holm, interval, signed_rank

__all__ = [
    "SHARES",
    "Paired",
    "better_of_two",
    "choose",
    "entropy",
    "expected_gains",
    "gains",
    "gini",
    "highest",
    "holm",
    "interval",
    "jain",
    "judge",
    "lowest",
    "signed_rank",
    "summarise",
    "validated",
    "with_chosen",
    "with_hybrid",
]
