"""What of a model is not trained (requires_grad=False): a fixed function, the same for all clients and held once.

Only trained parameters are in θ. A module that has parameters, none of them trained, runs as in eval(): its dropout is
off, and its batch normalisation keeps the statistics that it came with. Its tensors are shared by every copy that a run
makes of the model, however many clients and workers there are; a model that is handed out has its own.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

_FULL = (torch.float32, torch.float64)


def is_frozen(module: nn.Module) -> bool:
    """Whether it has parameters, none of which is trained."""
    trained = [p.requires_grad for p in module.parameters()]
    return bool(trained) and not any(trained)


def frozen_modules(model: nn.Module) -> Iterator[nn.Module]:
    """The frozen modules of a model, the outermost only."""
    if is_frozen(model):
        yield model
        return
    for child in model.children():
        yield from frozen_modules(child)


def frozen_tensors(model: nn.Module) -> dict[str, Tensor]:
    """By name: parameters that are not trained, and the buffers of frozen modules."""
    found: dict[str, Tensor] = {name: p for name, p in model.named_parameters() if not p.requires_grad}
    fixed = {id(b) for module in frozen_modules(model) for b in module.buffers()}
    return found | {name: b for name, b in model.named_buffers() if id(b) in fixed}


def digest(model: nn.Module) -> str:
    """A hash of all that is frozen; empty where nothing is."""
    tensors = frozen_tensors(model)
    if not tensors:
        return ""
    found = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        found.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def shared_copy(model: nn.Module) -> nn.Module:
    """A copy of the model; what is frozen is the same tensors."""
    return copy.deepcopy(model, {id(v): v for v in frozen_tensors(model).values()})


def training_mode(model: nn.Module) -> nn.Module:
    """The model as it is trained: what is frozen as in eval()."""
    model.train()
    for module in frozen_modules(model):
        module.eval()
    return model


def own_copy(model: nn.Module, device: str | torch.device | None, dtype: torch.dtype) -> nn.Module:
    """A copy that shares nothing, on a device and in a type. Frozen tensors of less than float32 keep their type: the
    model converts what goes in and out of them itself."""
    made = copy.deepcopy(model).to(device)
    kept = {id(v) for v in frozen_tensors(made).values() if v.dtype not in _FULL}
    made._apply(  # type: ignore[no-untyped-call]
        lambda v: v.to(dtype) if v.is_floating_point() and id(v) not in kept else v
    )
    return made


class Given(nn.Module):
    """Stands where a frozen part was: gives its outputs, whatever it is called with."""

    value: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("value", torch.zeros(()), persistent=False)

    def forward(self, *args: object, **more: object) -> Tensor:
        return self.value


def put_given(model: nn.Module, names: list[str]) -> None:
    """Take the modules that come first out of the model, in place; the last of them becomes what was kept."""
    for name in names:
        model.set_submodule(name, Given() if name == names[-1] else nn.Identity())
