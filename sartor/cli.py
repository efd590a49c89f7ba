"""The command line: `sartor run`, `compare`, `list`, `doctor`. The only file that knows Typer."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from . import __version__, catalogue, doctor
from .compare import compare as compare_all
from .compare import play_recipe
from .data import describe
from .errors import SartorError, need
from .methods import NAMES, entry
from .recipe import Recipe
from .report import page, terminal
from .storage import write_json

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, rich_markup_mode=None,
                  help="Personalised federated learning: many clients learn together, each leaves with a model cut to its own data.")
out, err = Console(highlight=False), Console(stderr=True, highlight=False)

DEMO = "flame,pfedme,ditto,lp-proj-1,lp-proj-2,fedamp,heurfedamp,fedavg,fedavg-ft,local"

Data = Annotated[str, typer.Option(help="a data set's name (sartor list datasets), or an .npz, .csv or .parquet file")]
Target = Annotated[str | None, typer.Option(help="own tables: the column to predict")]
Key = Annotated[str | None, typer.Option("--client-key", help="own data: the column that says whose sample it is")]
Partition = Annotated[str, typer.Option(help="how data are dealt out: hybrid, labels=2, dirichlet=0.5, natural, ...")]
Clients = Annotated[int | None, typer.Option(help="how many clients [10, or every natural one]")]
Minimum = Annotated[int, typer.Option(help="samples that each client has at least")]
Parts = Annotated[str, typer.Option(help="shares of train, validation and test")]
Model = Annotated[str, typer.Option(help="softmax, mlp, mlp(200,100), dnn, 2nn, cnn, linear, svm [what fits the data]")]
Loss = Annotated[str | None, typer.Option(help="cross-entropy, squared or hinge [what fits the model]")]
Rounds = Annotated[int | None, typer.Option(help="communication rounds [50]")]
Cohort = Annotated[int | None, typer.Option(help="clients asked per round [all]")]
Sampling = Annotated[str, typer.Option(help="cohorts drawn uniform, or by size")]
Aggregator = Annotated[str, typer.Option(help="how the server averages")]
SolverKind = Annotated[str | None, typer.Option("--solver", help="sgd, adam, exact, inexact [the method's own]")]
Lr = Annotated[float | None, typer.Option(help="the local solver's step size")]
Epochs = Annotated[int | None, typer.Option(help="local epochs per round")]
Steps = Annotated[int | None, typer.Option(help="local steps per round, in place of epochs")]
BatchSize = Annotated[int | None, typer.Option("--batch", help="minibatch size")]
Momentum = Annotated[float | None, typer.Option(help="the local solver's momentum")]
Decay = Annotated[float | None, typer.Option("--weight-decay", help="the local solver's weight decay")]
Engine = Annotated[str, typer.Option(help="local (vectorised) or serial (one client at a time, to find errors)")]
Chunk = Annotated[int | None, typer.Option(help="clients computed together [what fits the cache]")]
Dtype = Annotated[str, typer.Option(help="float32 or float64")]
Every = Annotated[int, typer.Option("--evaluate-every", help="rounds between evaluations")]
Save = Annotated[int, typer.Option("--checkpoint-every", help="rounds between checkpoints")]
Diagnose = Annotated[bool, typer.Option(help="compute residuals and curvature at every evaluation")]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress, no tables")]


def _numbers(text: str, kind: type, what: str) -> list[Any]:
    try:
        return [kind(v) for v in text.split(",")]
    except ValueError as e:
        raise SartorError(f"{what} are numbers with commas between them; got {text!r}.") from e


def _solver(**values: Any) -> dict[str, Any]:
    return {k: v for k, v in values.items() if v is not None}


def _assignments(pairs: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        need(bool(equals and key), f"--set takes field=value, as in --set lam=1.0; got {pair!r}.")
        found[key.strip()] = value.strip()
    return found


@app.command()
def run(
    method: Annotated[str, typer.Option(help="sartor list methods")] = "flame",
    data: Data = "digits", target: Target = None, client_key: Key = None, partition: Partition = "hybrid",
    clients: Clients = None, minimum: Minimum = 10, parts: Parts = "0.72,0.08,0.2", model: Model = "auto", loss: Loss = None,
    rounds: Rounds = None, cohort: Cohort = None, sampling: Sampling = "uniform", aggregator: Aggregator = "mean",
    seed: Annotated[int, typer.Option(help="results depend on it and the settings only")] = 0,
    set_: Annotated[list[str] | None, typer.Option("--set", help="a field of the method, e.g. --set lam=1.0; repeatable")] = None,
    solver: SolverKind = None, lr: Lr = None, epochs: Epochs = None, steps: Steps = None, batch: BatchSize = None,
    momentum: Momentum = None, weight_decay: Decay = None, engine: Engine = "local", chunk: Chunk = None, dtype: Dtype = "float32",
    evaluate_every: Every = 10, checkpoint_every: Save = 10, diagnostics: Diagnose = True,
    folder: Annotated[Path | None, typer.Option("--out", help="where everything is kept; without it nothing is")] = None,
    resume: Annotated[Path | None, typer.Option(help="go on with the run in this folder")] = None,
    as_json: Json = False, quiet: Quiet = False,
) -> None:
    """Run one method."""
    if resume is not None:
        recipe = Recipe.load(resume / "recipe.toml")
        recipe = recipe if rounds is None else recipe.model_copy(update={"rounds": rounds})
        folder = resume
    else:
        recipe = Recipe.of({
            "method": method, "settings": _assignments(set_), "data": data, "target": target, "client_key": client_key,
            "partition": partition, "clients": clients, "minimum": minimum, "parts": _numbers(parts, float, "parts"), "model": model,
            "loss": loss, "rounds": rounds if rounds is not None else 50, "cohort": cohort, "sampling": sampling,
            "aggregator": aggregator, "seed": seed, "engine": engine, "chunk": chunk, "dtype": dtype,
            "evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every, "diagnostics": diagnostics,
            "solver": _solver(kind=solver, lr=lr, epochs=epochs, steps=steps, batch=batch, momentum=momentum,
                              weight_decay=weight_decay)}, "the command line")
        need(folder is None or not (folder / "recipe.toml").exists(),
             f"{folder} holds a run already; choose another --out, or go on with --resume {folder}.")
    recipe.resolved()
    split = recipe.split(recipe.dataset())
    if not (quiet or as_json):
        out.print(describe(split.about))
        out.print(_settings_line(recipe.resolved()))
    result = None
    with terminal.progress(err) as bar:
        task = bar.add_task(recipe.method, total=recipe.rounds, note="", visible=not quiet)
        for result, line in play_recipe(recipe, split, folder):
            note = f"chosen {line['chosen']['accuracy_mean']:.3f}" if line and line["chosen"] else None
            bar.update(task, completed=result.run.round, **({"note": note} if note else {}))
    assert result is not None
    if folder is not None:
        page.write(folder / "report.html", page.of_run(result, recipe))
    if as_json:
        print(json.dumps(result.summary, indent=1))
    elif not quiet:
        out.print(terminal.per_client(result.clients))
        out.print(terminal.one_line(result.summary))
        for warning in result.summary["warnings"]:
            out.print(f"warning: {warning}")
        out.print("nothing was saved: pass --out FOLDER to keep it" if folder is None else f"everything is in {folder}, see report.html")


def _settings_line(recipe: Recipe) -> str:
    inside = ", ".join(f"{k}={v}" for k, v in recipe.settings.items() if not isinstance(v, dict))
    solver = recipe.settings.get("solver")
    return f"{recipe.method}({inside})" + (f", solver {solver}" if solver else "")


@app.command()
def compare(
    methods: Annotated[str, typer.Option(help="names with commas between them (sartor list methods)")] = DEMO,
    seeds: Annotated[str, typer.Option(help="seeds with commas between them")] = "0,1,2",
    data: Data = "digits", target: Target = None, client_key: Key = None, partition: Partition = "hybrid",
    clients: Clients = None, minimum: Minimum = 10, parts: Parts = "0.72,0.08,0.2", model: Model = "auto", loss: Loss = None,
    rounds: Rounds = None, cohort: Cohort = None, sampling: Sampling = "uniform", aggregator: Aggregator = "mean",
    set_: Annotated[list[str] | None, typer.Option("--set", help="a method's field, e.g. --set flame.lam=1.0; repeatable")] = None,
    solver: SolverKind = None, lr: Lr = None, epochs: Epochs = None, steps: Steps = None, batch: BatchSize = None,
    momentum: Momentum = None, weight_decay: Decay = None, engine: Engine = "local", chunk: Chunk = None, dtype: Dtype = "float32",
    evaluate_every: Every = 10, checkpoint_every: Save = 10, diagnostics: Diagnose = True,
    folder: Annotated[Path | None, typer.Option("--out", help="where everything is kept; finished cells are not run again")] = None,
    as_json: Json = False, quiet: Quiet = False,
) -> None:
    """Compare methods on the same clients: who gains, who loses, at what cost."""
    names = [m.strip() for m in methods.split(",")]
    for name in names:
        entry(name)
    own: dict[str, dict[str, str]] = {}
    for key, value in _assignments(set_).items():
        name, _, field = key.partition(".")
        need(name in NAMES and bool(field), f"compare's --set takes method.field=value, as in --set flame.lam=1.0; got {key!r}.")
        own.setdefault(name, {})[field] = value
    base = Recipe.of({
        "data": data, "target": target, "client_key": client_key, "partition": partition, "clients": clients, "minimum": minimum,
        "parts": _numbers(parts, float, "parts"), "model": model, "loss": loss, "rounds": rounds if rounds is not None else 50,
        "cohort": cohort, "sampling": sampling, "aggregator": aggregator, "engine": engine, "chunk": chunk, "dtype": dtype,
        "evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every, "diagnostics": diagnostics,
        "solver": _solver(kind=solver, lr=lr, epochs=epochs, steps=steps, batch=batch, momentum=momentum,
                          weight_decay=weight_decay)}, "the command line")
    numbers = _numbers(seeds, int, "seeds")
    dataset = base.dataset()
    if not (quiet or as_json):
        out.print(describe(base.model_copy(update={"seed": numbers[0]}).split(dataset).about) + f" (seed {numbers[0]})")
    table = None
    with terminal.progress(err) as bar:
        task = bar.add_task("", total=len(names) * len(numbers) * base.rounds, note="", visible=not quiet)
        for table, name, seed, line in compare_all(base, names, numbers, dataset, folder, own):
            if name:
                note = f"chosen {line['chosen']['accuracy_mean']:.3f}" if line and line["chosen"] else None
                bar.update(task, description=f"{name}, seed {seed}", **({"note": note} if note else {}))
                bar.advance(task, 0 if bar.finished else 1)
    assert table is not None
    rows = table.rows()
    if folder is not None:
        write_json(folder / "compare.json", table.summaries())
        page.write(folder / "report.html", page.of_comparison(table, base))
    if as_json:
        print(json.dumps(table.summaries(), indent=1))
    elif not quiet:
        out.print(terminal.comparison(rows))
        out.print(terminal.explain(rows, len(numbers)))
        if folder is not None:
            out.print(f"everything is in {folder}, see report.html")
    if all(r["chosen"] is None for r in rows):
        raise SartorError("every method failed: " + rows[0]["errors"][0])


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(help=", ".join(catalogue.KINDS))] = "methods", as_json: Json = False
) -> None:
    """List what there is: name, paper, one line."""
    rows = catalogue.rows(kind)
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    wide = max(len(r["name"]) for r in rows)
    for r in rows:
        paper = f"  [{r['paper']}]" if r.get("paper", "-") != "-" else ""
        out.print(f"{r['name']:<{wide}}  {r['line']}{paper}", markup=False, soft_wrap=True)


@app.command("doctor")
def doctor_(as_json: Json = False) -> None:
    """Say what is installed, which data sets are found where, and what to do about what is missing."""
    found = doctor.examine()
    if as_json:
        print(json.dumps(found, indent=1))
        return
    out.print(doctor.words(found), markup=False, soft_wrap=True)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """Run the command line. A mistake in the request is one line on standard error and exit code 2; --debug shows more."""
    debug = "--debug" in sys.argv
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    try:
        code = app(args=arguments, standalone_mode=False, prog_name="sartor")
    except SartorError as e:
        code = _refuse(str(e), debug)
    except (KeyboardInterrupt, typer.Abort):
        print("sartor: stopped. A run with --out goes on from its last checkpoint with --resume.", file=sys.stderr)
        code = 130
    except MemoryError as e:
        code = _refuse(f"out of memory ({e}): take fewer clients, a smaller model or a smaller --chunk.", debug)
    except BrokenPipeError:
        code = 0
    except Exception as e:
        if not hasattr(e, "format_message"):  # not one of Typer's own
            raise
        code = _refuse(f"{e.format_message()} See sartor --help.", debug)
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print("sartor: " + " ".join(message.split()), file=sys.stderr)
    return 2
