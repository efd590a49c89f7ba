"""DP-SGD against answers known without it: per-sample gradients by NumPy, Opacus' ε, the plain run without noise."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from commandline import good, refused
from federations import ragged
from groups import grouped
from opacus.accountants import RDPAccountant
from torch import nn

import sartor as st
from sartor.core import Batch
from sartor.engines.stack import Stack
from sartor.models import layers
from sartor.run.privacy_account import ORDERS
from sartor.tasks.task import ModelTask
from sartor.wrappers.sample_privacy import PrivateSamples

ALL = st.SGD(lr=0.1, batch=10_000)  # every sample in every batch


def stack(model: nn.Module, clients: st.Clients, dtype: torch.dtype = torch.float64) -> Stack:
    clients = clients.to("cpu", dtype)
    ids = np.argsort(-clients.counts("train"), kind="stable")
    task = ModelTask(model.to(dtype), "cross-entropy")
    task.probe(clients.x[:1], clients.y[:1])
    return Stack(task, clients, ids, torch.ones(len(ids), dtype=torch.int64), 0, 0)


def normal(size: int, round: int, client: int, step: int) -> np.ndarray:
    return np.random.default_rng([round, client, step]).standard_normal(size)


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [0.3, 1.0, math.inf])
def test_clipped_gradients_are_those_of_softmax_regression_written_out(clip: float) -> None:
    """(p − e_y) xᵀ and p − e_y of every sample, in NumPy; with weights, among them 0."""
    local = stack(layers(5, 3), ragged())
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(7, 6, 5)), draw.integers(3, size=(7, 6))
    weight, theta = draw.choice([0.0, 1.0, 2.5], size=(7, 6)), draw.normal(size=(7, 18))
    batch = Batch(*(torch.from_numpy(v) for v in (x, y, weight)), torch.zeros(7, dtype=torch.int64))
    found = local.clipped_grad(torch.from_numpy(theta), batch, clip).numpy()
    for i in range(7):
        W, b, total = theta[i, :15].reshape(3, 5), theta[i, 15:], np.zeros(18)
        for s in range(6):
            z = W @ x[i, s] + b
            p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            p[y[i, s]] -= 1
            g = weight[i, s] * np.concatenate([np.outer(p, x[i, s]).ravel(), p])
            total += g * min(1.0, clip / max(np.linalg.norm(g), 1e-300))
        np.testing.assert_allclose(found[i], total, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("pieces", [1, 1 << 24])
def test_any_model_has_the_clipped_gradients_of_autograd(pieces: int) -> None:
    """One sample at a time, in float64; also where few fit into memory together."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    local = stack(model, ragged())
    draw = np.random.default_rng(1)
    theta = torch.from_numpy(draw.normal(size=(7, local.task.size)))
    _, batch = next(local.batches(8, steps=1))
    with mock.patch("sartor.engines.stack._NUMBERS", pieces):
        found = local.clipped_grad(theta, batch, 0.2)
    for i in range(7):
        total = torch.zeros(local.task.size, dtype=torch.float64)
        for s in range(batch.weight.shape[1]):
            one = Batch(
                batch.x[i : i + 1, s : s + 1],
                batch.y[i : i + 1, s : s + 1],
                batch.weight[i : i + 1, s : s + 1],
                batch.key[:1],
            )
            own = theta[i : i + 1].clone().requires_grad_(True)
            (g,) = torch.autograd.grad(local.task.loss(own, one).sum(), own)
            total += g[0] * min(1.0, 0.2 / max(float(g.norm()), 1e-300))
        torch.testing.assert_close(found[i], total, rtol=1e-9, atol=1e-12)


def test_one_sample_moves_a_gradient_by_no_more_than_the_clip() -> None:
    """The neighbouring data: the sample is there, or nothing is in its place."""
    local = stack(layers(5, 3), ragged())
    theta = 5 * torch.ones(7, 18, dtype=torch.float64)
    _, batch = next(local.batches(20, steps=1))
    batch = batch._replace(x=1e3 * batch.x, weight=(batch.weight > 0).double())
    whole = local.clipped_grad(theta, batch, 0.7)
    for s in range(batch.weight.shape[1]):
        without = batch.weight.clone()
        without[:, s] = 0
        moved = whole - local.clipped_grad(theta, batch._replace(weight=without), 0.7)
        assert float(moved.norm(dim=1).max()) <= 0.7 * (1 + 1e-12)


