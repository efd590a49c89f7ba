"""`sartor list`, `doctor`, `version`: what there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from . import catalogue, completion
from .console import app, err, out, print_rows
from .options import Json


@app.command("list")
def list_(
    kind: Annotated[
        str, typer.Argument(help=", ".join(catalogue.KINDS), autocompletion=completion.words(*catalogue.KINDS))
    ] = "methods",
    as_json: Json = False,
) -> None:
    """List methods, attacks, data sets and the rest."""
    rows = catalogue.rows(kind)
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    print_rows(rows)


@app.command("doctor")
def doctor_(
    recipe: Annotated[
        Path | None, typer.Option(help="a recipe.toml: how long it will take and how much memory, by trying it")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what is installed, and what a recipe will cost."""
    from . import doctor

    found = doctor.examine()
    if recipe is not None:
        from ..report import terminal
        from ..run.recipe import Recipe
        from . import estimate

        asked = Recipe.load(recipe)
        with terminal.waiting(err, f"playing a few rounds of {recipe}, about 10 s"):
            found["estimate"] = estimate.estimate(asked)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    out.print(doctor.words(found), soft_wrap=True)
    if recipe is not None:
        out.print(f"{recipe}: {estimate.words(found['estimate'])}", soft_wrap=True)


@app.command()
def version(as_json: Json = False) -> None:
    """Print the version."""
    print(json.dumps({"version": __version__}) if as_json else __version__)
