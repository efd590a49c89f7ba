"""What came out, first: a run in a sentence, a comparison as a table of methods, a repeated experiment as its table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..judge.metrics import SHOWN
from ..judge.prediction_metrics import score_name
from ..study.compare import Comparison
from ..study.scenarios import Scenario, attacked
from . import chart_style
from .entries import Material
from .pieces import Chart, Part, Section, Shown, Table, Words, plain
from .sentences import judged
from .terminal import against, cell, explain, gradients, megabytes, one_line, row_name, worth


def sections(material: Material) -> list[Section]:
    """One for each kind of thing that there is."""
    found = []
    if material.comparison is not None:
        found.append(_compared(material, material.comparison))
    for table in material.tables:
        found.append(_repeated(table))
    return found


def lead(material: Material) -> list[Words]:
    """The first sentences, and the warnings."""
    said = []
    if (table := material.comparison) is not None:
        said += [Words(text, "lead") for text in _best(table)]
    if material.comparison is None:
        said += [Words(one_line(run.summary) + ".", "lead") for run in material.runs if run.summary is not None]
        said += [Words(f"{run.folder.name} has not ended.", "warn") for run in material.runs if run.summary is None]
        last = [line for run in material.runs if not material.tables for line in run.history[-1:]]
        said += [Words(w, "warn") for line in last for w in line["warnings"]]
    return said + [Words(f"{text}.", "warn") for text in material.failures[:5]]


def _best(table: Comparison) -> list[str]:
    """The best method in a sentence, where all went through the same."""
    good = [r for r in table.rows() if r["chosen"]]
    if len(table.scenarios) != 1 or len(good) < 2:
        return []
    best = max(good, key=lambda r: float(r["chosen"]["accuracy_mean"]))
    alone = next((r["chosen"]["accuracy_mean"] for r in good if r["method"] == "local"), None)
    who = f"{best['method']} ({best['reference']})" if best["reference"] else best["method"]
    text = f"The best is {who}: {best['chosen']['accuracy_mean']:.3f} in the mean over clients"
    worst = best["chosen"]["accuracy_worst10"]
    text += "" if worst is None else f" (worst 10%: {worst:.3f})"
    return [text + (f", where clients that train alone have {alone:.3f}." if alone is not None else ".")]


# --- a comparison -----------------------------------------------------------------------------------------------------


def _compared(material: Material, table: Comparison) -> Section:
    rows = table.rows()
    seeds = len({c.seed for c in table.cells})
    parts: list[Part] = []
    if len(table.scenarios) == 1 and (chart := _dots(rows, material.score)) is not None:
        parts.append(chart)
    score = score_name(rows[0]["metric"] if rows else None)
    said = f"Test {score} over benign clients: mean ± standard deviation, worst 10%."
    parts += [Words(said), _methods(rows)]
    for line in explain(rows, seeds).splitlines():
        parts.append(Words(line, "warn" if line.startswith("warning,") or " failed, " in line else "soft"))
    return Section("methods", "All methods", parts)


def _dots(rows: Sequence[dict[str, Any]], score: str) -> Chart | None:
    """A row for each method with a mark for each of its models, the best on top."""
    good = sorted((r for r in rows if r["chosen"]), key=lambda r: float(r["chosen"]["accuracy_mean"]))
    if len(good) < 2:
        return None
    data = []
    for model in SHOWN:
        mine = [(y, r) for y, r in enumerate(good) if r[model]]
        if not mine:
            continue
        x = [r[model]["accuracy_mean"] for _, r in mine]
        trace: dict[str, Any] = {
            "x": x,
            "y": [y for y, _ in mine],
            "mode": "markers",
            "marker": chart_style.MODEL_MARKS[model],
        }
        trace |= {"name": model, "customdata": [plain(row_name(r)) for _, r in mine]}
        trace["hovertemplate"] = "%{customdata}: %{x:.3f}"
        spread = [r[model]["accuracy_seed_std"] for _, r in mine]
        if any(spread) and model == "chosen":
            trace["error_x"] = {"type": "data", "array": spread, "width": 4, "thickness": 1.5}
        data.append(trace)
    axis = {"tickvals": list(range(len(good))), "ticktext": [plain(row_name(r)) for r in good], "zeroline": False}
    axis["range"] = [-0.7, len(good) - 0.3]
    layout = {"xaxis": chart_style.scores(f"mean test {score} over clients"), "yaxis": axis}
    numbers = [[row_name(r), m, r[m]["accuracy_mean"], r[m]["accuracy_seed_std"]] for r in good for m in SHOWN if r[m]]
    return Chart(
        "overview",
        "The mean over clients of each method's global, personal and chosen models; the best method on top. Whiskers: "
        "standard deviation over seeds.",
        {"": {"data": data, "layout": layout, "height": 120 + 26 * len(good)}},
        ["method", "model", "mean", "std over seeds"],
        numbers,
    )


def _methods(rows: Sequence[dict[str, Any]]) -> Table:
    """All numbers of each method; the best is marked, in a grid the best under each attack."""
    rows = [r for r in rows if not r["refused"]]  # the reasons stand below
    best: dict[tuple[str, float], float] = {}
    for r in rows:
        if r["chosen"]:
            where = r["scenario"].attacked
            best[where] = max(r["chosen"]["accuracy_mean"], best.get(where, -math.inf))
    models = [*SHOWN, *(["oracle"] if any(r["oracle"] for r in rows) else [])]
    cells, more = [], worth(rows)
    for i, r in enumerate(rows):
        star = "*" if r["chosen"] and r["chosen"]["accuracy_mean"] == best[r["scenario"].attacked] else ""
        scores = [Shown(cell(r[m]), r[m] and r[m]["accuracy_mean"]) if r["seeds"] else "failed" for m in models]
        spent = [Shown(megabytes(r[k]), r[k]) for k in ("bytes_up", "bytes_down")]
        seconds = Shown("-" if r["seconds"] is None else f"{r['seconds']:.1f}", r["seconds"])
        gain = Shown(against(r), None if r["gain"] is None else r["gain"] - r["lose"])
        work = Shown(gradients(r, rows), r["gradients"] and r["gradients"]["total"])
        cells.append(
            [
                (f"{row_name(r)} ({r['reference']})" if r["reference"] else row_name(r)) + star,
                *scores,
                gain,
                work,
                *spent,
                *(column[i] for column in more.values()),
                seconds,
            ]
        )
    heads = [m if m != "oracle" else "oracle (on test data)" for m in models]
    paid = [name.replace("\n", " ") for name in more]
    return Table(
        ["method", *heads, "vs local", "gradients per client", "MB up", "MB down", *paid, "seconds"],
        cells,
        id="methods-table",
    )


def significance(material: Material, most: int = 60) -> Section | None:
    """The verdict in words, and a table of the tests."""
    found = material.found
    if found is None or not found["pairs"]:
        return None
    parts: list[Part] = [Words(line, "soft") for line in judged(found).splitlines()]
    heads = ["methods", "under", "pairs", "zeros", "mean difference", "effect r", "p", "p (Holm)"]
    cells = [
        [
            f"{p['a']} − {p['b']}",
            attacked(Scenario(p["attack"], p["attackers"])),
            p["n"],
            p["zeros"],
            Shown(f"{p['mean']:+.4f}", p["mean"]),
            Shown(f"{p['effect']:+.2f}", p["effect"]),
            Shown(f"{p['p']:.2g}", p["p"]),
            Shown(f"{p['p_holm']:.2g}", p["p_holm"]),
        ]
        for p in found["pairs"][:most]
    ]
    parts.append(Table(heads, cells, id="tests", summary=f"{min(most, len(found['pairs']))} tests"))
    if len(found["pairs"]) > most:
        parts.append(Words(f"All {len(found['pairs'])} tests are in significance.json.", "soft"))
    return Section("significance", "Is it more than chance?", parts)


# --- a repeated experiment --------------------------------------------------------------------------------------------


def _repeated(table: Mapping[str, Any]) -> Section:
    """The paper's numbers and ours: against each other, and in a table."""
    parts: list[Part] = [Words(f"{table['paper']}, {table['where']}.")]
    if (chart := _agreement(table["cells"])) is not None:
        parts.append(chart)
    columns = {"paper": "paper", "ours": "ours", "std": "± over seeds", "verdict": "verdict"}
    columns |= {"ours_authors": "ours, authors' switches", "verdict_authors": "verdict, authors' switches"}
    there = [k for k in columns if any(c.get(k) is not None for c in table["cells"])]
    rows = [[_cell_name(c), *(c.get(k) for k in there)] for c in table["cells"]]
    parts.append(Table(["cell", *(columns[k] for k in there)], rows, id=f"table-{len(rows)}"))
    counts = ", ".join(f"{n} {said}" for said, n in table["counts"].items())
    parts.append(Words(f"As written: {counts}.", "soft"))
    if table.get("quick") or table.get("rounds"):
        small = "A small size: it shows that all runs, not what comes out of the experiment."
        parts.append(Words(small, "warn"))
    return Section("repeated", str(table["title"]), parts)


