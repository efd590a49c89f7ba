"""DGC: Algorithm 4, and its warm-up."""

from __future__ import annotations

import numpy as np
import torch
from compressor_codes import draws

from sartor.compressors import (
    DGC,
)


def test_dgc_at_full_density_is_momentum_sgd() -> None:
    """Without momentum factor masking; with it, nothing of the momentum is left and it is plain SGD."""
    draw, m = np.random.default_rng(7), 0.9
    steps = torch.from_numpy(draw.normal(size=(12, 3, 8)))
    momentum, plain = DGC(k=1.0, momentum=m, masking=False), DGC(k=1.0, momentum=m)
    kept = {c: c.memory(torch.zeros(8, dtype=torch.float64)) for c in (momentum, plain)}
    u = torch.zeros(3, 8, dtype=torch.float64)
    for t, g in enumerate(steps):
        u = m * u + g
        for compressor, wanted in ((momentum, u), (plain, g)):
            code, kept[compressor] = compressor.encode(g, kept[compressor], draws(t, 3))
            torch.testing.assert_close(code.value(), wanted, rtol=1e-12, atol=1e-12)


def test_dgc_is_algorithm_4() -> None:
    """Against the paper's lines in plain NumPy, client by client."""
    draw, m, clip, d = np.random.default_rng(8), 0.7, 2.0, 30
    dgc = DGC(k=0.1, momentum=m, warmup=2, clip=clip)
    memory = {k: v.expand(4, -1) for k, v in dgc.memory(torch.zeros(d, dtype=torch.float64)).items()}
    U, V = np.zeros((4, d)), np.zeros((4, d))
    for t in range(6):
        g = draw.normal(size=(4, d))
        code, memory = dgc.encode(torch.from_numpy(g), memory, draws(t, 4))
        sent = max(1, round(d * 0.1 ** (min(t + 1, 3) / 3)))
        for i in range(4):
            step = g[i] * min(1, clip / np.linalg.norm(g[i]))
            U[i] = m * U[i] + step
            V[i] = V[i] + U[i]
            mask = np.zeros(d, dtype=bool)
            mask[np.argsort(-np.abs(V[i]))[:sent]] = True
            np.testing.assert_allclose(code.value()[i], V[i] * mask, atol=1e-12)
            V[i], U[i] = V[i] * ~mask, U[i] * ~mask
        np.testing.assert_allclose(memory["u"], U, atol=1e-12)
        np.testing.assert_allclose(memory["v"], V, atol=1e-12)


def test_dgc_warms_up_as_in_the_paper() -> None:
    """75%, 93.75%, 98.4375%, 99.6% and then 99.9% are left out."""
    d = 1_000_000
    shares = [DGC().sent(d, t) / d for t in range(6)]
    np.testing.assert_allclose(shares, [0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001], rtol=0.02)
