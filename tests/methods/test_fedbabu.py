"""FedBABU: the head stays as it was drawn, the body is the mean of what clients make of it, both are fine-tuned."""

from __future__ import annotations

import numpy as np
import torch
from federations import ragged
from method_runs import FULL, autograd_loss, personal, play, stack_of

import sartor as st
from sartor.models import layers


def test_one_round_by_autograd() -> None:
    k, solver = 5 * 6 + 6, st.SGD(lr=0.1, steps=2, batch=FULL)
    method = st.FedBABU(solver=solver, finetune=st.SGD(lr=0.2, steps=3, batch=FULL))
    result = play(method, rounds=1)
    local, start = stack_of(ragged(), layers(5, 6, 3)), result.run.problem.start
    bodies = []
    for i in range(7):
        at, phi, h = int(np.flatnonzero(local.ids == i)[0]), start[:k].clone(), start[k:]
        for _ in range(2):
            phi.requires_grad_()
            (g,) = torch.autograd.grad(autograd_loss(local, at, torch.cat([phi, h])), phi)
            phi = (phi - 0.1 * g).detach()
        bodies.append(phi)
    body = result.run.problem.share @ torch.stack(bodies)
    torch.testing.assert_close(result.run.server["w"], body)
    shared = torch.cat([p.detach().reshape(-1) for p in result.shared().parameters()])
    torch.testing.assert_close(shared, torch.cat([body, start[k:]]))
    theirs = torch.as_tensor(personal(result))
    for i in range(7):
        at, theta = int(np.flatnonzero(local.ids == i)[0]), torch.cat([body, start[k:]])
        for _ in range(3):
            theta.requires_grad_()
            (g,) = torch.autograd.grad(autograd_loss(local, at, theta), theta)
            theta = (theta - 0.2 * g).detach()
        torch.testing.assert_close(theirs[i], theta)
