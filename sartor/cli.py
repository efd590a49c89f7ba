"""The command line: `sartor run`, `compare`, `reproduce`, `tune`, `predict`, `theory`, `list`, `doctor`, `federation`,
`server`, `client`.

The only file that knows Typer.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from . import __version__, catalogue, doctor, estimate, theory
from . import data as data_module
from . import predict as predictions
from .compare import Comparison, Step, named, play_recipe
from .compare import compare as compare_all
from .data import describe
from .errors import SartorError, need, unknown
from .grid import Scenario, listed, scenarios
from .methods import entry
from .recipe import FREE, Recipe
from .report import page, robustness, terminal
from .report.foot import judged
from .reproduce import Reproduction, Size, checked, document, figures, listing, outputs
from .result import Result
from .settings import has_lam
from .storage import read_json, write_json, write_text
from .theory import shown
from .tune import Tuning, set_line
from .tune import tune as tune_all
from .verdict import verdict

app = typer.Typer(
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help=(
        "Personalised federated learning: many clients learn together, each leaves with a model cut to its own data."
    ),
)
# Text is printed as it is: a client may be called "[red]". Where nobody says how wide a page is, tables get room.
_wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120
out = Console(highlight=False, markup=False, emoji=False, width=_wide)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)

MOST_CLIENTS = 40  # that have names of their own, and are listed after a comparison
DEMO = "flame,pfedme,ditto,lp-proj-1,lp-proj-2,fedamp,heurfedamp,fedavg,fedavg-ft,local"

Data = Annotated[str, typer.Option(help="a data set's name (sartor list datasets), or an .npz, .csv or .parquet file")]
Target = Annotated[str | None, typer.Option(help="own tables: the column to predict")]
Key = Annotated[str | None, typer.Option("--client-key", help="own data: the column that says whose sample it is")]
Partition = Annotated[
    str,
    typer.Option(
        show_default=False,
        help="how data are dealt out: hybrid, labels=2, dirichlet=0.5, natural, ... [natural where clients are known]",
    ),
]
Clients = Annotated[int | None, typer.Option(help="how many clients [10, or every natural one]")]
Minimum = Annotated[int, typer.Option(help="samples that each client has at least")]
Parts = Annotated[str, typer.Option(help="shares of train, validation and test")]
Model = Annotated[
    str,
    typer.Option(
        show_default=False, help="softmax, mlp, mlp(200,100), dnn, 2nn, cnn, linear, svm [what fits the data]"
    ),
]
Loss = Annotated[str | None, typer.Option(help="cross-entropy, squared or hinge [what fits the model]")]
Rounds = Annotated[int, typer.Option(help="communication rounds")]
Cohort = Annotated[int | None, typer.Option(help="clients asked per round [all]")]
Sampling = Annotated[str, typer.Option(help="cohorts drawn uniform, by size, or poisson (each by a coin of its own)")]
Lams = Annotated[
    str | None,
    typer.Option("--lams", help="candidates, as in 0.1,1,2: each client picks its lam on its validation data"),
]
Aggregator = Annotated[
    str, typer.Option(help="how the server averages: mean, median, krum(f=2), ... (list aggregators)")
]
Attack = Annotated[
    str, typer.Option(help="what hostile clients do: none, sign-flip, gaussian(std=1), ... (list attacks)")
]
Attackers = Annotated[
    float | None,
    typer.Option(
        show_default=False, help="the share of hostile clients; scores are of the others [0.2 with an attack, else 0]"
    ),
]
Drop = Annotated[float, typer.Option(help="the share of clients that is not reached in a round")]
Stragglers = Annotated[float, typer.Option(help="the share of clients that answers a round late")]
Stale = Annotated[str, typer.Option(help="late answers: use or discard")]
Patience = Annotated[int, typer.Option(help="rounds in a row without any answer after which a run stops")]
Unseen = Annotated[float, typer.Option(help="the share of clients that takes no part and is served afterwards")]
UnseenSteps = Annotated[int, typer.Option(help="visits to the server of each unseen client")]
DpNoise = Annotated[float | None, typer.Option(help="differential privacy: noise as a multiple of the clip")]
DpEpsilon = Annotated[float | None, typer.Option(help="differential privacy: the epsilon to find the noise for")]
DpClip = Annotated[float | None, typer.Option(help="the most that a message may differ from what it answers [1]")]
DpDelta = Annotated[float | None, typer.Option(help="the delta of the guarantee [1e-5]")]
DpWhere = Annotated[str | None, typer.Option(help="noise is added by the server (trusted) or each client [server]")]
DpAccountant = Annotated[str | None, typer.Option(help="rdp, or prv (tighter, but numerical) [rdp]")]
Compress = Annotated[
    str, typer.Option(help="how messages are compressed: none, top-k(k=0.05), int8, ... (list compressors)")
]
CompressDown = Annotated[str, typer.Option("--compress-down", help="the same for what the server sends")]
Budget = Annotated[
    str | None, typer.Option(help="stop before bytes up and down together exceed this, as in 4MB; 328020 is in bytes")
]
TargetAccuracy = Annotated[
    float | None,
    typer.Option("--target-accuracy", help="stop when the mean validation accuracy in an evaluated round reaches this"),
]
SolverKind = Annotated[str | None, typer.Option("--solver", help="sgd, adam, exact, inexact [the method's own]")]
Lr = Annotated[float | None, typer.Option(help="the local solver's step size")]
Epochs = Annotated[int | None, typer.Option(help="local epochs per round")]
Steps = Annotated[int | None, typer.Option(help="local steps per round, in place of epochs")]
BatchSize = Annotated[int | None, typer.Option("--batch", help="minibatch size")]
Momentum = Annotated[float | None, typer.Option(help="the local solver's momentum")]
Decay = Annotated[float | None, typer.Option("--weight-decay", help="the local solver's weight decay")]
Engine = Annotated[str, typer.Option(help="local (vectorised) or serial (one client at a time, to find errors)")]
Chunk = Annotated[int | None, typer.Option(help="clients computed together [what fits the cache]")]
Workers = Annotated[int | None, typer.Option(help="chunks computed side by side [2, or the cores there are]")]
Store = Annotated[str, typer.Option(help="where client states are kept: memory, or disk (in --out)")]
Dtype = Annotated[str, typer.Option(help="float32 or float64")]
Every = Annotated[int, typer.Option("--evaluate-every", help="rounds between evaluations")]
Save = Annotated[int, typer.Option("--checkpoint-every", help="rounds between checkpoints")]
Diagnose = Annotated[bool, typer.Option(help="compute residuals and curvature at every evaluation")]
Report = Annotated[str, typer.Option(help="the round to report: last, or best (on validation data)")]
Oracle = Annotated[bool, typer.Option("--oracle", help="also score a choice made on test data, as some papers do")]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress, no tables")]


def _numbers(text: str, kind: type, what: str) -> list[Any]:
    try:
        return [kind(v) for v in text.split(",")]
    except ValueError as e:
        raise SartorError(f"{what} are numbers with commas between them; got {text!r}.") from e


def _assignments(pairs: list[str] | None, form: str = "--set takes field=value, as in --set lam=1.0") -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        need(bool(equals and key), f"{form}; got {pair!r}.")
        found[key.strip()] = value.strip()
    return found


def _own(given: dict[str, Any]) -> dict[str, str]:
    """The method's own settings: --set's, and --lams, which is short for --set lam=0.1,1,2."""
    lams = given.get("lams")
    return _assignments(given.get("set_")) | ({} if lams is None else {"lam": lams})


def _values(given: dict[str, Any]) -> dict[str, Any]:
    """A recipe's values from options of the command line."""
    found = {k: v for k, v in given.items() if k in Recipe.model_fields and k != "solver"}
    found |= {"parts": _numbers(given["parts"], float, "parts")} if "parts" in given else {}
    names = {"solver": "kind"} | {k: k for k in ("lr", "epochs", "steps", "batch", "momentum", "weight_decay")}
    return found | {"solver": {name: given[k] for k, name in names.items() if given.get(k) is not None}}


