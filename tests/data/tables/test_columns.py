"""Own tables: what becomes of columns, whose statistics are used, folders and objects, and how much memory it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from sartor.data import Dataset, Natural, describe, load
from sartor.data.inputs import Inputs
from sartor.data.tables.new_samples import read_like
from sartor.errors import SartorError


def table(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """Two hospitals of twenty; age on different scales, bmi missing at B now and then, sex as text."""
    draw, lines = np.random.default_rng(0), ["hospital,age,bmi,sex,ill"]
    for name, shift in (("A", 100.0), ("B", -7.0)):
        for i in range(20):
            bmi = "" if name == "B" and i % 4 == 0 else f"{draw.normal(25, 3):.2f}"
            lines.append(f"{name},{draw.normal(shift, 5):.3f},{bmi},{'fm'[i % 2]},{i % 2}")
    return table(tmp_path / "visits.csv", "\n".join(lines) + "\n")


def own(data: Dataset, **options: Any) -> Any:
    return data.split("natural", parts=(0.5, 0.2, 0.3), seed=4, **options)


def test_numbers_are_scaled_by_each_clients_own_training_rows(visits: Path) -> None:
    """Against NumPy, client by client; and nothing of the other parts or clients has any influence."""
    data = load(visits, target="ill", client_key="hospital")
    assert data.feature_names == ("age", "bmi", "bmi is missing", "sex=f", "sex=m")
    clients = own(data, dtype=torch.float64)
    order = data.deal(Natural(), None, 4, (0.5, 0.2, 0.3), 10)[1]
    raw = data.x[order].astype(np.float64)
    for i in range(2):
        rows = slice(int(clients.bounds[i, 0]), int(clients.bounds[i, 3]))
        train = slice(int(clients.bounds[i, 0]), int(clients.bounds[i, 1]))
        for k in (0, 1):
            there = raw[train, k][~np.isnan(raw[train, k])]
            filled = np.where(np.isnan(raw[rows, k]), np.median(there), raw[rows, k])
            wanted = (filled - there.mean()) / there.std()
            np.testing.assert_allclose(clients.x[rows, k].numpy(), wanted, rtol=1e-12, atol=1e-12)
        assert clients.x[rows, 2].numpy().tolist() == np.isnan(raw[rows, 1]).tolist()
    changed = data.x.copy()
    later = order[int(clients.bounds[0, 1]) : int(clients.bounds[1, 0])]
    changed[later, 0] += 1e6  # client A's validation and test rows
    other = own(Dataset(changed, data.y, 2, keys=data.keys, columns=data.columns, key_names=data.key_names))
    plain = own(data)
    untouched = [slice(0, int(clients.bounds[0, 1])), slice(int(clients.bounds[1, 0]), None)]
    for rows in untouched:  # neither A's training rows nor anything of B has moved
        assert torch.equal(other.x[rows], plain.x[rows])


def test_pooled_statistics_are_used_only_where_asked_for(visits: Path) -> None:
    data = load(visits, target="ill", client_key="hospital")
    pooled, alone = own(data, columns="pooled", dtype=torch.float64), own(data, dtype=torch.float64)
    train = np.concatenate([np.arange(*pooled.bounds[i, :2]) for i in range(2)])
    age = pooled.x[train, 0].numpy()
    assert age.mean() == pytest.approx(0, abs=1e-9) and age.std() == pytest.approx(1, rel=1e-9)
    assert abs(pooled.x[pooled.rows(0, "train"), 0].mean()) > 0.9  # hospitals that differ still do
    assert abs(alone.x[alone.rows(0, "train"), 0].mean()) < 1e-9
    with pytest.raises(SartorError, match=r"visits.csv: column bmi is missing in 5 of 40 rows; raw columns"):
        own(data, columns="raw")
    with pytest.raises(SartorError, match="columns to be one of 'own', 'pooled', 'raw'; got 'mine'"):
        own(data, columns="mine")


def test_what_was_done_is_said_and_done_again(visits: Path, tmp_path: Path) -> None:
    """inputs.json, read back, gives training samples the features that they had; a new text has none."""
    data = load(visits, target="ill", client_key="hospital")
    clients = own(data)
    assert "the client's own median" in " ".join(clients.inputs.words())
    inputs = Inputs.of(json.loads(json.dumps(clients.inputs.plain())), "here")
    later = read_like(visits, inputs, "ill", "hospital")
    order = data.deal(Natural(), None, 4, (0.5, 0.2, 0.3), 10)[1]
    for i, name in enumerate(("A", "B")):
        rows = slice(int(clients.bounds[i, 0]), int(clients.bounds[i, 3]))
        assert {later.keys[j] for j in order[rows]} == {name}  # type: ignore[index]
        assert torch.equal(inputs.ready(later.x[order[rows]], i, torch.float32), clients.x[rows])
    new = table(tmp_path / "new.csv", "sex,bmi,age\nx,NA,3\n")
    later = read_like(new, inputs)
    assert later.x[0, 2:].tolist() == [1, 0, 0] and np.isnan(later.x[0, 1])
    assert later.notes == [
        "new.csv: column sex holds 'x', which the model has never seen: taken as none of the known ones"
    ]
    between = inputs.ready(later.x, None, torch.float64)[0, 0]  # nobody's: the mean of both hospitals' statistics
    own_ages = [inputs.statistics.of(i) for i in range(2)]  # type: ignore[union-attr]
    centre, spread = (np.mean([s[k][0] for s in own_ages]) for k in (1, 2))
    assert float(between) == pytest.approx((3 - centre) / spread)


BAD = [
    ("h,a,y\nX,1,0\nX,2,\n", "column y is missing in 1 rows"),
    ("h,a,y\n,1,0\nX,2,1\n", "column h is missing in 1 rows"),
    ("h,a,y\n" + "".join(f"X,{'high' if i == 30 else i},{i % 2}\n" for i in range(60)), "numbers and text .*'high'"),
    ("h,a,y\n" + "".join(f"X,id{i},{i % 2}\n" for i in range(10_000)), "column a has 10000 distinct texts; at most"),
    ("h,a,y\nSt. Mary,1,0\nst mary,2,1\nCity,3,1\n", r"'St. Mary' \(1 rows\) and 'st mary' .*under two spellings"),
    ("h,a,y\nX,,0\nX,,1\n", "no column is left"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_bad_table_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SartorError, match=message) as caught:
        load(table(tmp_path / "t.csv", text), target="y", client_key="h")
    assert "\n" not in str(caught.value)


def test_spellings_can_be_kept_or_taken_together(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "h,a,y\n" + "St. Mary,1,0\n" * 6 + "ST MARY ,2,1\n" * 5 + "City,3,1\n" * 12)
    kept = load(path, target="y", client_key="h", spellings="apart").split("natural", minimum=1)
    assert kept.names == ["City", "ST MARY ", "St. Mary"]
    one = load(path, target="y", client_key="h", spellings="together").split("natural", minimum=1)
    assert one.names == ["City", "St. Mary"] and (one.bounds[:, 3] - one.bounds[:, 0]).tolist() == [12, 11]


def test_empty_columns_late_texts_and_small_clients(tmp_path: Path) -> None:
    """A column that is a number for many blocks and then text is text; all-missing ones are left out, and said so."""
    rows = [f"H{i % 2},{'' if i % 3 else 'NA'},{i % 7 if i < 399_000 else 'late'},{i % 2}" for i in range(400_000)]
    path = table(tmp_path / "t.csv", "h,gone,code,y\n" + "\n".join([*rows, "Lonely,,1,0"]) + "\n")
    data = load(path, target="y", client_key="h")
    assert [c.kind for c in data.columns] == ["empty", "text"] and data.columns[1].texts[-2:] == ("6", "late")
    about = data.split("natural").about
    assert about["left_out"] == 1 and about["too_small"] == ["Lonely"]
    assert "1 keys with too few samples left out (Lonely), see --minimum" in describe(about)
    assert data.split("natural", minimum=1).names == ["H0", "H1", "Lonely"]  # one row: training only


def test_a_folder_is_a_client_for_each_file(tmp_path: Path, visits: Path) -> None:
    whole = own(load(visits, target="ill", client_key="hospital"))
    lines = visits.read_text().splitlines()
    folder = tmp_path / "hospitals"
    folder.mkdir()
    (tmp_path / "none").mkdir()
    for name, part in (("A", lines[1:21]), ("B", lines[21:])):
        rows = [line.split(",")[1:] for line in part]
        if name == "B":  # semicolons, and columns in another order
            rows = [[r[3], *r[:3]] for r in rows]
            table(folder / "B.csv", "ill;age;bmi;sex\n" + "\n".join(";".join(r) for r in rows) + "\n")
        else:
            table(folder / "A.csv", "age,bmi,sex,ill\n" + "\n".join(",".join(r) for r in rows) + "\n")
    clients = own(load(folder, target="ill"))
    assert clients.names == ["A", "B"] and torch.equal(clients.x, whole.x) and torch.equal(clients.y, whole.y)
    table(folder / "C.csv", "age,sex,ill\n1,f,0\n")
    with pytest.raises(SartorError, match=r"C.csv has no column bmi, which A.csv has"):
        load(folder, target="ill")
    with pytest.raises(SartorError, match="holds no tables"):
        load(tmp_path / "none", target="ill")


# --- objects ----------------------------------------------------------------------------------------------------------


class Frame:
    """What is used of a pandas data frame."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns, self.columns, self.dtypes = columns, list(columns), None

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


