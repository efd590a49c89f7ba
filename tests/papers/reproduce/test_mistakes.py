"""A mistake in a recipe is one line that names file, line and key; nothing is run."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

import pytest
from commandline import one_line, refused, sartor
from small_experiment import SMALL, write

from sartor.papers.reproduce import checked
from sartor.papers.reproduce.lines import line_of


def line(text: str, part: str) -> int:
    return next(i for i, each in enumerate(text.splitlines(), start=1) if part in each)


MISTAKES = [
    (
        "[run]\nclients = 5",
        "[run]\nclient = 5",
        "client = 5",
        r"run\.client: unknown field of a run 'client': did you mean clients",
    ),
    ("rounds = 3", 'rounds = "many"', 'rounds = "many"', r"run\.rounds: .*a whole number of at least 1; got 'many'"),
    (
        "lam = 0.5\nrho",
        "lamb = 0.5\nrho",
        "lamb = 0.5",
        r"methods\.flame\.lamb: unknown setting of flame 'lamb': did you mean lam",
    ),
    ("rho = 0.1", "rho = -1.0", "rho = -1.0", r"methods\.flame\.rho: FLAME needs rho > 0; got -1\.0"),
    (
        "[methods.flame]",
        "[methods.flam]",
        "[methods.flam]",
        r"methods\.flam: unknown method 'flam': did you mean flame",
    ),
    ("lam = [0.01, 0.5]", "lam = 0.7", "lam = 0.7", r"tune\.ditto\.lam: a list of values to choose from; got 0\.7"),
    (
        'by = "personal"',
        'by = "person"',
        'by = "person"',
        r"tune\.ditto\.by: unknown model 'person': did you mean personal",
    ),
    ('round = "best"', 'round = "bets"', 'round = "bets"', r"read\.round: .*'best'.*got 'bets'"),
    (
        'choice = "test"',
        'chioce = "test"',
        'chioce = "test"',
        r"authors\.read\.chioce: unknown key 'chioce': did you mean choice",
    ),
    ("seeds = [0, 1]", 'seeds = "two"', 'seeds = "two"', r"seeds: .*valid list; got 'two'"),
    (
        'model = "softmax"',
        'model = "softmx"',
        'model = "softmx"',
        r"run\.model: unknown model 'softmx': did you mean softmax",
    ),
    ("title =", "titel =", "titel =", r"titel: unknown key 'titel': did you mean title"),
    (
        "only = { method",
        "only = { metod",
        "only =",
        r"quick\.only\.metod: unknown key of a cell 'metod': did you mean method",
    ),
    ("lr = 0.1", "lrr = 0.1", "[run.solver]", r"run\.solver: unknown setting of the SGD solver 'lrr': did you mean lr"),
]


@pytest.mark.parametrize(("old", "new", "at", "message"), MISTAKES, ids=[m[1].split("\n")[-1] for m in MISTAKES])
def test_a_mistake_in_a_recipe_names_file_line_and_key(
    tmp_path: Path, old: str, new: str, at: str, message: str
) -> None:
    assert SMALL.count(old) >= 1
    text = SMALL.replace(old, new, 1)
    path = write(tmp_path, text)
    found = refused("reproduce", path, "--out", tmp_path / "out")
    assert re.search(message, found), found
    assert f"small.toml, line {line(text, at)}: " in found, found
    assert not (tmp_path / "out").exists()


CELLS = '\n[[cells]]\ndataset = "digits"\npartition = "iid"\nmethod = "flame"\nmodel = "personal"\n'
CELL_MISTAKES = [
    ('"digits"', '"digit"', "dataset", r"cells\.0\.dataset: unknown data set 'digit': did you mean digits"),
    ('"flame"', '["flame", "flam"]', "method", r"cells\.0\.method: unknown method 'flam'"),
    ('"personal"', '"own"', "model", r"cells\.0\.model: unknown model 'own': known: chosen, global, personal"),
    ('partition = "iid"', 'partition = ["iid", "idd"]', "partition", r"cells\.0\.partition: unknown partition 'idd'"),
    ('partition = "iid"', "lamb = [0.1]", "lamb", r"cells\.0\.lamb: unknown setting of flame 'lamb': did you mean lam"),
    ('dataset = "digits"\n', "", "[[cells]]", r"cells\.0: a cell needs a dataset"),
]


@pytest.mark.parametrize(("old", "new", "at", "message"), CELL_MISTAKES, ids=[m[2] for m in CELL_MISTAKES])
def test_a_mistake_in_a_cell_names_its_line(tmp_path: Path, old: str, new: str, at: str, message: str) -> None:
    text = SMALL + CELLS.replace(old, new)
    found = refused("reproduce", write(tmp_path, text), "--out", tmp_path / "out")
    here = next(i for i, each in enumerate(text.splitlines(), start=1) if each.startswith(at) and i > SMALL.count("\n"))
    assert re.search(message, found) and f"line {here}: " in found, found


def test_other_refusals(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert "unknown experiment 'flame-table'" in refused("reproduce", "flame-table")
    assert "did you mean flame-table3" in refused("reproduce", "flame-table")
    assert "cannot read" in refused("reproduce", tmp_path / "none.toml")
    assert "name an experiment" in refused("reproduce")
    assert "unknown key in --only 'data': did you mean dataset" in refused("reproduce", path, "--only", "data=digits")
    assert "unknown dataset in --only 'digit'" in refused("reproduce", path, "--only", "dataset=digit")
    assert "--only takes key=values" in refused("reproduce", path, "--only", "digits")
    assert "--seeds is how many seeds" in refused("reproduce", path, "--seeds", 0)
    assert "--rounds is at least 1" in refused("reproduce", path, "--rounds", 0)
    assert "unknown model 'softmx': did you mean softmax" in refused("reproduce", path, "--model", "softmx")
    assert "no cells in this size" in refused("reproduce", path, "--only", "method=flame", "--only", "lam=best")
    bad = write(tmp_path / "bad", "title = ")
    assert "is not valid TOML" in refused("reproduce", bad)
    like = write(tmp_path / "like", SMALL + "", name="other")
    like.write_text('title = "x"\nlike = "othr"\n', encoding="utf-8")
    assert "line 2: like: unknown experiment 'othr'" in refused("reproduce", like)
    numbers = write(tmp_path / "numbers", 'published = ["smal"]\n' + SMALL)
    assert "unknown file of published numbers 'smal': did you mean small" in refused("reproduce", numbers)


def test_interrupted_by_hand_it_says_how_to_go_on(tmp_path: Path) -> None:
    path = write(tmp_path)
    with mock.patch("sartor.run.play.assembled", side_effect=KeyboardInterrupt):
        answer = sartor("reproduce", path, "--out", tmp_path / "out")
    assert answer.code == 130
    assert one_line(answer.err)


def test_like_takes_over_settings_but_for_what_is_left_out(tmp_path: Path) -> None:
    write(tmp_path)
    more = tmp_path / "more.toml"
    more.write_text('title = "y"\nlike = "small"\nwithout = ["authors"]\nremarks = []\n[run]\nrounds = 7\n' + CELLS)
    made = checked(str(more))
    assert made.run["rounds"] == 7 and made.run["clients"] == 5 and made.authors is None and made.published == []
    assert made.methods["flame"] == {"anchor": "local", "lam": 0.5, "rho": 0.1} and made.quick.only == {}


def test_lines_of_keys() -> None:
    text = 'a = 1\n[b]\n"c.d" = 2\n[b.e]\nf.g = 3\n[[h]]\ni = 4\n[[h]]\ni = 5\nj = { k = 6 }\n[h.l]\nm = 7\n'
    places: list[tuple[list[str | int], int | None]] = [
        (["a"], 1),
        (["b"], 2),
        (["b", "c.d"], 3),
        (["b", "e", "f", "g"], 5),
        (["h", 0, "i"], 7),
        (["h", 1, "i"], 9),
        (["h", 1, "j", "k"], 10),
        (["h", 1, "l", "m"], 12),
        (["b", "x"], 2),
        (["z"], None),
    ]
    for where, number in places:
        assert line_of(text, where) == number, where