def _continued(ctx: typer.Context, folder: Path, out_folder: Path | None) -> Recipe:
    """The recipe of the run in `folder`. Options that may change when a run goes on are taken over, others refused."""
    need(out_folder in (None, folder), f"--resume goes on in its own folder {folder}; leave --out away.")
    saved = Recipe.load(folder / "recipe.toml")
    given = {k: v for k, v in ctx.params.items() if getattr(ctx.get_parameter_source(k), "name", "") == "COMMANDLINE"}
    values = _values(given)
    own = _own(given) | {f"solver.{k}": v for k, v in values.pop("solver").items()}
    asked = Recipe.of({**saved.model_dump(), **values}, "the command line")
    full = asked.model_copy(update={"settings": saved.settings | own})
    full = full.resolved() if asked.method == saved.method else full
    for key, value in full.model_dump().items():
        was = getattr(saved.resolved(), key)
        need(
            key in FREE or value == was,
            f"the run in {folder} has {key} = {was}; got {value}. "
            "Resume without other settings, or start anew with --out.",
        )
    return full


@app.command()
def run(
    ctx: typer.Context,
    method: Annotated[str, typer.Option(help="sartor list methods")] = "flame",
    data: Data = "digits",
    target: Target = None,
    client_key: Key = None,
    partition: Partition = "auto",
    clients: Clients = None,
    minimum: Minimum = 10,
    parts: Parts = "0.72,0.08,0.2",
    model: Model = "auto",
    loss: Loss = None,
    rounds: Rounds = 50,
    cohort: Cohort = None,
    sampling: Sampling = "uniform",
    aggregator: Aggregator = "mean",
    attack: Attack = "none",
    attackers: Attackers = None,
    drop: Drop = 0.0,
    stragglers: Stragglers = 0.0,
    stale: Stale = "use",
    patience: Patience = 10,
    unseen: Unseen = 0.0,
    unseen_steps: UnseenSteps = 10,
    dp_noise: DpNoise = None,
    dp_epsilon: DpEpsilon = None,
    dp_clip: DpClip = None,
    dp_delta: DpDelta = None,
    dp_where: DpWhere = None,
    dp_accountant: DpAccountant = None,
    compress: Compress = "none",
    compress_down: CompressDown = "none",
    budget: Budget = None,
    target_accuracy: TargetAccuracy = None,
    seed: Annotated[int, typer.Option(help="results depend on it and the settings only")] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="a method's field, e.g. lam=1.0 or solver.lr=0.1; repeatable"
        ),
    ] = None,
    lams: Lams = None,
    solver: SolverKind = None,
    lr: Lr = None,
    epochs: Epochs = None,
    steps: Steps = None,
    batch: BatchSize = None,
    momentum: Momentum = None,
    weight_decay: Decay = None,
    engine: Engine = "local",
    chunk: Chunk = None,
    workers: Workers = None,
    store: Store = "memory",
    dtype: Dtype = "float32",
    evaluate_every: Every = 10,
    checkpoint_every: Save = 10,
    diagnostics: Diagnose = True,
    report: Report = "last",
    oracle: Oracle = False,
    folder: Annotated[Path | None, typer.Option("--out", help="where all is kept; without it nothing is")] = None,
    resume: Annotated[Path | None, typer.Option(help="go on with the run in this folder")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one method."""
    if resume is not None:
        recipe, folder = _continued(ctx, resume, folder), resume
    else:
        recipe = Recipe.of(_values(ctx.params) | {"settings": _own(ctx.params)}, "the command line").resolved()
        _vacant(folder, "recipe.toml", f"a run already; choose another --out, or go on with --resume {folder}")
        _vacant(folder, "compare.json", "a comparison; choose another --out")
    _somewhere(recipe, folder)
    split = recipe.split(recipe.dataset())
    talk = not (quiet or as_json)
    if talk:
        out.print(describe(split.about))
        out.print(_settings_line(recipe))
    result = _play(recipe, split, folder, quiet)
    if folder is not None:
        page.write(folder / "report.html", page.of_run(result, recipe.complete(split)))
    if as_json:
        print(json.dumps(result.summary, indent=1))
    if talk:
        _show(result, folder)


def _somewhere(recipe: Recipe, folder: Path | None) -> None:
    need(recipe.store == "memory" or folder is not None, "--store disk needs --out: that is where the states are kept.")


def _vacant(folder: Path | None, file: str, holds: str) -> None:
    need(folder is None or not (folder / file).exists(), f"{folder} holds {holds}.")


def _play(recipe: Recipe, split: data_module.Clients, folder: Path | None, quiet: bool) -> Result:
    with terminal.progress(err) as bar:
        task = bar.add_task(recipe.method, total=recipe.rounds, note="", left="", visible=not quiet)
        for result in play_recipe(recipe, split, folder):
            bar.update(task, completed=result.run.round, note=terminal.note(result.history))
    return result


def _show(result: Result, folder: Path | None) -> None:
    out.print(terminal.per_client(result.clients))
    out.print(terminal.one_line(result.summary))
    for warning in result.summary["warnings"]:
        out.print(f"warning: {warning}")
    _say_where(folder)


def _say_where(folder: Path | None) -> None:
    kept = f"everything is in {folder}, see report.html"
    out.print("nothing was saved: pass --out FOLDER to keep it" if folder is None else kept)


def _settings_line(recipe: Recipe) -> str:
    """The method as one would write it in Python."""

    def call(name: str, values: dict[str, Any]) -> str:
        words = {k: call(v.get("kind") or v["method"], v) if isinstance(v, dict) else v for k, v in values.items()}
        inside = (f"{k}={v}" for k, v in words.items() if k not in ("kind", "method"))
        return f"{name}({', '.join(inside)})"

    return call(recipe.method, recipe.settings)


@app.command()
def compare(
    ctx: typer.Context,
    methods: Annotated[
        str,
        typer.Option(help="names with commas between them (list methods); fedavg+int8 has its own compressor"),
    ] = DEMO,
    seeds: Annotated[str, typer.Option(help="seeds with commas between them")] = "0,1,2",
    data: Data = "digits",
    target: Target = None,
    client_key: Key = None,
    partition: Partition = "auto",
    clients: Clients = None,
    minimum: Minimum = 10,
    parts: Parts = "0.72,0.08,0.2",
    model: Model = "auto",
    loss: Loss = None,
    rounds: Rounds = 50,
    cohort: Cohort = None,
    sampling: Sampling = "uniform",
    aggregator: Annotated[str, typer.Option(help="as in mean,median,krum(f=2) (sartor list aggregators)")] = "mean",
    attack: Annotated[str, typer.Option(help="as in none,sign-flip,gaussian(std=1) (sartor list attacks)")] = "none",
    attackers: Annotated[
        str | None, typer.Option(help="shares of hostile clients, as in 0,0.2,0.5 [0.2 with an attack, else 0]")
    ] = None,
    drop: Drop = 0.0,
    stragglers: Stragglers = 0.0,
    stale: Stale = "use",
    patience: Patience = 10,
    unseen: Unseen = 0.0,
    unseen_steps: UnseenSteps = 10,
    dp_noise: DpNoise = None,
    dp_epsilon: DpEpsilon = None,
    dp_clip: DpClip = None,
    dp_delta: DpDelta = None,
    dp_where: DpWhere = None,
    dp_accountant: DpAccountant = None,
    compress: Compress = "none",
    compress_down: CompressDown = "none",
    budget: Budget = None,
    target_accuracy: TargetAccuracy = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="METHOD.FIELD=VALUE", help="a method's field, e.g. flame.lam=1.0; repeatable"),
    ] = None,
    lams: Lams = None,
    solver: SolverKind = None,
    lr: Lr = None,
    epochs: Epochs = None,
    steps: Steps = None,
    batch: BatchSize = None,
    momentum: Momentum = None,
    weight_decay: Decay = None,
    engine: Engine = "local",
    chunk: Chunk = None,
    workers: Workers = None,
    store: Store = "memory",
    dtype: Dtype = "float32",
    evaluate_every: Every = 10,
    checkpoint_every: Save = 10,
    diagnostics: Diagnose = True,
    report: Report = "last",
    oracle: Oracle = False,
    folder: Annotated[
        Path | None, typer.Option("--out", help="where all is kept; what is finished there is not run again")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods on the same clients, also under attack.

    Lists of attacks, attackers and aggregators make a grid; cells that coincide run once.
    """
    names, numbers = listed(methods, "methods"), _numbers(seeds, int, "seeds")
    plainly = list(dict.fromkeys(named(name)[0] for name in names))  # without their compressors
    for name in plainly:
        entry(name)
    own = _own_settings(_assignments(set_), plainly)
    if lams is not None:
        for name in plainly:
            own.setdefault(name, {}).update({"lam": lams} if has_lam(name) else {})
    grid = scenarios(listed(attack, "attacks"), _shares(attackers, attack), listed(aggregator, "aggregators"))
    plain = {k: v for k, v in ctx.params.items() if k not in Scenario._fields}
    base = Recipe.of(_values(plain), "the command line")
    _vacant(folder, "recipe.toml", "a single run; choose another --out")
    _somewhere(base, folder)
    dataset = base.dataset()
    talk = not (quiet or as_json)
    if talk:
        out.print(describe(base.model_copy(update={"seed": numbers[0]}).split(dataset).about) + f" (seed {numbers[0]})")
    table = _play_all(compare_all(base, names, numbers, dataset, folder, own, grid), base.rounds, talk)
    found, rows = verdict(table), table.rows()
    drawn = _keep(folder, table, found) if folder is not None else True
    if as_json:
        print(json.dumps(table.summaries(), indent=1))
    if talk:
        each = table.by_client()
        if base.dealt(dataset).startswith("natural") and len(each) <= MOST_CLIENTS:
            out.print(terminal.by_client(each))
        out.print(terminal.comparison(rows, out))
        out.print("\n".join(filter(None, [terminal.explain(rows, len(numbers)), judged(found)])))
        _say_where(folder)
        if not drawn:
            out.print("robustness.png was not drawn: it needs matplotlib (pip install 'sartor[plots]')")
    errors = [c.summary["error"] for c in table.cells if "error" in c.summary]
    need(len(errors) < len(table.cells), f"every method failed, {names[0]}: {errors[0] if errors else ''}")


def _shares(attackers: str | None, attack: str) -> list[float]:
    """The shares of attackers; where none are given, 0.2 for an attack."""
    if attackers is None:
        return [0.0 if attack == "none" else 0.2]
    return _numbers(attackers, float, "attackers")


def _keep(folder: Path, table: Comparison, found: dict[str, Any]) -> bool:
    """Write what a comparison leaves; False where a plot could not be drawn."""
    write_json(folder / "compare.json", table.summaries())
    write_json(folder / "significance.json", found)
    write_json(folder / "clients.json", table.by_client())
    page.write(folder / "report.html", page.of_comparison(table, found))
    lines = robustness.panels(table.rows())
    return not lines or robustness.write_png(folder / "robustness.png", lines, page.FLOOR)


def _own_settings(given: dict[str, str], names: list[str]) -> dict[str, dict[str, str]]:
    """--set flame.lam=1.0 by method."""
    own: dict[str, dict[str, str]] = {}
    for key, value in given.items():
        name, _, field = key.partition(".")
        need(bool(field), f"compare's --set takes method.field=value, as in --set flame.lam=1.0; got {key!r}.")
        if name not in names:
            raise unknown("method in --set", name, names)
        own.setdefault(name, {})[field] = value
    return own


def _play_all(steps: Iterator[Step], rounds: int, talk: bool) -> Comparison:
    """Play all cells; progress is live on a terminal, else a line for each finished cell."""
    with terminal.progress(err) as bar:
        task = bar.add_task("", total=None, note="", left="", visible=talk)
        for table, method, seed, scenario, result in steps:
            count, now = len(table.plan), terminal.left(table.left())
            what = terminal.cell_name(method, scenario, seed)
            bar.update(task, description=what, total=count * rounds, completed=len(table.cells) * rounds, left=now)
            if result is not None:
                bar.update(task, advance=result.run.round, note=terminal.note(result.history))
            elif talk and not err.is_terminal:
                line = f"{len(table.cells)}/{count} {terminal.done(table.cells[-1])}"
                out.print(f"{line}; {now}" if now else line, soft_wrap=True)
    return table


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="an experiment (--list), or a .toml file of your own")] = None,
    list_: Annotated[bool, typer.Option("--list", help="say what there is, and how long it takes")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="the size that takes about a minute")] = False,
    seeds: Annotated[int | None, typer.Option(help="how many seeds [the experiment's]")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES", help="cells of a kind, as in dataset=mnist or method=flame,ditto; repeatable"
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="rounds, in place of the experiment's; the table says so")] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="where all is kept; what is finished there is not run again [runs/reproduce/NAME]"),
    ] = None,
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
    if list_:
        _list_experiments(listing.listing(), as_json)
        return
    need(name is not None or write, "say which experiment (sartor reproduce --list names them), or --document.")
    if name is not None:
        experiment = checked(name)
        need(rounds is None or rounds >= 1, f"--rounds is at least 1; got {rounds}.")
        wanted = {
            k: listed(v, "--only")
            for k, v in _assignments(only, "--only takes key=values, as in dataset=mnist").items()
        }
        size = Size.of(experiment, quick, seeds, wanted, rounds)
        place = folder or Path("runs", "reproduce", experiment.name + ("-quick" if quick else ""))
        _reproduce(Reproduction(experiment, size, place), not (quiet or as_json), as_json, record)
    if write:
        out.print(f"written: {document.write_document()}")


