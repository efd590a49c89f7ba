"""Runs in lockstep: the same numbers as one by one, over all methods and their settings; who leaves, who goes alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commandline import hospitals, stop_in_round, summary
from every_method import EXTRA, make
from torch import nn

from sartor.core import Method
from sartor.data.clients import PARTS, Clients
from sartor.engines import joint
from sartor.errors import Diverged, SartorError
from sartor.methods import FLAME, NAMES, Ditto
from sartor.run.assemble import prepare
from sartor.run.complete import clients_of
from sartor.run.lockstep import Play, play_together, together
from sartor.run.play import CHECKPOINT, play_recipe
from sartor.run.recipe import Attacked, Evaluation, Execution, Federation, Recipe
from sartor.run.result import Result
from sartor.run.rounds import play
from sartor.solvers import LBFGS, SGD, Adam, Early, Exact, Inexact, Newton
from sartor.storage import load_tensors
from sartor.tasks.shared_layer import SharedLayer

FACTORS = (1.0, 0.7, 0.9, 0.8)  # of the four runs' settings
SIZES = ((9, 4, 3), (14, 3, 2), (25, 5, 4), (31, 2, 5))
ROUNDS = 2


@cache
def clients(kind: str, seed: int = 0) -> Clients:
    """Four clients of different sizes; with another seed of other sizes."""
    draw, parts = np.random.default_rng(seed), []
    for i, sizes in enumerate(SIZES):
        own = {}
        for part, n in zip(("train", "validation", "test"), sizes, strict=True):
            x = draw.normal(size=(n + (n < 31) * seed, 3)) + 0.3 * i  # MOCHA has a number for each of the most samples
            z = x @ np.array([1.0, -1.0, 0.5]) + 0.3 * draw.normal(size=len(x)) + 0.2 * i
            own[part] = x, z if kind == "numbers" else (z > 0).astype(np.int64) + (kind == "classes") * (z > 1)
        parts.append(own)
    return Clients.from_parts(parts, {"classes": 3, "two classes": 2}.get(kind))


def model_for(method: Method) -> tuple[str, nn.Module]:
    """The data's kind, and a model that the method is for."""
    if method.models == "one output":
        return "numbers", nn.Linear(3, 1)
    linear = method.models == "one layer"
    return "classes", nn.Linear(3, 3) if linear else nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 3))


def scaled(settings: Any, factor: float) -> Any:
    """The same method, or solver, with all numbers that can be columns times the factor."""
    new = {}
    for f in fields(settings):
        value = getattr(settings, f.name)
        if is_dataclass(value):
            new[f.name] = scaled(value, factor)
        elif f.name in getattr(settings, "columns", ()) and value is not None:
            new[f.name] = value * factor
    return replace(settings, **new)


def ready(method: Method, kind: str, model: nn.Module, seed: int, own: int = 0, **options: Any) -> Result:
    execution = Execution(dtype="float64", workers=1)
    federation = options.pop("federation", Federation(cohort=3))
    samples = clients(kind, own)
    return prepare(method, model, samples, seed=seed, federation=federation, execution=execution, **options)


def played(result: Result, rounds: int = ROUNDS, diagnose: bool = False) -> Play:
    yield result
    for _ in play(result.run, rounds, diagnose=diagnose):
        yield result


def last(plays: list[Play]) -> list[Result | SartorError]:
    """The last that is heard of each run."""
    return list(dict(play_together(plays)).values())


def same(one: Result, other: Result | SartorError, close: float = 1e-9) -> None:
    """The same models, histories and counts."""
    assert isinstance(other, Result), other
    models, theirs = one.run.models(), other.run.models()
    assert models.keys() == theirs.keys()
    for name, model in models.items():
        assert torch.allclose(model, theirs[name], rtol=close, atol=close), name
    assert len(one.history) == len(other.history)
    for line, their in zip(one.history, other.history, strict=True):
        a, b = (dict(flat({k: v for k, v in each.items() if k != "seconds"})) for each in (line, their))
        assert a.keys() == b.keys()
        for key, value in a.items():
            near = (
                isinstance(value, float)
                and b[key] is not None
                and math.isclose(value, b[key], rel_tol=1e-6, abs_tol=close)
            )
            assert near or value == b[key], (key, value, b[key])


