"""Messages: one line that a terminal can show, and that a person can read."""

from __future__ import annotations

import pickle

import pytest

import sartor as st
from sartor.errors import LONGEST, Diverged, SartorError, printable, readable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("as it is: äöü θ 中 [red]", "as it is: äöü θ 中 [red]"),
        ("two\nlines\tand  more", "two lines and more"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("bell\x07, back\x08", r"bell\x07, back\x08"),
        ("\u202eturned", r"\u202eturned"),
        ("half \udcff", r"half \udcff"),
        ("\x9b2J", r"\x9b2J"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text: str, shown: str) -> None:
    assert readable(text) == shown


def test_lines_stay_lines_where_they_may() -> None:
    assert printable("a\nb\t\x1bc") == "a\nb\t\\x1bc"


@pytest.mark.parametrize("length", [21, 81, 10**6])
def test_long_texts_are_cut_in_the_middle(length: int) -> None:
    text = "begin" + "x" * (length - 8) + "end"
    found = readable(text, 20)
    assert len(found) == 20 and found.startswith("begin") and found.endswith("end") and " ... " in found
    assert readable(found, 20) == found


def test_a_text_that_is_just_short_enough_is_whole() -> None:
    assert readable("x" * LONGEST) == "x" * LONGEST


@pytest.mark.parametrize("kind", [SartorError, Diverged])
def test_every_error_is_one_readable_line(kind: type[SartorError]) -> None:
    made = kind("a\n\x1b[2J" + "b" * 10**5)
    assert len(str(made)) == LONGEST and str(made).isprintable() and str(made).startswith(r"a \x1b[2Jb")
    assert str(pickle.loads(pickle.dumps(made))) == str(made)  # it may come from another process


def test_also_in_python() -> None:
    with pytest.raises(st.SartorError) as caught:
        st.data.load("x" * 20_000)
    assert len(str(caught.value)) <= LONGEST