def _list_experiments(rows: list[dict[str, Any]], as_json: bool) -> None:
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


def _reproduce(made: Reproduction, talk: bool, as_json: bool, record: bool) -> None:
    """Play what is missing, write the table and show it."""
    need(bool(made.cells), f"{made.experiment.name} has no such cells: --only leaves nothing of what this size is of.")
    with terminal.progress(err) as bar:
        task = bar.add_task("", total=None, note="", left="", visible=talk)
        for done, total, job, result, ended, left in made.play():
            now = terminal.left(left)
            bar.update(task, description=job.name, total=total, completed=done, left=now)
            if result is not None:
                bar.update(task, note=terminal.note(result.history))
            elif talk and not err.is_terminal and ended is not None:
                said = f"failed, {ended['error']}" if "error" in ended else f"{ended['seconds']:.1f} s"
                out.print("; ".join(filter(None, [f"{done}/{total} {job.name}: {said}", now])), soft_wrap=True)
    table = made.table()
    outputs.leave(made.folder, table)
    drawn = figures.draw(made.folder / "figure.png", made, table)
    before = document.stored(made.experiment.name, made.size.quick)
    if as_json:
        print(json.dumps(table, indent=1, ensure_ascii=False))
    if talk:
        _show_table(made, table, drawn, before)
    if record:
        kept = [document.record(table), document.keep_figure(made.folder / "figure.png", table)]
        if talk:
            out.print(f"stored: {', '.join(str(path) for path in kept if path is not None)}", soft_wrap=True)


