"""The options that commands share, and the recipe that they make."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ..errors import SartorError, need, unknown
from ..run.recipe import Recipe
from . import completion

Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND:WHERE",
        help="write scores as they come to csv:FILE, tensorboard:FOLDER or mlflow:URI; repeatable",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress, no tables")]


def _option(name: str, kind: Any, default: Any, *flags: str, **how: Any) -> inspect.Parameter:
    annotation = Annotated[kind, typer.Option(*flags, **how)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


PROBLEM = [
    _option(
        "data",
        str,
        "digits",
        help="a data set's name (sartor list datasets), a .csv, .parquet or .npz file, or a folder",
        autocompletion=completion.data,
    ),
    _option("target", str | None, None, help="own tables: the column to predict"),
    _option("client_key", str | None, None, help="own data: the column that says whose sample it is"),
    _option("leave_out", list[str] | None, None, help="own tables: a column that is not looked at; repeatable"),
    _option(
        "columns",
        str,
        "own",
        help="own tables: numbers to scale by each client's own statistics, by pooled ones, or raw",
    ),
    _option(
        "spellings",
        str,
        "refuse",
        help="clients whose names differ in spelling only: refuse, keep apart, or take together",
    ),
    _option(
        "partition",
        str,
        "auto",
        show_default=False,
        help="how data are dealt out: hybrid, labels=2, dirichlet=0.5, natural, ... [natural where clients are known]",
        autocompletion=completion.names("partitions"),
    ),
    _option("clients", int | None, None, help="how many clients [10, or every natural one]"),
    _option("minimum", int, 10, help="samples that each client has at least"),
    _option("parts", str, "0.72,0.08,0.2", help="shares of train, validation and test"),
    _option(
        "model",
        str,
        "auto",
        show_default=False,
        help="softmax, mlp, mlp(200,100), dnn, 2nn, cnn, linear, svm [what fits the data]",
        autocompletion=completion.names("models"),
    ),
    _option(
        "loss",
        str | None,
        None,
        help="cross-entropy, squared or hinge [what fits the model]",
        autocompletion=completion.names("losses"),
    ),
]
ROUNDS = [
    _option("rounds", int, 50, help="communication rounds"),
    _option("cohort", int | None, None, help="clients asked per round [all]"),
    _option("sampling", str, "uniform", help="cohorts drawn uniform, by size, or poisson (each by a coin of its own)"),
]
HOSTILITY = [
    _option(
        "aggregator",
        str,
        "mean",
        help="how the server averages: mean, median, krum(f=2), ... (list aggregators)",
        autocompletion=completion.names("aggregators"),
    ),
    _option(
        "attack",
        str,
        "none",
        help="what hostile clients do: none, sign-flip, gaussian(std=1), ... (list attacks)",
        autocompletion=completion.names("attacks", "none"),
    ),
    _option(
        "attackers",
        float | None,
        None,
        show_default=False,
        help="the share of hostile clients; scores are of the others [0.2 with an attack, else 0]",
    ),
]
ABSENCE = [
    _option("drop", float, 0.0, help="the share of clients that is not reached in a round"),
    _option("stragglers", float, 0.0, help="the share of clients that answers a round late"),
    _option("stale", str, "use", help="late answers: use or discard"),
    _option("patience", int, 10, help="rounds in a row without any answer after which a run stops"),
    _option("unseen", float, 0.0, help="the share of clients that takes no part and is served afterwards"),
    _option("unseen_steps", int, 10, help="visits to the server of each unseen client"),
]
PRIVACY = [
    _option("dp_noise", float | None, None, help="differential privacy: noise as a multiple of the clip"),
    _option("dp_epsilon", float | None, None, help="differential privacy: the epsilon to find the noise for"),
    _option("dp_clip", float | None, None, help="the most that a message may differ from what it answers [1]"),
    _option("dp_delta", float | None, None, help="the delta of the guarantee [1e-5]"),
    _option("dp_where", str | None, None, help="noise is added by the server (trusted) or each client [server]"),
    _option("dp_accountant", str | None, None, help="rdp, or prv (tighter, but numerical) [rdp]"),
]
TRAFFIC = [
    _option(
        "compress",
        str,
        "none",
        help="how messages are compressed: top-k(k=0.05), int8, ... (list compressors)",
        autocompletion=completion.names("compressors", "none"),
    ),
    _option(
        "compress_down",
        str,
        "none",
        help="the same for what the server sends",
        autocompletion=completion.names("compressors", "none"),
    ),
    _option(
        "budget",
        str | None,
        None,
        help="stop before bytes up and down together exceed this, as in 4MB; 328020 is in bytes",
    ),
    _option(
        "target_accuracy",
        float | None,
        None,
        help="stop when the mean validation accuracy in an evaluated round reaches this",
    ),
]
LAMS = [
    _option(
        "lams", str | None, None, help="candidates, as in 0.1,1,2: each client picks its lam on its validation data"
    )
]
SOLVER = [
    _option(
        "solver",
        str | None,
        None,
        help="sgd, adam, exact, inexact [the method's own]",
        autocompletion=completion.names("solvers"),
    ),
    _option("lr", float | None, None, help="the local solver's step size"),
    _option("epochs", int | None, None, help="local epochs per round"),
    _option("steps", int | None, None, help="local steps per round, in place of epochs"),
    _option("batch", int | None, None, help="minibatch size"),
    _option("momentum", float | None, None, help="the local solver's momentum"),
    _option("weight_decay", float | None, None, help="the local solver's weight decay"),
]
ENGINE = [
    _option("engine", str, "local", help="local (vectorised), serial (one client at a time, to find errors) or ray"),
    _option("chunk", int | None, None, help="clients computed together [what fits the cache]"),
    _option(
        "workers", int | None, None, help="chunks computed side by side [2, or the cores there are; ray: its CPUs]"
    ),
    _option("address", str | None, None, help="a Ray cluster to join: auto or HOST:PORT [ray starts one here]"),
    _option("store", str, "memory", help="where client states are kept: memory, or disk (in --out)"),
    _option("dtype", str, "float32", help="float32 or float64"),
]
JUDGING = [
    _option("evaluate_every", int, 10, help="rounds between evaluations"),
    _option("checkpoint_every", int, 10, help="rounds between checkpoints"),
    _option(
        "diagnostics",
        bool,
        True,
        "--diagnostics/--no-diagnostics",
        help="compute residuals and curvature at every evaluation",
    ),
    _option("report", str, "last", help="the round to report: last, or best (on validation data)"),
    _option("oracle", bool, False, "--oracle", help="also score a choice made on test data, as some papers do"),
]
RUN = (PROBLEM, ROUNDS, HOSTILITY, ABSENCE, PRIVACY, TRAFFIC, LAMS, SOLVER, ENGINE, JUDGING)  # all that one can be told


def takes(*groups: list[inspect.Parameter], without: tuple[str, ...] = ()) -> Callable[..., Callable[..., None]]:
    """A command's own options, then those of `groups`, which it finds in `ctx.params`. Its own hide a group's."""

    def widened(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        hidden = {*own.parameters, *without}
        shared = [p for group in groups for p in group if p.name not in hidden]

        @functools.wraps(command)
        def call(**given: Any) -> None:
            command(**{name: given[name] for name in own.parameters})

        everything = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own.parameters.values()]
        call.__signature__ = own.replace(parameters=everything + shared)  # type: ignore[attr-defined]
        return call

    return widened


def numbers(text: str, kind: type, what: str) -> list[Any]:
    try:
        return [kind(v) for v in text.split(",")]
    except ValueError as e:
        raise SartorError(f"{what} are numbers with commas between them; got {text!r}.") from e


def assignments(pairs: list[str] | None, form: str = "--set takes field=value, as in --set lam=1.0") -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        need(bool(equals and key), f"{form}; got {pair!r}.")
        found[key.strip()] = value.strip()
    return found


def by_method(given: dict[str, str], names: list[str]) -> dict[str, dict[str, str]]:
    """--set flame.lam=1.0 by method."""
    own: dict[str, dict[str, str]] = {}
    for key, value in given.items():
        name, _, field = key.partition(".")
        need(bool(field), f"--set of several methods takes method.field=value, as in --set flame.lam=1.0; got {key!r}.")
        if name not in names:
            raise unknown("method in --set", name, names)
        own.setdefault(name, {})[field] = value
    return own


def written(ctx: typer.Context) -> dict[str, Any]:
    """The options that were really given."""
    return {k: v for k, v in ctx.params.items() if getattr(ctx.get_parameter_source(k), "name", "") == "COMMANDLINE"}


def values(given: dict[str, Any]) -> dict[str, Any]:
    """A recipe's values from options of the command line."""
    found = {k: v for k, v in given.items() if k in Recipe.model_fields and k != "solver"}
    found |= {"leave_out": list(given["leave_out"] or [])} if "leave_out" in given else {}
    found |= {"parts": numbers(given["parts"], float, "parts")} if "parts" in given else {}
    names = {"solver": "kind"} | {k: k for k in ("lr", "epochs", "steps", "batch", "momentum", "weight_decay")}
    return found | {"solver": {name: given[k] for k, name in names.items() if given.get(k) is not None}}