class Hugging:
    """What is used of a Hugging Face data set."""

    def __init__(self, arrow: pa.Table) -> None:
        self.arrow, self.column_names = arrow, arrow.column_names
        self.features: dict[str, object] = dict.fromkeys(arrow.column_names)

    def with_format(self, kind: str) -> Hugging:
        assert kind == "arrow"
        return self

    def __getitem__(self, rows: slice) -> pa.Table:
        return self.arrow


class Flower:
    """What is used of a Flower FederatedDataset."""

    def __init__(self, parts: list[Hugging]) -> None:
        self.parts, self.num_partitions = parts, len(parts)
        self.partitioners = {"train": self}

    def load_partition(self, i: int, split: str = "train") -> Hugging:
        return self.parts[i]


def objects(visits: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    from pyarrow import csv

    arrow = csv.read_csv(visits)
    key = {"client_key": "hospital"}
    yield arrow, key
    yield Hugging(arrow), key
    yield {c: arrow.column(c).to_pylist() for c in arrow.column_names}, key
    yield Frame({c: np.array(arrow.column(c).to_pylist(), dtype=object) for c in arrow.column_names}), key
    parts = [Hugging(arrow.slice(20 * i, 20).drop(["hospital"])) for i in range(2)]
    yield Flower(parts), {}


def test_every_kind_of_object_gives_what_the_file_gives(visits: Path) -> None:
    wanted = own(load(visits, target="ill", client_key="hospital"))
    for thing, options in objects(visits):
        found = own(load(thing, target="ill", **options))
        assert torch.equal(found.x, wanted.x) and torch.equal(found.y, wanted.y), type(thing)


def test_arrays_and_what_is_no_data(visits: Path) -> None:
    X, y, g = np.arange(60.0).reshape(30, 2), np.arange(30) % 2, ["a", "b", "c"] * 10
    assert load((X, y, g)).split("natural").names == ["a", "b", "c"]
    assert load({"x": X, "y": y, "g": g}, client_key="g").split("natural").names == ["a", "b", "c"]
    assert load((X, y)).keys is None
    with pytest.raises(SartorError, match="a Hugging Face or a Flower data set; got int"):
        load(7, target="y")
    with pytest.raises(SartorError, match=r"several splits \(train\); pass one of them"):
        load({"train": Hugging(pa.table({"a": [1]}))}, target="a")
    with pytest.raises(SartorError, match="column a mixes int and str"):
        load({"a": [1, "x"], "y": [0, 1]}, target="y")
    with pytest.raises(SartorError, match="unknown setting of data 'tagret': did you mean target"):
        load((X, y), tagret="y")


def test_the_real_packages_if_they_are_here(visits: Path) -> None:
    datasets, pandas = pytest.importorskip("datasets"), pytest.importorskip("pandas")
    wanted = own(load(visits, target="ill", client_key="hospital"))
    frame = pandas.read_csv(visits)
    things = [frame, datasets.Dataset.from_pandas(frame)]
    for thing in things:
        found = own(load(thing, target="ill", client_key="hospital"))
        assert torch.equal(found.x, wanted.x) and torch.equal(found.y, wanted.y)
    X, y, groups = frame.drop(columns=["ill", "hospital"]), frame["ill"], frame["hospital"]
    assert torch.equal(own(load((X, y, groups))).x, wanted.x)
    pixels = np.random.default_rng(0).integers(0, 255, (20, 8, 8), dtype=np.uint8)
    from PIL import Image

    rows = {"image": [Image.fromarray(p) for p in pixels], "label": [i % 2 for i in range(20)]}
    images = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
    assert np.array_equal(load(images).x[:, 0], pixels)
    flwr = pytest.importorskip("flwr_datasets.partitioner")
    parts = flwr.NaturalIdPartitioner(partition_by="hospital")
    parts.dataset = datasets.Dataset.from_pandas(frame)
    found = load(parts, target="ill", drop=["hospital"])
    assert torch.equal(own(found).x, wanted.x)


# --- size -------------------------------------------------------------------------------------------------------------

STREAM = """
import resource, sys
from sartor.data import load
load(sys.argv[1], target="y", client_key="h")  # everything that has to be imported is
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
clients = load(sys.argv[2], target="y", client_key="h").split("natural")
print(len(clients.x), clients.x.numel() * 4, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    """Peak memory grows by a few copies of the features (four bytes each), not by the file or its texts."""
    small = table(tmp_path / "small.csv", "h,y,a\n" + "North Western General Hospital 1,0,0.5\n" * 20)
    block = "".join(
        f"North Western General Hospital {i % 9},{i % 2},"
        + ",".join(f"{(i * k % 997) / 7:.15f}" for k in range(1, 9))
        + "\n"
        for i in range(5000)
    )
    large = tmp_path / "large.csv"
    with large.open("w") as file:
        file.write("h,y,a,b,c,d,e,f,g,i\n")
        for _ in range(60):
            file.write(block)
    done = subprocess.run([sys.executable, "-c", STREAM, small, large], capture_output=True, text=True, check=True)
    rows, features, grown = map(int, done.stdout.split())
    assert rows == 300_000 and large.stat().st_size > 55e6
    assert grown < 3 * features + 40e6 < large.stat().st_size * 1.3, (grown, features)
