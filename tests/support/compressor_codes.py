"""Vectors to compress, and what a compressor makes of them."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from sartor.compressors import (
    DGC,
    LBGM,
    NAMES,
    QSGD,
    Code,
    CommonGrid,
    Compressor,
    Draws,
    RandomProjection,
    Sketch,
    TopK,
)

SOME: list[Compressor] = [
    *(made() for made in NAMES.values()),
    *(TopK(k=0.5), TopK(k=1.0), TopK(k=3), QSGD(s=1), QSGD(s=1000, bucket=16), QSGD(s=2, bucket=7)),
    *(Sketch(rows=1, k=0.3), Sketch(rows=4), RandomProjection(k=4, fresh=False, seed=5)),
    *(DGC(k=0.2, warmup=0, masking=False, clip=1.0), LBGM(delta=0.0), CommonGrid(step=0.003, bits=32)),
]


FLOATS = (torch.float32, torch.float64)


def draws(round: int = 0, clients: int = 5, seed: int = 0) -> Draws:
    return Draws(seed, "test", round, np.arange(clients))


def numbers(size: int, dtype: torch.dtype = torch.float64, clients: int = 5, seed: int = 0) -> Tensor:
    """Vectors of very different sizes; the last is 0."""
    x = np.random.default_rng(seed).normal(size=(clients, size)) * 10.0 ** np.arange(-2, clients - 2)[:, None]
    x[-1] = 0
    return torch.from_numpy(x).to(dtype)


def code_of(compressor: Compressor, x: Tensor, round: int = 0, rounds: int = 1) -> tuple[Code, Tensor]:
    """The code of the last of some rounds, and the last whole vectors before it."""
    memory = {k: v.expand(len(x), -1) for k, v in compressor.memory(0 * x[0]).items()}
    for r in range(round, round + rounds):
        last = memory.get("l", 0 * x)
        code, memory = compressor.encode(x * (1 + r), memory, draws(r, len(x)))
    return code, last


def unbiased(found: Tensor, x: Tensor) -> None:
    """The mean of draws [n, d] is x within five standard errors in every coordinate."""
    error = (found.mean(0) - x).abs()
    standard = found.std(0) / math.sqrt(len(found))
    assert bool((error <= 5 * standard + 1e-12).all()), (error / standard).max()
    assert float(standard.max()) > 0  # they are random at all
