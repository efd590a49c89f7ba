"""What inputs of any kind must lead to: one readable line and code 2, or success; and values that fit nowhere."""

from __future__ import annotations

import datetime
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from commandline import Answer, sartor
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from sartor import aggregators, compressors, methods, models
from sartor.data import partitions
from sartor.errors import SartorError
from sartor.wrappers import attacks

MANY = int(os.environ.get("SARTOR_FUZZ", "1"))  # times as many examples as a test has otherwise


def examples(count: int) -> settings:
    """The same examples in every call."""
    return settings(
        max_examples=count * MANY,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def refused_or_fine() -> Iterator[None]:
    """What happens inside goes well, or is refused with a line that a terminal can show."""
    try:
        yield
    except SartorError as e:
        shown(str(e))


def shown(text: str) -> None:
    """Assert that a text is short, and that a terminal obeys nothing in it."""
    assert 0 < len(text) <= 2000, f"{len(text)} characters: {text[:200]}"
    assert all(c.isprintable() or c in "\n\xa0\u200c\u200d" for c in text), repr(text)


def survives(*arguments: object) -> Answer:
    """Call the command line with arguments of any kind."""
    answer = sartor(*arguments)
    assert answer.code in (0, 2), answer
    if answer.code == 2:
        last = answer.err.splitlines()[-1]  # before it there may be warnings
        assert last.startswith("sartor: "), answer
        shown(last)
    assert all(c.isprintable() or c in "\n\xa0\u200c\u200d" for c in answer.out), repr(answer.out)
    return answer


NUMBERS = st.one_of(
    st.integers(-1, 5),
    st.floats(0, 1),
    st.integers(),
    st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**30, 10**400]),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, 0.5, 1.0, 1e308, -1e-320]),
)
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
    st.sampled_from(
        ["", " ", "x" * 20_000, "\x1b[31mred\x07", "a\nb", "a\x00b", "\u202eabc", "none", "auto", "0", "nan"]
    ),
    st.sampled_from(
        ["(", "()", "a(", "a(b=c)", "a=", "=a", "a,b", "../..", "/", "a" * 300 + "/b.csv", "٣", "²", "[red]"]
    ),
)
DATES = st.sampled_from([datetime.date(2020, 1, 1), datetime.time(7, 30), datetime.datetime(2020, 1, 1, 12)])
PLAIN = st.one_of(NUMBERS, TEXTS, st.booleans())
NESTED = st.recursive(
    st.one_of(PLAIN, DATES),
    lambda inside: st.one_of(
        st.lists(inside, max_size=3),
        st.dictionaries(st.one_of(TEXTS, st.sampled_from(["kind", "lr", "method"])), inside, max_size=2),
    ),
    max_leaves=5,
)


NAMES: dict[str, Any] = {
    "aggregators": aggregators.NAMES,
    "attacks": attacks.NAMES,
    "compressors": compressors.NAMES,
    "partitions": partitions.NAMES,
    "models": dict.fromkeys(models.NAMES),
    "methods": dict.fromkeys(methods.NAMES),
    "losses": dict.fromkeys(("cross-entropy", "squared", "hinge")),
    "datasets": dict.fromkeys(("digits", "synthetic")),  # the others may have to be fetched
}


@st.composite
def spelled(draw: Any, makers: dict[str, Any]) -> str:
    """A known name, with settings of its own that hold anything."""
    name = draw(st.sampled_from(sorted(makers)))
    known = list(inspect.signature(makers[name]).parameters) if makers[name] is not None else []
    values = st.one_of(NUMBERS, TEXTS)
    named = draw(st.dictionaries(st.sampled_from(known), values, max_size=2)) if known else {}
    plain = draw(st.lists(values, max_size=2)) if draw(st.integers(0, 3)) == 0 else []
    inside = ",".join([*map(str, plain), *(f"{k}={v}" for k, v in named.items())])
    return f"{name}({inside})" if inside else str(name)


def changed(value: Any, draw: Any, junk: st.SearchStrategy[Any]) -> Any:
    """The JSON value with one thing in it replaced, taken away, or cut off."""
    inside = isinstance(value, dict | list) and len(value) > 0
    if not inside or draw(st.integers(0, 4)) == 0:
        return draw(junk)
    at = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
    kind = draw(st.sampled_from(["deeper", "deeper", "deeper", "gone", "cut"]))
    if kind == "deeper":
        new = changed(value[at], draw, junk)
        return {**value, at: new} if isinstance(value, dict) else [*value[:at], new, *value[at + 1 :]]
    if isinstance(value, dict):
        return {k: v for k, v in value.items() if k != at}
    return value[:at] if kind == "cut" else [*value[:at], *value[at + 1 :]]
