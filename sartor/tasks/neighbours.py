"""The last layer of a model whose personal copies remember samples (kNN-Per; methods/knn_per.py has the equations).

`remembering` swaps the last layer for one that answers as before until it is given a memory: what it was given for some
training samples (features [n, p]), their classes (labels [n]; −1: nothing is there, as clients with fewer samples than
others are padded) and λ. It then gives log probabilities in place of logits: their softmax is what they say.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Neighbours, State
from ..errors import need

SHARES = tuple(i / 10 for i in range(11))  # λ that a client chooses from
_SAME = 1e-5  # losses that differ by less are the same: rounding must not choose


class Remembering(nn.Linear):
    """A linear layer beside which remembered samples vote."""

    features: Tensor  # [n, p]
    labels: Tensor  # [n]
    share: Tensor  # [] λ
    k: int
    scale: float
    asked: bool  # to give its inputs φ(x), not its outputs

    def forward(self, phi: Tensor) -> Tensor:
        if self.asked:
            return phi
        logits = super().forward(phi)
        if not len(self.labels):
            return logits
        voted = votes(phi, self.features, self.labels, self.out_features, self.k, self.scale)
        mixed = mixture(self.share, voted, logits.softmax(-1))
        least = torch.finfo(mixed.dtype).tiny  # where nobody votes for a class, λ = 1 leaves nothing of it
        return torch.where(self.share > 0, mixed.clamp(min=least).log(), logits)


def votes(phi: Tensor, features: Tensor, labels: Tensor, classes: int, k: int, scale: float) -> Tensor:
    """[b, classes] for samples φ [b, p]: of the k nearest features [n, p] each votes for its label, in proportion to
    exp(−‖φ − φ_j‖² / (scale · p))."""
    far = (phi**2).sum(-1, keepdim=True) - 2 * phi @ features.mT + (features**2).sum(-1)
    far = torch.where(labels < 0, torch.inf, far.clamp(min=0))
    near, which = far.topk(min(k, len(labels)), largest=False)
    weight = (-near / (scale * phi.shape[-1])).softmax(-1)
    said = labels[which][..., None] == torch.arange(classes, device=labels.device)
    return (weight[..., None] * said).sum(-2)


def mixture(share: Tensor | float, voted: Tensor, said: Tensor) -> Tensor:
    """λ · votes + (1 − λ) · the model's probabilities."""
    return share * voted + (1 - share) * said


def losses_of(voted: Tensor, said: Tensor, y: Tensor) -> Tensor:
    """[a, b, 11] −log of the true class's probability for every λ in SHARES, from votes and the model's probabilities
    [a, b, k]."""
    each = [p.gather(-1, y[..., None])[..., 0].double() for p in (voted, said)]
    return torch.stack([-mixture(share, *each).log() for share in SHARES], -1)


def best_share(losses: Tensor) -> Tensor:
    """[a] the λ of the lowest loss [a, 11]; of equals the smallest."""
    least = losses.amin(1, keepdim=True)  # 0 where all votes are right, or a rounding below it
    best = losses <= least + _SAME * (1 + least.abs())
    return losses.new_tensor(SHARES)[best.int().argmax(1)]


def remembering(model: nn.Module, layer: str, neighbours: Neighbours) -> nn.Module:
    """The same model, changed: its last layer can be given a memory, and has none yet."""
    head = model.get_submodule(layer)
    need(
        type(head) is nn.Linear,
        f"knn-per needs a model whose last layer is nn.Linear; this one's is {layer or 'the model'}, a "
        f"{type(head).__name__}. Use another model, or fedavg-ft.",
    )
    head.__class__ = Remembering
    head.k, head.scale, head.asked = neighbours.k, neighbours.scale, False  # type: ignore[assignment]
    weight = head.weight
    assert isinstance(weight, Tensor)
    head.register_buffer("features", weight.new_zeros(0, weight.shape[1]))
    head.register_buffer("labels", torch.zeros(0, dtype=torch.int64, device=weight.device))
    head.register_buffer("share", weight.new_zeros(()))
    return model


def put_memory(model: nn.Module, layer: str, statistics: State) -> None:
    """Give such a model a memory: a client's statistics by name."""
    head = model.get_submodule(layer)
    for name, key in names_of(layer).items():
        setattr(head, name, statistics[key].to(head.get_buffer(name)))


def names_of(layer: str) -> dict[str, str]:
    """What each part of a memory is called among a client's statistics."""
    return {name: f"{layer}.{name}" if layer else name for name in ("features", "labels", "share")}


def votes_of(model: nn.Module) -> dict[str, Any] | None:
    """What must be known of a model with a memory beside its tensors; None: it has none."""
    found = [(name, m) for name, m in model.named_modules() if isinstance(m, Remembering)]
    return {"layer": found[0][0], "k": found[0][1].k, "scale": found[0][1].scale} if found else None


def voting(model: nn.Module, about: dict[str, Any], tensors: State) -> nn.Module:
    """A copy of a plain model with the memory that `votes_of` tells about, and is among these tensors."""
    model = remembering(copy.deepcopy(model), about["layer"], Neighbours(about["k"], None, about["scale"]))
    put_memory(model, about["layer"], tensors)
    return model
