"""A comparison's verdict, what significance.json holds: who is better than whom, by how much, and how sure that is.

Methods are compared under the same attack, on the same clients, client by client: pairs are (seed, benign client), and
the number is the test accuracy (R² for regression) of the client's chosen model. Clients of one federation are not
independent of each other (they share a model and the random start), so p-values are a guide, not proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ..judge.fairness import lowest
from ..judge.metrics import gains
from ..judge.significance import RESAMPLES, holm, interval, signed_rank
from .compare import Cell, Comparison

LEVEL = 0.95
NOTE = (
    "Pairs are (seed, benign client); accuracy is the chosen model's on test data. p: two-sided Wilcoxon signed-rank "
    "test, zeros ranked and dropped (Pratt). p_holm: corrected for all tests under this attack (Holm). effect: matched-"
    f"pairs rank-biserial correlation. Intervals: {LEVEL:.0%} bootstrap percentile intervals of the mean over seeds, "
    f"{RESAMPLES} resamples; too narrow where seeds are few."
)
BASELINES = ("local", "fedavg")


def verdict(table: Comparison) -> dict[str, Any]:
    """Intervals of each method, a test of each pair of methods, and each client's gain over local and over FedAvg."""
    groups: dict[tuple[str, float], dict[str, list[Cell]]] = {}
    for cell in table.cells:
        if cell.accuracy is not None:
            groups.setdefault(cell.scenario.attacked, {}).setdefault(cell.entrant, []).append(cell)
    pairs = [
        {"attack": attack, "attackers": share, "a": a, "b": b, **found}
        for (attack, share), entrants in groups.items()
        for a, b in combinations(entrants, 2)
        if (found := _pair(entrants[a], entrants[b])) is not None
    ]
    for attack, share in groups:
        family = [pair for pair in pairs if (pair["attack"], pair["attackers"]) == (attack, share)]
        for pair, p in zip(family, holm([pair["p"] for pair in family]), strict=True):
            pair["p_holm"] = p
    each = [(who, name, cells) for who, entrants in groups.items() for name, cells in entrants.items()]
    return {
        "note": NOTE,
        "intervals": [{"attack": w[0], "attackers": w[1], "method": name, **_spread(c)} for w, name, c in each],
        "pairs": pairs,
        "gains": [row for who, name, cells in each for row in _gains(who, name, cells, groups[who])],
    }


def _spread(cells: Sequence[Cell]) -> dict[str, Any]:
    """The mean over seeds of the mean accuracy, with its interval where there are two seeds or more."""
    means = [float(np.nanmean(c.accuracy)) for c in cells if c.accuracy is not None and not np.isnan(c.accuracy).all()]
    found = interval(means, LEVEL)
    low, high = (None, None) if found is None else found
    return {"seeds": len(means), "accuracy": float(np.mean(means)) if means else None, "low": low, "high": high}


def _both(a: Sequence[Cell], b: Sequence[Cell]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Accuracies of both, for every seed that both have with the same clients."""
    return [(c.accuracy, there) for c in a if c.accuracy is not None and (there := c.beside(b)) is not None]


def _pair(a: Sequence[Cell], b: Sequence[Cell]) -> dict[str, Any] | None:
    """The test of a against b over all seeds, and the interval of the mean difference over seeds."""
    both = _both(a, b)
    test = signed_rank(*(np.concatenate(side) for side in zip(*both, strict=True))) if both else None
    if test is None:
        return None
    each = [float(np.nanmean(x - y)) for x, y in both if not np.isnan(x - y).all()]
    found = interval(each, LEVEL)
    low, high = (None, None) if found is None else found
    return {**test._asdict(), "seeds": len(each), "low": low, "high": high}


def _gains(who: tuple[str, float], name: str, cells: Sequence[Cell], entrants: dict[str, list[Cell]]) -> list[Any]:
    """What each client gains over a baseline under the same attack; a defended one first against its like."""
    found = []
    for baseline in BASELINES:
        _, plus, rule = name.partition("+")
        over = next((n for n in (baseline + plus + rule, baseline) if n in entrants and n != name), None)
        for cell in cells:
            theirs = cell.beside(entrants[over]) if over else None
            if cell.method == baseline or cell.accuracy is None or theirs is None:
                continue
            gain = np.round(cell.accuracy - theirs, 12)
            there = gain[~np.isnan(gain)]
            if not len(there):
                continue
            better, worse = gains(cell.accuracy, theirs)
            found.append(
                {
                    "attack": who[0],
                    "attackers": who[1],
                    "method": name,
                    "over": over,
                    "seed": cell.seed,
                    "mean": float(there.mean()),
                    "worst10": lowest(there),
                    "min": float(there.min()),
                    "better": better,
                    "worse": worse,
                    "of": len(there),
                    "clients": [None if np.isnan(g) else float(g) for g in gain],
                }
            )
    return found
