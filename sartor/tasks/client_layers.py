"""Layers that behave when clients are stacked: what is random or keeps statistics must belong to one client.

`own_layers` swaps a model's dropout and batch normalisation for these; every other layer is left as it is, and so is
what is frozen. nn.GRU and nn.LSTM, which torch.func has no rule for, are given one (recurrent.py).
- KeyedDropout draws its mask from the batch's key, so it depends on seed, round, client and step, not on who ran when.
- OwnBatchNorm normalises by the client's own batch while training. For predictions its statistics are taken from the
  client's own training data (`recording`), so they stay with the client: never sent, averaged or shared.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import SartorError
from .frozen import frozen_modules, shared_copy
from .recurrent import STACKED

_MIX = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)  # splitmix64's multipliers as signed 64-bit numbers


def _mixed(z: Tensor) -> Tensor:
    """splitmix64's finaliser on int64 (wrap-around arithmetic): a well-mixed number for every counter."""
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * _MIX[0]
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * _MIX[1]
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


class KeyedDropout(nn.Module):
    """Dropout whose mask is a hash of (key, layer, position)."""

    key: Tensor

    def __init__(self, p: float, layer: int, channelwise: bool) -> None:
        super().__init__()
        self.p, self.layer, self.channelwise = p, layer, channelwise
        self.register_buffer("key", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        shape = x.shape[:2] + (1,) * (x.dim() - 2) if self.channelwise else x.shape
        count = torch.arange(shape.numel(), device=x.device).reshape(shape)
        uniform = (_mixed(_mixed(self.key + self.layer) + count) >> 11).to(torch.float64) / 2**53 + 0.5
        return x * (uniform >= self.p) / (1 - self.p)


class OwnBatchNorm(nn.Module):
    """Batch normalisation over (weighted) samples of one client, with statistics that stay with it."""

    weight_of_samples: Tensor
    mean: Tensor
    var: Tensor

    def __init__(self, like: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        self.eps = like.eps
        self.weight, self.bias = like.weight, like.bias
        self.register_buffer("weight_of_samples", torch.ones(()))
        self.register_buffer("mean", torch.zeros(like.num_features))
        self.register_buffer("var", torch.ones(like.num_features))
        self.recording = False
        self.recorded: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        wide = (1, -1) + (1,) * (x.dim() - 2)
        if self.training:
            places = [0, *range(2, x.dim())]
            w = self.weight_of_samples.reshape((-1,) + (1,) * (x.dim() - 1))
            w = w * torch.ones_like(x[:, :1])
            w = w / w.sum()
            mean = (w * x).sum(places)
            var = (w * (x - mean.reshape(wide)) ** 2).sum(places)
            if self.recording:
                self.recorded = (mean, var)
        else:
            mean, var = self.mean, self.var
        x = (x - mean.reshape(wide)) / (var.reshape(wide) + self.eps).sqrt()
        if self.weight is not None:
            x = x * self.weight.reshape(wide) + self.bias.reshape(wide)
        return x


def own_layers(model: nn.Module, stacked: bool = True) -> nn.Module:
    """A copy of the model whose dropout and batch normalisation are per client; what is frozen stays as it is. Not
    `stacked`: it runs client by client, so recurrent layers stay too, unless they draw at random."""
    model = shared_copy(model)
    fixed = {id(inside) for module in frozen_modules(model) for inside in module.modules()}
    count = 0
    for module in list(model.modules()):
        for name, child in module.named_children():
            if id(child) in fixed:
                continue
            if isinstance(child, nn.modules.batchnorm._BatchNorm):
                setattr(module, name, OwnBatchNorm(child))
            elif isinstance(child, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
                count += 1
                setattr(module, name, KeyedDropout(child.p, count, not isinstance(child, nn.Dropout)))
            elif isinstance(child, nn.AlphaDropout | nn.FeatureAlphaDropout | nn.RReLU):
                raise SartorError(
                    f"{type(child).__name__} draws from a shared generator, so runs would not repeat; "
                    "use nn.Dropout instead."
                )
    for module in model.modules():
        if isinstance(module, nn.GRU | nn.LSTM) and type(module) in STACKED:
            drops = 0 if id(module) in fixed or not module.dropout else module.num_layers - 1
            if not stacked and not drops:
                continue
            module.between = nn.ModuleList(KeyedDropout(module.dropout, count + 1 + i, False) for i in range(drops))
            module.__class__ = STACKED[type(module)]  # type: ignore[assignment]
            count += drops
    return model
