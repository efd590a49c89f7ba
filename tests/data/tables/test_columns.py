"""Own tables: what becomes of columns, whose statistics are used, folders and objects, and how much memory it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from commandline import sartor

import sartor as st
from sartor.data import Dataset, Natural, describe, load
from sartor.data.inputs import Inputs
from sartor.data.tables.moments import Moments, columns_scale, moments, pooled
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
    clients = own(data, dtype=torch.float64, columns="own")
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
    moved = Dataset(changed, data.y, 2, keys=data.keys, columns=data.columns, key_names=data.key_names)
    other = own(moved, columns="own")
    plain = own(data, columns="own")
    untouched = [slice(0, int(clients.bounds[0, 1])), slice(int(clients.bounds[1, 0]), None)]
    for rows in untouched:  # neither A's training rows nor anything of B has moved
        assert torch.equal(other.x[rows], plain.x[rows])


def test_pooled_statistics_are_the_default_and_keep_what_differs(visits: Path) -> None:
    """Against NumPy over all training rows; a missing number becomes their mean, which is 0 to scale."""
    data = load(visits, target="ill", client_key="hospital")
    pooled, alone = own(data, dtype=torch.float64), own(data, columns="own", dtype=torch.float64)
    assert torch.equal(own(data, columns="pooled", dtype=torch.float64).x, pooled.x)
    raw = data.x[data.deal(Natural(), None, 4, (0.5, 0.2, 0.3), 10)[1]].astype(np.float64)
    train = np.concatenate([np.arange(*pooled.bounds[i, :2]) for i in range(2)])
    age = pooled.x[train, 0].numpy()
    assert age.mean() == pytest.approx(0, abs=1e-9) and age.std() == pytest.approx(1, rel=1e-9)
    there = raw[train, 1][~np.isnan(raw[train, 1])]
    wanted = np.where(np.isnan(raw[:, 1]), 0.0, (raw[:, 1] - there.mean()) / there.std())
    np.testing.assert_allclose(pooled.x[:, 1].numpy(), wanted, rtol=1e-10, atol=1e-10)
    assert np.isnan(raw[:, 1]).sum() == 5
    assert abs(pooled.x[pooled.rows(0, "train"), 0].mean()) > 0.9  # hospitals that differ still do
    assert abs(alone.x[alone.rows(0, "train"), 0].mean()) < 1e-9
    with pytest.raises(SartorError, match=r"visits.csv: column bmi is missing in 5 of 40 rows; raw columns"):
        own(data, columns="raw")
    with pytest.raises(SartorError, match="columns to be one of 'pooled', 'own', 'raw'; got 'mine'"):
        own(data, columns="mine")


def test_what_was_done_is_said_and_done_again(visits: Path, tmp_path: Path) -> None:
    """inputs.json, read back, gives training samples the features that they had; a new text has none."""
    data = load(visits, target="ill", client_key="hospital")
    assert "all clients' mean" in " ".join(own(data).inputs.words())
    clients = own(data, columns="own")
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
    ("h,a,y\nSt. Mary,1,0\nst mary,2,1\nCity,3,1\n", r"'St. Mary' \(1 rows\) and 'st mary' .*under two spellings"),
    ("h,a,y\nX,,0\nX,,1\n", "no column is left"),
]


def test_of_very_many_texts_the_frequent_ones_have_a_feature(tmp_path: Path) -> None:
    """1500 names: "common" and "usual" occur often, all others once; and 150 that occur equally often."""
    names = ["common"] * 300 + ["usual"] * 200 + [f"id{i}" for i in range(1500)]
    lines = [f"{name},{i},{i % 2}" for i, name in enumerate(names)]
    data = load(table(tmp_path / "t.csv", "name,a,y\n" + "\n".join(lines) + "\n"), target="y")
    assert data.feature_names == ("name=common", "name=usual", "name is another text", "a")
    wanted = [[float(n == "common"), float(n == "usual"), float(n.startswith("id"))] for n in names]
    assert data.x[:, :3].tolist() == wanted
    assert "the 2 most frequent values, one for all others" in " ".join(data.split("iid").inputs.words())  # type: ignore[union-attr]
    inputs = Inputs.of(json.loads(json.dumps(data.split("iid").inputs.plain())), "here")  # type: ignore[union-attr]
    later = read_like(table(tmp_path / "new.csv", "name,a\nnobody,3\nusual,4\n"), inputs)
    assert later.x[:, :3].tolist() == [[0, 0, 1], [0, 1, 0]] and later.notes == []
    many = ["n"] + [f"w{i % 150}" for i in range(1200)]  # each occurs eight times: a hundred of them, by the alphabet
    wide = "a,b,y\n" + "\n".join(f"{v},id{i},{i % 2}" for i, v in enumerate(many)) + "\n"
    column = load(table(tmp_path / "w.csv", wide), target="y").columns[0]
    assert (
        len(column.texts) == 100 and column.other and column.texts == tuple(sorted(f"w{i}" for i in range(150)))[:100]
    )


def test_dates_are_days_since_1970(tmp_path: Path) -> None:
    """Against Python's own calendar; in CSV as ISO text, in Parquet by type, with and without a zone."""
    from pyarrow import parquet

    days = [date(1970, 1, 1), date(1999, 12, 31), None, date(2024, 2, 29)] * 10
    wanted = [np.nan if d is None else float(d.toordinal() - date(1970, 1, 1).toordinal()) for d in days]
    text = "day,at,y\n" + "".join(
        f"{d or ''},{'' if d is None else f'{d}T06:00:00Z'},{i % 2}\n" for i, d in enumerate(days)
    )
    moments_ = [None if d is None else datetime(d.year, d.month, d.day, 6, tzinfo=UTC) for d in days]
    arrow = {"day": pa.array(days), "at": pa.array(moments_), "y": [i % 2 for i in range(40)]}
    parquet.write_table(pa.table(arrow), tmp_path / "t.parquet")
    for path in (table(tmp_path / "t.csv", text), tmp_path / "t.parquet"):
        data = load(path, target="y")
        assert [c.kind for c in data.columns] == ["date", "date"] and data.columns[0].missing
        np.testing.assert_array_equal(data.x[:, 0], np.array(wanted, dtype=np.float32))
        np.testing.assert_array_equal(data.x[:, 2], np.array(wanted, dtype=np.float32) + np.float32(0.25))
        clients = data.split("iid", clients=2)
        assert "dates, as days since 1970" in " ".join(clients.inputs.words())  # type: ignore[union-attr]
        assert bool(torch.isfinite(clients.x).all())
    with pytest.raises(SartorError, match=r"d.csv: column day holds dates; turn it into numbers"):
        load(table(tmp_path / "d.csv", text.replace("\n,,", "\n2020-01-01,,")), target="day")


