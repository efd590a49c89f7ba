"""Synthetic(alpha, beta): clients whose models and whose data differ by set amounts (Li et al. 2020, FedProx)."""

from __future__ import annotations

import numpy as np

from ...errors import need, not_negative
from ...seeds import stream
from ..dataset import Dataset
from ..partitions.assignment import flag, whole


def synthetic(
    alpha: float = 0.5,
    beta: float = 0.5,
    clients: int = 100,
    seed: int = 0,
    dims: int = 60,
    classes: int = 10,
    cap: int | None = 25_810,
    as_std: bool = True,
) -> Dataset:
    """Draw Synthetic(alpha, beta); split it with `Natural()`.

        u_k ~ N(0, alpha)      W_k, b_k ~ N(u_k, 1)      B_k ~ N(0, beta)      v_k ~ N(B_k, 1)
        x ~ N(v_k, Σ), Σ_jj = j^−1.2      y = argmax softmax(W_k x + b_k)      n_k = 5 (int(lognormal(4, 2)) + 50)

    pFedMe and Lp-Proj use these data by name, without saying whether alpha and beta are variances or standard
    deviations; FedProx writes N(0, alpha). The generators from which the published sets come take them as standard
    deviations, and so do we; `as_std=False` takes them as variances. (0,0) and (1,1) are the same either way. `cap`
    bounds a client's size; 25,810 is the largest in pFedMe.

    As u_k is one number, it shifts all logits of a sample by u_k (Σ_j x_j + 1) and cannot change the largest: alpha has
    no effect on these data, here as in the published generators. Only beta, and the W_k that every client draws for
    itself, make clients differ.
    """
    need(all(isinstance(v, int | float) for v in (alpha, beta)), f"synthetic needs numbers; got {alpha!r}, {beta!r}.")
    not_negative("synthetic", alpha=alpha, beta=beta)
    whole("synthetic", clients=clients, dims=dims, classes=classes, **({} if cap is None else {"cap": cap}))
    flag("synthetic", as_std=as_std)
    spread = (alpha, beta) if as_std else (alpha**0.5, beta**0.5)
    drawn = [_client(stream(seed, "synthetic", 0, k), spread, dims, classes, cap) for k in range(clients)]
    keys = np.repeat([f"client {k}" for k in range(clients)], [len(y) for _, y in drawn])
    x, y = (np.concatenate(arrays) for arrays in zip(*drawn, strict=True))
    return Dataset(x, y, classes, f"synthetic({alpha},{beta})", keys)


def _client(
    rng: np.random.Generator, spread: tuple[float, float], dims: int, classes: int, cap: int | None
) -> tuple[np.ndarray, np.ndarray]:
    n = (int(rng.lognormal(4, 2)) + 50) * 5
    n = n if cap is None else min(n, cap)
    u = rng.normal(0, spread[0])
    w, b = rng.normal(u, 1, (dims, classes)), rng.normal(u, 1, classes)
    v = rng.normal(rng.normal(0, spread[1]), 1, dims)
    x = v + rng.standard_normal((n, dims)) * np.arange(1, dims + 1) ** -0.6  # the root of Σ_jj
    return x.astype(np.float32), (x @ w + b).argmax(axis=1)
