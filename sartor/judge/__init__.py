"""Judging: pure functions on scores, one number per client. Nothing here knows methods, engines or files."""

from .fairness import entropy, gini, highest, jain, lowest
from .metrics import choose, gains, judge, summarise, validated, with_chosen
from .significance import Paired, holm, interval, signed_rank

__all__ = [
    "Paired",
    "choose",
    "entropy",
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
]
