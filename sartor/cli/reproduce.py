"""`sartor reproduce`: the experiments of the papers."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import need, unknown
from . import completion
from .console import app, err, out
from .options import Json, Quiet, assignments

if TYPE_CHECKING:
    from ..papers.reproduce import Reproduction


@app.command()
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            help="an experiment (--list), or a .toml file of your own", autocompletion=completion.names("recipes")
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="list the experiments and how long they take")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="the size that takes about a minute")] = False,
    reduced: Annotated[
        bool, typer.Option("--reduced", help="the reduced size on which a verdict can rest; the table says what it is")
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="how many seeds [the experiment's]")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES", help="cells of a kind, as in dataset=mnist or method=flame,ditto; repeatable"
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="rounds, in place of the experiment's; the table says so")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="model, in place of the experiment's; the table says so", autocompletion=completion.names("models")
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="stop after this many minutes; the rest is marked as not run [no limit]")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="folder for all results; finished runs in it are not repeated [runs/reproduce/NAME, "
            "where what other experiments have finished counts too]",
        ),
    ] = None,
    go_on: Annotated[bool, typer.Option("--stored", help="reuse stored results; run only the rest")] = False,
    record: Annotated[bool, typer.Option("--record", help="store the table among the package's results")] = False,
    write: Annotated[
        bool, typer.Option("--document", help="make docs/reproductions.md from the stored results")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repeat an experiment of a paper, number by number.

    The paper's numbers, ours with the method as it is written, ours as the authors' code does it, and verdicts.
    """
    from .. import models, spelling
    from ..papers.reproduce import Reproduction, Size, checked, document, listing

    if list_:
        _list_experiments(listing.listing(), as_json)
        return
    need(name is not None or write, "name an experiment (sartor reproduce --list shows them), or use --document.")
    if name is not None:
        experiment = checked(name)
        need(rounds is None or rounds >= 1, f"--rounds is at least 1; got {rounds}.")
        if model is not None and spelling.read("model", model)[0] not in models.NAMES:
            raise unknown("model", model, models.NAMES)
        wanted = {
            k: spelling.split_list(v, "--only")
            for k, v in assignments(only, "--only takes key=values, as in dataset=mnist").items()
        }
        instead = {k: v for k, v in (("rounds", rounds), ("model", model)) if v is not None}
        size = Size.of(experiment, quick, seeds, wanted, instead, reduced)
        ending = "-quick" if quick else "-reduced" if reduced else ""
        place = folder or Path("runs", "reproduce", experiment.name + ending)
        need(minutes is None or minutes >= 0, f"--minutes is at least 0; got {minutes}.")
        before = document.stored(experiment.name, size.name) if go_on else None
        asked = "" if size.name == "full" else f" --{size.name}"
        need(before is not None or not go_on, f"{experiment.name}{asked} has no stored results; remove --stored.")
        made = Reproduction(experiment, size, place, beside=folder is None, stored=before)
        _reproduce(made, minutes, not (quiet or as_json), as_json, record)
    if write:
        out.print(f"written: {document.write_document()}")


def _list_experiments(rows: list[dict[str, Any]], as_json: bool) -> None:
    from ..report import terminal

    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    words = [
        [
            r["name"],
            r["line"],
            r["where"],
            f"{r['runs']}",
            _minutes(r["minutes"]),
            f"{r['quick_runs']}",
            _minutes(r["quick_minutes"]),
        ]
        for r in rows
    ]
    head = ["name", "what", "where", "runs", "time", "quick: runs", "time"]
    out.print(terminal.lines("sartor reproduce NAME; times are rough, on two idle cores", head, words))


def _minutes(count: float) -> str:
    return f"{count * 60:.0f} s" if count < 2 else f"{count:.0f} min" if count < 120 else f"{count / 60:.0f} h"


def _reproduce(made: Reproduction, minutes: float | None, talk: bool, as_json: bool, record: bool) -> None:
    """Play what is missing, as far as time allows, write the table and show it."""
    from ..papers.reproduce import document, figures, outputs
    from ..report import page, terminal

    need(bool(made.cells), f"{made.experiment.name} has no cells in this size that match --only.")
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    with terminal.progress(err) as bar:
        task = bar.add_task("", total=None, note="", left="", visible=talk)
        for done, total, job, result, ended, left in made.play() if minutes != 0 else ():
            now = terminal.left(left)
            bar.update(task, description=job.name, total=total, completed=done, left=now)
            if result is not None:
                bar.update(task, note=terminal.note(result.history))
            elif talk and not err.is_terminal and ended is not None:
                said = f"failed, {ended['error']}" if "error" in ended else f"{ended['seconds']:.1f} s"
                out.print("; ".join(filter(None, [f"{done}/{total} {job.name}: {said}", now])), soft_wrap=True)
            if ended is not None and time.monotonic() > end:
                break
    table = made.table()
    outputs.leave(made.folder, table)
    drawn = figures.draw(made.folder / "figure.png", made, table)
    page.write(made.folder / "report.html", [made.folder])
    before = document.stored(made.experiment.name, made.size.name)
    if as_json:
        print(json.dumps(table, indent=1, ensure_ascii=False))
    if talk:
        _show_table(made, table, drawn, before)
    if record:
        kept = [document.record(table), document.keep_figure(made.folder / "figure.png", table)]
        if talk:
            out.print(f"stored: {', '.join(str(path) for path in kept if path is not None)}", soft_wrap=True)


def _show_table(made: Reproduction, table: dict[str, Any], drawn: bool | None, before: dict[str, Any] | None) -> None:
    from ..papers.reproduce import document, outputs
    from ..report import terminal

    out.print(terminal.lines(table["title"], *outputs.rows(table)))
    out.print(f"as written: {outputs.counted(table)}")
    if outputs.has_authors(table):
        out.print(f"with the authors' switches: {outputs.counted(table, 'counts_authors')}")
        out.print(f"these are: {table['why_authors']}", soft_wrap=True)
    for line in outputs.failures(table):
        out.print(line, soft_wrap=True)
    if table["missing"]:
        out.print(f"not finished: {table['missing']} runs are missing")
    if made.size.quick or made.size.instead:
        out.print("A small size: it shows that all runs, not what comes out of the experiment.")
    if before is not None:
        out.print(document.changed(table, before), soft_wrap=True)
    if drawn is False:
        out.print("figure.png was not drawn: it needs matplotlib (pip install 'sartor[plots]')")
    files = "report.html, table.json, table.md, table.csv" + (" and figure.png" if drawn else "")
    out.print(f"{files} are in {made.folder}; running again repeats only what failed or is missing", soft_wrap=True)
