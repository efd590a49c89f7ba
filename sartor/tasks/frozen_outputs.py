"""A frozen part that comes first has the same outputs at every step: they are computed once per sample and kept, in
memory or, where there are many, on disk.

Which module's outputs can stand in for the samples is found by trying, last one first: in the rest of the model that
module is a `Given`, which gives what was kept, and the rest must give what the whole gives, for every sample and for
trained weights other than those that were there when outputs were kept. So nothing needs to be known of how a model is
written; one that looks at its samples elsewhere, too, or draws at random, just runs whole.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .client_layers import KeyedDropout, OwnBatchNorm
from .frozen import is_frozen
from .task import ModelTask, same_outputs

MOST_BYTES = 1 << 30  # of outputs that are kept in memory,
MOST_ON_DISK = 1 << 36  # and on disk, where at least as much stays free
_AT_ONCE = 256  # samples


def leading(task: ModelTask, x: Tensor) -> list[str]:
    """The names of the modules that run before anything trained or random does, in order, the outermost only."""
    found: list[str] = []
    over = False

    def note(name: str, module: nn.Module) -> None:
        nonlocal over
        own = any(p.requires_grad for p in module.parameters(recurse=False))
        over = over or own or isinstance(module, KeyedDropout | OwnBatchNorm)
        fixed = not any(p.requires_grad for p in module.parameters())
        fixed = fixed and not any(isinstance(m, KeyedDropout | OwnBatchNorm) for m in module.modules())
        if fixed and not over and not any(name == f or name.startswith(f"{f}.") for f in found):
            found.append(name)

    hooks = [
        module.register_forward_pre_hook(lambda module, _, name=name: note(name, module))
        for name, module in task.training.named_modules()
        if name
    ]
    try:
        with torch.no_grad():
            task.training(x)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _computes(task: ModelTask, names: list[str]) -> bool:
    """Whether something frozen is among them that is more than a table to look up."""
    modules = [task.training.get_submodule(name) for name in names]
    return any(is_frozen(m) and not isinstance(m, nn.Embedding) for m in modules)


@dataclass(frozen=True)
class FrozenOutputs:
    """A task that takes what a frozen part gives in place of samples."""

    whole: ModelTask
    rest: ModelTask
    of_all: Tensor  # [n, ...] what was kept

    def of(self, x: Tensor) -> Tensor:
        """[n, ...] → [n, ...], what the frozen part gives."""
        theta = self._theta(0, x)
        return torch.cat([self.looked_at(theta, part)[0] for part in torch.split(x, _AT_ONCE)])

    @torch.no_grad()
    def looked_at(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the frozen part gives for samples x inside of the model θ [d], and what the model gives."""
        held: list[Tensor] = []
        part = self.whole.scoring.get_submodule(self.rest.given[-1])
        hook = part.register_forward_hook(lambda module, _, output: held.append(output))
        try:
            said = self.whole.outputs_alone(theta, x)
        finally:
            hook.remove()
        one = len(held) == 1 and isinstance(held[0], Tensor) and held[0].is_floating_point()
        good = one and held[0].dim() >= 2 and len(held[0]) == len(x)
        return (held[0].to(x.dtype) if good else x[:0]), said

    def fits(self, x: Tensor) -> bool:
        """Whether some samples' outputs can be kept: they depend on nothing that is trained, and nothing else does."""
        kept, other = (self.looked_at(self._theta(seed, x), x)[0] for seed in (0, 1))
        return torch.equal(kept, other) and self.kept(x) is not None

    @torch.no_grad()
    def kept(self, x: Tensor) -> Tensor | None:
        """What the frozen part gives; None where the rest of the model does not make of it what the whole does."""
        theta, at = self._theta(0, x), 0
        first = self.of(x[:1])
        whole = _room((len(x), *first.shape[1:]), first)
        for samples in torch.split(x, _AT_ONCE):
            given, wanted = self.looked_at(theta, samples)
            if len(given) != len(samples):
                return None
            try:
                said = self.rest.outputs_alone(theta, given)
            except Exception:  # the rest asks for what it is not given, in whatever way
                return None
            if not same_outputs(said, wanted):
                return None
            dense = self.rest.dense is not None and given.dim() == 2
            if not dense or not same_outputs(self.rest.dense_outputs(theta, given), wanted):
                self.rest.dense = None
            whole[at : at + len(given)] = given
            at += len(given)
        return whole

    def _theta(self, seed: int, x: Tensor) -> Tensor:
        return torch.randn(self.whole.size, generator=torch.Generator().manual_seed(seed)).to(x)


def _room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """An empty tensor: in memory, or in a file without a name, which is gone with this process, where it is large."""
    size = math.prod(shape) * like.element_size()
    if size <= MOST_BYTES or like.device.type != "cpu":
        return like.new_empty(shape)
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return torch.from_numpy(np.memmap(file, dtype=like.numpy().dtype, mode="r+", shape=shape))


def frozen_outputs(whole: ModelTask, x: Tensor) -> FrozenOutputs | None:
    """What a frozen part that comes first gives for all samples x; None where there is none that can stand in for
    them, or it gives too much to be kept."""
    names = leading(whole, x[:2]) if whole.frozen else []
    while _computes(whole, names):
        found = FrozenOutputs(whole, whole.after(names), x[:0])
        if found.fits(x[:2]):
            sample = found.of(x[:1])
            size = len(x) * sample.numel() * sample.element_size()
            place = Path(tempfile.gettempdir())
            on_disk = min(MOST_ON_DISK, shutil.disk_usage(place).free // 2) if x.device.type == "cpu" else 0
            most = max(MOST_BYTES, on_disk)
            here = f"of the frozen part for {len(x):,} samples, {size / 2**30:.1f} GiB"
            if size > most:
                text = f"the frozen part runs at every step: the outputs {here}, are too many to be kept"
                warnings.warn(f"{text} (at most {most / 2**30:.1f} GiB in {place}).", stacklevel=4)
                return None
            if size > MOST_BYTES:
                warnings.warn(f"the outputs {here}, are kept on disk in {place} while this runs.", stacklevel=4)
            if (kept := found.kept(x)) is not None:
                return replace(found, of_all=kept)
        names = names[:-1]
    return None
