"""Stored results, and docs/reproductions.md made from them: nothing in that document is typed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import SartorError, need
from ...storage import read_json, replacing, write_text
from . import claims_table
from .claims import claims, distances, judged
from .experiment import FOLDER, Claim, Experiment, load, names
from .in_short import in_short, is_reduced
from .outputs import counted, failures, has_authors, markdown
from .values import POINT, UNPRINTED

RESULTS = FOLDER / "results"
DOCUMENT = FOLDER.parents[2] / "docs" / "reproductions.md"
SIZES = {"full": "", "reduced": ".reduced", "quick": ".quick"}  # → the ending of a stored file
LONG = 24  # rows above which a table is folded
# A cell has all of these; None is not stored.
FIELDS = (
    *("dataset", "partition", "method", "model", "unit", "paper", "printed", "paper_std", "ours", "ours_authors"),
    *("std", "std_authors", "seeds", "seeds_authors", "verdict", "verdict_authors", "paper_spread", "paper_variance"),
    *("spread", "spread_authors", "loss", "loss_authors", "loss_var", "loss_var_authors", "round", "round_authors"),
    *("tuned", "tuned_authors", "untuned", "untuned_authors", "each", "each_authors", "more", "more_authors"),
    *("of", "of_authors", "work", "edge", "row", "where", "doubtful", "differs"),
)


def record(table: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Store a table in the repository, one cell a line, so that a later one can be compared with it."""
    path = folder / f"{table['name']}{_ending(table)}.json"
    head = {k: v for k, v in table.items() if k != "cells"}
    cells = [{k: v for k, v in c.items() if v is not None} for c in table["cells"]]
    need(bool(cells), f"{table['name']}: there are no cells to store.")
    lines = ",\n  ".join(json.dumps(c, ensure_ascii=False, allow_nan=False) for c in cells)
    text = json.dumps(head, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, text.removesuffix("\n}") + f',\n "cells": [\n  {lines}\n ]\n}}\n')
    return path


def stored(name: str, size: str | None = None, folder: Path = RESULTS) -> dict[str, Any] | None:
    """The stored table of an experiment in a size; by default the first of full, reduced and quick that is there."""
    for ending in SIZES.values() if size is None else [SIZES[size]]:
        path = folder / f"{name}{ending}.json"
        if path.exists():
            found: dict[str, Any] = read_json(path)
            found["cells"] = [{**dict.fromkeys(FIELDS), **c} for c in found["cells"]]
            return found
    return None


def _ending(table: Mapping[str, Any]) -> str:
    return SIZES["quick" if table["quick"] else "reduced" if table.get("reduced") else "full"]


def keep_figure(drawn: Path, table: Mapping[str, Any]) -> Path | None:
    """Put a table's figure beside the document, where there is one and a folder for it."""
    if not drawn.exists() or not DOCUMENT.parent.is_dir():
        return None
    path = _figure(table)
    with replacing(path) as temporary:
        shutil.copyfile(drawn, temporary)
    return path


def _figure(table: Mapping[str, Any]) -> Path:
    return DOCUMENT.parent / "reproductions" / f"{table['name']}{_ending(table)}.png"


