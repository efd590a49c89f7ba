"""Wrappers on top of each other: attacks, privacy and compression at once, and clients that join afterwards."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from federations import ragged
from groups import grouped

import sartor as st
from sartor.compressors import Int8, TopK
from sartor.models import layers
from sartor.wrappers import Compressed, Hostile, Private

SOLVER = st.SGD(lr=0.1, batch=7)
METHODS = [st.FedAvg(weighting="uniform", solver=SOLVER), st.FLAME(solver=SOLVER), st.Ditto(solver=SOLVER)]


def fitted(method: Any, **options: Any) -> st.Result:
    return st.fit(method, layers(5, 3), ragged(m=8), rounds=4, seed=2, **grouped(dtype=torch.float64, **options))


def weights(result: st.Result) -> dict[str, torch.Tensor]:
    return {k: v for k, v in result.run.models().items() if torch.is_tensor(v)}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("where", ["server", "client"])
def test_no_noise_and_no_clip_change_nothing_under_compression(method: Any, where: str) -> None:
    nothing = st.Privacy(noise=0.0, clip=math.inf, where=where)
    with_it = fitted(method, compress=Int8(), compress_down=TopK(k=0.5), privacy=nothing)
    without = fitted(method, compress=Int8(), compress_down=TopK(k=0.5))
    assert weights(with_it).keys() == weights(without).keys()
    for k, v in weights(without).items():
        torch.testing.assert_close(weights(with_it)[k], v, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_all_at_once_does_not_depend_on_how_clients_are_computed(method: Any) -> None:
    options: dict[str, Any] = {
        "privacy": st.Privacy(noise=0.5, clip=0.4),
        "compress": TopK(k=0.3),
        "compress_down": Int8(),
        "attack": st.attacks.SignFlip(),
        "attackers": 0.25,
        "unseen": ragged(m=3, seed=9),
        "unseen_steps": 2,
    }
    first = fitted(method, chunk=3, workers=2, **options)
    other = fitted(method, engine="serial", **options)
    wrapped = first.run.method
    assert isinstance(wrapped, Compressed) and isinstance(wrapped.method, Hostile)
    assert isinstance(wrapped.method.method, Private)
    for k, v in weights(first).items():
        torch.testing.assert_close(weights(other)[k], v, rtol=1e-9, atol=1e-9)
    held, again = first.summary["unseen"], other.summary["unseen"]
    assert held["clients"] == 3
    assert held["chosen"]["loss_mean"] == pytest.approx(again["chosen"]["loss_mean"], rel=1e-9)
    assert first.summary["privacy"] == other.summary["privacy"]
    assert (first.summary["bytes_up"], first.summary["bytes_down"]) == (
        other.summary["bytes_up"],
        other.summary["bytes_down"],
    )


def test_the_guarantee_holds_for_what_is_decompressed() -> None:
    """With noise at the server the mean moves by at most the clip, however much a code overshoots."""
    clip = 0.01
    run = fitted(
        st.FedAvg(solver=st.SGD(lr=5.0, batch=7)), compress=TopK(k=0.1), privacy=st.Privacy(noise=0.0, clip=clip)
    ).run
    before = run.server["w"].clone()
    run.step()
    assert 0 < float((run.server["w"] - before).norm()) <= clip * (1 + 1e-9)
