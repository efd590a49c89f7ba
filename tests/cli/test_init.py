"""`sartor init`: a recipe that runs where the columns are clear, and says what to fill in where they are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from commandline import good, refused, sartor

from sartor.data import hospitals
from sartor.run.recipe import Recipe


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_recipe_of_a_clear_table_runs_as_it_is(here: Path) -> None:
    hospitals.write(here)
    said = good("init", "patients.csv").out
    assert "target: outcome\n" in said and "client_key: hospital\n" in said
    text = (here / "recipe.toml").read_text(encoding="utf-8")
    assert "#     bmi: numbers; missing in 63 of 795 rows\n" in text and "ward: text, 3 different" in text
    recipe = Recipe.load(here / "recipe.toml")
    assert recipe == Recipe(data="patients.csv", target="outcome", client_key="hospital")  # all else: the defaults
    assert "St. Mary" in good("run", "--recipe", "recipe.toml", "--rounds", 1, "--out", "run").out


def test_nothing_is_overwritten(here: Path) -> None:
    hospitals.write(here)
    (here / "recipe.toml").write_text("mine", encoding="utf-8")
    assert "recipe.toml exists already" in refused("init", "patients.csv")
    assert (here / "recipe.toml").read_text(encoding="utf-8") == "mine"
    good("init", "patients.csv", "--out", "other.toml")
    assert Recipe.load(here / "other.toml").target == "outcome"


def table(path: Path, header: str) -> None:
    rows = [",".join(f"{n}{i}" for i in range(len(header.split(",")))) for n in ("a", "b", "a", "b", "c")]
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    "header, target, key",
    [
        ("site,dose,label", "label", "site"),
        ("first_site,dose,treatment_outcome", "treatment_outcome", "first_site"),  # by the last word
        ("StudySite,dose,Y", "Y", "StudySite"),
        ("home_site,work_site,outcome", "outcome", None),  # two may be it: not clear
        ("outcome,label,hospital", None, "hospital"),
        ("a,b,c", None, None),
        ("outcome_date,siteless,b", None, None),  # words that only contain one
    ],
)
def test_a_guess_is_made_only_where_one_name_says_so(header: str, target: str | None, key: str | None) -> None:
    table(Path("t.csv"), header)
    said = good("init", "t.csv").out
    recipe = Recipe.load(Path("recipe.toml"))
    assert (recipe.target, recipe.client_key) == (target, key)
    assert said.count("not clear; fill it in in recipe.toml") == [target, key].count(None)
    text = Path("recipe.toml").read_text(encoding="utf-8")
    assert ("# target =\n" in text) == (target is None) and ("# client_key =\n" in text) == (key is None)


def test_what_is_said_is_taken_and_checked() -> None:
    table(Path("t.csv"), "a,b,c")
    assert "unknown column of t.csv 'd'" in refused("init", "t.csv", "--target", "d")
    assert not Path("recipe.toml").exists()
    good("init", "t.csv", "--target", "c", "--client-key", "a")
    assert (Recipe.load(Path("recipe.toml")).target, Recipe.load(Path("recipe.toml")).client_key) == ("c", "a")
    assert "there is no file or folder nowhere.csv" in refused("init", "nowhere.csv", "--out", "x.toml")


def test_a_folder_with_a_file_for_each_client() -> None:
    Path("sites").mkdir()
    for name in ("north", "south"):
        table(Path("sites", f"{name}.csv"), "dose,patient_id,label")
    assert "each of the 2 files is one" in good("init", "sites").out
    recipe = Recipe.load(Path("recipe.toml"))
    assert (recipe.data, recipe.target, recipe.client_key) == ("sites", "label", None)
    assert '# leave_out = [    "patient_id",]' in Path("recipe.toml").read_text(encoding="utf-8")
    Path("nothing").mkdir()
    assert "holds no tables" in refused("init", "nothing", "--out", "x.toml")


def test_no_name_of_a_column_can_write_a_line_of_its_own() -> None:
    """Names are the table's, and a recipe is obeyed: a name with a line break or a quotation mark stays one."""
    Path("t.csv").write_text('"a\nseed = 7","q""\\outcome",b\n1,2,3\n4,5,6\n', encoding="utf-8")
    answer = sartor("init", "t.csv", "--target", 'q"\\outcome')
    assert answer.code == 0, answer.err
    recipe = Recipe.load(Path("recipe.toml"))
    assert recipe.target == 'q"\\outcome' and recipe.seed == 0
