"""Sentences on what was promised to clients, and what those get that took no part."""

from __future__ import annotations

from typing import Any

MODELS = ("global", "personal", "chosen")


def unseen(found: dict[str, Any]) -> str:
    """What clients get that took no part."""
    models = [m for m in MODELS if found[m] and (m != "chosen" or (found["personal"] and found["global"]))]
    scores = ", ".join(
        f"{m} {found[m]['accuracy_mean']:.3f} (worst 10% {found[m]['accuracy_worst10']:.3f})" for m in models
    )
    return f"{found['clients']} unseen clients after {found['steps']} visits: {scores or 'no test data'}"


def private(found: dict[str, Any]) -> str:
    """What is promised to every client."""
    if found["compositions"] == 0:
        return f"private: nothing leaves a client ({_budget(found)})"
    rate = "" if found["sampling_rate"] == 1 else f" of cohorts by chance, {found['sampling_rate']:.3g} of all clients"
    return (
        f"private at the level of clients: {_budget(found)} to {found['neighbouring']}, by noise "
        f"{found['noise']:g} x clip {'-' if found['clip'] is None else format(found['clip'], 'g')} at the "
        f"{found['where']}, {found['compositions']} compositions{rate}"
    )


def _budget(found: dict[str, Any]) -> str:
    size = "infinite" if found["epsilon"] is None else f"{found['epsilon']:.3g}"
    return f"epsilon {size}, delta {found['delta']:g}"
