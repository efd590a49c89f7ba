"""The readers of idx, CIFAR and npz files, and the digest check."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

from sartor.data.file_formats import check_digest, read_cifar, read_idx, read_npz
from sartor.errors import SartorError


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}i", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


CUBE = np.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize("packed", [False, True])
def test_idx(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(idx(CUBE)) if packed else idx(CUBE))
    np.testing.assert_array_equal(read_idx(path), CUBE)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (idx(CUBE)[:-1], r"truncated or damaged: 40 bytes expected for shape \(2, 3, 4\), 39 got"),
        (idx(CUBE) + b"x", "40 bytes expected"),
        (idx(CUBE)[:9], "truncated or damaged"),
        (b"", "not an idx file"),
        (b"hello, world", "not an idx file"),
        (gzip.compress(idx(CUBE))[:-9], "truncated or damaged"),
        (b"\x1f\x8bgarbage that is no gzip at all", "truncated or damaged"),
    ],
    ids=["one byte short", "one byte long", "cut header", "empty", "text", "cut gzip", "no gzip"],
)
def test_bad_idx(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(SartorError, match=message) as caught:
        read_idx(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_digest_is_that_of_the_content(tmp_path: Path) -> None:
    data = b"the content"
    md5, sha = hashlib.md5(data).hexdigest(), hashlib.sha256(data).hexdigest()
    (tmp_path / "a").write_bytes(data)
    for level in (1, 9):  # two wrappers of one content
        path = tmp_path / f"b{level}.gz"
        path.write_bytes(gzip.compress(data, level))
        check_digest(path, md5)
        check_digest(path, sha)
        with pytest.raises(SartorError, match="is not the published file"):
            check_digest(path, md5, content=False)
    check_digest(tmp_path / "a", md5)
    with pytest.raises(SartorError, match=f"md5 {'0' * 32} expected, {md5} got; delete it and load again"):
        check_digest(tmp_path / "a", "0" * 32)


def records(n: int, seed: int) -> tuple[bytes, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 256, (n, 3, 32, 32)).astype(np.uint8), rng.integers(0, 10, n)
    return b"".join(bytes([label]) + image.tobytes() for image, label in zip(x, y, strict=True)), x, y


def tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_cifar_from_tar_and_from_batches(tmp_path: Path) -> None:
    (one, x1, y1), (two, x2, y2) = records(4, 0), records(3, 1)
    path = tmp_path / "cifar-10-binary.tar.gz"
    names = {"c/data_batch_1.bin": one, "c/readme.html": b"<html>", "c/test_batch.bin": two}
    path.write_bytes(tar(names))
    (tmp_path / "1.bin").write_bytes(one)
    (tmp_path / "2.bin").write_bytes(two)
    for paths in ([path], [tmp_path / "1.bin", tmp_path / "2.bin"]):
        x, y = read_cifar(paths)
        np.testing.assert_array_equal(x, np.concatenate([x1, x2]))
        np.testing.assert_array_equal(y, np.concatenate([y1, y2]))
    path.write_bytes(tar(names)[:-4000])
    with pytest.raises(SartorError, match="truncated or damaged"):
        read_cifar([path])
    path.write_bytes(tar({"c/data_batch_1.bin": one[:-1]}))
    with pytest.raises(SartorError, match="records have 3073 bytes, got 12291"):
        read_cifar([path])
    path.write_bytes(tar({"c/readme": b"x"}))
    with pytest.raises(SartorError, match=r"holds no .bin files"):
        read_cifar([path])


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.eye(2), y=np.array(["a", "b"]))
    assert set(read_npz(path)) == {"x", "y"} and read_npz(path, ["y"])["y"].tolist() == ["a", "b"]
    with pytest.raises(SartorError, match="lacks an array"):
        read_npz(path, ["z"])
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(SartorError, match=r"truncated or not an .npz file"):
        read_npz(path)
    path.write_text("garbage")
    with pytest.raises(SartorError):
        read_npz(path)


def test_npz_with_objects_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.array([{"a": 1}, None], dtype=object))
    with pytest.raises(SartorError, match=r"Python objects \(pickle\), which are not read"):
        read_npz(path)
    single = tmp_path / "b.npz"
    with single.open("wb") as file:
        np.save(file, np.eye(2))
    with pytest.raises(SartorError, match="single array"):
        read_npz(single)
