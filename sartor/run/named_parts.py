"""Methods, solvers, aggregators, attacks and compressors by name and plain settings, and back to them.

A dataclass's fields are the only list of its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from .. import aggregators, compressors, methods, solvers, spelling
from ..core import Method
from ..errors import SartorError, need, see, unknown
from ..wrappers import PersonalParts, attacks
from ..wrappers.dynamic_lam import DynamicLam
from .recipe import WHOLE

T = TypeVar("T")
_SOLVER_FIELDS = ("solver", "global_solver", "head_solver", "central_solver", "finetune")
_METHOD_FIELDS = ("global_method",)  # a method inside a method: a table of its own, with its name under "method"
_OF_EVERY_SOLVER = ("lr", "batch", "momentum", "weight_decay")  # what a method's second solver takes from the run's
_OF_TRAINING = ("decay",)  # the same, unless that one comes after training


@cache
def _hints(made: Callable[..., Any]) -> dict[str, Any]:
    """Types of its fields: looked up once, as a study makes its methods hundreds of times."""
    return get_type_hints(made)


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    """What makes values of a type: built once, for the same reason."""
    return TypeAdapter(hint)


def to_table(method: Method) -> dict[str, Any]:
    """Every setting of a method: numbers, words, and a table for each solver. None is left out (TOML has none)."""
    if isinstance(method, DynamicLam):
        return to_table(method.method) | {"lam": list(method.lams)}
    if isinstance(method, PersonalParts):  # what stays at clients is a setting of the run
        return to_table(method.method)
    return {
        f.name: plain
        for f in fields(method)  # type: ignore[arg-type]
        if (plain := _plain(getattr(method, f.name))) is not None
    }


def _plain(value: Any) -> Any:
    if isinstance(value, aggregators.Aggregator):
        return spelling.write(aggregators.NAMES, value)
    if isinstance(value, Method):
        makers = {n: e.make for n, e in methods.NAMES.items() if e.class_name == type(value).__name__}
        return {"method": spelling.name_of(makers, value)} | to_table(value)
    if isinstance(value, tuple):
        return list(value)  # as it comes back from TOML and JSON
    if is_dataclass(value):
        kind = next(k for k, v in solvers.NAMES.items() if isinstance(value, v))
        return {"kind": kind} | {f.name: v for f in fields(value) if (v := getattr(value, f.name)) is not None}
    return value


def method_from(name: str, settings: Mapping[str, Any], solver: Mapping[str, Any] | None = None) -> Method:
    """The named method. `settings` are its fields, dotted for a solver's: "finetune.epochs".

    `solver` is the run's own: it replaces fields of the method's default one, or all of it where it names another kind.
    Where `lam` is a list ("0.1,1,2" on the command line), every client chooses from it on its validation data.
    """
    made = methods.entry(name)
    if (lams := _listed(settings.get("lam"))) is not None:
        each = tuple(convert(f"{name}'s lam", v, float) for v in lams)
        return DynamicLam(method_from(name, {**settings, "lam": next(iter(each), 1.0)}, solver), each)
    known = [f.name for f in fields(made.make)]  # type: ignore[arg-type]
    hints = _hints(made.make)
    given, inner = _split(settings)
    preset = {k: _solver(solvers.SGD(), v) if k in _SOLVER_FIELDS else v for k, v in made.preset.items()}
    defaults: dict[str, Any] = {f.name: f.default for f in fields(made.make)} | preset  # type: ignore[arg-type]
    for key in [*given, *inner]:
        if key == "aggregate" and key not in known:
            averaging = ", ".join(n for n, e in methods.NAMES.items() if e.make.aggregate is not None)
            raise SartorError(
                f"{name} takes no mean, so there is nothing an aggregator could replace; got {settings[key]!r}. "
                f"Remove it, or use a method that averages: {averaging}."
            )
        if key not in known:
            raise unknown(f"setting of {name}", key, known, see("names-and-settings"))
    for key in inner:
        need(
            key in _SOLVER_FIELDS + _METHOD_FIELDS,
            f"{name}'s {key} is one value; got {', '.join(f'{key}.{k}' for k in inner[key])}.",
        )
    values: dict[str, Any] = dict(preset)
    for key, value in given.items():
        if key == "aggregate":
            values[key] = aggregator(value)
        elif key in _METHOD_FIELDS:
            inner.setdefault(key, {}).setdefault("method", value)
        elif key in _SOLVER_FIELDS:
            raise SartorError(f"{name}: a solver's settings are {key}.lr=..., {key}.epochs=...; got {key}={value!r}.")
        else:
            values[key] = convert(f"{name}'s {key}", value, hints[key])
    for key in [k for k in _SOLVER_FIELDS if k in known]:
        common = _OF_EVERY_SOLVER if key == "finetune" else (*_OF_EVERY_SOLVER, *_OF_TRAINING)
        wanted = {k: v for k, v in (solver or {}).items() if key == "solver" or k in common}
        wanted = _over(wanted, inner.get(key, {}))
        default = defaults.get(key)
        if default is None and key not in inner:
            continue
        values[key] = _solver(default or solvers.SGD(), wanted)
    for key in [k for k in _METHOD_FIELDS if k in inner]:
        chosen = dict(inner[key])
        which = chosen.pop("method", None)
        need(which is not None, f"{name}: {key} needs a method's name, as in {key}=fedprox; got only its settings.")
        values[key] = None if which == "none" else method_from(str(which), chosen, solver)
    return made.make(**values)


def given_lengths(method: Method, settings: Mapping[str, Any]) -> list[str]:
    """Which of the settings that were given, dotted, say how much a client computes in a round."""
    inside = method.method if isinstance(method, DynamicLam) else method
    inner = getattr(inside, "global_method", None)
    own = {"epochs", "steps", *inside.lengths, *(inner.lengths if inner is not None else ())}
    return [key for key in dotted(settings) if key.rpartition(".")[2] in own and not key.startswith("finetune.")]


def with_local_steps(method: Method, settings: Mapping[str, Any], solver: Mapping[str, Any], steps: int) -> Method:
    """The method with so many gradients in a round. What was given beside them must say the same, as the settings of a
    complete recipe do; how long fine-tuning is may be said, as it is not part of a round."""
    for key in ("epochs", "steps"):
        need(
            key not in solver,
            f"local_steps = {steps} says how many gradients a round has; got {key} = {solver.get(key)} as well. "
            "Remove one of them.",
        )
    made = method.spending(steps)
    if any(key in ("finetune.epochs", "finetune.steps") for key in dotted(settings)):
        made = _with_finetune(made, method)
    before, after = (dotted(to_table(m)) for m in (method, made))
    for key in given_lengths(method, settings):
        for name in dict.fromkeys([key, key.removesuffix("epochs") + "steps" if key.endswith(".epochs") else key]):
            need(
                before.get(name) == after.get(name),
                f"local_steps = {steps} makes {method.name}'s {name} {after.get(name)}; got {key} = "
                f"{dotted(settings)[key]} as well. Remove one of them.",
            )
    return made


def _with_finetune(made: Method, given: Method) -> Method:
    """The method with the fine-tuning that was given."""
    if isinstance(made, DynamicLam) and isinstance(given, DynamicLam):
        return DynamicLam(_with_finetune(made.method, given.method), made.lams, made.few)
    return replace(made, finetune=given.finetune)  # type: ignore[type-var, attr-defined]


def dotted(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Settings in tables as one table: {"solver": {"lr": 1}} is {"solver.lr": 1}."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= dotted(value, f"{before}{key}.") if isinstance(value, Mapping) else {before + key: value}
    return found


def has_lam(name: str) -> bool:
    """Whether the named method has a λ, and so can choose it from a list."""
    return "lam" in {f.name for f in fields(methods.entry(name).make)}  # type: ignore[arg-type]


def _listed(value: Any) -> list[Any] | None:
    """The items of a list, or of a word with commas; None for a single value."""
    if isinstance(value, str) and "," in value:
        return value.split(",")
    return value if isinstance(value, list) else None


def _split(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    given: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        head, _, rest = key.partition(".")
        if rest:
            inner.setdefault(head, {})[rest] = value
        elif isinstance(value, Mapping):
            inner.setdefault(head, {}).update(value)
        else:
            given[key] = value
    return given, inner


def _over(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A method's own solver settings over the run's; its own epochs also replace the run's steps, and the reverse."""
    length = ("epochs", "steps")
    kept = {k: v for k, v in common.items() if k not in length or not any(k in own for k in length)}
    return {**kept, **own}


