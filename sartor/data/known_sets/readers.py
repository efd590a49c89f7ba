"""The known data sets by name, and how each is read from its files."""

from __future__ import annotations

import string
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ...errors import SartorError, need, unknown
from ..dataset import Dataset
from ..file_formats import check_digest, read_cifar, read_har, read_idx, read_npz
from ..inputs import Scale
from .places import CIFAR_TAR, DIGESTS, folders, locate, obtain
from .synthetic import synthetic

GREY: Scale = ((0.1307,), (0.3081,))  # MNIST's mean and standard deviation; FLAME uses them for Fashion-MNIST as well
FASHION = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
HAR_HOLDS = "10,299 windows [9, 128] of 30 people"
ACTIVITIES = ("walking", "upstairs", "downstairs", "sitting", "standing", "lying")
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def digits() -> Dataset:
    """scikit-learn's digits, which come with it: read as `load_digits` does, whose import takes a second."""
    found = find_spec("sklearn")
    assert found is not None and found.origin is not None  # it is one of Sartor's requirements
    table = np.loadtxt(Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    x, y = table[:, :-1], table[:, -1]
    names = tuple(string.digits)
    return Dataset((x / 16).astype(np.float32), y.astype(np.int64), 10, "digits", class_names=names)


def _grey(name: str, names: tuple[str, ...], root: str | Path | None, download: bool, base_url: str | None) -> Dataset:
    arrays = []
    for path, digest in zip(obtain(name, root, download, base_url), DIGESTS[name].values(), strict=True):
        check_digest(path, digest)
        arrays.append(read_idx(path))
    x, y = np.concatenate(arrays[0::2]), np.concatenate(arrays[1::2])
    return Dataset(x[:, None], y.astype(np.int64), 10, name, scale=GREY, class_names=names)


def mnist(root: str | Path | None = None, download: bool = True, base_url: str | None = None) -> Dataset:
    """MNIST, training and test set merged."""
    return _grey("mnist", tuple(string.digits), root, download, base_url)


def fashion_mnist(root: str | Path | None = None, download: bool = True, base_url: str | None = None) -> Dataset:
    """Fashion-MNIST, training and test set merged."""
    return _grey("fashion-mnist", FASHION, root, download, base_url)


def cifar10(root: str | Path | None = None, download: bool = True, base_url: str | None = None) -> Dataset:
    """CIFAR-10, training and test set merged; from cifar10_12k.npz a balanced subset, named so."""
    paths = obtain("cifar10", root, download, base_url)
    name = "cifar10"
    if paths[0].suffix == ".npz":
        arrays = read_npz(paths[0], ("x", "y"))
        x, y = arrays["x"].transpose(0, 3, 1, 2), arrays["y"].astype(np.int64)
        name = f"cifar10 (subset of {len(x)})"
    else:
        if paths[0].name == CIFAR_TAR:
            check_digest(paths[0], DIGESTS["cifar10"][CIFAR_TAR], content=False)
        x, y = read_cifar(paths)
    scale = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    return Dataset(x, y, 10, name, scale=scale, class_names=CIFAR)


def _file(name: str, layout: str, root: str | Path | None) -> Path:
    paths = locate(name, root)
    if paths is None:
        where = folders(name, root)
        raise SartorError(
            f"{name} is not found in {', '.join(map(str, where))}, and is not downloaded. Put {layout} "
            f"into {where[-1]}, or set SARTOR_DATA to a folder that holds {name}/ with it."
        )
    return paths[0]


def _npz(name: str, layout: str, root: str | Path | None) -> dict[str, np.ndarray]:
    return read_npz(_file(name, f"an .npz with {layout}", root))


def femnist(root: str | Path | None = None, minimum_per_writer: int = 50) -> Dataset:
    """FEMNIST: handwriting by writer; the file has ink dark on white, here ink is bright as in MNIST."""
    layout = "x uint8 [n, 28, 28] (white = 255), y 0..61 and writer as femnist300.npz"
    arrays = _npz("femnist", layout, root)
    _, inverse, sizes = np.unique(arrays["writer"], return_inverse=True, return_counts=True)
    keep = sizes[inverse] >= minimum_per_writer
    need(bool(keep.any()), f"femnist: no writer has {minimum_per_writer} samples; the most is {sizes.max()}.")
    keys = np.char.add("writer ", arrays["writer"][keep].astype(str))
    x = 255 - arrays["x"][keep][:, None]
    names = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
    scale = ((0.0385,), (0.1642,))  # of the 300 writers' ink
    return Dataset(x, arrays["y"][keep].astype(np.int64), 62, "femnist", keys, scale, names)


def medical_mnist(root: str | Path | None = None) -> Dataset:
    """Medical MNIST: six kinds of radiological images."""
    arrays = _npz("medical-mnist", "x uint8 [n, 28, 28] and y 0..5 as medical_mnist_15k_28.npz", root)
    names = tuple(map(str, arrays.get("classes", ())))
    scale = ((0.3544,), (0.2757,))  # of the 15,000 images
    y = arrays["y"].astype(np.int64)
    return Dataset(arrays["x"][:, None], y, 6, "medical-mnist", scale=scale, class_names=names)


def vehicle(root: str | Path | None = None) -> Dataset:
    """Vehicle: acoustic and seismic features by device; targets −1/+1 as floats, which a linear SVM uses directly."""
    arrays = _npz("vehicle", "x float [n, 100], y -1/+1 and device as vehicle_ditto_train.npz", root)
    keys = np.char.add("device ", arrays["device"].astype(str))
    return Dataset(arrays["x"].astype(np.float32), arrays["y"].astype(np.float32), 2, "vehicle", keys)


def har(root: str | Path | None = None, download: bool = True, base_url: str | None = None) -> Dataset:
    """Human activity recognition (Anguita et al. 2013): 9 channels of a phone's sensors × 128 steps, by person. From an
    har.npz (x [n, 9, 128], y 0..5, subject), or from UCI's own archive, whose rows stand in another order."""
    path = obtain("har", root, download, base_url)[0]
    arrays = read_npz(path, ("x", "y", "subject")) if path.suffix == ".npz" else read_har(path)
    x, y = arrays["x"], arrays["y"]
    found = f"{len(x):,} windows {list(x.shape[1:])} of {len(np.unique(arrays['subject']))} people"
    need(
        path.suffix == ".npz" or found == HAR_HOLDS,
        f"{path} is not the published file: it holds {found}, not {HAR_HOLDS}; delete it and load again.",
    )
    keys = np.char.add("person ", arrays["subject"].astype(str))
    return Dataset(x.astype(np.float32), y.astype(np.int64), 6, "har", keys, class_names=ACTIVITIES)


def shakespeare(
    root: str | Path | None = None, steps: int = 64, download: bool = True, base_url: str | None = None
) -> Dataset:
    """Shakespeare's plays by role: of every `steps` characters of a role's lines the next ones are to be said. The last
    piece of a role is padded (−1) where it has at least half as many."""
    need(isinstance(steps, int) and 2 <= steps <= 1024, f"shakespeare needs steps in 2..1024; got {steps!r}.")
    text = obtain("shakespeare", root, download, base_url)[0].read_text(encoding="utf-8")
    lines: dict[str, list[str]] = {}
    for speech in text.split("\n\n"):
        role, colon, said = speech.strip("\n").partition(":\n")
        if colon and said:
            lines.setdefault(role, []).append(said + "\n")
    letters = sorted(set(text))
    number = {letter: i for i, letter in enumerate(letters)}
    x, y, keys = list[np.ndarray](), list[np.ndarray](), list[str]()
    for role, speeches in lines.items():
        tokens = np.array([number[letter] for letter in "".join(speeches)])
        for at in range(0, len(tokens) - steps // 2, steps):
            piece = tokens[at : at + steps + 1]
            here, after = piece[:-1], piece[1:]
            x.append(np.pad(here, (0, steps - len(here))))
            y.append(np.pad(after, (0, steps - len(after)), constant_values=-1))
            keys.append(role)
    names = tuple(letters)
    return Dataset(
        np.stack(x).astype(np.float32), np.stack(y).astype(np.int64), len(letters), "shakespeare", np.array(keys),
        class_names=names,
    )  # fmt: skip


SOURCES: dict[str, Callable[..., Dataset]] = {
    "digits": digits,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "femnist": femnist,
    "cifar10": cifar10,
    "medical-mnist": medical_mnist,
    "vehicle": vehicle,
    "har": har,
    "shakespeare": shakespeare,
    "synthetic": synthetic,
}

DATASETS: dict[str, str] = {
    "digits": "1,797 handwritten digits of 8x8, 10 classes; built in",
    "mnist": "70,000 handwritten digits of 28x28, 10 classes",
    "fashion-mnist": "70,000 articles of clothing of 28x28, 10 classes",
    "femnist": "handwritten characters of 28x28 by writer, 62 classes",
    "cifar10": "60,000 colour photographs of 32x32, 10 classes",
    "medical-mnist": "15,000 radiological images of 28x28, 6 classes",
    "vehicle": "acoustic and seismic measurements by device, 100 features, targets -1/+1",
    "har": "10,299 recordings of a phone's sensors, 9 channels of 128 steps, by person, 6 activities",
    "shakespeare": "Shakespeare's plays by role: sequences of 64 characters, of which the next ones are to be said",
    "synthetic": "Synthetic(alpha, beta) of FedProx: clients with their own linear models, 10 classes; built in",
}


def find(name: str, root: str | Path | None = None) -> list[Path] | None:
    """The files of a known data set on this machine; [] for one that needs none, None for one that is not here."""
    if name not in SOURCES:
        raise unknown("dataset", name, SOURCES)
    return [] if name in ("digits", "synthetic") else locate(name, root)
