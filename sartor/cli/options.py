"""Options of the command line, made from the one declaration of a run (run/recipe.py); and the recipe they make."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from ..errors import SartorError, need, unknown
from ..run.recipe import GROUPS, SETTINGS, SOLVER_OPTIONS, About, Recipe
from . import completion

Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND:WHERE",
        help="also write scores to csv:FILE, tensorboard:FOLDER or mlflow:URI; repeatable",
    ),
]
OwnSteps = Annotated[
    bool,
    typer.Option(
        "--own-steps", help="each method takes as many local steps as it does by default, not all the same number"
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress, no tables")]
_TYPES = {"int": int, "float": float, "str": str, "bool": bool}
_PANELS = {
    "data": "Data",
    "method": "Method and solver",
    "federation": "Who takes part",
    "attack": "Attack",
    "privacy": "Privacy",
    "traffic": "Traffic",
    "execution": "Execution",
    "evaluation": "Evaluation",
    "limits": "Limits of this site",
}


def _parameter(name: str, kind: Any, default: Any, *flags: str, **how: Any) -> inspect.Parameter:
    annotation = Annotated[kind, typer.Option(*flags, **how)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _option(name: str, about: About, several: bool) -> inspect.Parameter:
    """The option of a setting; with `several` it takes a list with commas."""
    kinds = about.type.split(" | ")
    how: dict[str, Any] = {"help": about.help, "show_default": not (about.auto or about.default in (None, []))}
    if not about.common:
        how["rich_help_panel"] = _PANELS[about.group]
    also = ("none",) if about.default == "none" else ()
    if name == "data":
        how["autocompletion"] = completion.data
    elif about.names:
        how["autocompletion"] = (completion.listed if several else completion.names)(about.names, *also)
    elif about.choices:
        how["autocompletion"] = completion.words(*about.choices)
    if several:
        how["help"] += "; several with commas between them"
        return _parameter(name, str | None, None if about.default is None else str(about.default), **how)
    if kinds[0] == "list[str]":
        return _parameter(name, list[str] | None, None, **how)
    if kinds[0] == "list[float]":
        return _parameter(name, str, ",".join(map(str, about.default)), **how)
    word = name.replace("_", "-")
    if kinds[0] == "bool":
        return _parameter(name, bool, about.default, f"--{word}/--no-{word}" if about.default else f"--{word}", **how)
    kind = _TYPES[kinds[0]]
    return _parameter(name, kind | None if "None" in kinds else kind, about.default, **how)


def _solver_options() -> list[inspect.Parameter]:
    panel = {"rich_help_panel": _PANELS["method"], "show_default": False}
    return [
        _parameter(
            option,
            _TYPES[kind] | None,
            None,
            help=words,
            autocompletion=completion.names("solvers") if option == "solver" else None,
            **panel,
        )
        for option, (_, kind, words) in SOLVER_OPTIONS.items()
    ]


_LAMS = _parameter(
    "lams",
    str | None,
    None,
    help="candidates for lam, for example 0.1,1,2: each client picks one on its validation data",
    rich_help_panel=_PANELS["method"],
    show_default=False,
)


def takes(
    *groups: str,
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    several: tuple[str, ...] = (),
    lams: bool = False,
    other: Mapping[str, Any] | None = None,
    also: Mapping[str, About] | None = None,
) -> Callable[..., Callable[..., None]]:
    """A command's own options, then the settings of `groups`, which it finds in `ctx.params`.

    only, without: of the groups, these settings, or all but these. several: settings that take lists with commas.
    lams: --lams as well. other: other defaults. also: settings that are not of a run.
    """

    def widened(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        hidden = {"settings", *own.parameters, *without}
        shared = []
        for name, about in SETTINGS.items():
            if about.group not in groups or name in hidden or (only and name not in only):
                continue
            if name == "solver":
                shared += [p for p in _solver_options() if p.name not in hidden]
                shared += [_LAMS] if lams else []
            else:
                made = _option(name, about, name in several)
                shared.append(made.replace(default=other[name]) if other and name in other else made)

        shared += [_option(name, about, several=False) for name, about in (also or {}).items()]

        @functools.wraps(command)
        def call(**given: Any) -> None:
            command(**{name: given[name] for name in own.parameters})

        everything = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own.parameters.values()]
        first = [p for p in shared if "rich_help_panel" not in _info(p)]
        rest = [p for p in shared if p not in first]
        call.__signature__ = own.replace(parameters=[*first, *everything, *rest])  # type: ignore[attr-defined]
        return call

    return widened


def _info(parameter: inspect.Parameter) -> dict[str, Any]:
    found = parameter.annotation.__metadata__[0]
    return {k: v for k, v in vars(found).items() if v is not None}


ALL = tuple(group.title for group in GROUPS)


def numbers(text: str, kind: type, what: str) -> list[Any]:
    try:
        return [kind(v) for v in text.split(",")]
    except ValueError as e:
        raise SartorError(f"{what} must be numbers separated by commas; got {text!r}.") from e


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
        need(
            bool(field),
            f"with several methods, --set needs method.field=value, as in --set flame.lam=1.0; got {key!r}.",
        )
        if name not in names:
            raise unknown("method in --set", name, names)
        own.setdefault(name, {})[field] = value
    return own


def written(ctx: typer.Context) -> dict[str, Any]:
    """The options that were really given."""
    return {k: v for k, v in ctx.params.items() if getattr(ctx.get_parameter_source(k), "name", "") == "COMMANDLINE"}


def values(given: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's values from options of the command line."""
    found = {k: v for k, v in given.items() if k in SETTINGS and k not in SOLVER_OPTIONS}
    found |= {name: list(given[name] or []) for name in ("leave_out", "text") if name in given}
    found |= {"parts": numbers(given["parts"], float, "parts")} if "parts" in given else {}
    solver = {field: given[k] for k, (field, *_) in SOLVER_OPTIONS.items() if given.get(k) is not None}
    return found | {"solver": solver}


def check_steps(own_steps: bool, base: Recipe) -> None:
    """Refuse both."""
    need(
        not own_steps or base.local_steps is None,
        f"--own-steps leaves each method its own local steps; got --local-steps {base.local_steps} as well.",
    )


def asked(given: Mapping[str, Any], **more: Any) -> Recipe:
    """The recipe that the options make."""
    return Recipe.of(values(given) | more, "the command line")
