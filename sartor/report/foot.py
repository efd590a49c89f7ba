"""What stands below a comparison's table: intervals over seeds, and whether the best method's lead is chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..grid import Scenario, attacked


def judged(found: dict[str, Any], most: int = 12) -> str:
    """A verdict in words: under each attack every method's interval, and the best method against the others."""
    several = len({(i["attack"], i["attackers"]) for i in found["intervals"]}) > 1
    lines = []
    for where in dict.fromkeys((i["attack"], i["attackers"]) for i in found["intervals"]):
        lead = f"{attacked(Scenario(*where))}: " if several else ""
        lines += [lead + line for line in _scenario(where, found, most)]
    if count := len(found["pairs"]):
        lines.append(
            f"p: Wilcoxon signed-rank tests over clients and seeds, corrected for {count} test{'s' * (count > 1)} "
            "(Holm); r: rank-biserial effect. Clients share a model, so p is a guide, and few seeds make intervals too "
            "narrow."
        )
    return "\n".join(lines)


def _scenario(where: tuple[str, float], found: dict[str, Any], most: int) -> list[str]:
    """The lines of one attack."""
    here, tests = (
        [row for row in found[kind] if (row["attack"], row["attackers"]) == where] for kind in ("intervals", "pairs")
    )
    spans = [
        f"{i['method']} {i['accuracy']:.3f} [{i['low']:.3f}, {i['high']:.3f}]" for i in here if i["low"] is not None
    ]
    lines = []
    if spans:
        seeds = max(i["seeds"] for i in here)
        lines.append(f"chosen, mean and 95% bootstrap interval over {seeds} seeds: {_few(spans, most)}.")
    known = [i for i in here if i["accuracy"] is not None]
    best = max(known, key=lambda i: i["accuracy"])["method"] if known else ""
    rivals = [p for p in tests if best in (p["a"], p["b"])]
    if rivals:
        words = [_against(best, p) for p in rivals]
        lines.append(f"{best} against the others, over {rivals[0]['n']} pairs: {_few(words, most)}.")
    return lines


def _against(best: str, pair: dict[str, Any]) -> str:
    sign, other = (1, pair["b"]) if pair["a"] == best else (-1, pair["a"])
    return f"{other} {sign * pair['mean']:+.3f} ({probability(pair['p_holm'])}, r = {sign * pair['effect']:.2f})"


def probability(p: float) -> str:
    """A p-value as one writes it."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _few(words: Sequence[str], most: int) -> str:
    rest = f"; {len(words) - most} more in significance.json" if len(words) > most else ""
    return "; ".join(words[:most]) + rest
