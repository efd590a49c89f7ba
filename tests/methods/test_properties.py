"""One table: every method passes every property. A new method earns these tests by its row in methods.NAMES."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from every_method import METHODS, SOLVER, make

import sartor as st
from sartor.core import ClientStack, Method, State
from sartor.testing import PROPERTIES, check_method, finish, start

BODY, HEAD = 5 * 6 + 6, 6 * 3 + 3
D = BODY + HEAD
WIDTHS = {  # numbers down and up, of methods that do not send one model each way
    "flame-lp-proj": (5, 5),
    "lp-proj-1": (5, 5),
    "lp-proj-2": (5, 5),
    "local": (0, 0),
    "lp-proj-1.5-adam": (4, 4),
    "lg-fedavg": (HEAD, HEAD),
    "fedper": (BODY, BODY),
    "fedrep": (BODY, BODY),
    "fedbabu": (BODY, BODY),
    "mocha": (6 + 1, 6),
    **dict.fromkeys(
        ("mixed-effects", "random-intercept", "own-intercept", "fednewton"), (2 * 18 + 1, 3 * 18 + 18 * 18 + 2)
    ),
    "scaffold": (2 * D, 2 * D),
    "scaffold-ii": (2 * D, 2 * D),
    "ditto-scaffold": (2 * D, 2 * D),
    "term": (D, D + 1),
    "qffl": (D, D + 1),
    "ifca": (5 * D, D + 5),
    "fedfomo": (5 * D, D + 5),
    "fedlbfgs": (D, D + 2),
}


PLAYED_AGAIN = [  # properties that play the same run several times: each method is held to a third of them every time
    "engine and chunk size change nothing",
    "the number of workers changes no bit",
    "the seed decides",
    "states on disk change no bit",
    "goes on from a checkpoint",
    "training lowers the loss",
]


def cases() -> Iterator[Any]:
    for i, name in enumerate(METHODS):
        for property in PROPERTIES:
            later = property in PLAYED_AGAIN and (i + PLAYED_AGAIN.index(property)) % 3
            yield pytest.param(name, property, marks=pytest.mark.long if later else ())


@pytest.mark.parametrize(("name", "property"), list(cases()))
def test_property(name: str, property: str) -> None:
    PROPERTIES[property](lambda: make(name))


@pytest.mark.parametrize("name", METHODS)
def test_bytes_count_what_is_sent(name: str) -> None:
    """Float64 here: 8 bytes a number; FedAvg sends d numbers each way to the cohort, Lp-Proj d_sub."""
    run = finish(start(make(name)), rounds=3)
    d = run.problem.start.numel()
    down, up = WIDTHS.get(name, (d, d))
    asked = 7 if run.method.train_all else 4
    assert run.bytes_down == 3 * asked * down * 8
    assert run.bytes_up == 3 * 4 * up * 8


# --- the check fails where it should ----------------------------------------------------------------------------------


class Leaky(st.FedAvg):
    """FedAvg whose clients look at each other, as they lie in one tensor."""

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        state, message = super().client(state, down, local)
        return state, {"w": message["w"] + 0.1 * (message["w"].mean(0) - message["w"])}


class Careless(st.FedAvg):
    """FedAvg that writes into what it was given."""

    def server(self, server: Any, ids: torch.Tensor, messages: State, weights: Any, round: int) -> Any:
        return server | {"w": messages["w"].mul_(0.5).mean(0)}


class Asleep(st.FedAvg):
    """FedAvg that learns nothing."""

    def server(self, server: Any, ids: torch.Tensor, messages: State, weights: Any, round: int) -> Any:
        return server


class Tireless(st.FedAvg):
    """FedAvg that trains twice, and does not say so."""

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        return super().client(state, super().client(state, down, local)[1], local)


@pytest.mark.parametrize(
    ("method", "property", "message"),
    [
        (Tireless(), "takes the steps it is given", "with 12 local steps a client took 24"),
        (Leaky(), "engine and chunk size change nothing", "clients computed one by one: 'w' differs"),
        (Careless(), "functions are pure", "gives different states|changes the messages"),
        (Asleep(), "training lowers the loss", "after 15 rounds"),
    ],
)
def test_a_method_with_a_fault_is_told_which(method: Method, property: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message) as caught:
        check_method(replace(method, solver=SOLVER))  # type: ignore[type-var]
    assert f"lacks the property: {property}" in caught.value.__notes__[0]


def test_an_unknown_property_is_refused() -> None:
    with pytest.raises(st.SartorError, match="did you mean functions are pure"):
        check_method(st.FedAvg(), ["functions are pur"])
