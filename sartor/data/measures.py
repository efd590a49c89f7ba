"""How skewed a federation is, in a few numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..judge.fairness import gini
from .clients import Clients


def label_counts(clients: Clients) -> np.ndarray:
    """[m, C] how many samples of each class each client has, all three parts together."""
    assert clients.classes is not None
    y = clients.y.cpu().numpy()
    if y.dtype.kind == "f":  # targets such as −1/+1: the classes are the distinct values
        y = np.unique(y, return_inverse=True)[1]
    counts = [np.bincount(y[low:high], minlength=clients.classes) for low, high in clients.bounds[:, [0, 3]]]
    return np.array(counts)


def label_shares(clients: Clients) -> np.ndarray:
    """[m, C] the share of each class among each client's samples, all three parts together."""
    shares: np.ndarray = label_counts(clients) / (clients.bounds[:, 3] - clients.bounds[:, 0])[:, None]
    return shares


def entropy(shares: np.ndarray) -> np.ndarray:
    """[m] the label entropy of each client over log C: 0 for one label, 1 for all labels equally often."""
    classes = shares.shape[1]
    if classes < 2:
        return np.zeros(len(shares))
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    total: np.ndarray = -(shares * logs).sum(axis=1) / math.log(classes)
    return total + 0.0  # no "-0.0" for a client with one label


def emd(shares: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """[m] Σ_c |p_i(c) − p(c)|, p the label shares of all clients' samples together.

    It is what Zhao et al. (2018) call earth mover's distance; it lies in 0..2, twice the total variation distance.
    """
    everyone = sizes @ shares / sizes.sum()
    distance: np.ndarray = np.abs(shares - everyone).sum(axis=1)
    return distance


def measure(clients: Clients) -> dict[str, float | int]:
    """Sizes, their Gini coefficient and, for classification, label entropy and distance to the common label shares."""
    sizes = clients.bounds[:, 3] - clients.bounds[:, 0]
    out: dict[str, float | int] = {
        "clients": len(clients),
        "samples": int(sizes.sum()),
        "size_min": int(sizes.min()),
        "size_median": float(np.median(sizes)),
        "size_max": int(sizes.max()),
        "size_gini": gini(sizes) or 0.0,
    }
    if clients.classes is not None and clients.y.dim() == 1:
        shares = label_shares(clients)
        distance = emd(shares, sizes)
        out["label_entropy_mean"] = float(entropy(shares).mean())
        out["labels_per_client"] = float((shares > 0).sum(axis=1).mean())
        out["emd_mean"] = float(distance.mean())
        out["emd_max"] = float(distance.max())
    return out


def facts(clients: Clients, most: int = 50_000) -> dict[str, Any]:
    """What data.json holds: where the samples are from, how they were dealt out, who has how many and of which class.

    Label counts are left out where they are more than `most` numbers, or not known here (a real federation's server).
    """
    known = dict(clients.about) | {"classes": clients.classes, "names": list(clients.names)}
    known["samples"] = (clients.bounds[:, 3] - clients.bounds[:, 0]).tolist()
    measured = "measures" in clients.about and clients.classes is not None and clients.y.dim() == 1
    if measured and len(clients) * (clients.classes or 0) <= most:
        known["labels"] = label_counts(clients).tolist()
    return known


def describe(about: Mapping[str, Any]) -> str:
    """One line on a federation, from `Clients.about`."""
    facts = about["measures"]
    text = f"{about['source']}: {facts['samples']} samples at {facts['clients']} clients"
    text += f" by {about['partition']['text']}"
    text += f", {facts['size_min']} to {facts['size_max']} each (median {facts['size_median']:g}, "
    text += f"Gini {facts['size_gini']:.2f})"
    if "emd_mean" in facts:
        text += f", {facts['labels_per_client']:.1f} labels per client, label entropy {facts['label_entropy_mean']:.2f}"
        text += f", EMD {facts['emd_mean']:.2f} (at most {facts['emd_max']:.2f})"
    if about.get("overlap"):
        text += "; clients share samples"
    if about.get("left_out"):
        names = about.get("too_small", [])
        some = f" ({', '.join(names)}{', ...' if len(names) < about['left_out'] else ''})" if names else ""
        text += f"; {about['left_out']} keys with too few samples left out{some}, see --minimum"
    return text + "."
