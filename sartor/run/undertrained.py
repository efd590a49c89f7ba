"""Signs that a run was too short, said at its end: models that still get better, clients that never trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_BETTER = 0.01  # of validation accuracy between the last two evaluations
_NEVER = 0.5  # share of clients


def undertrained(history: Sequence[Mapping[str, Any]], clients: int, cohort: int, all_train: bool) -> list[str]:
    """What a longer run, or a larger cohort, would mend."""
    said = []
    scored = [line for line in history if line["validation"] is not None]
    if len(scored) >= 2:
        before, now = scored[-2:]
        if now["validation"] - before["validation"] > _BETTER:
            said.append(
                f"the models still get better (validation {before['validation']:.3f} after round {before['round']}, "
                f"{now['validation']:.3f} after round {now['round']}): play more rounds."
            )
    never = 0.0 if all_train else (1 - cohort / clients) ** history[-1]["round"]
    if never > _NEVER:
        said.append(
            f"with {cohort} of {clients} clients in each of {history[-1]['round']} rounds, about {never:.0%} of the "
            "clients have never trained: their models are the first ones. Play more rounds, or raise --cohort."
        )
    return said
