"""`sartor compare`: methods beside each other, also under attack."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import need, unknown
from . import completion
from .console import app, err, out, say_columns, say_made_up, say_where, somewhere, vacant
from .options import (
    ALL,
    Json,
    OwnSteps,
    Quiet,
    Track,
    asked,
    assignments,
    by_method,
    check_steps,
    numbers,
    takes,
    written,
)

if TYPE_CHECKING:
    from ..run.trackers import Tracking
    from ..study.compare import Comparison, Step

MOST_CLIENTS = 40  # that have names of their own, and are listed after a comparison
DEMO = "flame,pfedme,ditto,lp-proj-1,lp-proj-2,fedamp,heurfedamp,fedavg,fedavg-ft,local"
# As study.references has them, which imports too much for --help; a test holds them together.
REFERENCES = ("pooled-linear", "local-linear", "own-intercept-linear", "shrunk-linear", "pooled-trees", "local-trees")


@app.command()
@takes(*ALL, without=("method", "seed"), several=("aggregator", "attack", "attackers"), lams=True)
def compare(
    ctx: typer.Context,
    methods: Annotated[
        str,
        typer.Option(
            help="names, separated by commas (list methods); fedavg+int8 has its own compressor",
            autocompletion=completion.listed("methods"),
        ),
    ] = DEMO,
    seeds: Annotated[str, typer.Option(help="seeds, separated by commas")] = "0,1,2",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="METHOD.FIELD=VALUE", help="a method's field, e.g. flame.lam=1.0; repeatable"),
    ] = None,
    tuned: Annotated[
        Path | None,
        typer.Option(help="a folder of sartor tune: its methods with their best settings, on its data"),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="folder for all results; finished runs in it are not repeated")
    ] = None,
    references: Annotated[
        str,
        typer.Option(
            help=f"what people would use instead, beside the methods: {', '.join(REFERENCES)}; separated by commas",
            autocompletion=completion.words(*REFERENCES),
        ),
    ] = "",
    own_steps: OwnSteps = False,
    track: Track = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods on the same clients, with or without attacks.

    Lists of attacks, attackers and aggregators make a grid; identical cells run once. All methods evaluate the same
    number of gradients per client and round: --local-steps, or what one epoch of the median client takes.
    """
    from ..data import describe
    from ..methods import entry
    from ..report import terminal
    from ..report.sentences import judged
    from ..run.complete import dealt, read_data, split
    from ..run.named_parts import has_lam
    from ..run.trackers import check
    from ..spelling import split_compressor, split_list
    from ..study.compare import compare as compare_all
    from ..study.scenarios import Scenario, scenarios
    from ..study.verdict import verdict

    check(track or [])
    others = split_list(references, "references") if references else []
    for name in others:
        if name not in REFERENCES:
            raise unknown("reference", name, REFERENCES)
    given, best = _tuned(ctx, tuned) if tuned is not None else (ctx.params, {})
    names, each_seed = split_list(given["methods"], "methods"), numbers(seeds, int, "seeds")
    plainly = list(dict.fromkeys(split_compressor(name)[0] for name in names))  # without their compressors
    for name in plainly:
        entry(name)
    fixed = by_method(assignments(set_), plainly)
    own = {name: best.get(name, {}) | fixed.get(name, {}) for name in plainly}
    if (lams := given["lams"]) is not None:
        for name in plainly:
            own[name] |= {"lam": lams} if has_lam(name) else {}
    shares = _shares(given["attackers"], given["attack"])
    grid = scenarios(split_list(given["attack"], "attacks"), shares, split_list(given["aggregator"], "aggregators"))
    base = asked({k: v for k, v in given.items() if k not in Scenario._fields})
    check_steps(given["own_steps"], base)
    vacant(folder, "recipe.toml", "a single run; choose another --out")
    somewhere(base, folder)
    talk = not (quiet or as_json)
    with terminal.waiting(err, f"reading {base.data}", not talk):
        dataset = read_data(base)
    if talk:
        first = split(base.replace(seed=each_seed[0]), dataset)
        out.print(describe(first.about) + f" (seed {each_seed[0]})")
        say_columns(first)
    if not quiet:
        say_made_up(base, dataset)
    steps = compare_all(base, names, each_seed, dataset, folder, own, grid, given["own_steps"], others, not track)
    table = _play_all(steps, base.rounds, talk, track or [])
    found, rows = verdict(table), table.rows()
    drawn = keep(folder, table, found) if folder is not None else True
    if as_json:
        print(json.dumps(table.summaries(), indent=1))
    if talk:
        each = table.by_client()
        if dealt(base, dataset).startswith("natural") and len(each) <= MOST_CLIENTS:
            out.print(terminal.by_client(each, rows[0]["metric"]))
        out.print(terminal.comparison(rows, out))
        out.print("\n".join(filter(None, [terminal.explain(rows, len(each_seed)), judged(found)])))
        say_where(folder)
        if not drawn:
            out.print("robustness.png was not drawn: it needs matplotlib (pip install 'sartor[plots]')")
    errors = [c.summary["error"] for c in table.cells if "error" in c.summary]
    need(len(errors) < len(table.cells), f"every method failed, {names[0]}: {errors[0] if errors else ''}")


