"""Sentences by tables: intervals over seeds, whether the best method's lead is chance, what is promised to clients,
and what clients get that took no part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..judge.metrics import SHOWN
from ..study.scenarios import Scenario, attacked

_LISTED = 12  # clients whose epsilon is said one by one


def judged(found: dict[str, Any], most: int = 12) -> str:
    """A verdict in words: every method's interval and the best one against the others; in a grid a line per attack."""
    places = list(dict.fromkeys((i["attack"], i["attackers"]) for i in found["intervals"]))
    lines = []
    for where in places:
        here, tests = (
            [row for row in found[kind] if (row["attack"], row["attackers"]) == where]
            for kind in ("intervals", "pairs")
        )
        here = [i for i in here if i["accuracy"] is not None]
        if here and len(places) == 1:
            lines += _at_length(here, tests, most)
        elif here:
            lines.append(f"{attacked(Scenario(*where))}: {_in_short(here, tests)}.")
    if found["pairs"]:
        lines.append(
            "p: Wilcoxon signed-rank tests over clients and seeds, corrected (Holm) for all pairs of methods under an "
            "attack; r: rank-biserial effect. Clients share a model, so p is a guide; few seeds: intervals too narrow."
        )
    return "\n".join(lines)


def _at_length(here: Sequence[dict[str, Any]], tests: Sequence[dict[str, Any]], most: int) -> list[str]:
    """Every method's interval, and the best method against each of the others."""
    lines, best = [], _best(here)["method"]
    if spans := [_span(i) for i in here if i["low"] is not None]:
        seeds = max(i["seeds"] for i in here)
        lines.append(f"chosen, mean and 95% bootstrap interval over {seeds} seeds: {_few(spans, most)}.")
    if rivals := [p for p in tests if best in (p["a"], p["b"])]:
        words = [_against(best, p) for p in rivals]
        lines.append(f"{best} against the others, over {rivals[0]['n']} pairs: {_few(words, most)}.")
    return lines


def _in_short(here: Sequence[dict[str, Any]], tests: Sequence[dict[str, Any]]) -> str:
    """The best method, and over whom its lead is more than chance."""
    best = _best(here)
    rivals = [p for p in tests if best["method"] in (p["a"], p["b"])]
    beaten = [p["b"] if p["a"] == best["method"] else p["a"] for p in rivals if p["p_holm"] < 0.05]
    said = f"best is {_span(best)}"
    if rivals:
        names = f" ({', '.join(beaten)})" if beaten else ""
        said += f", with p < 0.05 against {len(beaten)} of {len(rivals)} others{names}"
    return said


def _best(here: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return max(here, key=lambda i: float(i["accuracy"]))


def _span(i: dict[str, Any]) -> str:
    span = "" if i["low"] is None else f" [{i['low']:.3f}, {i['high']:.3f}]"
    return f"{i['method']} {i['accuracy']:.3f}{span}"


def _against(best: str, pair: dict[str, Any]) -> str:
    sign, other = (1, pair["b"]) if pair["a"] == best else (-1, pair["a"])
    return f"{other} {sign * pair['mean']:+.3f} ({probability(pair['p_holm'])}, r = {sign * pair['effect']:.2f})"


def probability(p: float) -> str:
    """A p-value as one writes it."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _few(words: Sequence[str], most: int) -> str:
    rest = f"; {len(words) - most} more in significance.json" if len(words) > most else ""
    return "; ".join(words[:most]) + rest


def mean_and_worst(model: dict[str, Any]) -> str:
    """The mean over clients, and the worst tenth where it is known."""
    worst = model["accuracy_worst10"]
    return f"{model['accuracy_mean']:.3f}" + ("" if worst is None else f" (worst 10% {worst:.3f})")


def unseen(found: dict[str, Any]) -> str:
    """What clients get that took no part."""
    models = [m for m in SHOWN if found[m] and (m != "chosen" or (found["personal"] and found["global"]))]
    scores = ", ".join(f"{m} {mean_and_worst(found[m])}" for m in models)
    return f"{found['clients']} unseen clients after {found['steps']} visits: {scores or 'no test data'}"


def private(found: dict[str, Any]) -> str:
    """What is promised to every client."""
    if found["compositions"] == 0:
        return f"private: nothing leaves a client ({_budget(found)})"
    if found.get("unit") == "sample":
        least = min(found.get("noise_of_each") or [found["noise"]])
        own = f"{least:.4g} to {found['noise']:.4g}" if least < found["noise"] else f"{found['noise']:g}"
        noise = f"noise {own} x clip {'-' if found['clip'] is None else format(found['clip'], 'g')}"
        return (
            f"private at the level of samples: at most {_budget(found)} to {found['neighbouring']}, by {noise} on each "
            f"of {found['compositions']} gradients of at most {found['sampling_rate']:.3g} of a client's samples"
            f"{_budget_of_each(found.get('epsilon_of_each'))}"
        )
    rate = "" if found["sampling_rate"] == 1 else f" of cohorts by chance, {found['sampling_rate']:.3g} of all clients"
    return (
        f"private at the level of clients: {_budget(found)} to {found['neighbouring']}, by noise "
        f"{found['noise']:g} x clip {'-' if found['clip'] is None else format(found['clip'], 'g')} at the "
        f"{found['where']}, {found['compositions']} compositions{rate}"
    )


def _budget_of_each(spent: list[float] | None) -> str:
    """What each client spends, in the order of the clients; nothing where it is the same for all, or not finite."""
    shown = [f"{epsilon:.3g}" for epsilon in spent or []]
    if len(set(shown)) < 2:
        return ""
    if len(shown) > _LISTED:
        return f"; epsilon of each client: {min(spent or []):.3g} to {max(spent or []):.3g}"
    return f"; epsilon of each client: {', '.join(shown)}"


def _budget(found: dict[str, Any]) -> str:
    size = "infinite" if found["epsilon"] is None else f"{found['epsilon']:.3g}"
    return f"epsilon {size}, delta {found['delta']:g}"
