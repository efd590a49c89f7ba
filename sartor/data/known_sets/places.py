"""Where the files of the known data sets are looked for, and where they are fetched from."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import SartorError, see
from .download import cache_folder, fetch

IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
CIFAR_TAR = "cifar-10-binary.tar.gz"
HAR_ZIP = "UCI-HAR-Dataset.zip"
PLAYS = "tinyshakespeare.txt"

# The files of each set; where there are several forms, the first one found counts. Any may also have ".gz" at its end.
WANTED: dict[str, list[tuple[str, ...]]] = {
    "mnist": [IDX],
    "fashion-mnist": [IDX],
    "femnist": [("femnist300.npz",)],
    "cifar10": [
        (CIFAR_TAR,),
        BATCHES,
        tuple(f"cifar-10-batches-bin/{name}" for name in BATCHES),
        ("cifar10_12k.npz",),
    ],
    "medical-mnist": [("medical_mnist_15k_28.npz",)],
    "vehicle": [("vehicle_ditto_train.npz",)],
    "har": [(HAR_ZIP,), ("har.npz",), ("natural/har.npz",)],
    "shakespeare": [(PLAYS,), (f"natural/{PLAYS}",)],
}

# Published md5 of the uncompressed content (of CIFAR-10's tar: of the file itself; of the plays: sha256). UCI publishes
# none: what is in its file is counted when it is read.
DIGESTS: dict[str, dict[str, str]] = {
    "mnist": dict(
        zip(
            IDX,
            (
                "6bbc9ace898e44ae57da46a324031adb",
                "a25bea736e30d166cdddb491f175f624",
                "2646ac647ad5339dbf082846283269ea",
                "27ae3e4e09519cfbb04c329615203637",
            ),
            strict=True,
        )
    ),
    "fashion-mnist": dict(
        zip(
            IDX,
            (
                "f4a8712d7a061bf5bd6d2ca38dc4d50a",
                "9018921c3c673c538a1fc5bad174d6f9",
                "8181f5470baa50b63fa0f6fddb340f0a",
                "15d484375f8d13e6eb1aabb0c3f46965",
            ),
            strict=True,
        )
    ),
    "cifar10": {CIFAR_TAR: "c32a1d4ab5d03f1284b67883e8d87530"},
    "shakespeare": {PLAYS: "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"},
}

ADDRESSES: dict[str, tuple[str, ...]] = {
    "mnist": ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    "fashion-mnist": (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    "cifar10": ("https://www.cs.toronto.edu/~kriz/",),
}
# Sets of one file, which its publishers call otherwise: whole addresses.
ONE_FILE: dict[str, tuple[str, ...]] = {
    "har": (
        "https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip",
        "https://archive.ics.uci.edu/ml/machine-learning-databases/00240/UCI%20HAR%20Dataset.zip",
    ),
    "shakespeare": ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",),
}

DEBIAN = {"fashion-mnist": Path("/usr/share/datasets/fashion-mnist")}
PACKAGES = {"fashion-mnist": "install Debian's package dataset-fashion-mnist, or "}


def folders(name: str, root: str | Path | None = None) -> list[Path]:
    """Where a set is looked for: `root`, $SARTOR_DATA, Debian's package, the cache folder."""
    out: list[Path] = []
    for base in (root, os.environ.get("SARTOR_DATA")):
        if base:
            out += [Path(base) / name, Path(base)]
    if name in DEBIAN:
        out.append(DEBIAN[name])
    return [*out, cache_folder() / name]


def locate(name: str, root: str | Path | None = None) -> list[Path] | None:
    """The files of a set from the first folder that has all of them, or None."""
    for folder in folders(name, root):
        for form in WANTED[name]:
            found = [path for file in form for path in (folder / file, folder / f"{file}.gz") if path.is_file()]
            if len(found) >= len(form):
                return [next(p for p in found if p in (folder / file, folder / f"{file}.gz")) for file in form]
    return None


def obtain(name: str, root: str | Path | None, download: bool, base_url: str | None) -> list[Path]:
    """The files of a set, fetched into the cache folder if they are nowhere."""
    found = locate(name, root)
    if found is not None:
        return found
    where = ", ".join(map(str, folders(name, root)))
    cache = cache_folder() / name
    if not download:
        raise SartorError(f"{name}: {_files(name)} not found in {where}. Allow the download, or {_advice(name, cache)}")
    form = WANTED[name][0]
    return [_fetch_one(name, file, cache, base_url, where) for file in form]


def _fetch_one(name: str, file: str, cache: Path, base_url: str | None, where: str) -> Path:
    packed = file if file.endswith(".gz") or name in ONE_FILE else f"{file}.gz"
    if (cache / packed).is_file():
        return cache / packed
    if name in ONE_FILE and not base_url:
        addresses = ONE_FILE[name]
    else:
        addresses = tuple(f"{base.rstrip('/')}/{packed}" for base in ((base_url,) if base_url else ADDRESSES[name]))
    reasons, digest = [], DIGESTS.get(name, {}).get(file)
    for address in addresses:
        try:
            return fetch(address, digest, cache / packed, content=not file.endswith(".gz"))
        except SartorError as error:
            reasons.append(str(error).rstrip("."))
    raise SartorError(
        f"{name}: {packed} not found in {where}, and not fetched: {'; '.join(reasons)}. "
        f"Try again with a network, or {_advice(name, cache)}"
    )


def _files(name: str) -> str:
    form = WANTED[name][0]
    return ", ".join(form) + (" (with or without .gz)" if form is IDX else "")


def _advice(name: str, cache: Path) -> str:
    return (
        f"{PACKAGES.get(name, '')}put {_files(name)} into {cache}, "
        f"or set SARTOR_DATA to a folder that holds {name}/ with it.{see('data-sets')}"
    )
