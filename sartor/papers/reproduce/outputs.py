"""A table as text: for the terminal, as Markdown and as CSV, in one form; and the files that a repetition leaves."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...storage import write_json, write_text


def number(value: float | None, unit: str) -> str:
    """As the papers print it."""
    if value is None:
        return "–"
    if unit == "bytes":
        return f"{value:,.0f}"
    return f"{value:.2f}" if unit == "percent" else f"{value:.4f}"


def with_std(value: float | None, std: float | None, unit: str) -> str:
    """Mean ± standard deviation over seeds."""
    return number(value, unit) + (f" ±{number(std, unit)}" if std is not None and value is not None else "")


def has_authors(table: Mapping[str, Any]) -> bool:
    """Whether the authors' code differs anywhere in the table."""
    return any(c["verdict_authors"] is not None for c in table["cells"])


def rows(table: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Headings and lines: what, the paper's number, ours as written, ours as the authors' code has it, verdicts."""
    theirs, printed = has_authors(table), any(_is_printed(c) for c in table["cells"])
    head = ["cell", *(["paper"] if printed else []), "ours"]
    head += ["verdict"] if printed else []
    head += ["ours, authors' switches"] if theirs else []
    head += ["verdict, authors' switches"] if theirs and printed else []
    lines = []
    often = Counter(c["row"] for c in table["cells"])
    for c in table["cells"]:
        unit = c["unit"]
        paper = c["printed"] if c["printed"] is not None else with_std(c["paper"], c["paper_std"], unit)
        called = f"{c['row']} ({c['where']})" if often[c["row"]] > 1 and c["row"] else c["row"] or name(c)
        line = [called, *([paper] if printed else []), _ours(c, "", unit, table["seeds"])]
        line += [_said(c, "verdict")] if printed else []
        line += [_ours(c, "_authors", unit, table["seeds"])] if theirs else []
        line += [_said(c, "verdict_authors")] if theirs and printed else []
        lines.append(line)
    return head, lines


def _is_printed(cell: Mapping[str, Any]) -> bool:
    return cell["paper"] is not None or cell["printed"] is not None


def _ours(cell: Mapping[str, Any], which: str, unit: str, seeds: int) -> str:
    if which and cell["verdict_authors"] is None:
        return "the same" if cell["ours"] is not None else "–"
    value, said = cell[f"ours{which}"], str(cell[f"verdict{which}"])
    if value is None and said.startswith("failed"):
        return "failed"
    if value is None and said.startswith("not run"):
        return "not run"
    text = with_std(value, cell[f"std{which}"], unit)
    for kind, note in (("tuned", ""), ("untuned", ", not tuned")):
        if found := cell[f"{kind}{which}"]:
            text += f" ({', '.join(f'{k} = {v}' for k, v in found.items())}{note})"
    there = cell["seeds_authors"] if which else cell["seeds"]
    return text if there is None or there >= seeds else f"{text} ({there} of {seeds} seeds)"


def _said(cell: Mapping[str, Any], key: str) -> str:
    text = str(cell[key] if cell[key] is not None else "–").split(":")[0]
    return f"{text} (doubtful)" if cell["doubtful"] and text in ("agrees", "ours higher", "ours lower") else text


def name(cell: Mapping[str, Any]) -> str:
    """A cell in words."""
    known = ("dataset", "partition", "method", "model")
    return ", ".join(str(cell[k]) for k in known if cell.get(k) is not None)


def failures(table: Mapping[str, Any]) -> list[str]:
    """Why cells failed or were not run, each reason once."""
    found: dict[str, list[str]] = {}
    for c in table["cells"]:
        for key in ("verdict", "verdict_authors"):
            said = str(c[key])
            if said.startswith(("failed: ", "not run: ")):
                found.setdefault(said, []).append(c["row"] or name(c))
    return [f"{said} ({len(set(who))} cells, the first: {who[0]})" for said, who in found.items()]


def counted(table: Mapping[str, Any], key: str = "counts") -> str:
    """The verdicts, counted: "12 agree, 3 ours higher"."""
    return ", ".join(f"{count} {said}" for said, count in table[key].items())


def markdown(table: Mapping[str, Any]) -> str:
    """The table as Markdown."""
    head, lines = rows(table)
    text = [_line(head), _line(["---"] * len(head)), *(_line(line) for line in lines)]
    return "\n".join(text) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def as_csv(table: Mapping[str, Any]) -> str:
    """Every field of every cell."""
    out = io.StringIO()
    fields = list(dict.fromkeys(k for c in table["cells"] for k in c))
    made = csv.DictWriter(out, fields, lineterminator="\n")
    made.writeheader()
    made.writerows(table["cells"])
    return out.getvalue()


def leave(folder: Path, table: Mapping[str, Any]) -> None:
    """Write table.md, table.csv and, last, table.json."""
    counts = f"As written: {counted(table)}."
    counts += f" With the authors' switches: {counted(table, 'counts_authors')}." if has_authors(table) else ""
    notes = "".join(f"- {line}\n" for line in failures(table))
    text = f"# {table['title']}\n\n`{table['command']}`\n\n{markdown(table)}\n{counts}\n" + (
        f"\n{notes}" if notes else ""
    )
    write_text(folder / "table.md", text)
    write_text(folder / "table.csv", as_csv(table))
    write_json(folder / "table.json", table)
