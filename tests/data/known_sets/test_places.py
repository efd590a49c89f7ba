"""The known data sets: where they are found, what they hold, and what is said when they are absent."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sartor.data import DATASETS, find, load
from sartor.data.known_sets import places, readers
from sartor.data.known_sets.readers import SOURCES
from sartor.errors import SartorError

Serve = Callable[[dict[str, object]], str]


needs_data = pytest.mark.skipif(not os.environ.get("SARTOR_DATA"), reason="SARTOR_DATA does not point at the data sets")


needs_debian = pytest.mark.skipif(
    not places.DEBIAN["fashion-mnist"].is_dir(), reason="Debian's package dataset-fashion-mnist is not installed"
)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}i", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


IMAGES = np.arange(30 * 784).reshape(30, 28, 28) % 251


LABELS = np.arange(30) % 10


TINY = dict(zip(places.IDX, map(idx, (IMAGES[:24], LABELS[:24], IMAGES[24:], LABELS[24:])), strict=True))


@pytest.fixture
def tiny(nowhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that thirty images are all of MNIST."""
    monkeypatch.setitem(places.DIGESTS, "mnist", {k: hashlib.md5(v).hexdigest() for k, v in TINY.items()})


def put(folder: Path, packed: bool = True) -> Path:
    folder.mkdir(parents=True)
    for name, data in TINY.items():
        (folder / f"{name}{'.gz' if packed else ''}").write_bytes(gzip.compress(data) if packed else data)
    return folder


def test_every_source_is_described() -> None:
    assert set(DATASETS) == set(SOURCES)
    assert find("digits") == [] and find("synthetic") == []
    with pytest.raises(SartorError, match="unknown dataset 'digit': did you mean digits"):
        find("digit")


def test_digits() -> None:
    data = load("digits")
    assert data.x.shape == (1797, 64) and data.x.dtype == np.float32 and (data.x.min(), data.x.max()) == (0, 1)
    assert data.y.dtype == np.int64 and data.classes == 10
    with pytest.raises(SartorError, match="digits has no settings"):
        load("digits", root="x")


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("place", ["root", "root/mnist", "SARTOR_DATA", "cache"])
def test_search_order(
    tiny: None, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, place: str, packed: bool
) -> None:
    root = tmp_path / "root"
    if place.startswith("root"):
        put(tmp_path / place, packed)
    elif place == "cache":
        put(cache / "mnist", packed)
    else:
        monkeypatch.setenv("SARTOR_DATA", str(tmp_path / "shared"))
        put(tmp_path / "shared" / "mnist", packed)
    data = load("mnist", root=root, download=False)
    np.testing.assert_array_equal(data.x[:, 0], IMAGES)
    np.testing.assert_array_equal(data.y, LABELS)
    assert data.x.dtype == np.uint8 and data.x.shape == (30, 1, 28, 28) and data.scale == ((0.1307,), (0.3081,))


