"""Client by client: any two methods or runs, with each client's difference; and all of them in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..study.compare import Comparison
from ..study.scenarios import Scenario
from .entries import Material
from .pieces import Chart, Part, Section, Shown, Table, TwoSides, plain
from .sentences import probability
from .terminal import number

Scores = Mapping[str, Sequence[float | None]]  # by what it is called: the score of each client, None: it has none


def section(material: Material) -> Section | None:
    """None where there are no clients, or nothing to compare them by."""
    if material.comparison is None:
        return None
    clients, scores, places = _scores(material.comparison)
    if not clients:
        return None
    called = list(scores)
    parts: list[Part] = []
    if len(called) > 1:
        parts.append(_pair(clients, scores, _tests(material.found, places), material.score))
    cells = [[name, *(Shown(number(scores[m][i]), scores[m][i]) for m in called)] for i, name in enumerate(clients)]
    whole = f"Each client's chosen model, by method ({len(clients)} clients)"
    parts.append(Table(["client", *called], cells, id="by-client", summary=whole, find="client"))
    return Section("client-by-client", "Client by client", parts)


def _scores(table: Comparison) -> tuple[list[str], Scores, list[tuple[Scenario, str]]]:
    """The clients, the scores of each method in each scenario, the best first, and which those are."""
    found: dict[tuple[Scenario, str], dict[str, float | None]] = {}
    clients: dict[str, None] = {}
    for scenario in table.scenarios:
        for row in table.by_client(scenario):
            clients[row["client"]] = None
            for method, value in row.items():
                if method != "client":
                    found.setdefault((scenario, method), {})[row["client"]] = value
    order = sorted(found, key=lambda place: _mean(found[place]), reverse=True)
    scores = {
        ", ".join([method, *scenario.words()]): [found[scenario, method].get(name) for name in clients]
        for scenario, method in order
    }
    return list(clients), scores, order


def _mean(own: Mapping[str, float | None]) -> float:
    known = [v for v in own.values() if v is not None]
    return sum(known) / len(known) if known else float("-inf")


def _tests(found: Mapping[str, Any] | None, places: Sequence[tuple[Scenario, str]]) -> dict[str, str]:
    """What significance.json says of two of them, under the same attack: by their places, the lower first."""
    entrants = [(s.attacked, m if s.aggregator == "mean" else f"{m}+{s.aggregator}") for s, m in places]
    at = {entrant: i for i, entrant in enumerate(entrants)}
    said = {}
    for pair in (found or {}).get("pairs", []):
        under = pair["attack"], pair["attackers"]
        a, b = at.get((under, pair["a"])), at.get((under, pair["b"]))
        if a is not None and b is not None:
            text = f"{probability(pair['p_holm'])} (Wilcoxon, Holm-corrected)"
            said[f"{min(a, b)} {max(a, b)}"] = text
    return said


def _pair(clients: Sequence[str], scores: Scores, tests: Mapping[str, str], score: str) -> TwoSides:
    """The best two, with what the page's script needs to show any two."""
    (a, ours), (b, theirs) = list(scores.items())[:2]
    rows: list[list[Any]] = [
        [name, x, y, None if x is None or y is None else x - y]
        for name, x, y in zip(clients, ours, theirs, strict=True)
    ]
    off = sorted(row[3] for row in rows if row[3] is not None)
    at = list(range(1, len(off) + 1))
    data = [
        {
            "x": at,
            "y": [side(d, 0.0) for d in off],
            "mode": "lines",
            "line": {"color": colour, "width": 1.5, "shape": "hvh"},
            "fill": "tozeroy",
            "fillcolor": f"{colour} 0.3",
            "name": f"{plain(name)} is better",
            "hovertemplate": "%{y:+.3f}",
        }
        for side, name, colour in ((max, a, "--c0"), (min, b, "--c1"))
    ]
    across, up = {"title": {"text": "clients, by difference"}}, {"title": {"text": f"difference of test {score}"}}
    head = ["client", a, b, "difference"]
    chart = Chart(
        "pair",
        "The difference of each client's chosen models, all clients in order: the longer a side, the more clients are "
        "better off with it.",
        {"": {"data": data, "layout": {"xaxis": across, "yaxis": up}}},
        head,
        rows,
        height=300,
    )
    table = Table(head, [[r[0], *(Shown(number(v), v) for v in r[1:])] for r in rows], id="pair-table", find="client")
    about = {"methods": list(scores), "clients": list(clients), "scores": list(scores.values()), "tests": tests}
    return TwoSides(chart, table, about)
