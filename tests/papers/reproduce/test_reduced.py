"""The reduced size: what takes the place of what, what it leaves alone, and what a verdict and the page say of it."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from commandline import good, refused
from small_experiment import SMALL, table, write

from sartor.data import load as load_data
from sartor.errors import SartorError
from sartor.papers.reproduce import Reproduction, Size, document, load
from sartor.papers.reproduce.cells import PaperCell
from sartor.papers.reproduce.experiment import Reading
from sartor.papers.reproduce.values import measured

REDUCED = """
[reduced]
what = "Two rounds in place of three."
seeds = [0, 1, 2]
only = [{ method = "ditto", lam = "best" }, { method = "flame", model = "personal" }]
read = { round = "last" }
[reduced.run]
rounds = 2
solver = { batch = 10 }
[reduced.datasets.digits]
data = "authors.part-of(digits, 500)"
[reduced.methods.flame]
lam = 0.25
[reduced.tune.ditto]
by = "personal"
lam = [0.2]
"""


def test_what_takes_the_place_of_what(tmp_path: Path) -> None:
    experiment = load(write(tmp_path, SMALL + REDUCED))[0]
    made = Reproduction(experiment, Size.of(experiment, False, reduced=True), tmp_path)
    assert [c.row for c in made.cells] == ["FLAME-PM", "Ditto"]
    columns = {c.keys["method"]: made.entries[c.combination, False].column for c in made.cells}
    assert not any(authors for _, authors in made.entries)  # only as written
    flame, ditto = (columns[m].recipe(columns[m].variants[0], 0) for m in ("flame", "ditto"))
    assert (flame.rounds, flame.data, flame.clients) == (2, "authors.part-of(digits, 500)", 5)
    assert dict(flame.solver) == {"lr": 0.1, "batch": 10} and flame.settings["lam"] == 0.25
    assert flame.settings["rho"] == 0.1 and columns["flame"].reading.round == "last"
    assert ditto.settings["lam"] == 0.2 and len(columns["ditto"].variants) == 1


def test_what_a_cell_says_stands(tmp_path: Path) -> None:
    own = (
        '[[cells]]\ndataset = "digits"\npartition = "iid"\nmethod = "local"\nmodel = "personal"\nrun = { rounds = 1 }\n'
    )
    more = REDUCED.replace("only = [", 'only = [{ method = "local" }, ')
    experiment = load(write(tmp_path, SMALL + more + own))[0]
    made = Reproduction(experiment, Size.of(experiment, False, reduced=True), tmp_path)
    column = next(e.column for e in made.entries.values() if e.column.cell.keys["method"] == "local")
    assert column.recipe({}, 0).rounds == 1


def test_a_reduced_table_is_stored_beside_the_full_one_and_shown_below_it(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    path = write(tmp_path, SMALL + REDUCED)
    good("reproduce", path, "--reduced", "--out", tmp_path / "out")
    found = table(tmp_path / "out")
    assert (
        found["command"] == "sartor reproduce small --reduced" and found["reduced"] == "Two rounds in place of three."
    )
    assert {c["seeds"] for c in found["cells"]} == {3} and found["data"] == {"digits (part of 500)": 500}
    results = tmp_path / "results"
    assert document.record(found, results).name == "small.reduced.json"
    document.record(table(finished[1]), results)
    with (
        mock.patch.object(document, "names", lambda: ["small"]),
        mock.patch.object(document, "load", lambda _: load(path)),
    ):
        text = document.document(results)
    full, reduced = text.index("### small, full size"), text.index("### small, reduced size")
    assert full < reduced < text.index("**Reduced.** Two rounds in place of three.")
    assert "reduced, 3 seeds" in text[text.index("`sartor reproduce small --reduced`") :]


def test_what_is_asked_must_be_there(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert "small has no reduced size" in refused("reproduce", path, "--reduced", "--out", tmp_path / "a")
    path = write(tmp_path, SMALL + REDUCED)
    both = refused("reproduce", path, "--reduced", "--quick", "--out", tmp_path / "a")
    assert "--quick and --reduced are two sizes" in both
    none = SMALL + REDUCED.replace('method = "flame"', 'method = "flam"')
    assert "no cell is method = 'flam'" in refused("reproduce", write(tmp_path, none), "--out", tmp_path / "a")


def test_part_of_a_data_set_is_always_the_same_part() -> None:
    whole, part = load_data("digits"), load_data("authors.part-of(digits, 300)")
    assert len(part) == 300 and part.classes == 10 and len(np.unique(part.y)) == 10
    rows = [np.flatnonzero((whole.x == x).all(axis=1)) for x in part.x[:20]]
    assert all(len(r) >= 1 and whole.y[r[0]] == y for r, y in zip(rows, part.y, strict=False))
    assert (load_data("authors.part-of(digits, 300)").x == part.x).all()
    with pytest.raises(SartorError, match="digits has 1797 samples; got samples=5000"):
        load_data("authors.part-of(digits, 5000)")


def test_the_share_of_weight_inside_a_group() -> None:
    """Four clients in two groups: of its weight on others the first gives 3/4 to its group, the second 1, the third
    none, and the last gives nothing to others."""
    weights = [[0.6, 0.3, 0.1, 0.0], [0.5, 0.5, 0.0, 0.0], [0.2, 0.2, 0.6, 0.0], [0.0, 0.0, 0.0, 1.0]]
    run = {
        "recipe": {"partition": "dominant(groups=2, sizes=10/10)"},
        "weights": weights,
        "models": {"personal": {}},
        "rounds": [1],
    }
    cell = PaperCell({"method": "fedamp"}, "personal")
    assert measured(run, cell, Reading(), "inside") == pytest.approx((0.75 + 1 + 0) / 3)
    assert measured({**run, "recipe": {"partition": "iid"}}, cell, Reading(), "inside") is None