def test_numbers_that_are_0_or_1_are_not_scaled(tmp_path: Path) -> None:
    """A rare 1 would become a large number; a target of 0 and 1 keeps its names."""
    lines = [f"{int(i == 7)},{i % 3},{'' if i == 3 else i % 2}.0,{i % 2}" for i in range(40)]
    data = load(table(tmp_path / "t.csv", "rare,three,gap,y\n" + "\n".join(lines) + "\n"), target="y")
    assert [c.kind for c in data.columns] == ["flag", "number", "flag"] and data.class_names == ("0", "1")
    assert set(data.split("iid", clients=2).x[:, 0].tolist()) == {0.0, 1.0}


def test_constant_columns_and_fewer_rows_than_columns(tmp_path: Path) -> None:
    header = ",".join(["h", *(f"c{i}" for i in range(60)), "y"])
    rows = [f"{'AB'[i % 2]},{','.join(['5'] * 30 + [str(i * k % 7) for k in range(30)])},{i / 3}" for i in range(24)]
    data = load(table(tmp_path / "t.csv", "\n".join([header, *rows]) + "\n"), target="y", client_key="h")
    clients = data.split("natural")
    assert bool(torch.isfinite(clients.x).all()) and bool((clients.x[:, :31] == 0).all())
    result = st.fit(st.FedAvg(), st.models.build("linear", (60,), 1), clients, rounds=2)
    assert np.isfinite(result.scores["global/test/loss"]).all()


