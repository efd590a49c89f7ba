"""`sartor theory`: theorems held against experiment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import need
from . import catalogue, completion
from .console import app, err, out, print_rows
from .options import Json, Quiet, assignments

if TYPE_CHECKING:
    from ..papers import theory


@app.command("theory")
def theory_(
    name: Annotated[
        str | None,
        typer.Argument(help="which theorem or figure (--list), or all", autocompletion=completion.theorems),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="say what there is")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="a parameter, e.g. tau=0.5 or replicas=2000; repeatable"),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="where table.json, table.csv, plot.png and verdict.txt go")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="store what was found: docs/reproductions.md cites it (default parameters)")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check the papers' theorems by experiment."""
    from ..papers import theory
    from ..papers.theory import shown
    from ..report import terminal

    if list_all:
        rows = catalogue.theorems()
        print(json.dumps(rows, indent=1, ensure_ascii=False)) if as_json else print_rows(rows)
        return
    need(name is not None, f"say which: sartor theory NAME, with NAME one of all, {', '.join(theory.NAMES)}.")
    given = assignments(set_)
    need(name != "all" or not given, "--set works with one check only; give its name instead of all.")
    need(not record or not given, "--record stores the checks as they are; leave --set out.")
    checks = [theory.check(n) for n in theory.NAMES] if name == "all" else [theory.check(str(name), given)]
    reports = []
    found: list[tuple[theory.Check, theory.Finding, bool]] = []
    with terminal.progress(err) as bar:
        task = bar.add_task("", total=len(checks), note="", left="", visible=not quiet)
        for check in checks:
            bar.update(task, description=check.name)
            finding = check.look()
            bar.advance(task)
            reports.append(check.report(finding))
            place = None if folder is None else folder / check.name if name == "all" else folder
            drawn = place is None or shown.write(place, check, finding)
            found.append((check, finding, drawn))
            if not (as_json or quiet or err.is_terminal):  # there the bar goes on, and this comes below it
                _say(found, name != "all")
    if not (as_json or quiet):
        _say(found, name != "all")
    if record:
        from ..papers.reproduce import claims_table

        path = claims_table.record_theory({r["name"]: r for r in reports})
        err.print(f"stored: {path}", soft_wrap=True)
    if as_json:
        print(json.dumps(reports if name == "all" else reports[0], indent=1, ensure_ascii=False))


def _say(found: list[tuple[theory.Check, theory.Finding, bool]], whole: bool) -> None:
    """What was found, in a sentence; of a single check also its table. What was said is not said again."""
    from ..papers.theory import shown

    for check, finding, drawn in found:
        if whole:
            out.print(shown.table(finding))
        out.print(f"{check.name}: {finding.sentence}", soft_wrap=True)
        if not drawn:
            out.print("the plot was left out: it needs matplotlib (pip install 'sartor[plots]')")
    found.clear()
