"""`sartor predict`: the models of a run at work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import predict as predictions
from ..errors import need
from ..storage import write_text
from .console import app


@app.command()
def predict(
    folder: Annotated[Path, typer.Option("--run", help="the folder of a finished run")],
    client: Annotated[str | None, typer.Option(help="a client that took part: its name or number")] = None,
    newcomer: Annotated[
        Path | None, typer.Option(help="a client that joins now: a file with its labelled samples")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="the samples to predict [those of --newcomer]")] = None,
    model: Annotated[str, typer.Option(help="chosen, personal or global")] = "chosen",
    steps: Annotated[int, typer.Option(help="a newcomer's visits to the server")] = 10,
    file: Annotated[Path | None, typer.Option("--out", help="a file for the predictions [standard output]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of CSV")] = False,
) -> None:
    """Predict with the models of a run, also for a new client."""
    need((client is None) != (newcomer is None), "say whose model it is: either --client NAME or --newcomer FILE.")
    samples = data or newcomer
    need(samples is not None, "say what to predict: --data FILE.")
    assert samples is not None
    served = predictions.Served(folder)
    x, _ = served.read(samples)
    found = served.known(client, model) if newcomer is None else served.newcomer(newcomer, steps, model)  # type: ignore[arg-type]
    text = predictions.written(served.predict(found, x), as_json)
    if file is None:
        print(text, end="")
    else:
        write_text(file, text)