def _solver(default: Any, wanted: Mapping[str, Any]) -> Any:
    wanted = dict(wanted)
    kind = wanted.pop("kind", None)
    if kind is not None and str(kind) not in solvers.NAMES:
        raise unknown("solver", kind, solvers.NAMES)
    made = type(default) if kind is None else solvers.NAMES[str(kind)]
    known, hints = [f.name for f in fields(made)], _hints(made)  # type: ignore[arg-type]  # mypy: a class has no hash
    for key in wanted:
        if key not in known:
            raise unknown(f"setting of the {made.__name__} solver", key, known, see("names-and-settings"))
    values = {k: convert(f"{made.__name__}'s {k}", v, hints[k]) for k, v in wanted.items()}
    if "epochs" in values and "steps" not in values and "steps" in known:
        values["steps"] = None  # who asks for epochs does not want the default's steps
        values |= {"reuse": False} if "reuse" in known and "reuse" not in values else {}
    elif values.get("steps") is not None and "epochs" not in values:
        values["epochs"] = 1  # nor the default's epochs who asks for steps
    return replace(default, **values) if isinstance(default, made) else made(**values)


def aggregator(text: str) -> aggregators.Aggregator:
    """The aggregator that is written "krum" or "krum(f=2)"."""
    return _aggregator(str(text))  # a recipe may hold anything


