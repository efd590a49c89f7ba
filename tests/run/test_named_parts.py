"""Settings of methods as tables and back."""

from __future__ import annotations

import tomllib
from collections.abc import Callable

import pytest
import tomli_w
from commandline import METHODS

import sartor as st
from sartor.errors import SartorError
from sartor.methods import NAMES
from sartor.run.named_parts import convert, method_from, to_table
from sartor.solvers import SGD, Adam, Exact


@pytest.mark.parametrize("name", NAMES)
def test_a_table_gives_the_method_back(name: str) -> None:
    method = method_from(name, {})
    table = to_table(method)
    assert method_from(name, tomllib.loads(tomli_w.dumps(table))) == method


@pytest.mark.parametrize(
    "solver",
    [
        {"lr": 0.3},
        {"epochs": 3},
        {"steps": 4},
        {"kind": "adam", "lr": 0.01},
        {"kind": "adam", "steps": 2},
        {"kind": "exact"},
        {"kind": "inexact", "eps": 0.1},
        {"batch": 5, "momentum": 0.5, "weight_decay": 0.1},
    ],
    ids=lambda s: " ".join(f"{k}={v}" for k, v in s.items()),
)
@pytest.mark.parametrize("name", METHODS)
def test_so_it_does_with_another_solver(name: str, solver: dict[str, object]) -> None:
    method = method_from(name, {}, solver)
    assert method_from(name, tomllib.loads(tomli_w.dumps(to_table(method)))) == method


def test_the_runs_solver_replaces_fields_of_the_methods_own() -> None:
    default = method_from("pfedme", {}).solver  # type: ignore[attr-defined]
    assert default.reuse and default.steps
    changed = method_from("pfedme", {}, {"lr": 0.5}).solver  # type: ignore[attr-defined]
    assert changed.lr == 0.5 and changed.steps == default.steps and changed.reuse
    epochs = method_from("pfedme", {}, {"epochs": 2}).solver  # type: ignore[attr-defined]
    assert epochs == SGD(lr=default.lr, epochs=2)  # who asks for epochs wants no steps on one batch


def test_the_methods_own_settings_come_before_the_runs() -> None:
    method = method_from("fedavg-ft", {"finetune.lr": "0.7"}, {"lr": 0.2})
    assert (method.solver.lr, method.finetune.lr, method.finetune.epochs) == (0.2, 0.7, 5)  # type: ignore[attr-defined]


def test_another_kind_is_for_the_first_solver_only() -> None:
    method = method_from("fedavg-ft", {}, {"kind": "adam", "lr": 0.01})
    assert method.solver == Adam(lr=0.01)  # type: ignore[attr-defined]
    assert method.finetune == SGD(lr=0.01, epochs=5)  # type: ignore[attr-defined]
    assert method_from("ditto", {"global_solver.kind": "exact"}).global_solver == Exact()  # type: ignore[attr-defined]


def test_a_method_inside_a_method_has_a_table_of_its_own() -> None:
    given = {"global_method": "fedprox", "global_method.mu": "0.3", "global_method.solver.lr": "0.7"}
    method = method_from("ditto", given, {"batch": 5})
    inner = method.global_method  # type: ignore[attr-defined]
    assert (inner.mu, inner.solver.lr, inner.solver.batch) == (0.3, 0.7, 5)
    table = to_table(method)
    assert table["global_method"]["method"] == "fedavg"
    assert method_from("ditto", tomllib.loads(tomli_w.dumps(table))) == method
    assert method_from("mapper", {"lambdas": "0.1,0.9"}).lambdas == (0.1, 0.9)  # type: ignore[attr-defined]


def test_a_number_or_one_for_each_client() -> None:
    """FedAMP's self_weight and beta, from the command line and from TOML, and back."""
    given = {"self_weight": "0.1,0.2,0.3", "beta": "5"}
    method = method_from("heurfedamp", given)
    assert (method.self_weight, method.beta) == ((0.1, 0.2, 0.3), 5.0)  # type: ignore[attr-defined]
    assert method_from("heurfedamp", tomllib.loads(tomli_w.dumps(to_table(method)))) == method
    assert method_from("heurfedamp", {"beta": [1, 2.5]}).beta == (1.0, 2.5)  # type: ignore[attr-defined]
    for wrong in ("0.1,two", "two", "0.1,,0.2", [0.1, "x"]):
        with pytest.raises(SartorError, match="heurfedamp's self_weight must be a number, or numbers with commas"):
            method_from("heurfedamp", {"self_weight": wrong})


def test_words_become_values() -> None:
    assert convert("x", "0.5", float) == 0.5
    assert convert("x", "3", int) == 3
    assert convert("x", "true", bool) is True
    assert convert("x", "none", float | None) is None
    for word, kind in (("a", float), ("1.5", int), ("2", bool), ("none", float)):
        with pytest.raises(SartorError, match="x must be"):
            convert("x", word, kind)


def test_a_solvers_own_epochs_and_steps_replace_the_runs() -> None:
    """A method's own epochs used to be dropped in silence where the run had steps."""
    own = method_from("fedavg", {"solver.epochs": 2}, {"steps": 4, "lr": 0.3}).solver  # type: ignore[attr-defined]
    assert own == SGD(lr=0.3, epochs=2)
    own = method_from("fedavg", {"solver.steps": 4}, {"epochs": 2, "lr": 0.3}).solver  # type: ignore[attr-defined]
    assert own == SGD(lr=0.3, steps=4)
    tuned = method_from("fedavg-ft", {"finetune.steps": 7}, {"steps": 4})
    assert (tuned.solver, tuned.finetune) == (SGD(steps=4), SGD(steps=7))  # type: ignore[attr-defined]
    again = method_from("fedavg-ft", to_table(tuned))
    assert again == tuned


@pytest.mark.parametrize(
    "make",
    [
        lambda: SGD(epochs=2, steps=4),
        lambda: method_from("fedavg", {}, {"epochs": 2, "steps": 4}),
        lambda: method_from("fedavg", {"solver.epochs": 2, "solver.steps": 4}),
        lambda: method_from("fedavg", {}, {"kind": "adam", "epochs": 3, "steps": 4}),
    ],
)
def test_epochs_and_steps_of_one_solver_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(SartorError, match=r"trains for epochs or for steps, not both; got epochs = [23] and steps = 4"):
        make()


def test_a_method_inside_a_method_comes_back_from_its_table() -> None:
    """Also where one of its settings is a word that could be taken for no value at all."""
    for made in (st.Ditto(global_method=st.MixedEffects(random="nothing"), solver=st.Newton()), st.MixedEffects()):
        name = "ditto" if isinstance(made, st.Ditto) else "mixed-effects"
        assert method_from(name, to_table(made)) == made
