"""The document of reproductions, and the tables that are stored for it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from unittest import mock

import pytest
from commandline import good
from small_experiment import table

from sartor.papers.reproduce import document, names, outputs
from sartor.papers.reproduce.experiment import load


def test_the_document_is_what_the_stored_results_give() -> None:
    assert document.DOCUMENT.read_text(encoding="utf-8") == document.document()
    stored = sorted(p.name for p in document.RESULTS.glob("*.json"))
    assert all(name.split(".")[0] in names() for name in stored)


def test_a_stored_table_comes_back_and_is_compared_cell_by_cell(finished: tuple[Path, Path], tmp_path: Path) -> None:
    found = table(finished[1])
    path = document.record(found, tmp_path)
    assert path.name == "small.json" and path.stat().st_size < 10_000
    back = document.stored("small", folder=tmp_path)
    assert back is not None and back["cells"] == found["cells"]
    assert document.changed(found, back) == "Against the stored results: 6 of 6 cells agree."
    moved = json.loads(json.dumps(found))
    moved["cells"][0]["ours"] += 30
    assert "5 of 6 cells agree; not so: FLAME-PM." in document.changed(moved, back)
    assert "of another size" in document.changed(found | {"command": "sartor reproduce small --quick"}, back)
    assert document.stored("small", "quick", folder=tmp_path) is None


def test_the_document_has_command_table_verdicts_remarks_and_claims(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    path, out = finished
    document.record(table(out), tmp_path)
    with (
        mock.patch.object(document, "names", lambda: ["small"]),
        mock.patch.object(document, "load", lambda _: load(path)),
    ):
        text = document.document(tmp_path)
    for part in ("## small", "`sartor reproduce small`", "| FLAME-PM | 95.00 ±1.00 |", "ours higher", "- Plain words."):
        assert part in text
    assert "“all is well”\n    - personal flame ≥ global flame: in the paper's own numbers in 1 of 1 cases" in text
    assert (
        "Distances from the printed numbers: as written, " in text
        and "not run: CelebA is not one of our data sets" in text
    )
    assert f"As written: {outputs.counted(table(out))}." in text
    row = table(out)["cells"][1]
    assert f"| {row['ours']:.2f} ±{row['std']:.2f} |" in text


def test_record_stores_table_and_figure_and_the_document_shows_them(
    finished: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = finished
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(document, "DOCUMENT", tmp_path / "docs" / "reproductions.md")
    monkeypatch.setattr(document.record, "__defaults__", (tmp_path / "results",))
    answer = good("reproduce", path, "--out", out, "--record")
    assert "stored: " in answer.out and (tmp_path / "results" / "small.json").exists()
    drawn = tmp_path / "docs" / "reproductions" / "small.png"
    assert drawn.read_bytes() == (out / "figure.png").read_bytes()
    monkeypatch.setattr(document, "names", lambda: ["small"])
    monkeypatch.setattr(document, "load", lambda _: load(path))
    written = document.write_document(document.DOCUMENT, tmp_path / "results")
    assert "(reproductions/small.png)" in written.read_text(encoding="utf-8")


def test_the_csv_and_the_markdown_hold_every_cell(finished: tuple[Path, Path]) -> None:
    found = table(finished[1])
    with (finished[1] / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["row"] for r in rows] == [c["row"] for c in found["cells"]]
    assert float(rows[1]["ours"]) == found["cells"][1]["ours"]
    text = (finished[1] / "table.md").read_text(encoding="utf-8")
    assert all(f"| {c['row']} |" in text for c in found["cells"]) and "`sartor reproduce small`" in text


def test_cells_of_two_tables_with_one_name_say_which_table(finished: tuple[Path, Path]) -> None:
    found = table(finished[1])
    found["cells"] += [found["cells"][0] | {"where": "Table 6"}]
    names = [line[0] for line in outputs.rows(found)[1]]
    assert names[0] == "FLAME-PM (Table 0)" and names[-1] == "FLAME-PM (Table 6)" and names[1] == "FLAME-GM"
