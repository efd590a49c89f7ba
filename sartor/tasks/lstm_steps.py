"""An LSTM over all steps of sequences, for a stack of clients at once, and its gradient: PyTorch's nn.LSTM,

    i = σ(a_i), f = σ(a_f), g = tanh(a_g), o = σ(a_o)  with  a = W_i x + b_i + W_h h + b_h
    c' = f c + i g,   h' = o tanh(c')

computed as gru_steps.py does it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .gru_steps import BLOCK


def forward(
    x: Tensor, Wi: Tensor, Wh: Tensor, bi: Tensor, bh: Tensor, h: Tensor, cell: Tensor, *, keep: bool
) -> list[Tensor]:
    """Inputs x [c, t, b, i], first states h and cells [c, b, k]: all states and cells [c, 1 + t, b, k] and, to `keep`
    for the gradient, of every block of s steps (i, f, g, o) [c, s, b, 4k]."""
    (c, t, b, _), k = x.shape, h.shape[2]
    double = torch.ones_like(bi[:1])
    double[:, 2 * k : 3 * k] = 2
    WiT, WhT, bias = ((v * double[..., None]).mT for v in (Wi, Wh, (bi + bh)[..., None]))
    states, cells, kept = x.new_empty(c, 1 + t, b, k), x.new_empty(c, 1 + t, b, k), list[Tensor]()
    states[:, 0], cells[:, 0] = h, cell
    for at in range(0, t, BLOCK):
        inputs = x[:, at : at + BLOCK]
        block = torch.baddbmm(bias, inputs.reshape(c, -1, x.shape[3]), WiT).view(*inputs.shape[:3], 4 * k)
        for s, gates in enumerate(block.unbind(1)):
            i, f, g, o = gates.add_(torch.bmm(h, WhT)).sigmoid_().chunk(4, 2)
            g.mul_(2).sub_(1)
            cell = torch.mul(f, cell, out=cells[:, at + s + 1]).addcmul_(i, g)
            h = torch.mul(_tanh(cell), o, out=states[:, at + s + 1])
        kept += [block] if keep else []
    return [states, cells, *kept]


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
    """From the slopes of states and cells [c, 1 + t, b, k]: those of x (empty without `inputs`), Wi, Wh, bi, bh and the
    first states and cells."""
    H, C = states
    dH, dC = torch.zeros_like(H) if slopes[0] is None else slopes[0], slopes[1]
    (c, t, b, i), k = x.shape, H.shape[3]
    dx, dWi, dWh = torch.empty_like(x if inputs else x[:, :0]), x.new_zeros(c, i, 4 * k), x.new_zeros(c, k, 4 * k)
    sums = x.new_zeros(c, 4 * k)
    dh, dc = dH[:, t], torch.zeros_like(H[:, 0]) if dC is None else dC[:, t].clone()
    for at in reversed(range(0, t, BLOCK)):
        gates = kept[at // BLOCK]
        steps = gates.shape[1]
        before, (i_, f, g, o), tanh = C[:, at : at + steps], gates.chunk(4, 3), _tanh(C[:, at + 1 : at + 1 + steps])
        D = x.new_empty(c, steps, b, 4, k)
        of_i, of_f, of_g, of_o = D.unbind(3)
        torch.mul(i_ * g, 1 - i_, out=of_i)
        torch.mul(f * before, 1 - f, out=of_f)
        torch.addcmul(i_, i_, g * g, value=-1, out=of_g)
        torch.mul(o * tanh, 1 - o, out=of_o)
        to_cell = torch.addcmul(o, o, tanh.mul_(tanh), value=-1)
        for s in reversed(range(steps)):
            dc.addcmul_(dh, to_cell[:, s])
            of_o[:, s] *= dh
            D[:, s, :, :3] *= dc[:, :, None]
            dc.mul_(f[:, s])
            dh = torch.bmm(D[:, s].view(c, b, 4 * k), Wh).add_(dH[:, at + s])
            if dC is not None:
                dc += dC[:, at + s]
        D = D.view(c, steps * b, 4 * k)
        dWh.baddbmm_(H[:, at : at + steps].reshape(c, steps * b, k).mT, D)
        dWi.baddbmm_(x[:, at : at + steps].reshape(c, steps * b, i).mT, D)
        sums += D.sum(1)
        if inputs:
            dx[:, at : at + steps] = torch.bmm(D, Wi).view(c, steps, b, i)
    return [dx, dWi.mT, dWh.mT, sums, sums.clone(), dh, dc]


def _tanh(a: Tensor) -> Tensor:
    return (2 * a).sigmoid_().mul_(2).sub_(1)
