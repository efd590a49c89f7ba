"""`sartor init`: a recipe to begin with, for a table of your own."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import need, readable, unknown
from ..run.recipe import SETTINGS
from . import completion
from .console import app, out
from .options import takes

if TYPE_CHECKING:
    from ..data.tables.first_look import FirstLook

LISTED = 40  # columns that the recipe describes
WIDE = 60  # of what it says about one
SECTIONS = {  # which settings the recipe shows, besides the data's: the rest have their defaults
    "method": ("method", "model", "rounds", "seed"),
    "federation": ("cohort",),
    "evaluation": ("metric", "evaluate_every"),
}


@app.command()
@takes("data", only=("target", "client_key"))
def init(
    ctx: typer.Context,
    data: Annotated[
        Path,
        typer.Argument(
            help="your table: a .csv, .parquet or .npz file, or a folder with a file for each client",
            autocompletion=completion.data,
        ),
    ],
    file: Annotated[Path, typer.Option("--out", help="the recipe's file")] = Path("recipe.toml"),
) -> None:
    """Write a commented recipe for your own data, to edit and run.

    Without --target and --client-key it takes the columns whose names say clearly that they are these.
    """
    from ..data.tables.first_look import first_look
    from ..storage import write_text

    need(not file.exists(), f"{file} exists already; choose another file with --out, or remove it.")
    seen = first_look(data.expanduser())
    names = [c.name for c in seen.columns]
    for given in (ctx.params["target"], ctx.params["client_key"]):
        if given is not None and given not in names:
            raise unknown(f"column of {data.name}", given, names)
    chosen: dict[str, str | None] = {
        "target": ctx.params["target"] or seen.target,
        "client_key": ctx.params["client_key"] or seen.client_key,
    }
    write_text(file, "\n".join(_text(str(data), seen, chosen)) + "\n")
    for line in _said(data, file, seen, chosen):
        out.print(line, soft_wrap=True)


def _text(data: str, seen: FirstLook, chosen: dict[str, str | None]) -> Iterator[str]:
    yield "# A run of Sartor. Lines that begin with # are comments; take a # away to choose a value."
    yield "# What is not here has its default: sartor run --help names every setting. Then:"
    yield "#     sartor run --recipe THIS FILE --out run"
    yield ""
    yield "[data]"
    yield _line("data", data)
    yield from _key("target", chosen["target"], seen, "the column to predict")
    if seen.files is None or chosen["client_key"]:
        yield from _key("client_key", chosen["client_key"], seen, "the column that names the client of each row")
    else:
        yield f"# Each of the {seen.files} files is a client. Where a column names the clients: client_key = ..."
    columns = [c for c in seen.columns if c.name not in chosen.values()]
    if suspects := [c.name for c in columns if c.identifier]:
        yield "# These look like identifiers, of which nothing can be learnt. Leave them out:"
        yield "# " + _line("leave_out", suspects)
    yield f"# What is learnt from, in {'the table' if seen.rows is None else f'{seen.rows} rows'}:"
    for column in columns[:LISTED]:
        yield f"#     {readable(column.name, WIDE)}: {readable(column.words, 2 * WIDE)}"
    if len(columns) > LISTED:
        yield f"#     and {len(columns) - LISTED} more"
    for title, names in SECTIONS.items():
        yield ""
        yield f"[{title}]"
        for name in names:
            about = SETTINGS[name]
            yield f"# {about.help}"
            yield _line(name, about.default) if about.default is not None else f"# {name} ="


def _key(name: str, found: str | None, seen: FirstLook, words: str) -> Iterator[str]:
    if found is not None:
        yield _line(name, found) + f"  # {words}"
        return
    yield f"# FILL IN: {words}, one of those below. No column's name says clearly that it is this one."
    yield f"# {name} ="


def _line(name: str, value: Any) -> str:
    import tomli_w

    return tomli_w.dumps({name: value}, multiline_strings=False).strip().replace("\n", "")


def _said(data: Path, file: Path, seen: FirstLook, chosen: dict[str, str | None]) -> Iterator[str]:
    names = readable(", ".join(c.name for c in seen.columns), 300)
    for name, value in chosen.items():
        word = "--" + name.replace("_", "-")
        if value is not None:
            yield f"{name}: {value}"
        elif name == "client_key" and seen.files is not None:
            yield f"clients: each of the {seen.files} files is one"
        else:
            yield f"{name}: not clear; fill it in in {file}, or call again with {word}. Columns: {names}"
    if chosen["target"] is None:
        yield f"wrote {file}; it lacks a target"
        return
    words = [w for name, v in chosen.items() if v for w in ("--" + name.replace("_", "-"), v)]
    yield f"wrote {file}; next: {shlex.join(['sartor', 'run', '--recipe', str(file), '--out', 'run'])}"
    yield f"which method fits: {shlex.join(['sartor', 'advise', '--data', str(data), *words, '--out', 'advice'])}"
