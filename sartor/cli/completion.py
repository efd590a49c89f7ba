"""What a shell offers when the tab key is pressed: the names there are, also inside a list with commas."""

from __future__ import annotations

from collections.abc import Callable
from glob import glob
from pathlib import Path

from . import catalogue

Offers = Callable[[str], list[tuple[str, str]]]
FILES = (".csv", ".parquet", ".npz")


def names(kind: str, *also: str) -> Offers:
    """The names of a kind that `sartor list` knows, with their lines."""

    def offers(incomplete: str) -> list[tuple[str, str]]:
        known = [(row["name"], row["line"]) for row in catalogue.rows(kind)] + [(word, "") for word in also]
        return [(name, line) for name, line in known if name.startswith(incomplete)]

    return offers


def listed(kind: str, *also: str) -> Offers:
    """The same for the last of a list with commas; those that are in it already are not offered again."""

    def offers(incomplete: str) -> list[tuple[str, str]]:
        before, comma, last = incomplete.rpartition(",")
        taken = before.split(",")
        return [(before + comma + name, line) for name, line in names(kind, *also)(last) if name not in taken]

    return offers


def data(incomplete: str) -> list[tuple[str, str]]:
    """Data sets, and files and folders that begin like this."""
    files = [path for path in glob(f"{incomplete}*") if Path(path).is_dir() or Path(path).suffix in FILES]
    return names("datasets")(incomplete) + [(p + "/" if Path(p).is_dir() else p, "") for p in sorted(files)]


def theorems(incomplete: str) -> list[tuple[str, str]]:
    known = [("all", ""), *((row["name"], row["line"]) for row in catalogue.theorems())]
    return [(name, line) for name, line in known if name.startswith(incomplete)]


def words(*known: str) -> Offers:
    """Some fixed words."""
    return lambda incomplete: [(word, "") for word in known if word.startswith(incomplete)]
