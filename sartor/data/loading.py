"""`load`: a known data set, a file or folder of the user's own, or an object of Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import spelling
from ..errors import SartorError, reason, see
from .dataset import Dataset
from .known_sets.readers import SOURCES
from .tables.objects import read_object
from .tables.own_data import SUFFIXES, read_table


def load(data: Any, **options: Any) -> Dataset:
    """Open a data set by name ("digits", "synthetic(0,0)"), by path (a .csv, .parquet or .npz file, or a folder of
    tables of which each is a client; with target= and client_key=), or as an object of Python: (X, y, groups), a data
    frame, a dict of columns, a Hugging Face or a Flower data set.

        >>> digits = st.data.load("digits")
        >>> len(digits), digits.classes
        (1797, 10)
        >>> mine = st.data.load({"age": [61, 48, 70, 55], "site": ["a", "a", "b", "b"], "ill": [1, 0, 1, 0]},
        ...     target="ill", client_key="site")
        >>> mine.split("natural", minimum=2, seed=0).names
        ['a', 'b']
    """
    if not isinstance(data, str | Path):
        return read_object(data, **_known("data", read_object, options))
    try:
        return _named(data, options)
    except OSError as e:
        raise SartorError(f"cannot read {data}: {reason(e)}.") from e


def _named(data: str | Path, options: dict[str, Any]) -> Dataset:
    if str(data).lower().endswith(SUFFIXES) or (data not in SOURCES and Path(data).expanduser().is_dir()):
        return read_table(Path(data).expanduser(), **_known("a file", read_table, options))
    if isinstance(data, Path) or "/" in data:
        raise SartorError(
            f"a data file ends in {', '.join(SUFFIXES)}, or is a folder of such files; got {str(data)!r}."
        )
    elsewhere = f"A file is given by its path, which ends in {', '.join(SUFFIXES)}.{see('data-sets')}"
    _, source, settings = spelling.look_up("dataset", SOURCES, data, do=elsewhere, options=options)
    return source(**settings)


def _known(owner: str, reader: Callable[..., Dataset], options: dict[str, Any]) -> dict[str, Any]:
    """Options that the reader has; others are refused with the nearest."""
    return dict(spelling.bind(owner, list(inspect.signature(reader).parameters)[1:], [], options))
