"""`sartor advise`: which method, or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import completion
from .console import app, err, out, say_columns, say_made_up, say_where
from .options import Json, OwnSteps, Quiet, asked, check_steps, takes

if TYPE_CHECKING:
    from ..study.advise import Advice

UNUSED = (
    *("method", "aggregator", "store", "device"),
    *("evaluate_every", "checkpoint_every", "diagnostics", "report", "oracle"),
)


@app.command()
@takes("data", "method", "execution", "evaluation", without=UNUSED, other={"rounds": 30})
def advise(
    ctx: typer.Context,
    methods: Annotated[
        str | None,
        typer.Option(
            help="names, separated by commas; local is always among them [a few that often do well]",
            autocompletion=completion.listed("methods"),
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(help="time limit")] = 5.0,
    trials: Annotated[int, typer.Option(help="maximum number of trials per method; the defaults come first")] = 12,
    cuts: Annotated[
        int | None, typer.Option(help="number of random splits of the data for each trial [5; 3 from 5,000 rows on]")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="where advise.json, recipe.toml and the comparison are kept")
    ] = None,
    own_steps: OwnSteps = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Recommend a method for your data, or local training.

    It tries a few methods with the same small budget on validation data; test data only say what the choice is worth.
    """
    from ..data import describe
    from ..methods import entry
    from ..report import terminal
    from ..run.complete import read_data, split
    from ..spelling import split_list
    from ..study import advise as advising
    from ..study.verdict import verdict
    from .compare import keep

    names = None if methods is None else split_list(methods, "methods")
    for name in names or ():
        entry(name)
    base = asked(ctx.params)
    check_steps(own_steps, base)
    dataset, talk = read_data(base), not (quiet or as_json)
    if talk:
        first = split(base, dataset)
        out.print(describe(first.about))
        say_columns(first)
    if not quiet:
        say_made_up(base, dataset)
    with terminal.progress(err) as bar:
        task = bar.add_task("", total=100, note="", left="", visible=talk)
        steps = advising.advise(base, dataset, names, minutes, trials, cuts, folder, own_steps)
        for advice, now, share in steps:
            left = terminal.left(max(0.0, 60 * minutes - advice.seconds))
            bar.update(task, description=now, completed=round(100 * share), left=left)
    assert advice.table is not None
    if folder is not None:
        keep(folder / "comparison", advice.table, verdict(advice.table))
    if as_json:
        print(json.dumps(advice.plain(), indent=1))
    if talk:
        _show(advice, folder)


def _show(advice: Advice, folder: Path | None) -> None:
    from ..report import terminal
    from ..study.candidates import ALONE
    from ..study.tune import set_line

    rows = []
    for m in sorted(advice.tried, key=lambda m: -advice.mean(m)):
        gain, error = advice.gain(m)
        over = "" if m == ALONE else f"{gain:+.3f} ± {error:.3f}"
        rows.append([m, f"{advice.mean(m):.3f}", over, set_line(advice.candidates[m].method, advice.best(m).settings)])
    heads = ["method", "score", "over local", "settings"]
    out.print(terminal.lines(f"{advice.scored}; kept-back samples (no test data)", heads, rows))
    if advice.table is not None:
        out.print(terminal.work_of(advice.table.rows()))
    for line in advice.words():
        out.print(line)
    say_where(folder, "next: sartor run --recipe {0}/recipe.toml --out FOLDER; the evidence is in {0}")
