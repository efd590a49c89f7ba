"""What the charts of a run's models share: the curves of metrics.json, pooled and each client's own.

A chart is drawn of the pooled samples; beside it lie, for each client, only the numbers that are other than those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..judge.metrics import SHOWN

DOTS: dict[str, Any] = {"color": "--soft", "width": 1, "dash": "dot"}
Found = Mapping[str, Any]


def curve(found: Found, name: str) -> Any:
    """A curve of a model or of a client's; None where there is none."""
    return (found.get("curves") or {}).get(name)


def models_with(table: Found, name: str) -> dict[str, Any]:
    """The models that have this curve of the pooled samples."""
    there = {m: table["models"][m] for m in SHOWN if m in table["models"]}
    return {m: found for m, found in there.items() if curve(found, name)}


def by_client(
    models: Mapping[str, Found],
    patch: Callable[[str, Found], dict[str, Any] | None],
    lacking: tuple[str, str],
    before: int = 0,
    after: int = 0,
) -> dict[str, list[dict[str, Any]]] | None:
    """For each client what changes in each model's trace; `before` them are traces that stay, `after` them those of
    the pooled samples alone. `lacking`: what a client may have none of, and the metric that says why. None where the
    run has no curves of clients."""
    each: Sequence[tuple[Found, ...]] = list(zip(*(found["clients"] for found in models.values()), strict=True))
    if not each or not all("curves" in row for rows in each for row in rows):
        return None
    out = []
    for rows in each:
        own = [patch(model, row) for model, row in zip(models, rows, strict=True)]
        there = any(one is not None for one in own)
        fixed: Any = {} if there else None
        data = [*[fixed] * before, *own, *[None] * after]
        out.append({"data": data, "note": "" if there else _why(rows[0], *lacking)})
    return {"": out}


def _why(row: Found, what: str, metric: str) -> str:
    reason = (row.get("missing") or {}).get(metric) or "too few test samples"
    return f"{row['name']} has no {what}: {reason}."


def share_axis(title: str) -> dict[str, Any]:
    """From 0 to 1."""
    return {"title": {"text": title}, "range": [-0.04, 1.04]}


def diagonal(name: str, ends: Sequence[float] = (0, 1)) -> dict[str, Any]:
    """The dotted line on which both axes say the same."""
    return {"x": list(ends), "y": list(ends), "mode": "lines", "line": DOTS, "name": name}
