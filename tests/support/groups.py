"""Options of `fit` side by side, put into their groups: for helpers of tests that hand all kinds of options on."""

from __future__ import annotations

import dataclasses
from typing import Any

import sartor as st

GROUPS: dict[str, type] = {
    "federation": st.Federation,
    "attack": st.Attacked,
    "traffic": st.Traffic,
    "execution": st.Execution,
    "evaluation": st.Evaluation,
}


def grouped(**options: Any) -> dict[str, Any]:
    """What `fit` and `prepare` take: cohort=3 becomes federation=Federation(cohort=3); others stay as they are."""
    made: dict[str, Any] = {}
    if isinstance(options.get("unseen"), st.Clients | None):
        made["unseen"] = options.pop("unseen", None)
    if "store" in options:
        made["folder"], options["store"] = options["store"], "disk"
    for title, group in GROUPS.items():
        names = [f.name for f in dataclasses.fields(group)]
        own = {
            n: options.pop(n)
            for n in list(options)
            if n in names
            and not isinstance(options[n], (group, st.Clients))
            and not (n == "metric" and callable(options[n]))  # the user's own is not of a group
        }
        given = options.pop(title, None)
        if own or given is not None:
            made[title] = dataclasses.replace(given or group(), **own)
    return made | options