def _show_table(made: Reproduction, table: dict[str, Any], drawn: bool | None, before: dict[str, Any] | None) -> None:
    out.print(terminal.lines(table["title"], *outputs.rows(table)))
    out.print(f"as written: {outputs.counted(table)}")
    if outputs.has_authors(table):
        out.print(f"with the authors' switches: {outputs.counted(table, 'counts_authors')}")
        out.print(f"these are: {table['why_authors']}", soft_wrap=True)
    for line in outputs.failures(table):
        out.print(line, soft_wrap=True)
    if made.size.quick or made.size.rounds:
        out.print("A small size: it shows that all runs, not what comes out of the experiment.")
    if before is not None:
        out.print(document.changed(table, before), soft_wrap=True)
    if drawn is False:
        out.print("figure.png was not drawn: it needs matplotlib (pip install 'sartor[plots]')")
    files = "table.json, table.md, table.csv" + (" and figure.png" if drawn else "")
    out.print(f"{files} are in {made.folder}; running again repeats only what failed or is missing", soft_wrap=True)


@app.command()
def tune(
    ctx: typer.Context,
    methods: Annotated[
        str, typer.Option(help="names with commas between them (sartor list methods)")
    ] = "flame,pfedme,ditto",
    budget: Annotated[int, typer.Option(help="trials of each method, its defaults included")] = 20,
    sampler: Annotated[str, typer.Option(help="grid, random or tpe (Optuna)")] = "random",
    seeds: Annotated[str, typer.Option(help="seeds with commas between them")] = "0,1,2",
    data: Data = "digits",
    target: Target = None,
    client_key: Key = None,
    partition: Partition = "hybrid",
    clients: Clients = None,
    minimum: Minimum = 10,
    parts: Parts = "0.72,0.08,0.2",
    model: Model = "auto",
    loss: Loss = None,
    rounds: Rounds = 50,
    cohort: Cohort = None,
    sampling: Sampling = "uniform",
    aggregator: Aggregator = "mean",
    attack: Attack = "none",
    attackers: Attackers = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="METHOD.FIELD=VALUE", help="a field that is held fixed, e.g. flame.lam=1.0; repeatable"
        ),
    ] = None,
    solver: SolverKind = None,
    epochs: Epochs = None,
    steps: Steps = None,
    batch: BatchSize = None,
    momentum: Momentum = None,
    weight_decay: Decay = None,
    chunk: Chunk = None,
    workers: Workers = None,
    dtype: Dtype = "float32",
    evaluate_every: Every = 10,
    report: Report = "last",
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="where tune.json is kept; trials that are finished there are not repeated"),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tune methods fairly, on validation data.

    Every method has the same number of trials over a stated search space, with the same seeds.
    """
    names, numbers = [m.strip() for m in methods.split(",")], _numbers(seeds, int, "seeds")
    for one in names:
        entry(one)
    fixed = _own_settings(_assignments(set_), names)
    given = {k: v for k, v in ctx.params.items() if k != "budget"}  # of trials; a recipe's is of bytes
    base = Recipe.of(_values(given) | {"diagnostics": False}, "the command line")
    talk = not (quiet or as_json)
    with terminal.progress(err) as bar:
        task = bar.add_task("", total=len(names) * budget, note="", left="", visible=talk)
        for tuning, method, number in tune_all(base, names, numbers, base.dataset(), budget, sampler, folder, fixed):
            last = tuning.trials[method][-1]
            said = "failed" if last.score is None else f"{last.score:.4f}"
            bar.update(task, description=method, advance=1, note=f"validation {said}")
            if talk and not err.is_terminal:
                out.print(f"{method} {number + 1}/{budget}: {said}  {set_line(method, last.settings)}", soft_wrap=True)
    if as_json:
        print(json.dumps(tuning.table(), indent=1))
    if talk:
        _show_tuning(tuning, folder)


def _show_tuning(tuning: Tuning, folder: Path | None) -> None:
    words = []
    for method, trials in tuning.trials.items():
        best, failed = tuning.best(method), sum(t.score is None for t in trials)
        scores = [f"{t.score:.4f}" if t and t.score is not None else "failed" for t in (trials[0], best)]
        words.append([method, *scores, f"{len(trials)}" + (f" ({failed} failed)" if failed else "")])
    out.print(terminal.lines("validation accuracy", ["method", "defaults", "best", "trials"], words))
    out.print("Mean over clients (chosen models) and seeds; no test data were looked at. To compare with the best:")
    for method in tuning.trials:
        if (best := tuning.best(method)) is not None:
            out.print(set_line(method, best.settings), soft_wrap=True)
    out.print("nothing was saved: pass --out FOLDER to keep it" if folder is None else f"tune.json is in {folder}")


@app.command()
def predict(
    folder: Annotated[Path, typer.Option("--run", help="the folder of a finished run")],
    client: Annotated[str | None, typer.Option(help="a client that took part: its name or number")] = None,
    newcomer: Annotated[
        Path | None, typer.Option(help="a client that joins now: a file with its labelled samples")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="the samples to predict [those of --newcomer]")] = None,
    model: Annotated[str, typer.Option(help="chosen, personal or global")] = "chosen",
    steps: Annotated[int, typer.Option(help="a newcomer's visits to the server")] = 10,
    file: Annotated[Path | None, typer.Option("--out", help="a file for the predictions [standard output]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of CSV")] = False,
) -> None:
    """Predict with the models of a run, also for a new client."""
    need((client is None) != (newcomer is None), "say whose model it is: either --client NAME or --newcomer FILE.")
    samples = data or newcomer
    need(samples is not None, "say what to predict: --data FILE.")
    assert samples is not None
    served = predictions.Served(folder)
    x, _ = served.read(samples)
    found = served.known(client, model) if newcomer is None else served.newcomer(newcomer, steps, model)  # type: ignore[arg-type]
    text = predictions.written(served.predict(found, x), as_json)
    if file is None:
        print(text, end="")
    else:
        write_text(file, text)


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(help=", ".join(catalogue.KINDS))] = "methods", as_json: Json = False
) -> None:
    """List what there is: name, paper, one line."""
    rows = catalogue.rows(kind)
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    _print_rows(rows)


def _print_rows(rows: list[dict[str, str]]) -> None:
    wide = max(len(r["name"]) for r in rows)
    for r in rows:
        paper = f"  [{r['paper']}]" if r.get("paper", "-") != "-" else ""
        out.print(f"{r['name']:<{wide}}  {r['line']}{paper}", soft_wrap=True)


@app.command("doctor")
def doctor_(
    recipe: Annotated[
        Path | None, typer.Option(help="a recipe.toml: how long it will take and how much memory, by trying it")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what is installed and found, and what a recipe will cost."""
    found = doctor.examine()
    if recipe is not None:
        found["estimate"] = estimate.estimate(Recipe.load(recipe))
    if as_json:
        print(json.dumps(found, indent=1))
        return
    out.print(doctor.words(found), soft_wrap=True)
    if recipe is not None:
        out.print(f"{recipe}: {estimate.words(found['estimate'])}", soft_wrap=True)