def test_a_target_in_disguise_is_pointed_out(tmp_path: Path) -> None:
    """A code that says the class, gaps that say it, the target in other units; not identifiers, nor what is 0.99."""
    draw = np.random.default_rng(0)
    y, noise = draw.normal(size=200), draw.normal(size=200)
    ill = y > 0
    columns = {
        "code": np.where(ill, draw.choice(["A1", "A2"], 200), "B"),
        "died": np.where(ill, "1", ""),  # only filled for one class
        "id": [f"p{i}" for i in range(200)],
        "number": np.arange(200),
        "near": np.where(draw.random(200) < 0.05, ~ill, ill).astype(int),
    }
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), ill, strict=True)]
    data = load(table(tmp_path / "t.csv", ",".join([*columns, "ill"]) + "\n" + "\n".join(lines) + "\n"), target="ill")
    said = data.split("iid", clients=4).about["warnings"]
    assert [line.split()[2] for line in said if "tells the class" in line] == ["code", "died"]  # type: ignore[attr-defined]
    columns = {"celsius": 1.8 * y + 32 + 0.01 * noise, "close": y + 0.14 * noise, "same": np.full(200, 3)}
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), y, strict=True)]
    data = load(table(tmp_path / "r.csv", ",".join([*columns, "y"]) + "\n" + "\n".join(lines) + "\n"), target="y")
    said = data.split("iid", clients=4).about["warnings"]
    assert "r.csv: column celsius is the target in other units" in said[0]  # type: ignore[index]
    assert said[1:] == ["r.csv: column same has the same value in every training row: it says nothing."]  # type: ignore[index]
    assert "warnings" not in load("digits").split("iid").about


def test_moments_of_clients_make_those_of_all_rows() -> None:
    """Against NumPy over all rows at once; and each column's bits are its own."""
    draw = np.random.default_rng(1)
    parts = [draw.normal(20_000, 1 + k, size=(50 + k, 4)).astype(np.float32) for k in range(6)]
    parts[2][:, 1] = np.nan
    parts[3][::3, 1] = np.nan
    each = Moments.joined([moments(p) for p in parts])
    mean, spread = pooled(each)
    every = np.concatenate(parts).astype(np.float64)
    np.testing.assert_allclose(mean, np.nanmean(every, axis=0), rtol=1e-14)
    np.testing.assert_allclose(spread, np.nanstd(every, axis=0), rtol=1e-10)
    for k in range(4):  # alone or beside others, the same bits
        alone = Moments.joined([moments(p[:, [k]]) for p in parts])
        assert all(np.array_equal(a[:, 0], b[:, k]) for a, b in zip(alone, each, strict=True))
        assert pooled(alone)[1][0] == spread[k]
    scaled = np.array([True, True, True, False])
    near = columns_scale(each, scaled)
    assert np.array_equal(near[0], mean) and np.array_equal(near[1], spread)  # clients that are alike
    parts[5] += 100
    each = Moments.joined([moments(p) for p in parts])
    mean, spread = pooled(each)
    centre, wider = columns_scale(each, scaled)
    away = np.array([[(np.nanmean(p[:, k].astype(np.float64)) if k != 1 or i != 2 else centre[k]) for k in range(3)]
                     for i, p in enumerate(parts)])  # fmt: skip
    assert np.sqrt((((away - centre[:3]) / wider[:3]) ** 2).sum(1)).max() == pytest.approx(2.0, rel=1e-6)
    assert len(set((wider / spread).round(12))) == 1 and wider[0] > 1.2 * spread[0]  # one factor for all
    flat = pooled(moments(np.full((9, 1), 0.1)))
    assert flat[0][0] == pytest.approx(0.1) and flat[1][0] == 1.0


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


def test_the_command_line_points_out_a_target_in_disguise(tmp_path: Path) -> None:
    lines = [f"{'AB'[i % 2]},{i * 37 % 11},{i * 7 % 5 > 1},{i * 7 % 5 > 1}" for i in range(80)]
    path = table(tmp_path / "t.csv", "h,a,leak,y\n" + "\n".join(lines) + "\n")
    asked = ("--data", path, "--target", "y", "--client-key", "h", "--model", "softmax", "--rounds", 2)
    for command in (("run",), ("compare", "--methods", "local,fedavg")):
        answer = sartor(*command, *asked)
        assert answer.code == 0 and answer.err.count("warning: t.csv: column leak tells the class of every") == 1
    assert "warning" not in sartor("run", *asked, "--leave-out", "leak").err
