"""A GRU over all steps of sequences, for a stack of clients at once, and its gradient: PyTorch's nn.GRU,

    r = σ(W_ir x + b_ir + W_hr h + b_hr)        n  = tanh(W_in x + b_in + r (W_hn h + b_hn))
    z = σ(W_iz x + b_iz + W_hz h + b_hz)        h' = (1 − z) n + z h

The inputs' part of some steps is one product for all of them; then a step is one product and a few elementwise
operations. Backwards all that does not depend on a slope is computed for some steps together, so that a step is one
multiplication and one product; the weights' gradients are one product for some steps again. tanh(a) is 2 σ(2a) − 1, for
which PyTorch takes a fifth of the time: the rows of n are doubled in the weights, which is exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BLOCK = 16  # steps that are computed together: enough for a product, few enough for the cache


def forward(x: Tensor, Wi: Tensor, Wh: Tensor, bi: Tensor, bh: Tensor, h: Tensor, *, keep: bool) -> list[Tensor]:
    """Inputs x [c, t, b, i], first states h [c, b, k]: all states [c, 1 + t, b, k] and, to `keep` for the gradient, of
    every block of s steps (r, z, n) [c, s, b, 3k] and 2 (W_hn h + b_hn) [c, s, b, k]."""
    (c, t, b, _), k = x.shape, h.shape[2]
    double = torch.ones_like(bi[:1])
    double[:, 2 * k :] = 2
    WiT, WhT, bi, bh = ((v * double[..., None]).mT for v in (Wi, Wh, bi[..., None], bh[..., None]))
    states, kept = x.new_empty(c, 1 + t, b, k), list[Tensor]()
    states[:, 0] = h
    for at in range(0, t, BLOCK):
        inputs = x[:, at : at + BLOCK]
        block = torch.baddbmm(bi, inputs.reshape(c, -1, x.shape[3]), WiT).view(*inputs.shape[:3], 3 * k)
        of_states = x.new_empty(*inputs.shape[:3], k) if keep else None
        for s, gates in enumerate(block.unbind(1)):
            (rz, n), (more, hn) = (torch.split(v, [2 * k, k], 2) for v in (gates, torch.baddbmm(bh, h, WhT)))
            rz.add_(more).sigmoid_()
            r, z = rz.chunk(2, 2)
            n.addcmul_(r, hn).sigmoid_().mul_(2).sub_(1)
            h = torch.lerp(n, h, z, out=states[:, at + s + 1])
            if of_states is not None:
                of_states[:, s] = hn
        kept += [] if of_states is None else [block, of_states]
    return [states, *kept]


def backward(
    x: Tensor,
    Wi: Tensor,
    Wh: Tensor,
    states: Sequence[Tensor],
    kept: Sequence[Tensor],
    slopes: Sequence[Tensor | None],
    *,
    inputs: bool,
) -> list[Tensor]:
    """From the slopes of the states [c, 1 + t, b, k]: those of x (empty without `inputs`), Wi, Wh, bi, bh and the first
    states."""
    H = states[0]
    dH = torch.zeros_like(H) if slopes[0] is None else slopes[0]
    (c, t, b, i), k = x.shape, H.shape[3]
    W = Wh.roll(k, 1)  # in the order n, r, z: so the slopes of states' products, and those of inputs', lie side by side
    dx, dWi, dWh = torch.empty_like(x if inputs else x[:, :0]), x.new_zeros(c, i, 3 * k), x.new_zeros(c, k, 3 * k)
    sums, dh = x.new_zeros(c, 5 * k), dH[:, t]
    for at in reversed(range(0, t, BLOCK)):
        gates, hn = kept[2 * (at // BLOCK) :][:2]
        steps = gates.shape[1]
        before, (r, z, n) = H[:, at : at + steps], gates.chunk(3, 3)
        D = x.new_empty(c, steps, b, 5, k)
        of_hn, of_r, of_z, of_n, of_before = D.unbind(3)
        left = 1 - z
        torch.addcmul(left, left, n * n, value=-1, out=of_n)
        torch.mul(of_n, r, out=of_hn)
        torch.mul(of_hn, ((1 - r) * hn).mul_(0.5), out=of_r)
        torch.mul(before - n, left.mul_(z), out=of_z)
        of_before.copy_(z)
        for s in reversed(range(steps)):
            slope = D[:, s].mul_(dh[:, :, None]).view(c, b, 5 * k)
            dh = torch.baddbmm(slope[..., 4 * k :], slope[..., : 3 * k], W).add_(dH[:, at + s])
        D = D.view(c, steps * b, 5 * k)
        of_inputs = D[..., k : 4 * k]
        dWh.baddbmm_(before.reshape(c, steps * b, k).mT, D[..., : 3 * k])
        dWi.baddbmm_(x[:, at : at + steps].reshape(c, steps * b, i).mT, of_inputs)
        sums += D.sum(1)
        if inputs:
            dx[:, at : at + steps] = torch.bmm(of_inputs, Wi).view(c, steps, b, i)
    return [dx, dWi.mT, dWh.mT.roll(-k, 1), sums[:, k : 4 * k], sums[:, : 3 * k].roll(-k, 1), dh]
