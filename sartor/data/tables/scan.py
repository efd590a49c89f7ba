"""Tables in pieces: opened as often as one likes, looked through once, never as a whole in memory.

A CSV file does not say what its columns hold, and what stands in its first rows proves nothing about the last: every
column is read as text, and is numbers (or true/false) where all of it is.
"""

from __future__ import annotations

import codecs
import functools
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import SartorError, need, see
from ..file_formats import check_unpacked, first_line
from .columns import Column

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq")
BLOCK = 4 << 20  # bytes of a CSV file that are read at once,
WIDE = 4 << 10  # or, of a wide one, so many for each column: every column of every piece costs some calls
ROWS = 1 << 16  # rows of other tables
CATEGORIES = 1000  # as many features may come from text columns, all together; where there are more texts,
FREQUENT = 100  # a column's most frequent ones have a feature each, and the others one together
SEVERAL = 20  # a text column with more distinct numbers than this is numbers with mistakes in it
MOST = 20_000  # distinct texts of a column that are remembered
# What is taken as missing in a column of numbers or true/false; in a text column only the empty text is.
ABSENT = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "-NaN", "null", "NULL", "None", "none", ".", "?", "-")
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")


@dataclass(frozen=True)
class Source:
    """A table that comes in record batches of pyarrow."""

    name: str
    columns: list[str]
    batches: Callable[[], Iterator[Any]]
    typed: bool = True  # False: all columns are text, and what they hold has to be found out


def open_file(path: Path) -> Source:
    """A CSV (also with semicolons or tabs, also packed) or Parquet file."""
    need(path.is_file(), f"there is no file {path}.")
    if path.suffix.lower() in (".parquet", ".pq"):
        from pyarrow import parquet

        with _reading(path):
            about = parquet.read_metadata(path)
            columns = about.schema.to_arrow_schema().names
        check_unpacked(path, path.stat().st_size, 4 * about.num_rows * len(columns))
        return Source(path.name, columns, lambda: _pieces(path, lambda: parquet.ParquetFile(path).iter_batches(ROWS)))
    from pyarrow import csv

    how = {"parse_options": csv.ParseOptions(delimiter=_delimiter(path))}
    with _reading(path):
        columns = csv.open_csv(_unpacking(path), csv.ReadOptions(use_threads=False), **how).schema.names
    how["read_options"] = csv.ReadOptions(block_size=min(max(BLOCK, WIDE * len(columns)), 1 << 30), use_threads=False)
    how["convert_options"] = csv.ConvertOptions(column_types=dict.fromkeys(columns, "string"))
    return Source(path.name, columns, lambda: _pieces(path, lambda: csv.open_csv(_unpacking(path), **how)), typed=False)


def _delimiter(path: Path) -> str:
    """A comma; or a semicolon or tab where the first line has more of those."""
    from pyarrow import input_stream

    with _reading(path), input_stream(str(path)) as file:
        line = file.read(1 << 16).split(b"\n")[0]
        need(b"\0" not in line, f"{path.name} {_NO_TEXT}")
        codecs.getincrementaldecoder("utf-8")().decode(line)
    return max((",", ";", "\t"), key=lambda c: line.count(c.encode()))


def _unpacking(path: Path) -> Any:
    """The file's content; what unpacks to far more than it should is refused on the way."""
    from pyarrow import PythonFile

    return PythonFile(_Unpacked(path), "r") if path.suffix.lower() == ".gz" else str(path)


class _Unpacked(io.RawIOBase):
    """What is packed in a file, read while it is not too much for what was read of the file."""

    def __init__(self, path: Path) -> None:
        from pyarrow import CompressedInputStream, OSFile

        self.path, self.packed, self.count = path, OSFile(str(path)), 0
        self.stream = CompressedInputStream(self.packed, "gzip")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece: bytes = self.stream.read(size)
        self.count += len(piece)
        check_unpacked(self.path, self.packed.tell(), self.count)
        return piece

    def close(self) -> None:
        self.stream.close()
        super().close()


_NO_TEXT = (
    "is not a table in UTF-8; save it as CSV in UTF-8 (not Latin-1, UTF-16 or a spreadsheet's own format)."
    + see("encoding")
)


