"""`sartor report`, `sartor watch`: looking at what runs leave, afterwards and while they go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import need
from .console import app, out
from .options import Json, Quiet


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="folders that run, compare and reproduce left")],
    file: Annotated[Path | None, typer.Option("--out", help="the page [report.html in the first folder]")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make one report from one or more runs and comparisons.

    Runs that differ by their seed alone become one line with a band.
    """
    from ..report import material, page
    from ..storage import write_text
    from ..study.verdict import verdict

    path = file or folders[0] / "report.html"
    need(not path.is_dir(), f"--out is a file for the page; {path} is a folder.")
    found = material.read(folders)
    if found.comparison is not None and found.found is None:
        found.found = verdict(found.comparison)
    write_text(path, page.of(found))
    if as_json:
        about = {"page": str(path), "bytes": path.stat().st_size, "title": found.title, "runs": len(found.runs)}
        print(json.dumps(about, indent=1, ensure_ascii=False))
    elif not quiet:
        out.print(f"{found.title}: {len(found.runs)} runs are in {path}", soft_wrap=True)


@app.command()
def watch(
    folder: Annotated[Path, typer.Argument(help="the folder of a running run or comparison")],
    port: Annotated[int, typer.Option(help="the port of the page [one that is free]")] = 0,
) -> None:
    """Show a live page of a run or comparison.

    Visible on this machine only, and read-only. Stop it with Ctrl-C.
    """
    from ..report import live

    need(folder.is_dir(), f"{folder} is not a folder; give the --out folder of a running run or comparison.")
    made = live.serve(folder, port)
    print(f"http://{live.ADDRESS}:{made.server_port}/ shows {folder}; Ctrl-C ends it", flush=True)
    try:
        made.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        made.server_close()
