"""`sartor predict`, `export`: the models of a run at work, and to take home."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import need, readable
from .console import app, out

RunFolder = Annotated[Path, typer.Option("--run", help="the folder of a finished run")]


@app.command()
def predict(
    folder: RunFolder,
    client: Annotated[
        str | None,
        typer.Option(help="a client that took part, by name or number [the client column of the file]"),
    ] = None,
    newcomer: Annotated[
        Path | None, typer.Option(help="a file with labelled samples of a client that joins now")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="the samples to predict [those of --newcomer]")] = None,
    model: Annotated[str, typer.Option(help="chosen, personal or global")] = "chosen",
    steps: Annotated[int, typer.Option(help="training visits of a newcomer (a client that joins now)")] = 10,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="print the probability of every class")
    ] = False,
    file: Annotated[Path | None, typer.Option("--out", help="a file for the predictions [standard output]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of CSV")] = False,
) -> None:
    """Predict with the models of a run, for known and new clients.

    Rows of unknown clients get the global model's prediction.
    """
    from ..run import predict as predictions
    from ..storage import write_text

    need(client is None or newcomer is None, "choose one model: either --client NAME or --newcomer FILE.")
    samples = data or newcomer
    need(samples is not None, "give the samples to predict: --data FILE.")
    assert samples is not None
    served = predictions.Served(folder)
    later = served.read(samples)
    notes = later.notes
    if client is None and newcomer is None:
        rows, more = served.each(later, model, probabilities)
        notes = notes + more
    else:
        found = served.newcomer(newcomer, steps, model) if newcomer is not None else served.known(str(client), model)
        rows = served.predict(found, later.x, probabilities)
    for note in notes:
        print(f"sartor: note: {readable(note)}", file=sys.stderr)
    text = predictions.written(rows, as_json)
    if file is None:
        print(text, end="")
    else:
        write_text(file, text)


@app.command()
def export(
    folder: RunFolder,
    file: Annotated[Path, typer.Option("--out", help="the model's file: .safetensors, .onnx, .pt2 or .pt")],
    client: Annotated[
        str | None, typer.Option(help="a client that took part: its name or number [the global model]")
    ] = None,
    model: Annotated[str, typer.Option(help="chosen, personal or global")] = "chosen",
) -> None:
    """Write one client's model to a file for other programs.

    The exported model takes raw samples: filling and scaling, with the client's own statistics, are inside.
    """
    from ..run import export as exporting
    from ..run import predict as predictions

    exporting.suffix_of(file)
    served = predictions.Served(folder)
    out.print(served.export(client, file, model), soft_wrap=True)