def _cell_name(cell: Mapping[str, Any]) -> str:
    known = ("dataset", "partition", "method", "model", "attack", "attackers", "aggregator")
    return str(cell.get("row") or ", ".join(str(cell[k]) for k in known if cell.get(k) is not None))


def _agreement(cells: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Every printed number against ours."""
    there = [c for c in cells if c["paper"] is not None and c["unit"] != "bytes"]
    kinds = {"as written": "ours", "authors' switches": "ours_authors"}
    kinds = {k: v for k, v in kinds.items() if any(c[v] is not None for c in there)}
    if not kinds:
        return None
    methods = list(dict.fromkeys(str(c["method"]) for c in there))
    variants = {}
    for words, key in kinds.items():
        known = [c for c in there if c[key] is not None]
        ends = [min(min(c["paper"], c[key]) for c in known), max(max(c["paper"], c[key]) for c in known)]
        line = {"color": "--soft", "width": 1, "dash": "dot"}
        data: list[dict[str, Any]] = [{"x": ends, "y": ends, "mode": "lines", "line": line, "name": "the same"}]
        for place, method in enumerate(methods):
            mine = [c for c in known if str(c["method"]) == method]
            trace: dict[str, Any] = {"x": [c["paper"] for c in mine], "y": [c[key] for c in mine], "mode": "markers"}
            trace |= {"name": plain(method), "marker": chart_style.marker(place, 8)}
            trace |= {
                "customdata": [plain(_cell_name(c)) for c in mine],
                "hovertemplate": "%{customdata}: %{x}, ours %{y}",
            }
            data += [trace] if mine else []
        axes = {"xaxis": {"title": {"text": "paper"}}, "yaxis": {"title": {"text": "ours"}}}
        variants[words] = {"data": data, "layout": axes}
    rows = [[_cell_name(c), c["paper"], c["ours"], c["ours_authors"]] for c in there]
    return Chart(
        "agreement",
        "Each number that the paper prints against ours; on the dotted line they are the same.",
        variants if len(variants) > 1 else {"": next(iter(variants.values()))},
        ["cell", "paper", "ours", "ours, authors' switches"],
        rows,
        {"ours": list(variants)} if len(variants) > 1 else {},
    )
