"""FedRoD: its two steps are autograd's; without balancing its generic model is FedAvg's; the balanced softmax undoes
unequal shares."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics, ragged
from method_runs import FULL, client_batch, personal, play, stack_of, state
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

import sartor as st
from sartor.models import layers

K, HEAD = 5 * 6 + 6, 6 * 3 + 3


def features(w: Tensor, x: Tensor) -> Tensor:
    return linear(x, w[:30].view(6, 5), w[30:36]).relu()


def logits(head: Tensor, z: Tensor) -> Tensor:
    return linear(z, head[:18].view(3, 6), head[18:])


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_two_rounds_by_autograd(gamma: float) -> None:
    result = play(st.FedRoD(gamma=gamma, solver=st.SGD(lr=0.1, steps=2, batch=FULL)), rounds=2)
    local, share = stack_of(ragged(), layers(5, 6, 3)), result.run.problem.share
    w, heads = result.run.problem.start, torch.zeros(7, HEAD, dtype=torch.float64)
    for _ in range(2):
        sent = []
        for i in range(7):
            x, y = client_batch(local, int(np.flatnonzero(local.ids == i)[0]))
            counts = torch.bincount(y, minlength=3).double()
            offset = gamma * (counts / counts.sum()).log() if gamma else torch.zeros(3)
            mine, p = w.clone(), heads[i]
            for _ in range(2):
                mine, p = mine.detach().requires_grad_(), p.detach().requires_grad_()
                z = features(mine, x)
                (g,) = torch.autograd.grad(cross_entropy(logits(mine[K:], z) + offset, y), mine)
                both = logits(mine[K:], z).detach() + logits(p, z.detach())
                (h,) = torch.autograd.grad(cross_entropy(both, y), p)
                mine, p = mine - 0.1 * g, p - 0.1 * h
            heads[i] = p.detach()
            sent.append(mine.detach())
        w = share @ torch.stack(sent)
    torch.testing.assert_close(result.run.server["w"], w)
    np.testing.assert_allclose(state(result, "p"), heads, rtol=1e-9, atol=1e-12)
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)).double()
    for i, theta in enumerate(torch.as_tensor(personal(result))):  # the sum of both heads' logits is one head's
        z = features(w, x)
        torch.testing.assert_close(
            logits(theta[K:], features(theta, x)), logits(w[K:], z) + logits(heads[i], z), rtol=1e-9, atol=1e-12
        )


def test_without_balancing_the_generic_model_is_fedavgs() -> None:
    solver = st.SGD(lr=0.1, epochs=2, batch=7, momentum=0.5)
    ours, theirs = play(st.FedRoD(gamma=0.0, solver=solver)), play(st.FedAvg(solver=solver))
    torch.testing.assert_close(ours.run.server["w"], theirs.run.server["w"])


def test_balancing_undoes_unequal_shares() -> None:
    """Samples that tell nothing: the best generic logits are equal, the best personal ones are the log shares."""
    rng = np.random.default_rng(0)
    drawn = [(np.zeros((100, 2)), rng.choice(2, 100, p=[q, 1 - q])) for q in (0.9, 0.8)]
    data = st.Clients.from_parts([dict.fromkeys(("train", "validation", "test"), each) for each in drawn])
    solver = st.SGD(lr=1.0, steps=400, batch=FULL)
    result = play(st.FedRoD(solver=solver), rounds=3, model=layers(2, 2), clients=data)
    bias = result.run.server["w"][4:]
    assert abs(float(bias[0] - bias[1])) < 1e-6
    for i, theta in enumerate(personal(result)):
        shares = np.bincount(np.asarray(data.y[data.rows(i, "train")]), minlength=2) / 100
        assert theta[4] - theta[5] == pytest.approx(np.log(shares[0] / shares[1]), abs=1e-6)


def test_a_class_that_a_client_lacks() -> None:
    """Its generic logit is not pushed down: a softmax over the client's own classes only."""
    result = play(st.FedRoD(solver=st.SGD(lr=0.1, steps=1, batch=FULL)), rounds=1, model=layers(5, 4))
    start, w = result.run.problem.start, result.run.server["w"]  # targets are 0..2, the fourth output is nobody's
    moved = (w - start).abs()
    assert max(moved[15:20].max(), moved[23]) < 1e-15 < 1e-3 < moved[:15].max()


def test_bad_settings() -> None:
    with pytest.raises(st.SartorError, match="gamma"):
        st.FedRoD(gamma=-1.0)
    with pytest.raises(st.SartorError, match="FedRoD balances classes"):
        quadratics().fit(st.FedRoD(), 1)
