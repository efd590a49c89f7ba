"""`sartor tune`: the same budget for every method."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import completion
from .console import app, err, out, say_made_up, say_where
from .options import Json, OwnSteps, Quiet, asked, assignments, by_method, check_steps, numbers, takes

if TYPE_CHECKING:
    from ..study.tune import Tuning

GROUPS = ("data", "method", "federation", "attack", "privacy", "execution", "evaluation")
# Methods and step sizes are tuned, nothing is kept but scores, and everybody is there.
UNUSED = (
    *("method", "seed", "lr", "store", "device", "checkpoint_every", "diagnostics", "oracle"),
    *("drop", "stragglers", "stale", "patience", "unseen", "unseen_steps"),
)


@app.command()
@takes(*GROUPS, without=UNUSED)
def tune(
    ctx: typer.Context,
    methods: Annotated[
        str,
        typer.Option(
            help="names, separated by commas (sartor list methods)", autocompletion=completion.listed("methods")
        ),
    ] = "flame,pfedme,ditto",
    budget: Annotated[int, typer.Option(help="trials of each method, its defaults included")] = 20,
    sampler: Annotated[str, typer.Option(help="grid, random or tpe (Optuna)")] = "random",
    seeds: Annotated[str, typer.Option(help="seeds, separated by commas")] = "0,1,2",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="METHOD.FIELD=VALUE", help="a field to keep fixed, e.g. flame.lam=1.0; repeatable"
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="where tune.json is kept; trials that are finished there are not repeated"),
    ] = None,
    own_steps: OwnSteps = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tune methods fairly, on validation data.

    Every method has the same number of trials over a stated search space, with the same seeds, and evaluates the same
    number of gradients per client and round: --local-steps, or what one epoch of the median client takes.
    """
    from ..methods import entry
    from ..report import terminal
    from ..run.complete import read_data
    from ..study.tune import set_line
    from ..study.tune import tune as tune_all

    names, each_seed = [m.strip() for m in methods.split(",")], numbers(seeds, int, "seeds")
    for one in names:
        entry(one)
    fixed = by_method(assignments(set_), names)
    given = {k: v for k, v in ctx.params.items() if k != "budget"}  # of trials; a recipe's is of bytes
    base = asked(given, diagnostics=False)
    check_steps(own_steps, base)
    talk = not (quiet or as_json)
    with terminal.waiting(err, f"reading {base.data}", not talk):
        dataset = read_data(base)
    if not quiet:
        say_made_up(base, dataset)
    with terminal.progress(err) as bar:
        task = bar.add_task("", total=len(names) * budget, note="", left="", visible=talk)
        began = time.perf_counter()
        trials = tune_all(base, names, each_seed, dataset, budget, sampler, folder, fixed, own_steps)
        for tuning, method, number in trials:
            if talk and number == 0 and tuning.together[method] > 1:
                out.print(f"{method}: {tuning.together[method]} runs go together")
            last, done, wanted = tuning.trials[method][-1], sum(map(len, tuning.trials.values())), len(names) * budget
            left = terminal.left((time.perf_counter() - began) * (wanted - done) / done)
            said = "failed" if last.score is None else f"{last.score:.4f}"
            bar.update(task, description=method, advance=1, note=f"validation {said}", left=left)
            if talk and not err.is_terminal:
                line = f"{method} {number + 1}/{budget}: {said}  {set_line(method, last.settings)}"
                out.print(f"{line}; {left}" if left else line, soft_wrap=True)
    if as_json:
        print(json.dumps(tuning.table(), indent=1))
    if talk:
        _show_tuning(tuning, folder)


def _show_tuning(tuning: Tuning, folder: Path | None) -> None:
    from ..report import terminal
    from ..study.tune import scored_by

    words = []
    for method, trials in tuning.trials.items():
        best, failed = tuning.best(method), sum(t.score is None for t in trials)
        scores = [f"{t.score:.4f}" if t and t.score is not None else "failed" for t in (trials[0], best)]
        work = "-" if best is None or best.gradients is None else f"{best.gradients:.0f}"
        words.append([method, *scores, work, f"{len(trials)}" + (f" ({failed} failed)" if failed else "")])
    heads = ["method", "defaults", "best", "gradients per client", "trials"]
    out.print(terminal.lines(f"validation {scored_by(tuning.base.metric)}", heads, words))
    out.print(terminal.work(tuning.base.local_steps, tuning.own_work()))
    out.print("Mean over clients (chosen models) and seeds; no test data were looked at. To compare with the best:")
    for method in tuning.trials:
        if (line := tuning.set_line(method)) is not None:
            out.print(line, soft_wrap=True)
    say_where(folder, "tune.json is in {0}; to compare: sartor compare --tuned {0}")
