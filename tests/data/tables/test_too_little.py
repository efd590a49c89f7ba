"""What a table has too little of is said before anything is trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from commandline import good, sartor

from sartor.data import load


def table(tmp_path: Path, each: int = 30) -> Path:
    """Three sites: one has a class of its own, one has a single class, and the column `unit` never changes."""
    draw, lines = np.random.default_rng(0), ["site,a,b,c,unit,kind"]
    for site, kinds in (("north", "xyw"), ("south", "xy"), ("west", "x")):
        for i, (a, b, c) in enumerate(draw.normal(size=(each, 3))):
            lines.append(f"{site},{a:.3f},{b:.3f},{c:.3f},7,{kinds[i % len(kinds)]}")
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines))
    return path


def warned(path: Path) -> list[str]:
    found = load(path, target="kind", client_key="site").split("natural", minimum=1).about["warnings"]
    assert isinstance(found, list)
    return [line.partition(": ")[2] for line in found]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    assert warned(table(tmp_path)) == [
        "column unit has the same value in every training row: it says nothing.",
        "1 of 3 clients have training rows of one class only: alone they learn to say that class.",
        "class 'w' is in the training rows of north only: nobody else can learn it alone.",
    ]
    few = warned(table(tmp_path, 6))
    assert few[1].startswith("3 of 3 clients have no more training rows than features (4)")


def test_a_run_goes_well_all_the_same_and_says_that_linear_models_separate(tmp_path: Path) -> None:
    own = ("run", "--target", "kind", "--client-key", "site", "--minimum", 1, "--method", "local", "--rounds", 2)
    answer = sartor(*own, "--data", table(tmp_path, 8))
    said = " ".join((answer.out + answer.err).split())
    assert answer.code == 0 and "class 'w' is in the training rows of north only" in said
    assert "separates the training samples of" in said and "See --calibrate" in said and "nan" not in said.lower()
    easy = good("run", "--data", "digits", "--rounds", 1, "--clients", 3, "--quiet")
    assert "separates" not in easy.out