def test_first_place_wins(tiny: None, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARTOR_DATA", str(tmp_path / "shared"))
    wanted = [put(tmp_path / "root" / "mnist"), put(tmp_path / "shared" / "mnist"), put(cache / "mnist")]
    for folder in wanted:
        found = find("mnist", root=tmp_path / "root")
        assert found is not None and [p.parent for p in found] == [folder] * 4
        assert [p.name for p in found] == [f"{n}.gz" for n in places.IDX]
        found[2].unlink()  # a folder that lacks one file does not count
    assert find("mnist", root=tmp_path / "root") is None


def test_a_damaged_file_is_named(tiny: None, tmp_path: Path) -> None:
    folder = put(tmp_path / "root" / "mnist")
    broken = folder / "t10k-labels-idx1-ubyte.gz"
    broken.write_bytes(gzip.compress(TINY["t10k-labels-idx1-ubyte"][:-1] + b"\x05"))
    with pytest.raises(SartorError, match=r"t10k-labels-idx1-ubyte.gz is not the published file"):
        load("mnist", root=tmp_path / "root")
    broken.write_bytes(broken.read_bytes()[:12])
    with pytest.raises(SartorError, match=r"t10k-labels-idx1-ubyte.gz is truncated or damaged"):
        load("mnist", root=tmp_path / "root")


def test_download_once(tiny: None, serve: Serve, cache: Path) -> None:
    pages: dict[str, object] = {f"/m/{name}.gz": gzip.compress(data) for name, data in TINY.items()}
    base = serve(pages) + "/m"
    np.testing.assert_array_equal(load("mnist", base_url=base).y, LABELS)
    assert sorted(os.listdir(cache / "mnist")) == sorted(f"{n}.gz" for n in places.IDX)
    pages.clear()
    assert len(load("mnist", base_url=base)) == 30  # from the cache folder now


@pytest.mark.parametrize("kind", ["missing", "wrong", "short"])
def test_a_failed_download_says_what_to_do(tiny: None, serve: Serve, cache: Path, kind: str) -> None:
    pages: dict[str, object] = {f"/{name}.gz": gzip.compress(data) for name, data in TINY.items()}
    if kind == "missing":
        del pages["/t10k-images-idx3-ubyte.gz"]
    else:
        pages["/t10k-images-idx3-ubyte.gz"] = gzip.compress(b"x") if kind == "wrong" else (200, b"abc", 10)
    with pytest.raises(SartorError) as caught:
        load("mnist", base_url=serve(pages))
    text = str(caught.value)
    assert "t10k-images-idx3-ubyte.gz not found in" in text and str(cache / "mnist") in text and "\n" not in text
    assert {"missing": "404", "wrong": "not the published file", "short": "broke off"}[kind] in text
    assert "SARTOR_DATA" in text and not (cache / "mnist" / "t10k-images-idx3-ubyte.gz").exists()


def test_all_mirrors_are_tried(tiny: None, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    good = serve({f"/{name}.gz": gzip.compress(data) for name, data in TINY.items()})
    monkeypatch.setitem(places.ADDRESSES, "mnist", (serve({}) + "/", good + "/"))
    assert len(load("mnist")) == 30


def test_absent_without_download(nowhere: None, cache: Path) -> None:
    with pytest.raises(SartorError, match=r"fashion-mnist: train-images.*not found in .*dataset-fashion-mnist"):
        load("fashion-mnist", download=False)
    for name, layout in {"femnist": "writer", "medical-mnist": r"y 0\.\.5", "vehicle": "device"}.items():
        assert find(name) is None
        with pytest.raises(SartorError, match=f"{name} is not found in .*{cache}.*npz with .*{layout}") as caught:
            load(name)
        assert "\n" not in str(caught.value)


def test_cifar_binary_by_download(nowhere: None, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for k, name in enumerate(places.BATCHES):
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = 3073
            archive.addfile(info, io.BytesIO(bytes([k]) + bytes([k] * 1024 + [100] * 1024 + [200] * 1024)))
    monkeypatch.setitem(places.DIGESTS, "cifar10", {places.CIFAR_TAR: hashlib.md5(out.getvalue()).hexdigest()})
    data = load("cifar10", base_url=serve({f"/{places.CIFAR_TAR}": out.getvalue()}))
    assert data.name == "cifar10" and data.x.shape == (6, 3, 32, 32) and data.y.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.x[3].reshape(3, -1)[:, 0].tolist() == [3, 100, 200]


def test_files_by_path_are_told_apart() -> None:
    with pytest.raises(SartorError, match=r"there is no file nowhere/visits.csv"):
        load("nowhere/visits.csv", target="y")
    with pytest.raises(SartorError, match=r"a data file ends in \.npz, \.csv"):
        load("nowhere/visits.xlsx")
    with pytest.raises(SartorError, match=r"a data file ends in \.npz, \.csv"):
        load(Path("visits.xlsx"))


@needs_data
def test_mnist_is_whole() -> None:
    data = load("mnist", download=False)
    assert data.x.shape == (70_000, 1, 28, 28)
    assert np.bincount(data.y).tolist() == [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]
    clients = data.split("authors.flame-hybrid", minimum=100, parts=(0.8, 0.0, 0.2))
    sizes = clients.bounds[:, 3] - clients.bounds[:, 0]
    assert sizes[:5].sum() == 70_000 and abs(int(sizes.sum()) - 140_000) < 600
    counts = np.bincount(data.y)
    pairs = {int(counts[a] + counts[b]) for a in range(10) for b in range(a)}
    assert set(sizes[:5].tolist()) <= pairs  # two complete classes each
    assert float(clients.x[clients.bounds[0, 0] : clients.bounds[5, 0]].mean()) == pytest.approx(0, abs=0.01)


@needs_debian
def test_fashion_mnist_is_whole() -> None:
    data = load("fashion-mnist", download=False)
    assert data.x.shape == (70_000, 1, 28, 28) and np.bincount(data.y).tolist() == [7000] * 10


@needs_data
def test_femnist_by_writer() -> None:
    data = load("femnist")
    assert data.x.shape == (46_032, 1, 28, 28) and data.classes == 62 and data.keys is not None
    assert data.x.mean() < 30  # ink is bright, paper dark, as in MNIST
    sizes = np.unique(data.keys, return_counts=True)[1]
    assert len(sizes) == 287 and sizes.min() >= 50
    assert len(load("femnist", minimum_per_writer=1)) == 46_258
    with pytest.raises(SartorError, match="no writer has 5000 samples"):
        load("femnist", minimum_per_writer=5000)
    clients = data.split("natural", clients=20)
    assert len(clients) == 20 and clients.names[0].startswith("writer ")
    assert float(data.split("iid").x.mean()) == pytest.approx(0, abs=0.02)


@needs_data
@pytest.mark.parametrize(
    ("name", "n", "shape"), [("cifar10", 12_000, (3, 32, 32)), ("medical-mnist", 15_000, (1, 28, 28))]
)
def test_images_from_npz(name: str, n: int, shape: tuple[int, ...]) -> None:
    data = load(name, root=os.environ["SARTOR_DATA"])
    assert data.x.shape == (n, *shape) and len(data.class_names) == data.classes
    x = data.split("iid").x
    assert abs(float(x.mean())) < 0.05 and float(x.std()) == pytest.approx(1, abs=0.05)


@needs_data
def test_vehicle_has_signs_and_devices() -> None:
    data = load("vehicle")
    assert data.x.shape == (1860, 100) and set(data.y.tolist()) == {-1.0, 1.0} and data.classes == 2
    clients = data.split("natural", minimum=7)
    assert (
        len(clients) == 23
        and clients.y.is_floating_point()
        and clients.names[:3] == ["device 0", "device 1", "device 2"]
    )


def activity_archive(nested: bool, people: int = 3) -> bytes:
    """An archive as UCI's, of few windows: training and test people, channel c of window i has the value i + c/16."""

    def table(rows: np.ndarray) -> str:
        return "".join("  " + " ".join(f"{v:.7e}" for v in row) + "\n" for row in np.atleast_2d(rows))

    inner, at = io.BytesIO(), 0
    with zipfile.ZipFile(inner, "w") as file:
        for part, count in (("train", 4), ("test", 2)):
            windows = np.arange(at, at + count)
            at += count
            top = "UCI HAR Dataset/" + part
            file.writestr(f"{top}/y_{part}.txt", table((windows % 6 + 1)[:, None]))
            file.writestr(f"{top}/subject_{part}.txt", table((windows % people + 1)[:, None]))
            kinds = ("body_acc", "body_gyro", "total_acc")
            for c, name in enumerate(f"{kind}_{axis}" for kind in kinds for axis in "xyz"):
                values = np.repeat((windows + c / 16)[:, None], 128, axis=1)
                file.writestr(f"{top}/Inertial Signals/{name}_{part}.txt", table(values))
    if not nested:
        return inner.getvalue()
    outer = io.BytesIO()
    with zipfile.ZipFile(outer, "w") as file:
        file.writestr("UCI HAR Dataset.names", "about")
        file.writestr("UCI HAR Dataset.zip", inner.getvalue())
    return outer.getvalue()


@pytest.mark.parametrize("nested", [True, False])
def test_har_is_fetched_once_and_counted(
    nested: bool, nowhere: None, serve: Serve, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: dict[str, object] = {"/second.zip": activity_archive(nested)}
    base = serve(pages)
    monkeypatch.setitem(places.ONE_FILE, "har", (f"{base}/first.zip", f"{base}/second.zip"))
    with pytest.raises(SartorError, match=r"holds 6 windows \[9, 128\] of 3 people, not 10,299 windows"):
        load("har")
    monkeypatch.setattr(readers, "HAR_HOLDS", "6 windows [9, 128] of 3 people")
    pages.clear()  # it is in the cache folder now
    data = load("har")
    np.testing.assert_array_equal(data.x[:, :, 5], np.arange(6)[:, None] + np.arange(9) / 16)
    assert data.y.tolist() == [0, 1, 2, 3, 4, 5] and data.keys is not None
    assert data.keys.tolist() == ["person 1", "person 2", "person 3"] * 2
    (cache / "har" / places.HAR_ZIP).write_bytes(activity_archive(nested)[:2000])
    with pytest.raises(SartorError, match="truncated or damaged"):
        load("har")


def test_shakespeare_is_fetched_once_and_must_be_the_published_text(
    nowhere: None, serve: Serve, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = b"First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak. We hear you well.\n"
    base = serve({"/input.txt": play})
    monkeypatch.setitem(places.ONE_FILE, "shakespeare", (f"{base}/input.txt",))
    with pytest.raises(SartorError, match=r"tinyshakespeare.txt not found .* is not the published file") as caught:
        load("shakespeare", steps=8)
    assert "\n" not in str(caught.value) and not (cache / "shakespeare" / places.PLAYS).exists()
    monkeypatch.setitem(places.DIGESTS, "shakespeare", {places.PLAYS: hashlib.sha256(play).hexdigest()})
    data = load("shakespeare", steps=8)
    assert data.keys is not None and set(data.keys) == {"First Citizen", "All"}
    assert load("shakespeare", steps=8, download=False).x.shape == data.x.shape


@needs_data
def test_the_published_digest_is_that_of_the_text_at_hand() -> None:
    found = find("shakespeare")
    assert found is not None
    assert hashlib.sha256(found[0].read_bytes()).hexdigest() == places.DIGESTS["shakespeare"][places.PLAYS]