def _tuned(ctx: typer.Context, folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The options, of which those that were not given are as in the tuning; and every method's best settings."""
    from ..study.tune import winners

    recipe, best = winners(folder)
    own = ("method", "settings", "seed", "solver", "diagnostics")
    there = {k: v for k, v in recipe.values().items() if k not in own}
    there |= {"parts": ",".join(map(str, recipe.parts)), "methods": ",".join(best)}
    there |= {"attackers": None if recipe.attackers is None else str(recipe.attackers)}
    there |= {"solver" if k == "kind" else k: v for k, v in recipe.solver.items()}
    said = written(ctx)
    if {"steps", "epochs", "own_steps"} & set(said):
        del there["local_steps"]
    there |= {"own_steps": there.get("local_steps") is None and "local_steps" not in said}
    return {k: v if k in said else there.get(k, v) for k, v in ctx.params.items()}, best


def _shares(attackers: str | None, attack: str) -> list[float]:
    """The shares of attackers; where none are given, 0.2 for an attack."""
    if attackers is None:
        return [0.0 if attack == "none" else 0.2]
    return numbers(attackers, float, "attackers")


def keep(folder: Path, table: Comparison, found: dict[str, Any]) -> bool:
    """Write what a comparison leaves; False where a plot could not be drawn."""
    from ..judge.prediction_metrics import score_name
    from ..report import page, robustness
    from ..report.chart_style import FLOOR
    from ..storage import write_json

    write_json(folder / "compare.json", table.summaries())
    write_json(folder / "significance.json", found)
    write_json(folder / "clients.json", table.by_client())
    page.write(folder / "report.html", [folder])
    rows = table.rows()
    lines, turned = robustness.panels(rows), "−" in score_name(rows[0]["metric"])
    return not lines or robustness.write_png(folder / "robustness.png", lines, -math.inf if turned else FLOOR)


def _plan(table: Comparison) -> str:
    """How many runs there are, and which go together: "30 runs, 2 at a time; of flame, ditto 3 go in lockstep"."""
    by_count: dict[int, list[str]] = {}
    for method, count in table.together.items():
        by_count.setdefault(count, []).append(method)
    said = [f"of {', '.join(names)} {count} in lockstep" for count, names in by_count.items() if count > 1]
    cores = f", {table.at_once} at a time" if table.at_once > 1 else ""
    return "; ".join([f"{len(table.plan)} runs{cores}", *said])


def _play_all(steps: Iterator[Step], rounds: int, talk: bool, track: list[str]) -> Comparison:
    """Play all cells; progress is live on a terminal, else a line for each finished cell."""
    from ..report import terminal
    from ..run.trackers import Tracking
    from ..study.compare import cell_name

    with ExitStack() as tracked, terminal.progress(err) as bar:
        tracking: Tracking | None = None
        planned = False
        task = bar.add_task("", total=None, note="", left="", visible=talk)
        for table, method, seed, scenario, result in steps:
            count, now = len(table.plan), terminal.left(table.left())
            what, together = terminal.cell_name(method, scenario, seed), len(table.playing)
            what += f" ({together} runs in lockstep)" if together > 1 else ""
            what += f" ({table.at_once} at a time)" if table.at_once > 1 else ""
            done = len(table.cells) + len(table.waiting)
            bar.update(task, description=what, total=count * rounds, completed=done * rounds, left=now)
            if talk and not planned and result is not None:
                planned = True
                out.print(_plan(table), soft_wrap=True)
            if result is not None:
                advance = sum(table.playing.values()) if together else result.run.round
                bar.update(task, advance=advance, note=terminal.note(result.history))
                tracking = tracking or tracked.enter_context(Tracking(track, cell_name(method, seed, scenario)))
                tracking.look(result.history)
            else:
                tracked.close()
                tracking = None
            if result is None and talk and not err.is_terminal:
                line = f"{len(table.cells)}/{count} {terminal.done(table.cells[-1])}"
                out.print(f"{line}; {now}" if now else line, soft_wrap=True)
    return table