@app.command("theory")
def theory_(
    name: Annotated[str | None, typer.Argument(help="which theorem or figure (--list), or all")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="say what there is")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="a parameter, e.g. tau=0.5 or replicas=2000; repeatable"),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="where table.json, table.csv, plot.png and verdict.txt go")
    ] = None,
    as_json: Json = False,
) -> None:
    """Hold the papers' theorems against experiment."""
    if list_all:
        rows = [{"name": n, "paper": c.paper, "line": catalogue.first_line(c)} for n, c in theory.NAMES.items()]
        print(json.dumps(rows, indent=1, ensure_ascii=False)) if as_json else _print_rows(rows)
        return
    need(name is not None, f"say which: sartor theory NAME, with NAME one of all, {', '.join(theory.NAMES)}.")
    given = _assignments(set_)
    need(name != "all" or not given, "--set is for one check's parameters; name it in place of all.")
    checks = [theory.check(n) for n in theory.NAMES] if name == "all" else [theory.check(str(name), given)]
    reports = []
    for check in checks:
        finding = check.look()
        reports.append(check.report(finding))
        place = None if folder is None else folder / check.name if name == "all" else folder
        drawn = place is None or shown.write(place, check, finding)
        if as_json:
            continue
        if name != "all":
            out.print(shown.table(finding))
        out.print(f"{check.name}: {finding.sentence}", soft_wrap=True)
        if not drawn:
            out.print("the plot was left out: it needs matplotlib (pip install 'sartor[plots]')")
    if as_json:
        print(json.dumps(reports if name == "all" else reports[0], indent=1, ensure_ascii=False))


