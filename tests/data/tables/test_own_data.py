"""The user's own data: arrays, npz, CSV and Parquet, good and bad."""

from __future__ import annotations

import gzip
import io
import zipfile
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from sartor.data import file_formats, from_arrays, load
from sartor.data.tables import columns as columns_module
from sartor.data.tables import own_data, scan
from sartor.errors import SartorError

COLUMNS: dict[str, list[object]] = {
    "age": [30, 41, 52, 63] * 10,
    "smoker": [True, False, True, True] * 10,
    "colour": ["red", "blue", "red", "green"] * 10,
    "hospital": ["St. Mary's", "St. Mary's", "City", "City"] * 10,
    "outcome": ["well", "ill", "well", "dead"] * 10,
}


def write(path: Path, columns: dict[str, list[object]]) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
    else:
        rows = [
            ",".join(columns),
            *(",".join("" if v is None else str(v) for v in r) for r in zip(*columns.values(), strict=True)),
        ]
        path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(params=["visits.csv", "visits.parquet"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def test_table(path: Path) -> None:
    data = load(str(write(path, COLUMNS)), target="outcome", client_key="hospital")
    assert data.feature_names == ("age", "smoker", "colour=blue", "colour=green", "colour=red")
    assert data.x[:4].tolist() == [[30, 1, 0, 0, 1], [41, 0, 1, 0, 0], [52, 1, 0, 0, 1], [63, 1, 0, 1, 0]]
    assert data.x.dtype == np.float32 and data.class_names == ("dead", "ill", "well")
    assert data.y[:4].tolist() == [2, 1, 2, 0] and data.classes == 3 and data.name == path.name
    clients = data.split("natural")
    assert clients.names == ["City", "St. Mary's"] and clients.about["class_names"] == ["dead", "ill", "well"]


def test_drop_and_regression(path: Path) -> None:
    data = load(write(path, COLUMNS), target="age", drop=["colour"], task="regression")
    assert data.feature_names == (
        "smoker",
        "hospital=City",
        "hospital=St. Mary's",
        "outcome=dead",
        "outcome=ill",
        "outcome=well",
    )
    assert data.classes is None and data.y[:4].tolist() == [30, 41, 52, 63]
    assert load(write(path, COLUMNS), target="age", drop="colour").classes == 4
    assert load(write(path, COLUMNS), target="smoker").class_names == ("False", "True")


REFUSED = [
    ({"target": "outcom"}, {}, "unknown column of visits.* 'outcom': did you mean outcome"),
    ({"target": "outcome", "client_key": "hospitals"}, {}, "unknown column of .*did you mean hospital"),
    ({"target": "outcome", "drop": ["agee"]}, {}, "unknown column of .*did you mean age"),
    ({}, {}, "say which column is the target .*there are age, smoker, colour, hospital, outcome"),
    ({"target": "outcome", "tagret": 1}, {}, "unknown setting of a file 'tagret': did you mean target"),
    ({"target": "age"}, {"age": [1, None, 3, 4] * 10}, "column age is missing in 10 rows"),
    ({"target": "outcome", "client_key": "age"}, {"age": [1, None, 3, 4] * 10}, "column age is missing in 10 rows"),
    ({"target": "outcome"}, {"age": [float("inf")] * 40}, "the data hold NaN or Inf"),
    ({"target": "age"}, {"age": [date(2020, 1, 1)] * 40}, "column age holds date.*turn it into numbers"),
    (
        {"target": "outcome", "task": "guess"},
        {},
        "task to be one of 'auto', 'classification', 'regression'; got 'guess'",
    ),
    ({"target": "colour", "task": "regression"}, {}, "the target is text, so it cannot be used for regression"),
    (
        {"target": "age", "task": "classification"},
        {"age": [0.5, 1.0] * 20},
        "fractional values, so it cannot be classes",
    ),
    ({"target": "age", "drop": ["smoker", "colour", "hospital", "outcome"]}, {}, "no column is left for the features"),
]


@pytest.mark.parametrize(("options", "changed", "message"), REFUSED)
def test_refused(path: Path, options: dict[str, object], changed: dict[str, list[object]], message: str) -> None:
    with pytest.raises(SartorError, match=message) as caught:
        load(write(path, COLUMNS | changed), **options)
    assert "\n" not in str(caught.value)


def test_too_many_texts(path: Path) -> None:
    columns: dict[str, list[object]] = {
        "name": [f"n{i}" for i in range(990)],
        "kind": [f"k{i % 12}" for i in range(990)],
    }
    target: dict[str, list[object]] = {"y": [i % 2 for i in range(990)]}
    found = load(write(path, columns | target), target="y").columns
    assert [(len(c.texts), c.other) for c in found] == [(0, True), (12, False)]  # no name occurs twice
    assert load(write(path, columns | target), target="y", drop=["kind"]).x.shape == (990, 990)
    with pytest.raises(SartorError, match=r"text with 990 distinct values.*task=.classification"):
        load(write(path, columns | target), target="name")
    assert load(write(path, columns | target), target="name", task="classification").classes == 990


def test_missing_text_is_a_category(tmp_path: Path) -> None:
    for name in ("a.csv", "a.parquet"):
        data = load(write(tmp_path / name, {"c": ["u", None] * 10, "n": [1] * 20, "y": [0, 1] * 10}), target="y")
        assert data.feature_names == ("c=", "c=u", "n") and data.x[:2].tolist() == [[0, 1, 1], [1, 0, 1]]


def test_other_arrow_types(tmp_path: Path) -> None:
    words = pa.array(["b", "a"] * 10).dictionary_encode()
    numbers = pa.array([7, 8] * 10).dictionary_encode()
    small = pa.array([1, 2] * 10, pa.decimal128(5, 2))
    parquet.write_table(pa.table({"w": words, "n": numbers, "d": small, "y": [0, 1] * 10}), tmp_path / "t.parquet")
    data = load(tmp_path / "t.parquet", target="y")
    assert data.feature_names == ("w=a", "w=b", "n", "d") and data.x[:2].tolist() == [[0, 1, 7, 1], [1, 0, 8, 2]]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("a.csv", lambda b: b[:-4] + b"\n"),
        ("a.csv", lambda b: b"\xff\xfe\x00" * 50 + b"\n\xff,\xff"),
        ("a.csv", lambda b: b""),
        ("a.parquet", lambda b: b[: len(b) // 2]),
        ("a.parquet", lambda b: b"PAR1" + b"x" * 100),
        ("a.parquet", lambda b: b""),
    ],
)
def test_damaged_tables(tmp_path: Path, name: str, damage) -> None:
    path = write(tmp_path / name, {"a": [1, 2], "b": [3, 4], "y": [0, 1]})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SartorError) as caught:
        load(path, target="y")
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_packed_csv_and_capital_suffix(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.csv", COLUMNS)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "C.CSV").write_bytes(plain.read_bytes())
    for name in ("a.csv", "b.csv.gz", "C.CSV"):
        assert load(tmp_path / name, target="outcome").x.shape == (40, 7)


def test_empty_and_twice(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,y\n")
    with pytest.raises(SartorError, match="there are no rows"):
        load(tmp_path / "a.csv", target="y")
    (tmp_path / "a.csv").write_text("a,a,y\n1,2,3\n")
    with pytest.raises(SartorError, match="the column a occurs twice"):
        load(tmp_path / "a.csv", target="y")


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    np.savez(
        path, x=np.ones((40, 3)), y=np.arange(40) % 2, subject=np.repeat(["p10", "p9"], 20), goal=np.linspace(0, 1, 40)
    )
    data = load(path, client_key="subject")
    assert data.classes == 2 and data.split("natural").names == ["p9", "p10"]
    assert load(path, target="goal").classes is None
    with pytest.raises(SartorError, match=r"unknown array of own.npz 'subjct': did you mean subject"):
        load(path, client_key="subjct")
    with pytest.raises(SartorError, match="drop is for the columns"):
        load(path, drop=["a"])
    np.savez(path, y=np.zeros(3))
    with pytest.raises(SartorError, match=r"unknown array of own.npz 'x'"):
        load(path)
    np.savez(path, x=np.ones((2, 2)), y=np.array(["a", None], dtype=object))
    with pytest.raises(SartorError, match="pickle"):
        load(path)


@pytest.mark.parametrize(
    ("y", "classes", "labels"),
    [
        ([3, 7, 3], 2, [0, 1, 0]),
        ([3.0, 7.0, 3.0], 2, [0, 1, 0]),
        ([True, False, True], 2, [1, 0, 1]),
        (["b", "a", "b"], 2, [1, 0, 1]),
        ([-1, 1, 1], 2, [0, 1, 1]),
        ([0.5, 1.0, 2.0], None, [0.5, 1.0, 2.0]),
    ],
)
def test_what_is_a_class(y: list[object], classes: int | None, labels: list[float]) -> None:
    data = from_arrays(np.zeros((3, 1)), y)
    assert data.classes == classes and data.y.tolist() == labels
    assert from_arrays(np.zeros((3, 1)), y).y.dtype == (np.int64 if classes else np.float64)


def test_many_whole_numbers_are_regression() -> None:
    assert from_arrays(np.zeros((100, 1)), np.arange(100)).classes == 100
    assert from_arrays(np.zeros((101, 1)), np.arange(101)).classes is None
    assert from_arrays(np.zeros((101, 1)), np.arange(101), task="classification").classes == 101
    assert from_arrays(np.zeros((9, 1)), np.arange(9), task="regression").classes is None


def test_arrays() -> None:
    words = np.array(["b", "a"] * 10, dtype=object)  # as pandas keeps text
    data = from_arrays(np.zeros((20, 2), dtype=bool), words, keys=words)
    assert data.x.dtype == np.float32 and data.classes == 2 and data.split("natural").names == ["a", "b"]
    images = from_arrays(np.full((20, 4, 4), 255, dtype=np.uint8), words)
    assert images.x.dtype == np.uint8 and float(images.split("iid", 2).x.max()) == 1.0
    assert from_arrays(np.full((20, 4), 255, dtype=np.uint8), words).split("iid", 2).x.max() == 255


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: from_arrays(np.zeros(3), [1, 2, 3]), "one row per sample and at least one column"),
        (lambda: from_arrays(np.zeros((0, 2)), []), "there are no samples"),
        (lambda: from_arrays([["a"], ["b"]], [1, 2]), "x must be numbers"),
        (lambda: from_arrays(np.zeros((3, 2)), np.zeros((3, 2))), "y must be one value per sample"),
        (lambda: from_arrays(np.zeros((3, 2)), [1, 2]), "3 rows of x but 2 of y"),
        (lambda: from_arrays(np.zeros((2, 2)), [1.0, np.nan]), "1 targets are missing, NaN or Inf"),
        (lambda: from_arrays(np.zeros((2, 2)), [1, 2], keys=[1.0, np.nan]), "client key is missing in 1 rows"),
        (lambda: from_arrays(np.zeros((2, 2)), [1, 2], keys=[[1], [2]]), "client key must be one value per sample"),
        (lambda: from_arrays(np.zeros((2, 2)), ["a", None]), "targets must be numbers or text"),
        (lambda: from_arrays(np.zeros((2, 2)), [1, 2], keys=["a", None]), "client key must be numbers or text"),
        (lambda: from_arrays(np.zeros((2, 2)) + np.nan, [1, 2]), "the data hold NaN or Inf"),
    ],
)
def test_bad_arrays(make, message: str) -> None:
    with pytest.raises(SartorError, match=message):
        make()


