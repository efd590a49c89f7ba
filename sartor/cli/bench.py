"""`sartor bench`: advice against what people would use instead, on data whose clients are real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import app, err, out, say_where
from .options import Json, Quiet

if TYPE_CHECKING:
    from ..study.natural import Benched


@app.command()
def bench(
    place: Annotated[
        str, typer.Argument(help="natural (the sets in $SARTOR_DATA/natural), or a folder of tables with a bench.toml")
    ] = "natural",
    only: Annotated[str | None, typer.Option(help="some of the sets, separated by commas [all]")] = None,
    seeds: Annotated[int, typer.Option(help="how often a quarter of every client's rows is held back")] = 5,
    minutes: Annotated[float, typer.Option(help="time limit of each advice")] = 3.0,
    folder: Annotated[
        Path | None, typer.Option("--out", help="where natural.json is kept; what is finished there is not repeated")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Hold advise against scikit-learn's models on real clients.

    A quarter of every client's rows is held back; what advise recommends for the rest, every other candidate with its
    best settings and the references are scored on it.
    """
    from ..report import terminal
    from ..spelling import split_list
    from ..study import natural

    wanted = [] if only is None else split_list(only, "only")
    found: dict[str, Benched] = {}
    with terminal.progress(err) as bar:
        task = bar.add_task("", total=None, note="", left="", visible=not (quiet or as_json))
        for so_far, now in natural.bench(place, wanted, seeds, minutes, folder):
            found = so_far
            bar.update(task, description=now)
    if as_json:
        print(json.dumps({n: b.plain() for n, b in found.items()}, indent=1))
    elif not quiet:
        _show(found)
        say_where(folder, "{0}/natural.json has every number")


def _show(found: dict[str, Benched]) -> None:
    from ..report import terminal
    from ..study.natural import verdicts, with_error

    names = list(dict.fromkeys(s for on in found.values() for s in on.scores))
    rows = []
    for name in names:
        cells = [on.scores.get(name) for on in found.values()]
        rows.append([name, *("" if c is None else with_error(f"{c.mean:.3f}", c.error) for c in cells)])
    heads = ["", *(f"{on.about['title']} ({on.metric})" for on in found.values())]
    out.print(terminal.lines("on held-back rows, mean over seeds ± standard error", heads, rows))
    for name, said in verdicts(found).items():
        over, first = (
            None if gap is None else with_error(f"{gap['mean']:+.3f}", gap["standard_error"])
            for gap in (said["over_best_linear"], said["over_best_candidate"])
        )
        text = f"{name}: advised {said['advised']:.3f}"
        text += "" if over is None else f", {over} over {said['best_linear']}"
        text += f"; {first} over the best candidate "
        out.print(f"{text}({said['best_candidate']}); recommended {', '.join(dict.fromkeys(found[name].recommended))}")
