"""A finding in the terminal and in its folder: table.json, table.csv, verdict.txt and plot.png."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from ...storage import write_json, write_text
from .findings import Check, Finding
from .plots import write_png


def table(finding: Finding) -> Table:
    """The rows as a table for the terminal."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("what", overflow="fold")
    for name in ("theory", "measured", "std. error"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("agrees?", no_wrap=True)
    for row in finding.rows:
        sign = "" if row.relation == "=" else f"{row.relation} "
        error = f"{row.error:.2g}" if row.error else "-"
        word = "yes" if row.agrees else "no"
        word += " (as printed)" if row.erratum else ""
        shown.add_row(row.what, f"{sign}{row.theory:.5g}", f"{row.measured:.5g}", error, word)
    return shown


def write(folder: Path, check: Check, finding: Finding) -> bool:
    """Write all files; False where the plot could not be drawn, for want of matplotlib."""
    write_json(folder / "table.json", check.report(finding))
    write_text(folder / "table.csv", finding.csv())
    write_text(folder / "verdict.txt", f"{check.name}: {finding.sentence}\n")
    return write_png(folder / "plot.png", finding.panels, f"{check.name}: {check.paper}")