federation = typer.Typer(help="A real federation: make kits, see where it is, export.")
app.add_typer(federation, name="federation")
KitFolder = Annotated[Path, typer.Argument(help="a folder made by sartor federation init")]


def _needs_nvflare() -> None:
    have = importlib.util.find_spec("nvflare") is not None
    need(have, "a real federation needs NVFlare: pip install 'sartor[nvflare]'.")


@federation.command("init")
def federation_init(
    name: Annotated[str, typer.Option(help="what the federation is called")],
    server: Annotated[str, typer.Option(help="HOST:PORT under which sites reach the server")],
    sites: Annotated[str, typer.Option(help="the sites' names with commas between them")],
    folder: Annotated[Path, typer.Option("--out", help="a new folder for the kits")],
    days: Annotated[int, typer.Option(help="days for which the kits' certificates are valid")] = 360,
) -> None:
    """Make a kit for the server and one for each site: certificates, keys, and settings that allow nothing else."""
    _needs_nvflare()
    from .deploy import kits

    named = [s.strip() for s in sites.split(",")]
    kits.make(name, server, named, folder, days)
    out.print(kits.words(name, server, named), soft_wrap=True, end="")


@federation.command("status")
def federation_status(kit: KitFolder, as_json: Json = False) -> None:
    """Say where the run of a kit is."""
    _needs_nvflare()
    from .deploy import commands

    found = commands.status(kit)
    print(json.dumps(found, indent=1) if as_json else commands.words(found))