def flat(table: dict[str, Any], name: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        yield from flat(value, f"{name}{key}/") if isinstance(value, dict) else [(name + key, value)]


def together_and_alone(methods: list[Method], kind: str, model: nn.Module, close: float = 1e-9, **options: Any) -> None:
    """Runs of other seeds, of which every two share their data, in one stack and one by one."""

    def runs() -> list[Result]:
        return [ready(m, kind, model, seed, own=seed // 2, **options) for seed, m in enumerate(methods)]

    assert together(runs()) == [list(range(len(methods)))]
    alone = runs()
    for result in alone:
        list(played(result))
    for one, other in zip(alone, last([played(r) for r in runs()]), strict=True):
        same(one, other, close)


@pytest.mark.parametrize("name", [*NAMES, *(pytest.param(name, marks=pytest.mark.long) for name in EXTRA)])
def test_four_runs_are_the_same_together_and_alone(name: str) -> None:
    """Of every method, with other seeds, data, and numbers wherever it says that they may differ."""
    method = make(name)
    assert is_dataclass(method)
    # Of these the server solves equations that are flat where all classes are raised alike: rounding moves it there.
    close = 1e-6 if method.models == "one layer" else 1e-9
    together_and_alone([scaled(method, factor) for factor in FACTORS], *model_for(method), close)


def test_shares_are_of_a_run() -> None:
    method = FLAME(weighting="size")
    together_and_alone([scaled(method, factor) for factor in FACTORS], *model_for(method))


SOLVERS = {
    "newton": Newton(),
    "lbfgs": LBFGS(),
    "early": Early(epochs=4, patience=2, weight_decay=0.01),
    "inexact": Inexact(lr=0.5, eps=0.05, shrink=0.1, max_steps=100),  # ε of a client depends on its visits
    "adam": Adam(),
    "exact": Exact(),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_with_every_solver(name: str) -> None:
    kind, model = ("numbers", nn.Linear(3, 1)) if name == "exact" else ("classes", nn.Linear(3, 3))
    method = Ditto(solver=SOLVERS[name], global_solver=SGD())
    # Newton's steps are solved to a slope of 1e-9, L-BFGS's to 1e-6.
    close = {"newton": 1e-7, "lbfgs": 1e-4}.get(name, 1e-9)
    together_and_alone([scaled(method, factor) for factor in FACTORS], kind, model, close)


@pytest.mark.parametrize("kind", ["classes", "two classes", "numbers"])
def test_many_settings_on_the_same_data(kind: str) -> None:
    """Where rows share their samples, Newton's equations are made and solved in another form (shared_layer.py)."""
    outputs = {"classes": 3, "two classes": 2, "numbers": 1}[kind]
    methods = [FLAME(lam=lam, solver=Newton(ridge=ridge)) for lam in (0.1, 1.0) for ridge in (0.5, 1.0, 3.0)]

    def runs() -> list[Result]:
        return [ready(m, kind, nn.Linear(3, outputs), 0, federation=Federation()) for m in methods]

    alone = runs()
    for result in alone:
        list(played(result))
    with counted(SharedLayer, "equations") as calls:
        found = last([played(r) for r in runs()])
    assert calls
    for one, other in zip(alone, found, strict=True):
        same(one, other, 1e-7)


def test_the_same_bits_where_nothing_is_padded() -> None:
    """Other seeds on clients of one size, trained by steps: sums are over as many numbers as alone."""
    draw = np.random.default_rng(0)
    parts = [{part: (draw.normal(size=(20, 3)), draw.integers(0, 3, 20)) for part in PARTS} for _ in range(3)]
    samples, model = Clients.from_parts(parts, 3), nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 3))

    def runs() -> list[Result]:
        return [prepare(Ditto(), model, samples, seed=seed, execution=Execution(workers=1)) for seed in range(3)]

    alone = runs()
    for result in alone:
        list(played(result))
    for one, other in zip(alone, last([played(r) for r in runs()]), strict=True):
        assert isinstance(other, Result)
        theirs = other.run.models()
        assert all(torch.equal(model, theirs[name]) for name, model in one.run.models().items())


def test_one_that_diverges_leaves_and_the_others_go_on() -> None:
    kind, model = model_for(Ditto())
    alone = ready(Ditto(), kind, model, 1)
    list(played(alone))
    wild = Ditto(solver=SGD(lr=1e300), global_solver=SGD(lr=0.1))
    tame = replace(wild, solver=SGD(lr=0.1))
    runs = [ready(wild, kind, model, 0), ready(tame, kind, model, 1)]
    assert together(runs) == [[0, 1]]
    first, second = last([played(r) for r in runs])
    assert isinstance(first, Diverged) and "diverged in round 1" in str(first)
    same(alone, second)


def test_runs_of_other_lengths_and_with_absences() -> None:
    """Who has ended, or has nobody to ask in a round, does not hold up the others."""
    kind, model = model_for(FLAME())
    absent = Federation(cohort=2, drop=0.6, stragglers=0.2)

    def runs() -> list[Result]:
        return [ready(FLAME(), kind, model, seed, federation=absent) for seed in range(3)]

    alone = runs()
    for rounds, result in enumerate(alone, 2):
        list(played(result, rounds))
    found = last([played(r, rounds) for rounds, r in enumerate(runs(), 2)])
    for one, other in zip(alone, found, strict=True):
        same(one, other)


def test_diagnostics_and_a_metric_by_name() -> None:
    """They are computed run by run where they have to be."""
    kind, model = model_for(FLAME())

    def runs() -> list[Result]:
        options = {"evaluation": Evaluation(metric="auroc")}
        return [ready(FLAME(lam=lam), kind, model, 0, **options) for lam in (0.1, 0.2)]

    alone = runs()
    for result in alone:
        list(played(result, diagnose=True))
    for one, other in zip(alone, last([played(r, diagnose=True) for r in runs()]), strict=True):
        same(one, other)


def test_who_goes_alone_and_why() -> None:
    kind, model = model_for(FLAME())
    plain = [ready(FLAME(lam=lam), kind, model, 0) for lam in (0.1, 0.2)]
    others = [
        ready(FLAME(weighting="size"), kind, model, 0),  # a choice
        ready(FLAME(solver=SGD(batch=10)), kind, model, 0),  # a count
        ready(FLAME(), kind, nn.Linear(3, 3), 0),  # another model
        ready(FLAME(), kind, model, 0, attack=Attacked("sign-flip", 0.3)),
    ]
    assert together([*plain, *others]) == [[0, 1], [2], [3], [4], [5]]
    reasons = [joint.alone(r.run.engine) for r in (*plain, *others)]
    assert reasons == ["", "", "", "", "", "its method is wrapped (Hostile)"]
    serial = prepare(FLAME(), model, clients(kind), execution=Execution(engine="serial"))
    assert "SerialEngine" in joint.alone(serial.run.engine)


def test_models_of_the_same_shape_are_not_the_same() -> None:
    """Other functions between the layers, or other weights that are not trained."""
    bent = [nn.Sequential(nn.Linear(3, 5), between, nn.Linear(5, 3)) for between in (nn.ReLU(), nn.Tanh())]
    fixed = [nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 3)) for _ in range(2)]
    for model in fixed:
        model[0].requires_grad_(False)
    runs = [ready(FLAME(), "classes", model, 0) for model in (*bent, *fixed, bent[1], fixed[1])]
    assert together(runs) == [[0], [1, 4], [2], [3, 5]]