@cache
def _aggregator(text: str) -> aggregators.Aggregator:
    return _made("aggregator", aggregators.NAMES, text)


def attack(text: str) -> attacks.Attack | None:
    """The attack that is written "sign-flip" or "sign-flip(std=10)"; "none" is none."""
    return None if text.strip() == "none" else _made("attack", attacks.NAMES, text, "none")


def compressor(text: str) -> compressors.Compressor | None:
    """The compressor that is written "top-k" or "top-k(k=0.05)"; "none" is none."""
    return None if text.strip() == "none" else _made("compressor", compressors.NAMES, text, "none")


def _made(kind: str, makers: Mapping[str, type[T]], text: str, *also: str) -> T:
    name, maker, values = spelling.look_up(kind, makers, str(text), also)
    hints = _hints(maker)
    return maker(**{k: convert(f"{name}'s {k}", v, hints[k]) for k, v in values.items()})


def convert(what: str, value: Any, hint: Any) -> Any:
    """A value of the field's type, from a word of the command line or a TOML value."""
    if value == "none":
        value = None
    listed = [h for h in (hint, *get_args(hint)) if get_origin(h) is tuple]  # "number or numbers": only with a comma
    if listed and isinstance(value, str) and (listed[0] is hint or "," in value):
        value = value.split(",")
    try:
        made = _adapter(hint).validate_python(value)
        for number in made if isinstance(made, tuple) else (made,):
            small = not isinstance(number, int) or abs(number) < WHOLE
            need(small, f"{what} is a whole number below {WHOLE}; got {value!r}.")
        return made
    except ValidationError as e:
        wanted = {"float": "a number", "int": "a whole number", "bool": "true or false"}.get(
            getattr(hint, "__name__", ""), str(hint).replace("<class '", "").replace("'>", "")
        )
        if listed and listed[0] is not hint:
            wanted = "a number, or numbers with commas between them"
        raise SartorError(f"{what} must be {wanted}; got {value!r}.") from e