@federation.command("export")
def federation_export(
    kit: KitFolder, folder: Annotated[Path, typer.Option("--out", help="a new folder for the models")]
) -> None:
    """Copy a kit's models: the global one at the server, at a site its clients' own."""
    _needs_nvflare()
    from .deploy import commands

    for line in commands.export(kit, folder):
        print(line)


@app.command()
def server(
    kit: KitFolder,
    recipe: Annotated[Path, typer.Option(help="a recipe.toml: the method, its settings, the rounds")],
    min_clients: Annotated[int, typer.Option(help="so many must answer; else a round waits, then is skipped")] = 2,
    round_timeout: Annotated[float, typer.Option(help="seconds to wait for one round's answers")] = 120.0,
    leave_out_after: Annotated[int, typer.Option(help="timeouts in a row after which a site is not waited for")] = 3,
    join_timeout: Annotated[float, typer.Option(help="seconds to wait for all sites before the first round")] = 600.0,
) -> None:
    """Lead a federation.

    Started again after a crash, it goes on to the same bytes.
    """
    _needs_nvflare()
    from .deploy.supervise import Server
    from .federation import Waiting

    waiting = Waiting(round_timeout, min_clients, leave_out_after)
    left = Server(kit, recipe, waiting, join_timeout, lambda text: print(text, flush=True)).play()
    rows, found = read_json(left / "clients.json"), read_json(left / "summary.json")
    out.print(terminal.per_client(rows))
    out.print(terminal.one_line(found))
    out.print(f"everything is in {left}; personal models are at the sites", soft_wrap=True)


