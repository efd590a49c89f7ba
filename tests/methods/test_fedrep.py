"""FedRep: first the head, then the body."""

from __future__ import annotations

import numpy as np
import torch
from federations import ragged
from method_runs import FULL, autograd_loss, play, stack_of, states

import sartor as st
from sartor.models import layers


def test_fedrep_trains_the_head_first_and_then_the_body_under_the_new_head() -> None:
    k, solver = 5 * 6 + 6, st.SGD(lr=0.1, steps=2, batch=FULL, weight_decay=0.1)
    result = play(st.FedRep(solver=solver, head_solver=st.SGD(lr=0.2, steps=3, batch=FULL)), rounds=1)
    local, start = stack_of(ragged(), layers(5, 6, 3)), result.run.problem.start
    bodies = []
    for i in range(7):
        at = int(np.flatnonzero(local.ids == i)[0])
        phi, h = start[:k].clone(), start[k:].clone()
        for _ in range(3):
            h.requires_grad_()
            (g,) = torch.autograd.grad(autograd_loss(local, at, torch.cat([phi, h])), h)
            h = (h - 0.2 * g).detach()
        for _ in range(2):
            phi.requires_grad_()
            (g,) = torch.autograd.grad(autograd_loss(local, at, torch.cat([phi, h])), phi)
            phi = (phi - 0.1 * (g + 0.1 * phi)).detach()
        torch.testing.assert_close(states(result)["own part"][i], h)
        bodies.append(phi)
    torch.testing.assert_close(result.run.server["w"], torch.stack(bodies).mean(0))