def test_noise_has_the_size_that_is_said_and_batches_are_coins() -> None:
    d, z, C, b = 5 * 2000 + 2000 + 2000 * 3 + 3, 1.7, 0.4, 6
    local = stack(layers(5, 2000, 3), ragged())
    theta = torch.zeros(7, d, dtype=torch.float64)
    views = [PrivateSamples(local, C, np.full(7, noise), normal) for noise in (0.0, z)]
    pairs = [next(iter(view.batches(b, steps=1))) for view in views]
    assert torch.equal(pairs[0][1].weight, pairs[1][1].weight)
    clean, noisy = (view.grad(theta, batch) for view, (_, batch) in zip(views, pairs, strict=True))
    nominal = np.minimum(b, local.counts)
    for row, size in zip((noisy - clean).numpy(), nominal, strict=True):
        assert abs(row.std() / (z * C / size) - 1) < 5 / math.sqrt(2 * d)
    assert float((torch.corrcoef(noisy - clean) - torch.eye(7)).abs().max()) < 5 / math.sqrt(d)
    view, drawn = PrivateSamples(local, C, np.zeros(7), normal), np.zeros(7)
    for _, batch in view.batches(b, steps=2000):
        drawn += (batch.weight > 0).sum(1).numpy()
    q = np.minimum(1.0, b / local.counts)
    assert (np.abs(drawn / 2000 - q * local.counts) <= 5 * np.sqrt(local.counts * q * (1 - q) / 2000) + 1e-9).all()


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        st.FedAvg(solver=ALL),
        st.Ditto(solver=ALL, global_solver=ALL),
        st.FLAME(solver=ALL),
        st.MRMTL(lam=0.5, solver=ALL),
    ],
    ids=lambda m: m.name,
)
def test_without_noise_and_clip_and_with_all_samples_it_is_the_plain_run(method: Any) -> None:
    """Batches by chance are others than shuffled ones; where both hold all samples the numbers are the same."""
    options = {"local_steps": 4, "dtype": torch.float64, "diagnostics": False}
    plain = st.fit(method, layers(5, 3), ragged(), 3, **grouped(**options))
    found = st.fit(
        method,
        layers(5, 3),
        ragged(),
        3,
        privacy=st.Privacy(noise=0.0, clip=math.inf, unit="sample"),
        **grouped(**options),
    )
    torch.testing.assert_close(found.run.server["w"], plain.run.server["w"], rtol=1e-10, atol=1e-12)
    assert found.privacy is not None and found.privacy["epsilon"] is None
    for k, v in plain.scores.items():
        np.testing.assert_allclose(found.scores[k], v, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["fedavg", "ditto", "flame", "mr-mtl", "scaffold", "fedadam"])
def test_every_gradient_is_accounted_for_by_opacus(name: str) -> None:
    """The gradients that were counted are those of the account, and ε of each client is Opacus' for them."""
    from sartor.run.named_parts import method_from

    privacy = st.Privacy(noise=1.3, clip=0.5, unit="sample")
    result = st.fit(method_from(name, {}), layers(5, 3), ragged(), 4, local_steps=6, privacy=privacy)
    found, counts = result.privacy, ragged().counts("train")
    assert found is not None and found["compositions"] == 6 * 4 and result.run.counts["steps"] == 7 * 24
    for n, each in zip(counts.tolist(), found["epsilon_of_each"], strict=True):
        account = RDPAccountant()
        account.history = [(1.3, min(1.0, 20 / n), 24)]
        with mock.patch("warnings.warn"), np.errstate(all="ignore"):
            assert each == pytest.approx(account.get_epsilon(1e-5, alphas=ORDERS), rel=1e-12)
    assert found["epsilon"] == max(found["epsilon_of_each"]) and len(set(found["epsilon_of_each"])) > 2


def test_models_that_never_leave_are_private_too() -> None:
    """Local training sends nothing; its models are made of private gradients all the same, and may be shown."""
    privacy = st.Privacy(noise=1.0, clip=0.5, unit="sample")
    plain = st.fit(st.LocalOnly(), layers(5, 3), ragged(), 3, local_steps=4)
    found = st.fit(st.LocalOnly(), layers(5, 3), ragged(), 3, local_steps=4, privacy=privacy)
    assert found.privacy is not None and found.privacy["compositions"] == 12 and found.privacy["epsilon"] > 0
    assert not np.allclose(found.scores["personal/test/loss"], plain.scores["personal/test/loss"], equal_nan=True)