class _reading:
    """Whatever goes wrong while a file is read is one line with its name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import pyarrow

        if isinstance(error, UnicodeDecodeError) or (isinstance(error, pyarrow.ArrowInvalid) and "UTF8" in str(error)):
            raise SartorError(f"{self.path.name} {_NO_TEXT}") from None
        if isinstance(error, pyarrow.ArrowException | OSError | EOFError):
            text = f"{self.path.name} cannot be read, it may be truncated or damaged: {first_line(error)}"
            raise SartorError(text) from None


def _pieces(path: Path, opened: Callable[[], Any]) -> Iterator[Any]:
    with _reading(path):
        yield from opened()


@dataclass
class ColumnScan:
    """What has been seen of a column."""

    name: str
    typed: bool
    rows: int = 0
    missing: int = 0  # also NaN
    blank: int = 0  # empty texts alone
    number: bool = True  # each of these: as far as was seen
    flag: bool = True
    date: bool = True
    binary: bool = True  # all numbers are 0 or 1
    texts: Counter[str] = field(default_factory=Counter)  # how often each occurs
    odd: str = ""  # the first text that is not a number
    declared: Any = None  # the type, where the table has types

    def add(self, values: Any) -> None:
        """Look at some of its values."""
        import pyarrow.compute as pc
        from pyarrow import types as kind

        self.rows += len(values)
        if not self.typed and self.number and len(values) and (plain := _all_numbers(values)) is not None:
            self.flag = False
            self.binary = self.binary and _zeros_and_ones(plain)
            return
        if self.typed:
            inner = values.type.value_type if kind.is_dictionary(values.type) else values.type
            self.declared = inner if self.declared is None or kind.is_null(self.declared) else self.declared
            values = values.cast(inner) if kind.is_dictionary(values.type) else values
            self.missing += values.null_count
            if kind.is_floating(inner):
                self.missing += int(pc.sum(pc.is_nan(values)).as_py() or 0)
            if not is_text(inner):
                self.binary = self.binary and is_number(inner) and _zeros_and_ones(to_numbers(values))
                return
            self.number = self.flag = False
            values = pc.fill_null(values, "")
        self.blank += int(pc.sum(pc.equal(values, "")).as_py() or 0)
        if not self.typed:
            self._guess(values)
        if not (self.number or self.flag):
            self._count(pc.value_counts(values))

    def _count(self, counts: Any) -> None:
        """How often each text occurs; of very many, those that came first."""
        for text, count in zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True):
            if text in self.texts or len(self.texts) <= MOST:
                self.texts[text] += count

    def _guess(self, values: Any) -> None:
        """What a column of a CSV file can still be. What it turns out not to be is looked at again as text."""
        import pyarrow
        import pyarrow.compute as pc

        before = self.number or self.flag
        there = values.filter(pc.invert(absent(values)))
        self.missing += len(values) - len(there)
        if self.number:
            try:
                self.binary = self.binary and _zeros_and_ones(to_numbers(values))
            except pyarrow.ArrowInvalid:
                self.number = False
                self.odd = next((t for t in there.to_pylist() if not NUMBER.fullmatch(t)), "")
        self.flag = self.flag and bool(pc.all(pc.is_in(there, _words((*TRUE, *FALSE)))).as_py() in (True, None))
        if not self.number and not self.flag and self.date:
            try:
                to_days(there)
            except pyarrow.ArrowInvalid:
                self.date = False
        if before and not (self.number or self.flag) and self.rows > len(values):
            raise RescanAsText(self.name)

    def column(self, table: str, most: int | None) -> Column:
        """What it is; refuses what cannot become features. Of a text column the `most` frequent texts have a feature
        each, as far as they occur twice; None: all of them."""
        if self.missing == self.rows or self.blank == self.rows:
            return Column(self.name, "empty")
        kind = self.kind(table)
        if kind == "number" and self.binary:
            kind = "flag"
        if kind != "text":
            return Column(self.name, kind, missing=self.missing > 0)
        numbers = sum(NUMBER.fullmatch(t) is not None for t in self.texts)
        need(
            self.typed or numbers <= SEVERAL,
            f"{table}: column {self.name} holds numbers and text (such as {self.odd!r}): mend those values, or leave "
            f"the column out (drop=[...], --leave-out).{see('mixed-columns')}",
        )
        if most is None or len(self.texts) <= most:
            return Column(self.name, "text", tuple(sorted(self.texts)))
        often = sorted((-count, text) for text, count in self.texts.items() if count > 1)[:most]
        return Column(self.name, "text", tuple(sorted(text for _, text in often)), other=True)

    def sentences(self, table: str, encoder: str) -> Column:
        """The same as text to be embedded."""
        if self.missing == self.rows or self.blank == self.rows:
            return Column(self.name, "empty")
        kind = self.kind(table)
        need(kind == "text", f"{table}: column {self.name} holds {kind}s; text that is to be embedded is sentences.")
        return Column(self.name, "sentences", (encoder,))

    def kind(self, table: str) -> str:
        """Number, flag, date or text; refuses other types."""
        from pyarrow import types as kind

        if not self.typed:
            return "flag" if self.flag else "number" if self.number else "date" if self.date else "text"
        if is_text(self.declared):
            return "text"
        if kind.is_boolean(self.declared):
            return "flag"
        if kind.is_date(self.declared) or kind.is_timestamp(self.declared):
            return "date"
        need(is_number(self.declared), self.unfit(table, str(self.declared)))
        return "number"

    def unfit(self, table: str, what: str) -> str:
        """The line that refuses it."""
        return f"{table}: column {self.name} holds {what}; turn it into numbers or leave it out (drop=[...])."


class RescanAsText(Exception):
    """A column is not what it seemed: its first rows have to be looked at again, as text."""

    def __init__(self, column: str) -> None:
        self.column = column


def look(sources: Sequence[Source], columns: Sequence[str]) -> dict[str, ColumnScan]:
    """Look through all tables: what their columns hold, all together."""
    as_text: set[str] = set()
    while True:
        seen = {c: ColumnScan(c, all(s.typed for s in sources), number=c not in as_text) for c in columns}
        for c in as_text:
            seen[c].flag = False
        try:
            for source in sources:
                for batch in source.batches():
                    for c in columns:
                        seen[c].add(batch.column(batch.schema.get_field_index(c)))
            return seen
        except RescanAsText as e:
            as_text.add(e.column)


def is_text(declared: Any) -> bool:
    """Whether a type is a text type."""
    from pyarrow import types as kind

    return bool(kind.is_string(declared) or kind.is_large_string(declared))


def is_number(declared: Any) -> bool:
    """Whether a type is one of numbers."""
    from pyarrow import types as kind

    return bool(kind.is_integer(declared) or kind.is_floating(declared) or kind.is_decimal(declared))


def texts_allowed(seen: Mapping[str, ColumnScan], table: str) -> int | None:
    """How many texts of a column have a feature each; None where all of them together are few enough."""
    counts = [len(c.texts) for c in seen.values() if c.missing < c.rows and c.kind(table) == "text"]
    return None if sum(counts) <= CATEGORIES else max(1, min(FREQUENT, CATEGORIES // len(counts) - 1))


def absent(values: Any) -> Any:
    """Where a text stands for a missing number."""
    import pyarrow.compute as pc

    return pc.is_in(pc.utf8_trim_whitespace(values), _words(ABSENT))


@functools.cache
def _words(texts: tuple[str, ...]) -> Any:
    import pyarrow

    return pyarrow.array(texts)


def to_numbers(values: Any) -> np.ndarray:
    """Numbers, flags or texts of them as float64 [n]; missing ones are NaN."""
    import pyarrow
    import pyarrow.compute as pc
    from pyarrow import types as kind

    if kind.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if kind.is_null(values.type):
        return np.full(len(values), np.nan)
    if is_text(values.type) and (plain := _cast(values)) is not None:
        return plain
    if is_text(values.type):
        trimmed = pc.utf8_trim_whitespace(values)
        trimmed = pc.if_else(pc.is_in(trimmed, _words(ABSENT)), None, trimmed)
        flags = pc.is_in(trimmed, _words((*TRUE, *FALSE)))
        if pc.any(flags).as_py():
            said = pc.if_else(pc.is_in(trimmed, _words(TRUE)), "1", "0")
            trimmed = pc.if_else(flags, pc.if_else(pc.is_null(trimmed), None, said), trimmed)
        values = trimmed
    found: np.ndarray = values.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found


def to_days(values: Any) -> np.ndarray:
    """Dates and times, or ISO texts of them, as days since 1970 [n], in UTC where they name a zone; missing: NaN."""
    import pyarrow
    import pyarrow.compute as pc
    from pyarrow import types as kind

    if kind.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if kind.is_null(values.type):
        return np.full(len(values), np.nan)
    if is_text(values.type):
        values = pc.if_else(absent(values), None, pc.utf8_trim_whitespace(values))
        try:
            values = values.cast(pyarrow.timestamp("us"))
        except pyarrow.ArrowInvalid:
            values = values.cast(pyarrow.timestamp("us", "UTC"))
    zone = values.type.tz if kind.is_timestamp(values.type) else None
    since = values.cast(pyarrow.timestamp("us", zone), safe=False).cast(pyarrow.int64())
    days: np.ndarray = since.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False) / 86_400e6
    return days


def _cast(texts: Any) -> np.ndarray | None:
    """Texts as numbers where each of them is one, the quick way; else None."""
    import pyarrow

    try:
        found: np.ndarray = texts.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
    except pyarrow.ArrowInvalid:
        return None
    return found


def _all_numbers(texts: Any) -> np.ndarray | None:
    """The numbers, where all texts are some and none is missing: most columns of most tables, and thousands of wide
    ones."""
    found = _cast(texts)
    return None if found is None or np.isnan(found).any() else found


def _zeros_and_ones(values: np.ndarray) -> bool:
    """Whether all values that are there are 0 or 1."""
    return bool(((values == 0) | (values == 1) | np.isnan(values)).all())


def to_texts(values: Any) -> tuple[np.ndarray, list[str]]:
    """(places [n], the distinct texts): missing ones are the empty text."""
    import pyarrow
    import pyarrow.compute as pc
    from pyarrow import types as kind

    if kind.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if kind.is_null(values.type):
        return np.zeros(len(values), dtype=np.int64), [""]
    coded = pc.fill_null(values.cast(pyarrow.string()), "").dictionary_encode()
    return coded.indices.to_numpy(zero_copy_only=False).astype(np.int64), coded.dictionary.to_pylist()
