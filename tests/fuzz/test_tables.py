"""Files of any content as data: read, or refused with one line."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzzing import examples, refused_or_fine
from hypothesis import given
from hypothesis import strategies as st

from sartor import data

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]
HEADS = st.sampled_from(["age", "y", "who", "", "y", "who", "âge", "a b", '"q"', "\x1b[2J", "x" * 300, "1", "="])
CELLS = st.one_of(
    st.sampled_from(
        ["1", "0", "2.5", "-3e5", "1e400", "nan", "inf", "-inf", "", " ", "NA", "true", "False", "2020-01-01"]
    ),
    st.sampled_from(
        ["a", "b", "Ä", "ä", '"', '"a,b"', '"a\nb"', "\x00", "\x1b[31m", "z" * 3000, "9" * 400, "0x1f", "1_000"]
    ),
    st.text(max_size=5),
)
FORMS = st.sampled_from(["utf-8", "latin-1", "utf-16", "utf-8-sig", "cp1252", "utf-32"])


@st.composite
def tables(draw: Any) -> bytes:
    """A table of any cells: in any encoding, also ragged, also cut off."""
    columns = draw(st.lists(HEADS, min_size=1, max_size=5))
    sure = draw(st.booleans())
    rows = [["age", "y", "who"] if sure else columns]
    for i in range(draw(st.integers(0, 12))):
        row = draw(st.lists(CELLS, min_size=len(rows[0]), max_size=len(rows[0]) + (draw(st.integers(0, 9)) == 0)))
        rows += [[row[0], str(i % 2), "AB"[i % 2 :][:1], *row[3:]] if sure and draw(st.booleans()) else row]
    between, end = draw(st.sampled_from([",", ",", ";", "\t", "|"])), draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    text = end.join(between.join(row) for row in rows) + draw(st.sampled_from([end, ""]))
    found = text.encode(draw(FORMS), "replace")
    return found[: draw(st.integers(0, len(found)))] if draw(st.integers(0, 4)) == 0 else found


def attempt(path: Path, client_key: str | None) -> None:
    found = data.load(str(path), target="y", client_key=client_key)
    found.split("iid" if client_key is None else "natural", clients=None if client_key else 2, minimum=2)


@given(st.one_of(tables(), tables(), st.binary(max_size=200)), st.sampled_from(["who", None, "", "y"]), st.booleans())
@examples(1500)
def test_csv(tmp_path_factory: pytest.TempPathFactory, content: bytes, client_key: str | None, packed: bool) -> None:
    path = tmp_path_factory.getbasetemp() / ("fuzz.csv.gz" if packed else "fuzz.csv")
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    with refused_or_fine():
        attempt(path, client_key)


def _npz() -> bytes:
    made = io.BytesIO()
    np.savez_compressed(made, x=np.arange(60.0).reshape(20, 3), y=np.arange(20) % 2, who=np.arange(20) % 3)
    return made.getvalue()


@given(st.data(), st.sampled_from(["who", None, "", "y"]))
@examples(1000)
def test_npz(tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject, client_key: str | None) -> None:
    found = bytearray(_npz())
    for _ in range(draw.draw(st.integers(0, 4))):
        found[draw.draw(st.integers(0, len(found) - 1))] = draw.draw(st.integers(0, 255))
    cut = draw.draw(st.one_of(st.just(len(found)), st.integers(0, len(found))))
    path = tmp_path_factory.getbasetemp() / "fuzz.npz"
    path.write_bytes(bytes(found[:cut]))
    with refused_or_fine():
        attempt(path, client_key)


ARRAYS = st.one_of(
    st.sampled_from([np.zeros(20), np.zeros((20, 0)), np.zeros((0, 3)), np.array(5), np.zeros((20, 3), complex)]),
    st.sampled_from(
        [
            np.full((20, 3), np.nan),
            np.full((20, 3), "a"),
            np.zeros((20, 3), np.uint8),
            np.zeros((20, 1, 8, 8), np.uint8),
        ]
    ),
    st.sampled_from(
        [np.arange(20) % 2, np.arange(20.0) / 7, np.array(["a", "b"] * 10), np.zeros((20, 2)), np.arange(19)]
    ),
    st.sampled_from(
        [
            np.array(["2020-01-01"] * 20, "datetime64[D]"),
            np.full(20, 2**63, np.uint64),
            np.full(20, 1e308),
            np.zeros(20, "V4"),
        ]
    ),
)


@given(ARRAYS, ARRAYS, ARRAYS)
@examples(200)
def test_arrays_of_any_type(tmp_path_factory: pytest.TempPathFactory, x: Any, y: Any, who: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.npz"
    np.savez(path, x=x, y=y, who=who)
    with refused_or_fine():
        attempt(path, "who")
