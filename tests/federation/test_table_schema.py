"""Sites whose tables have gaps in different places agree on the table that all rows together would make."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sartor.data import load
from sartor.federation import table_schema
from sartor.federation.terms import shared
from sartor.run.recipe import Recipe

SITES = {  # age is missing at b; c has no ward and no dose at all, and writes flags as numbers
    "a": ["30,1.5,east,true,ill", "41,2.5,west,false,well"],
    "b": [",0.5,north,true,well", "52,3.5,,false,ill"],
    "c": ["63,,,1,well", "29,,,0,gone"],
}


def tables(folder: Path) -> dict[str, Path]:
    header = "age,dose,ward,smoker,outcome\n"
    paths = {}
    for name, rows in (SITES | {"all": [row for own in SITES.values() for row in own]}).items():
        paths[name] = folder / f"{name}.csv"
        paths[name].write_text(header + "\n".join(rows) + "\n")
    return paths


def test_sites_with_gaps_agree_on_one_table(tmp_path: Path) -> None:
    paths = tables(tmp_path)
    own = {name: load(paths[name], target="outcome") for name in SITES}
    agreed, others = table_schema.agree({name: table_schema.of(data) for name, data in own.items()})
    whole = load(paths["all"], target="outcome")
    assert not others
    assert table_schema.columns_of(agreed) == whole.columns and agreed["classes"] == list(whole.class_names)
    fitted = [table_schema.fitted(data, agreed, f"site {name}") for name, data in own.items()]
    np.testing.assert_array_equal(np.concatenate([f.x for f in fitted]), whole.x)
    assert np.concatenate([f.y for f in fitted]).tolist() == whole.y.tolist()
    assert all(f.feature_names == whole.feature_names for f in fitted)


def test_numbers_at_one_site_and_text_at_another_leave_one_out(tmp_path: Path) -> None:
    paths = tables(tmp_path)
    paths["b"].write_text(paths["b"].read_text().replace("52", "old").replace(",0.5", "young,0.5"))
    own = {name: table_schema.of(load(paths[name], target="outcome")) for name in ("a", "b")}
    _, others = table_schema.agree(own)
    assert others == {"b": "column 'age' holds text at site b and number at site a."}
    empty_first = {"c": table_schema.of(load(paths["c"], target="outcome")), **own}
    agreed, others = table_schema.agree(empty_first)
    assert list(others) == ["b"] and "column 'age' holds" in others["b"]
    assert next(c["kind"] for c in agreed["columns"] if c["name"] == "age") == "number"


def test_columns_of_a_federation_are_pooled_where_nothing_else_is_asked_for() -> None:
    assert [shared(Recipe(columns=how)).columns for how in ("auto", "pooled", "own")] == ["pooled", "pooled", "own"]
