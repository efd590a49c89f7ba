"""`sartor run`: one method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import need, see
from ..run.recipe import SETTINGS, Recipe
from .console import app, err, out, say_columns, say_made_up, say_where, somewhere, vacant
from .options import ALL, Json, Quiet, Track, asked, assignments, takes, values, written

if TYPE_CHECKING:
    from ..data import Clients
    from ..run.result import Result


@app.command()
@takes(*ALL, lams=True)
def run(
    ctx: typer.Context,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="a method's field, e.g. lam=1.0 or solver.lr=0.1; repeatable"
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="folder for all results; without it nothing is saved")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--recipe", help="a recipe.toml; options on the command line override it")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="continue the run in this folder")] = None,
    track: Track = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one method."""
    from ..data import describe
    from ..report import page, terminal
    from ..run.complete import read_data, split
    from ..run.trackers import check

    check(track or [])
    need(file is None or resume is None, "use --recipe to start a run or --resume to continue one, not both.")
    if resume is not None:
        recipe, folder = _continued(ctx, resume, folder), resume
    else:
        recipe = _from_file(ctx, file) if file is not None else _asked(ctx.params)
        vacant(folder, "recipe.toml", f"a run already; choose another --out, or continue it with --resume {folder}")
        vacant(folder, "compare.json", "a comparison; choose another --out")
    somewhere(recipe, folder)
    with terminal.waiting(err, f"reading {recipe.data}", quiet):
        dataset = read_data(recipe)
        clients = split(recipe, dataset)
    talk = not (quiet or as_json)
    if talk:
        out.print(describe(clients.about))
        say_columns(clients)
        out.print(_settings_line(recipe))
        if (line := _absolute_penalty(recipe, len(clients))) is not None:
            out.print(line)
    if not quiet:
        say_made_up(recipe, dataset)
    del dataset  # clients have copies
    result = _play(recipe, clients, folder, quiet, track or [])
    if folder is not None:
        page.write(folder / "report.html", [folder])
    if as_json:
        print(json.dumps(result.summary, indent=1))
    if talk:
        _show(result, folder)


def _absolute_penalty(recipe: Recipe, m: int) -> str | None:
    """A line where ρ itself is given, as in recipes of before there was a speed; None: it is not."""
    rho, lam = (recipe.settings.get(k) for k in ("rho", "lam"))
    if not isinstance(rho, float) or not isinstance(lam, float):
        return None
    text = f"{recipe.method}: rho = {rho:g} is kept as it was given; with {m} clients that is a speed λα/ρ of"
    return f"{text} {lam / (m * rho):.3g} (what most people set, in place of rho: --set speed=1)"


def _own(given: dict[str, Any]) -> dict[str, str]:
    """The method's own settings: --set's, and --lams, which is short for --set lam=0.1,1,2."""
    lams = given.get("lams")
    return assignments(given.get("set_")) | ({} if lams is None else {"lam": lams})


def _asked(given: dict[str, Any]) -> Recipe:
    from ..run.complete import resolve

    return resolve(asked(given, settings=_own(given)))


def _changed(saved: Recipe, given: dict[str, Any]) -> Recipe:
    """A recipe with the options that were given in place of its own."""
    from ..run.complete import respent

    found = values(given)
    own = _own(given) | {f"solver.{k}": v for k, v in found.pop("solver").items()}
    changed = Recipe.of({**saved.values(), **found}, "the command line")
    if changed.local_steps not in (None, saved.local_steps) and changed.method == saved.method:
        saved = respent(saved, changed.local_steps)
    return changed.replace(settings=(saved.settings if changed.method == saved.method else {}) | own)


def _from_file(ctx: typer.Context, file: Path) -> Recipe:
    """The recipe of a file; options beside it are taken over."""
    from ..run.complete import resolve

    return resolve(_changed(Recipe.load(file), written(ctx)))


def _continued(ctx: typer.Context, folder: Path, out_folder: Path | None) -> Recipe:
    """The recipe of the run in `folder`. Options that may change when a run goes on are taken over, others refused."""
    from ..run.complete import resolve

    need(out_folder in (None, folder), f"--resume continues in {folder}; remove --out.")
    saved = Recipe.load(folder / "recipe.toml")
    full = _changed(saved, written(ctx))
    full = resolve(full) if full.method == saved.method else full
    before = resolve(saved)
    for key, value in full.values().items():
        was = getattr(before, key)
        need(
            SETTINGS[key].free or value == was,
            f"the run in {folder} has {key} = {was}; got {value}. "
            f"Resume without this option, or start a new run with another --out.{see('resuming')}",
        )
    return full


def _play(recipe: Recipe, split: Clients, folder: Path | None, quiet: bool, track: list[str]) -> Result:
    from ..report import terminal
    from ..run.play import play_recipe
    from ..run.trackers import Tracking

    with Tracking(track, f"{recipe.method}-{recipe.seed}") as tracking, terminal.progress(err) as bar:
        task = bar.add_task(recipe.method, total=recipe.rounds, note="", left="", visible=not quiet)
        for result in play_recipe(recipe, split, folder):
            bar.update(task, completed=result.run.round, note=terminal.note(result.history))
            tracking.look(result.history)
    return result


def _show(result: Result, folder: Path | None) -> None:
    from ..report import terminal

    out.print(terminal.per_client(result.clients, metric=result.summary.get("metric")))
    if (found := result.measured) is not None:
        out.print(terminal.metrics(found))
        for note in found["notes"]:
            out.print(f"{note}.")
    out.print(terminal.one_line(result.summary))
    for warning in result.summary["warnings"]:
        out.print(f"warning: {warning}")
    say_where(folder)


def _settings_line(recipe: Recipe) -> str:
    """The method as one would write it in Python."""

    def call(name: str, values: dict[str, Any]) -> str:
        words = {k: call(v.get("kind") or v["method"], v) if isinstance(v, dict) else v for k, v in values.items()}
        inside = (f"{k}={v}" for k, v in words.items() if k not in ("kind", "method"))
        return f"{name}({', '.join(inside)})"

    return call(recipe.method, recipe.settings)
