"""How to repeat what a page shows: the command, made from the settings alone, and all of them written out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from ..errors import SartorError
from ..run.complete import resolve
from ..run.recipe import SETTINGS, SOLVER_OPTIONS, Recipe, tables
from ..spelling import split_compressor
from ..study.equal_work import with_steps
from ..study.scenarios import Scenario
from .entries import Material
from .pieces import CodeBlock, Part, Section

_OPTION = {field: option for option, (field, *_) in SOLVER_OPTIONS.items()}  # for each of a solver's fields


def section(material: Material) -> Section:
    """The command and the settings of each run or comparison."""
    parts: list[Part] = []
    for table in material.tables:
        parts.append(CodeBlock(str(table["command"])))
    for plan in material.plans:
        parts += [CodeBlock(of_comparison(plan)), CodeBlock(tomli_w.dumps(_without_none(_told(plan))), "All settings")]
    planned = {id(run) for run in material.runs} if material.plans else set()
    for entry in material.entries if not material.tables else []:
        for run in entry.runs:
            if id(run) not in planned and run.recipe:
                told = CodeBlock(tomli_w.dumps(tables(run.recipe)), f"All settings of {entry.name}, seed {run.seed}")
                parts += [CodeBlock(of_run(run.recipe)), told]
    return Section("settings", "To repeat it", parts)


def _told(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that all cells share, and those of each method."""
    shared = {k: v for k, v in plan["recipe"].items() if k not in ("method", "seed", "settings", *Scenario._fields)}
    told = {"methods": plan["methods"], "seeds": plan["seeds"], **shared}
    told |= {k: list(dict.fromkeys(c[k] for c in plan["cells"])) for k in Scenario._fields}
    own = {}
    for entrant in plan["methods"]:
        method = split_compressor(entrant)[0]
        base = {"method": method, "settings": plan["settings"].get(method, {}), "solver": plan["recipe"]["solver"]}
        base |= {k: plan["recipe"][k] for k in _DECIDE if k in plan["recipe"]}
        own[entrant] = resolve(with_steps(Recipe(**base), plan["recipe"].get("local_steps"))).settings
    return told | own


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    values = {k: v for k, v in table.items() if v is not None and v != {}}
    tables = {k: v for k, v in values.items() if isinstance(v, dict)}
    return {k: v for k, v in values.items() if k not in tables} | tables


_DECIDE = ("target", "model", "loss")  # whether clients solve to the end (run.complete.to_the_end)


# --- commands ---------------------------------------------------------------------------------------------------------


def of_run(recipe: Mapping[str, Any]) -> str:
    """The command that repeats a run, from its recipe.toml: what is not as it would be anyway is said."""
    method = str(recipe.get("method", SETTINGS["method"].default))
    words = ["sartor", "run", "--method", method, *_options(recipe)]
    for name, value in _own(method, recipe):
        words += ["--set", f"{name}={value}"]
    return shlex.join([*words, "--seed", str(recipe.get("seed", 0)), "--out", "runs/again"])


def of_comparison(plan: Mapping[str, Any]) -> str:
    """The command that repeats a comparison, from its plan.json."""
    words = ["sartor", "compare", "--methods", ",".join(plan["methods"])]
    words += ["--seeds", ",".join(map(str, plan["seeds"])), *_options(plan["recipe"], skip=Scenario._fields)]
    words += [] if plan["recipe"].get("local_steps") else ["--own-steps"]
    words += ["--references", ",".join(plan["references"])] if plan.get("references") else []
    plain = {"attack": ["none"], "attackers": [0.0], "aggregator": ["mean"]}
    for key in Scenario._fields:
        values = list(dict.fromkeys(c[key] for c in plan["cells"]))
        if values != plain[key]:
            words += [f"--{key}", ",".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)]
    for method, own in plan["settings"].items():
        for name, value in leaves(own):
            words += ["--set", f"{method}.{name}={value}"]
    return shlex.join([*words, "--out", "runs/again"])


def _options(recipe: Mapping[str, Any], skip: Sequence[str] = ()) -> list[str]:
    words: list[str] = []
    for name, about in SETTINGS.items():
        value = recipe.get(name)
        if name in ("method", "settings", "solver", "seed", "device", *skip) or value is None:
            continue
        if name == "attackers" and recipe.get("attack", "none") == "none":
            continue
        if value == about.default:
            continue
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        else:
            words += [option, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    for key, value in recipe.get("solver", {}).items():
        words += [f"--{_OPTION.get(key, key).replace('_', '-')}", str(value)]
    return words


def _own(method: str, recipe: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The settings that are not the method's defaults, dotted."""
    known = {k: recipe[k] for k in ("local_steps", *_DECIDE) if k in recipe}
    try:
        usual = dict(leaves(resolve(Recipe.of({"method": method, **known})).settings))
    except SartorError:
        usual = {}
    mine = dict(leaves(recipe.get("settings", {})))
    gone = [(k, "none") for k in usual if k not in mine and "." in k]
    return [(k, v) for k, v in mine.items() if usual.get(k) != v] + [g for g in gone if _may_go(g[0], mine)]


def _may_go(name: str, mine: Mapping[str, str]) -> bool:
    """A solver's field that was set to none, where the solver is still of the same kind."""
    return name.endswith(".steps") and f"{name.rpartition('.')[0]}.kind" in mine


def leaves(table: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            inner = {k: v for k, v in value.items() if k != "method"}
            found += [(before + key, str(value["method"]))] if "method" in value else []
            found += leaves(inner, f"{before}{key}.")
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            found.append((before + key, text))
    return found