# --- files that unpack to more than they should, and wide ones --------------------------------------------------------


def _packed(path: Path, rows: int) -> Path:
    table = "age,outcome\n" + "1.5,1\n2.5,0\n" * (rows // 2)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(table.encode(), 9))
    elif path.suffix == ".npz":
        np.savez_compressed(path, x=np.zeros((rows, 2)), y=np.arange(rows) % 2)
    else:
        parquet.write_table(pa.table({"age": np.zeros(rows), "outcome": np.arange(rows) % 2}), path)
    return path


@pytest.mark.parametrize("name", ["a.csv.gz", "a.npz", "a.parquet"])
def test_a_file_that_unpacks_to_far_more_than_it_should_is_refused_on_the_way(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, target = 2_000_000, "y" if name == "a.npz" else "outcome"
    path = _packed(tmp_path / name, rows)
    assert len(load(path, target=target)) == rows  # megabytes are no harm
    monkeypatch.setattr(file_formats, "SMALL", 1 << 20)
    monkeypatch.setattr(file_formats, "PACKED", 2)
    monkeypatch.setattr(scan, "BLOCK", 1 << 18)
    with pytest.raises(SartorError, match=rf"{name}: .* bytes unpack to .*unpack it and give the .csv") as caught:
        load(path, target=target)
    unpacked = int(str(caught.value).split("unpack to ")[1].split(", over")[0].replace(",", ""))
    assert name != "a.csv.gz" or 1 << 20 < unpacked < 4 << 20  # of 12 megabytes


def test_an_npz_that_claims_more_than_it_holds_is_refused_before_there_is_memory(tmp_path: Path) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40, 2)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("x.npy", head.getvalue() + bytes(80))
    with pytest.raises(SartorError, match=r"damaged: x\.npy is cut off"):
        load(tmp_path / "a.npz")


def test_a_table_of_thousands_of_columns_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = 3000
    values = np.random.default_rng(0).normal(size=(40, wide)).round(3)
    lines = [",".join([*(f"c{i}" for i in range(wide)), "outcome"])]
    lines += [",".join([*map(str, row), str(i % 2)]) for i, row in enumerate(values)]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    calls, pieces = [], []
    monkeypatch.setattr(own_data, "places", lambda columns: calls.append(1) or columns_module.places(columns))
    opened = scan._pieces
    monkeypatch.setattr(scan, "_pieces", lambda *a: (pieces.append(1) or batch for batch in opened(*a)))
    found = load(tmp_path / "a.csv", target="outcome")
    np.testing.assert_array_equal(found.x, values.astype(np.float32))
    assert len(pieces) == 2 and len(calls) == 1  # looked through, then filled; places not for each column anew


@pytest.mark.parametrize("end", [[], ["NA"], [" 7 "], ["true"], ["x"], ["nan"], [""]])
def test_the_quick_way_to_numbers_finds_what_the_long_one_does(end: list[str]) -> None:
    texts = pa.array(["1", "2.5", "-3e5", "1e400", *end])
    quick, long = scan.ColumnScan("a", typed=False), scan.ColumnScan("a", typed=False)
    quick.add(texts)
    long.rows += len(texts)
    long.blank += texts.to_pylist().count("")
    long._guess(texts)
    same = ("rows", "missing", "blank", "number", "flag", "date", "odd")
    assert [getattr(quick, k) for k in same] == [getattr(long, k) for k in same]
    if quick.number:
        known = {"NA": "nan", "": "nan", "true": "1"}
        expected = [float(known.get(text, text)) for text in texts.to_pylist()]
        np.testing.assert_array_equal(scan.to_numbers(texts), expected)