@app.command()
def client(
    kit: KitFolder,
    data: Annotated[str, typer.Option(help="this site's own .csv, .parquet or .npz file; it is not sent")],
    target: Target = None,
    client_key: Annotated[
        str | None, typer.Option("--client-key", help="the column that says whose row it is [the file is one client]")
    ] = None,
    recipe: Annotated[Path | None, typer.Option(help="take part with this recipe only; refuse any other")] = None,
    share: Annotated[str, typer.Option(help="scores that leave: metrics=each, mean (over this site) or none")] = (
        "metrics=each"
    ),
    connect_timeout: Annotated[float, typer.Option(help="seconds to try to reach the server")] = 600.0,
) -> None:
    """Take part in a federation with this site's data.

    Started again after a crash, it goes on to the same bytes.
    """
    _needs_nvflare()
    from .deploy.member import Own
    from .deploy.supervise import Client

    what, _, value = share.partition("=")
    need(what == "metrics", f"--share takes metrics=each, mean or none; got {share!r}.")
    path = None if recipe is None else str(recipe.resolve())
    own = Own(str(Path(data).resolve()), target, client_key, value, path)
    left = Client(kit, own, connect_timeout, lambda text: print(text, flush=True)).play()
    print(f"finished: this site's models are in {left}")


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """Run the command line. A mistake in the request is one line on standard error and exit code 2 (--debug: more)."""
    debug = "--debug" in sys.argv
    warnings.formatwarning = lambda message, *_: f"sartor: warning: {message}\n"
    arguments = [a for a in sys.argv[1:] if a != "--debug"] or ["--help"]
    try:
        _check_command(arguments[0])
        code = app(args=arguments, standalone_mode=False, prog_name="sartor")
    except SartorError as e:
        code = _refuse(str(e), debug)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except MemoryError as e:
        code = _refuse(f"out of memory ({e}): take fewer clients, a smaller model or a smaller --chunk.", debug)
    except Exception as e:
        if not hasattr(e, "format_message"):  # not one of Typer's own
            raise
        code = _refuse(f"{e.format_message()} See sartor {arguments[0]} --help.", debug)
    if code == 130:  # Typer itself may have turned the interrupt into this code
        print(
            "sartor: stopped. A run with --out goes on from its last checkpoint with --resume; compare, reproduce and "
            "tune go on when they are called again.",
            file=sys.stderr,
        )
    sys.exit(code if isinstance(code, int) else 0)


def _check_command(name: str) -> None:
    known = [c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands]
    known += [str(group.name) for group in app.registered_groups]
    if not name.startswith("-") and name not in known:
        raise unknown("command", name, known)


def _refuse(message: str, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print("sartor: " + " ".join(message.split()), file=sys.stderr)
    return 2