def test_runs_that_go_alone_are_played_one_after_the_other() -> None:
    kind, model = model_for(FLAME())
    plain = [ready(FLAME(), kind, model, seed) for seed in range(2)]
    wrapped = [ready(FLAME(), kind, model, seed, attack=Attacked("sign-flip", 0.3)) for seed in range(2)]
    order = [i for i, _ in play_together([played(r) for r in (*plain, *wrapped)])]
    assert order == [0, 1, 2, 2, 2, 3, 3, 3, 0, 1, 0, 1]


def test_an_interruption_is_heard() -> None:
    """Ctrl-C, say, while a run is at its server: it ends them all, and nobody waits for ever."""
    kind, model = model_for(FLAME())
    runs = [ready(FLAME(), kind, model, seed) for seed in range(2)]
    with stop_in_round(1), pytest.raises(KeyboardInterrupt):
        last([played(r) for r in runs])
    assert all(isinstance(r.run.engine, joint.LocalEngine) for r in runs)


def test_large_models_have_all_cores_to_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, model = model_for(FLAME())
    busy = prepare(FLAME(), model, clients(kind), execution=Execution(workers=2))
    assert joint.alone(busy.run.engine) == ""
    monkeypatch.setattr(joint, "WORTH_IT", busy.task.size * 4)
    assert joint.alone(busy.run.engine) == "its models keep all cores at work"


