"""Where the commands print, and what several of them say."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from ..errors import need, printable, see
from .commands import app

if TYPE_CHECKING:
    from ..data import Clients, Dataset
    from ..run.recipe import Recipe

__all__ = ["app", "err", "out", "print_rows", "say_columns", "say_made_up", "say_where", "somewhere", "vacant"]


class PlainConsole(Console):
    """Prints names and texts as they are: a client may be called "[red]". What a terminal would obey is shown, not
    sent: names come from files, and from the other side of a federation."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(printable(text), **how)


# Where nobody says how wide a page is, tables get room.
_wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120
out = PlainConsole(highlight=False, markup=False, emoji=False, width=_wide)
# A notebook asks for colours though it is no terminal; there a progress bar would be a thousand lines.
err = PlainConsole(stderr=True, highlight=False, markup=False, emoji=False, force_terminal=sys.stderr.isatty())


def vacant(folder: Path | None, file: str, holds: str) -> None:
    need(folder is None or not (folder / file).exists(), f"{folder} holds {holds}.{see('a-used-folder')}")


def somewhere(recipe: Recipe, folder: Path | None) -> None:
    need(recipe.store == "memory" or folder is not None, "--store disk needs --out: that is where the states are kept.")


def say_where(folder: Path | None, kept: str = "all results are in {}; open report.html") -> None:
    out.print("nothing was saved: use --out FOLDER to save the results" if folder is None else kept.format(folder))


def say_columns(clients: Clients) -> None:
    """What was done to each column of a table, and which of them look like the target."""
    from ..data.tables.columns import grouped

    for line in grouped(clients.inputs.words()) if clients.inputs is not None else []:
        out.print(f"column {line}", soft_wrap=True)
    warned = clients.about.get("warnings")
    for line in warned if isinstance(warned, list) else []:
        err.print(f"warning: {line}", soft_wrap=True)


def say_made_up(recipe: Recipe, dataset: Dataset) -> None:
    """A warning where a table has no client key, and nobody has said how its rows are to be dealt out instead."""
    from ..data.tables.first_look import made_up
    from ..data.tables.own_data import SUFFIXES
    from ..run.complete import dealt

    if recipe.partition == "auto" and dataset.keys is None and recipe.data.lower().endswith(SUFFIXES):
        line = made_up(Path(recipe.data).expanduser(), dataset, dealt(recipe, dataset))
        err.print(f"warning: {line}", soft_wrap=True)


def print_rows(rows: list[dict[str, str]]) -> None:
    """Names with a line each."""
    wide = max(len(r["name"]) for r in rows)
    for r in rows:
        paper = f"  [{r['paper']}]" if r.get("paper", "-") != "-" else ""
        out.print(f"{r['name']:<{wide}}  {r['line']}{paper}", soft_wrap=True)
