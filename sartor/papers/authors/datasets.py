"""Data sets as the authors' code prepares them, and parts of them for a reduced size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...data import Dataset, load
from ...errors import need
from ...seeds import stream


def each_pixel(dataset: str) -> Dataset:
    """A set of images with each pixel to its own scale: (x − mean)/(std + 0.001) of values from 0 to 255.

    As in pFedMe's and Ditto's experiments. Mean and standard deviation are over all images, the test images included. A
    pixel that is always black stays 0.
    """
    images = load(dataset)
    flat = images.x.reshape(len(images), -1)
    mean, std = flat.mean(axis=0, dtype=np.float64), flat.std(axis=0, dtype=np.float64)
    return replace(images, scale=(tuple((mean / 255).tolist()), tuple(((std + 0.001) / 255).tolist())))


def part_of(dataset: str, samples: int) -> Dataset:
    """So many samples of a set, drawn at random, always the same ones: what a repetition in a reduced size has."""
    whole = load(dataset)
    need(1 <= samples <= len(whole), f"part-of: {dataset} has {len(whole)} samples; got samples={samples}.")
    rows = np.sort(stream(0, "part-of").choice(len(whole), samples, replace=False))
    keys = None if whole.keys is None else whole.keys[rows]
    return replace(whole, x=whole.x[rows], y=whole.y[rows], keys=keys, name=f"{whole.name} (part of {samples})")