def changed(table: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """How a table differs from the stored one of the same size."""
    if table["command"] != before["command"]:
        return f"The stored results are of another size ({before['command']}); nothing is compared."
    old = {_name(c): c for c in before["cells"]}
    pairs = [(c, old[_name(c)]) for c in table["cells"] if _name(c) in old]
    other = [c for c, o in pairs if any(_moved(c, o, which) for which in ("", "_authors"))]
    words = f"Against the stored results: {len(pairs) - len(other)} of {len(pairs)} cells agree"
    return words + (
        f"; not so: {'; '.join(c['row'] for c in other[:5])}{' ...' if len(other) > 5 else ''}." if other else "."
    )


def _name(cell: Mapping[str, Any]) -> str:
    return f"{cell['where']} {cell['row']}"


def _moved(new: Mapping[str, Any], old: Mapping[str, Any], which: str) -> bool:
    a, b = new[f"ours{which}"], old[f"ours{which}"]
    if a is None or b is None:
        return (a is None) != (b is None)
    point = POINT * {"percent": 100.0, "bytes": abs(b)}.get(new["unit"], 1.0)
    return bool(abs(a - b) > max(2 * (new[f"std{which}"] or 0), 2 * (old[f"std{which}"] or 0), point))


# --- the document -----------------------------------------------------------------------------------------------------

HEAD = """\
# The papers, repeated

What five papers say of their experiments, claim by claim, and what came out here. Made by `sartor reproduce
--document` from the results stored in `sartor/papers/recipes/results/` and from the texts of
`sartor/papers/recipes/`; nobody types on this page.
"""
INTRODUCTION = """\
## How to read the tables below

Every table is made anew by the command above it (`--out DIR` says where), and `--record` stores it.

Three columns: the paper's number; **ours**, the method as the paper writes it, with what it leaves open chosen in
`sartor/papers/recipes/NAME.toml` and nothing chosen on test data, unless the paper itself says that it does (a remark
says so); and **ours, authors' switches**, with the settings to which the authors' published code amounts, where it
differs from the paper. These may choose rounds or models on test data, as the code does: they say how a number came
about, not how good a method is. "the same": the code does not differ there.

Verdicts: *agrees* within two standard deviations over seeds (ours or the paper's) or one point of accuracy (for bytes:
one hundredth); *ours higher*; *ours lower*; *data set not the same*: the numbers cannot be held against each other;
*failed*, with the reason below the table; *not run*. "doubtful": the paper contradicts itself there. Quick tables have
few rounds and one seed: they show that it runs, not what comes out. Below "In short" stand the reasons that we know of
and what the paper leaves open; below each table the paper's claims, and in how many cases they hold.
"""


def document(folder: Path = RESULTS) -> str:
    """The text of docs/reproductions.md."""
    known = {name: load(name)[0] for name in names()}
    shown = {name: shown_tables(name, folder) for name in names()}
    opening = claims_table.markdown(claims_table.entries(known, lambda name: shown.get(name, [])), set(known))
    sections = (_section(known[n], some) if some else _not_yet(known[n]) for n, some in shown.items())
    return "\n".join([HEAD, opening, INTRODUCTION, _overview(known, shown), *sections])


def shown_tables(name: str, folder: Path = RESULTS) -> list[dict[str, Any]]:
    """What is stored of an experiment: the full and the reduced size, or the quick one where neither is there."""
    found = [stored(name, size, folder) for size in ("full", "reduced")]
    return [t for t in found if t is not None] or [t for t in [stored(name, "quick", folder)] if t is not None]


def _overview(known: Mapping[str, Experiment], shown: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    lines = ["| experiment | size | as written | authors' switches |", "|---|---|---|---|"]
    for name in known:
        for table in shown[name]:
            theirs = counted(table, "counts_authors") if has_authors(table) else "–"
            lines.append(f"| [{name}](#{name}) | {_size(table)} | {counted(table)} | {theirs} |")
    return "\n".join(lines) + "\n"


def _size(table: Mapping[str, Any]) -> str:
    seeds = f"{table['seeds']} seed{'s' if table['seeds'] > 1 else ''}"
    instead = [f"{table['rounds']} rounds"] if table["rounds"] else []
    instead += [f"the model {table['network']}"] if table.get("network") else []
    reduced = f", {' and '.join(instead)} in place of the experiment's" if instead else ""
    missing = f", not finished: {table['missing']} runs are missing" if table.get("missing") else ""
    size = "quick" if table["quick"] else "reduced" if is_reduced(table) else "full"
    return f"{size}, {seeds}{reduced}{missing}"


def _not_yet(experiment: Experiment) -> str:
    """An experiment of which nothing is stored: what it is, and what there is to know of it."""
    e = experiment
    out = [f"## {e.name}", "", f"{e.title}. {e.about}".strip(), "", f"`sartor reproduce {e.name}`: not run yet.", ""]
    return "\n".join([*out, *_notes(e)]) + "\n"


def _notes(e: Experiment) -> list[str]:
    """What a reader must know of an experiment: what was chosen, what is not equal, what was wrong before."""
    out = [*(f"- {line}" for line in e.remarks), ""] if e.remarks else []
    out += [f"**Not equal.** {e.unequal}", ""] if e.unequal else []
    if e.mended:
        out += ["**Mended.** Earlier numbers had a mistake of ours:", "", *(f"- {line}" for line in e.mended), ""]
    return out


def _section(experiment: Experiment, tables: Sequence[Mapping[str, Any]]) -> str:
    e = experiment
    source = ", ".join(filter(None, [tables[0]["paper"], tables[0]["where"]]))
    out = [f"## {e.name}", "", f"{e.title} ({source}). {e.about}".strip(), "", *_notes(e)]
    for table in tables:
        out += [f"### {e.name}, {'reduced' if table.get('reduced') else 'full'} size", ""] if len(tables) > 1 else []
        out += _of_one_size(e, table)
    return "\n".join(out) + "\n"


def _of_one_size(e: Experiment, table: Mapping[str, Any]) -> list[str]:
    """The command, the size, what comes out, the table and the claims."""
    runs = f"{table['runs']} runs behind the numbers"
    out = [f"`{table['command']}`", "", f"Size: {_size(table)}; {runs}. {_data(table)}", ""]
    out += [f"**Reduced.** {table['reduced']}", ""] if table.get("reduced") else []
    said = claims(e)
    out += [f"**In short.** {in_short(table, said)}", ""]
    picture = _figure(table)
    out += [f"![{e.title}]({picture.relative_to(DOCUMENT.parent).as_posix()})", ""] if picture.exists() else []
    out += [_folded(markdown(table), len(table["cells"]))]
    printed = set(table["counts"]) - {UNPRINTED}  # or not run: worth a line
    out += [f"As written: {counted(table)}."] if printed else []
    if has_authors(table):
        theirs = f"With the authors' switches: {counted(table, 'counts_authors')}. These" if printed else "The switches"
        out += [f"{theirs} are: {table['why_authors']}."]
    if not table["quick"] and not is_reduced(table) and (far := distances(table)):
        out += [far]
    out += ["", *(f"- {line}" for line in failures(table))]
    out += [f"- {line}" for line in dict.fromkeys(c["differs"] for c in table["cells"] if c["differs"])]
    return [*out, *(line for claim in said for line in _claim(claim, table)), ""]


def _folded(text: str, rows: int) -> str:
    """A long table is opened by a click, so that what it says can be read on either side."""
    if rows <= LONG:
        return text
    return f'<details markdown="1"><summary>The table: {rows} cells</summary>\n\n{text}\n</details>\n'


def _claim(claim: Claim, table: Mapping[str, Any]) -> list[str]:
    """A claim, and whether it comes out; of a quick table nothing is said, as it has too few rounds for that."""
    said = f"The paper says ({claim.where}): “{claim.text}”" if claim.where else claim.text
    return [f"- {said}", *(f"    - {line}" for line in ([] if table["quick"] else judged(claim, table)))]


def _data(table: Mapping[str, Any]) -> str:
    return "Data: " + ", ".join(f"{name} with {count:,} samples" for name, count in table["data"].items()) + "."


def write_document(path: Path = DOCUMENT, folder: Path = RESULTS) -> Path:
    """Write docs/reproductions.md."""
    if not path.parent.is_dir():
        raise SartorError(f"{path.parent} is not there: the document is made in a copy of the repository.")
    write_text(path, document(folder))
    return path
