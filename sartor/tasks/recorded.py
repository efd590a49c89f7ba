"""Functions of tensors, recorded: torch.func's transformations cost more than the work of a small model's step, and
they are the same at every step."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

_ONE_AT_A_TIME = threading.Lock()  # PyTorch notes in a global that it records; two threads would leave it standing
_OFTEN = 3  # calls with the same shapes after which they are recorded, which takes as long as some dozen calls


class Traced:
    """A pure function (switch, tensors...) → tensor, recorded as plain operations for each switch and shapes that come
    often; the numbers are the same to the bit.

    With `compile`, torch.compile turns it into machine code instead: a little faster still, but each new kind of
    shape takes 10 to 30 seconds to compile. What cannot be recorded is called as it is.
    """

    def __init__(self, function: Callable[..., Tensor], compile: bool) -> None:
        self.function, self.compile = function, compile
        self.seen: Counter[Any] = Counter()
        self.recorded: dict[Any, Callable[..., Tensor]] = {}

    def __call__(self, switch: bool, *tensors: Tensor) -> Tensor:
        key = (switch, *((v.shape, v.dtype) for v in tensors)) if not self.compile else switch
        if (known := self.recorded.get(key)) is not None:
            return known(*tensors)
        self.seen[key] += 1
        plain = partial(self.function, switch)
        if self.compile:
            self.recorded[key] = torch.compile(plain, dynamic=True)
            return self.recorded[key](*tensors)
        if self.seen[key] > _OFTEN:
            self.recorded[key] = self._record(plain, tensors)
        return plain(*tensors)

    @staticmethod
    def _record(plain: Callable[..., Tensor], tensors: tuple[Tensor, ...]) -> Callable[..., Tensor]:
        try:
            with _ONE_AT_A_TIME:
                found: Callable[..., Tensor] = make_fx(plain)(*tensors)
        except Exception:  # a layer that works under vmap but not while it is recorded
            return plain
        return found