def test_a_stack_that_would_not_fit_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, model = model_for(FLAME())
    runs = [ready(FLAME(), kind, model, 0, own=own) for own in (0, 0, 1, 1, 2)]
    assert together(runs) == [[0, 1, 2, 3, 4]]
    monkeypatch.setattr(joint, "_MOST_BYTES", 2 * runs[0].data.x.nbytes - 1)
    assert together(runs) == [[0, 1], [2, 3], [4]]  # data that two share are there once


def test_an_error_of_one_is_not_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stack cannot compute is asked again run by run."""
    kind, model = model_for(FLAME())

    def failing(*_: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(joint, "computed", failing)
    runs, alone = ([ready(FLAME(), kind, model, seed) for seed in range(2)] for _ in range(2))
    found = last([played(r) for r in runs])
    for one, other in zip(alone, found, strict=True):
        list(played(one))
        same(one, other, close=0.0)


def test_folders_checkpoints_and_going_on(tmp_path: Path) -> None:
    """Runs stopped in the middle go on in lockstep; their folders are as if each had been played alone."""
    table = hospitals(tmp_path / "table.csv")
    base = Recipe(
        data=str(table),
        target="outcome",
        client_key="hospital",
        rounds=4,
        evaluate_every=2,
        checkpoint_every=2,
        workers=1,
    )
    recipes = [base.replace(method="ditto", settings={"lam": lam}, seed=seed) for seed, lam in enumerate((0.1, 1.0))]
    for i, recipe in enumerate(recipes):
        list(play_recipe(recipe, clients_of(recipe), tmp_path / f"alone-{i}"))
    halves = [play_recipe(r, clients_of(r), tmp_path / f"together-{i}") for i, r in enumerate(recipes)]
    stepping = play_together(halves)
    for _, result in stepping:
        if isinstance(result, Result) and result.run.round == 2:
            break
    stepping.close()
    wholes = [play_recipe(r, clients_of(r), tmp_path / f"together-{i}") for i, r in enumerate(recipes)]
    assert all(isinstance(r, Result) and r.run.round == 4 for r in last(wholes))
    for i in range(2):
        one, other = tmp_path / f"alone-{i}", tmp_path / f"together-{i}"
        assert {p.relative_to(one) for p in one.rglob("*")} == {p.relative_to(other) for p in other.rglob("*")}
        tensors, theirs = (load_tensors(place / "models" / "personal.safetensors")[0] for place in (one, other))
        assert all(torch.allclose(v, theirs[k], atol=1e-5) for k, v in tensors.items())
        assert (other / CHECKPOINT).exists()
        assert summary(one)["steps"] == summary(other)["steps"]


@contextmanager
def counted(owner: type, name: str) -> Iterator[list[None]]:
    """How often a method of a class is called."""
    calls, real = list[None](), getattr(owner, name)

    def watched(*args: Any) -> Any:
        calls.append(None)
        return real(*args)

    setattr(owner, name, watched)
    try:
        yield calls
    finally:
        setattr(owner, name, real)
