"""EWC: Fisher information, and the minimum on quadratics."""

from __future__ import annotations

import numpy as np
import torch
from federations import quadratics, ragged
from method_runs import EXACT, FULL, client_batch, personal, random_models, stack_of
from torch.func import functional_call

import sartor as st
from sartor.methods.ewc import fisher
from sartor.models import layers
from sartor.tasks.task import ModelTask


def test_ewc_s_fisher_is_the_mean_square_of_the_samples_gradients() -> None:
    local = stack_of(ragged(), layers(5, 6, 3))
    theta = random_models(local)
    ours = fisher(local, theta, FULL)
    for i in range(len(theta)):
        x, y = client_batch(local, i)
        total = torch.zeros(local.task.size, dtype=torch.float64)
        for j in range(len(y)):
            w = theta[i].clone().requires_grad_()
            task = local.task
            assert isinstance(task, ModelTask)
            output = functional_call(
                task.original, dict(zip(task.names, task.unflatten(w), strict=True)), (x[j : j + 1],)
            )
            (g,) = torch.autograd.grad(torch.log_softmax(output, 1)[0, y[j]], w)
            total += g**2
        torch.testing.assert_close(ours[i], total / len(y), atol=1e-12, rtol=1e-9)


def test_ewc_reaches_its_minimum_on_quadratics() -> None:
    """(A + λF) w = b + λF w* with F from the residuals: F_ii = mean (x_i (x·w* − y))²."""
    q, lam = quadratics(), 0.7
    result = q.fit(st.EWC(lam=lam, fisher_batch=FULL, solver=st.SGD(lr=0.05), finetune=EXACT), rounds=3)
    w = result.run.server["w"].numpy()
    for i, ours in enumerate(personal(result)):
        X, y = (t[q.clients.rows(i, "train")].numpy() for t in (q.clients.x, q.clients.y))
        F = np.mean((X * (X @ w - y)[:, None]) ** 2, axis=0)
        np.testing.assert_allclose(ours, np.linalg.solve(q.A[i] + lam * np.diag(F), q.b[i] + lam * F * w), atol=1e-9)