def test_each_client_has_the_noise_with_which_it_spends_its_epsilon() -> None:
    """By Opacus' account of each client's own noise and rate: all spend ε = 4; the smallest has most noise."""
    result = st.fit(
        st.FedAvg(), layers(5, 3), ragged(), 5, local_steps=3, privacy=st.Privacy(epsilon=4.0, unit="sample")
    )
    found, counts = result.privacy, ragged().counts("train")
    assert found is not None
    for n, noise in zip(counts.tolist(), found["noise_of_each"], strict=True):
        account = RDPAccountant()
        account.history = [(noise, min(1.0, 20 / n), 15)]
        with mock.patch("warnings.warn"), np.errstate(all="ignore"):
            assert 4 * (1 - 2e-4) < account.get_epsilon(1e-5, alphas=ORDERS) <= 4
    by_size = [noise for _, noise in sorted(zip(counts.tolist(), found["noise_of_each"], strict=True))]
    assert by_size == sorted(by_size, reverse=True) and by_size[0] > 1.3 * by_size[-1]
    assert found["noise"] == by_size[0] and found["epsilon"] == max(found["epsilon_of_each"]) <= 4


def test_noise_on_gradients_is_each_clients_own() -> None:
    d, C, b = 5 * 2000 + 2000 + 2000 * 3 + 3, 0.4, 6
    local, each = stack(layers(5, 2000, 3), ragged()), np.linspace(0.5, 3.5, 7)
    theta = torch.zeros(7, d, dtype=torch.float64)
    views = [PrivateSamples(local, C, noise, normal) for noise in (np.zeros(7), each)]
    clean, noisy = (view.grad(theta, next(iter(view.batches(b, steps=1)))[1]) for view in views)
    for row, size, z in zip((noisy - clean).numpy(), np.minimum(b, local.counts), each, strict=True):
        assert abs(row.std() / (z * C / size) - 1) < 5 / math.sqrt(2 * d)


def test_engines_and_chunks_change_nothing() -> None:
    privacy = st.Privacy(noise=1.0, clip=0.5, unit="sample")
    runs = [
        st.fit(
            st.Ditto(), layers(5, 3), ragged(), 3, local_steps=4, privacy=privacy, **grouped(dtype=torch.float64, **own)
        )
        for own in ({"engine": "serial"}, {"chunk": 3, "workers": 1}, {"chunk": 7, "workers": 1})
    ]
    for other in runs[1:]:
        torch.testing.assert_close(other.run.server["w"], runs[0].run.server["w"], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "method",
    [
        st.FedAvg(solver=st.Newton()),
        st.FedAvg(solver=st.SGD(reuse=True, steps=4)),
        st.APFL(),
        st.IFCA(),
        st.TERM(),
        st.PFedMe(),
        st.FedAvg(aggregate=st.aggregators.KLoss(k=2)),
    ],
    ids=lambda m: type(m).__name__,
)
def test_what_looks_at_samples_in_another_way_is_refused(method: Any) -> None:
    steps = None if method.unsplit() else 4
    with pytest.raises(st.SartorError, match=r"dp_unit = sample|batch of its own"):
        st.fit(method, layers(5, 3), ragged(), 2, local_steps=steps, privacy=st.Privacy(noise=1.0, unit="sample"))


def test_on_the_command_line(tmp_path: Path) -> None:
    private = ("--dp-unit", "sample", "--dp-clip", "1", "--model", "softmax", "--rounds", "3", "--clients", "4")
    said = good(
        "run", "--method", "mr-mtl", "--dp-epsilon", "6", *private, "--local-steps", "5", "--out", tmp_path / "a"
    )
    assert "private at the level of samples: at most epsilon" in " ".join(said.out.split())
    found = json.loads((tmp_path / "a" / "summary.json").read_text())["privacy"]
    assert found["unit"] == "sample" and 5.998 < found["epsilon"] <= 6 and len(found["epsilon_of_each"]) == 4
    good("run", "--resume", tmp_path / "a", "--rounds", "5")  # the same noise, and more is spent
    later = json.loads((tmp_path / "a" / "summary.json").read_text())["privacy"]
    assert later["noise_of_each"] == found["noise_of_each"] and later["epsilon"] > 6.5
    few = (
        "--dp-noise",
        "1",
        "--local-steps",
        "5",
        "--method",
        "fedavg",
        "--batch",
        "20",
        "--partition",
        "dirichlet=0.3",
    )
    shown = good("run", *private, *few, "--out", tmp_path / "b")
    each = json.loads((tmp_path / "b" / "summary.json").read_text())["privacy"]["epsilon_of_each"]
    assert max(each) > 1.05 * min(each)  # clients of other sizes
    assert f"epsilon of each client: {', '.join(f'{e:.3g}' for e in each)}" in " ".join(shown.out.split())
    for options, words in (
        ((*private, "--dp-noise", "1"), "give --local-steps"),
        ((*private, "--dp-noise", "1", "--local-steps", "5", "--method", "fedamp", "--solver", "newton"), "solver"),
        (("--dp-unit", "row", "--dp-noise", "1", "--model", "softmax"), "unit"),
        (("--dp-unit", "sample", "--model", "softmax"), "dp_unit does nothing without dp_noise or dp_epsilon"),
    ):
        assert words in refused("run", *options)
