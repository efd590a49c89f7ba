"""nn.GRU and nn.LSTM that a stack of clients runs through at once.

torch.func has no rule for either, so client_layers.py swaps the class of those of a model for these: parameters and
their names stay. One direction of one layer is a function of tensors whose first axis is the client's, with a gradient
of its own (gru_steps.py, lstm_steps.py); its rule for vmap puts the axis that is mapped over and that one together.
What is not handled here (projections, packed sequences, single sequences without a batch) runs as PyTorch has it,
client by client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import need
from . import gru_steps, lstm_steps


class Steps(NamedTuple):
    """A kind of layer: how many states it goes on with from step to step, and its two passes."""

    states: int
    forward: Callable[..., list[Tensor]]
    backward: Callable[..., list[Tensor]]


GRU, LSTM = Steps(1, gru_steps.forward, gru_steps.backward), Steps(2, lstm_steps.forward, lstm_steps.backward)


class _Forward(torch.autograd.Function):
    """(kind, keep, x, Wi, Wh, bi, bh, first states) → all states, and what is kept for the gradient."""

    @staticmethod
    def forward(kind: Steps, keep: bool, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(kind.forward(*tensors, keep=keep))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.kind, (x, Wi, Wh) = inputs[0], inputs[2:5]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[ctx.kind.states :])
        ctx.save_for_backward(x, Wi, Wh, *output)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor | None) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[2]
        given = (*slopes[: ctx.kind.states], *ctx.saved_tensors)
        dx, *rest = _Backward.apply(ctx.kind, wanted, *given)  # type: ignore[no-untyped-call]
        return None, None, dx if wanted else None, *rest

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], kind: Steps, keep: bool, *tensors: Tensor) -> Any:
        return _mapped(_Forward, info.batch_size, in_dims, kind, keep, *tensors)


class _Backward(torch.autograd.Function):
    """(kind, whether x has a slope, the states' slopes, x, Wi, Wh, all states, what was kept) → the inputs' slopes."""

    @staticmethod
    def forward(kind: Steps, inputs: bool, *tensors: Any) -> tuple[Tensor, ...]:
        n = kind.states
        slopes, (x, Wi, Wh), states, kept = tensors[:n], tensors[n : n + 3], tensors[n + 3 :][:n], tensors[2 * n + 3 :]
        return tuple(kind.backward(x, Wi, Wh, states, kept, slopes, inputs=inputs))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> None:
        raise NotImplementedError("a recurrent layer's gradient has no gradient.")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], kind: Steps, inputs: bool, *tensors: Tensor | None) -> Any:
        return _mapped(_Backward, info.batch_size, in_dims, kind, inputs, *tensors)


def _mapped(
    function: type[torch.autograd.Function],
    size: int,
    in_dims: tuple[int | None, ...],
    kind: Steps,
    switch: bool,
    *tensors: Tensor | None,
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """The function of tensors [size, c, ...] as that of [size · c, ...]."""

    def flat(value: Tensor | None, dim: int | None) -> Tensor | None:
        if value is None:
            return None
        return (value.movedim(dim, 0) if dim is not None else value.expand(size, *value.shape)).flatten(0, 1)

    flattened = [flat(v, d) for v, d in zip(tensors, in_dims[2:], strict=True)]
    found = function.apply(kind, switch, *flattened)  # type: ignore[no-untyped-call]
    return tuple(v.unflatten(0, (size, -1)) for v in found), (0,) * len(found)


class _Stacked(nn.RNNBase):
    """What both have in common."""

    kind: Steps
    between: nn.ModuleList  # dropout after each layer but the last, where there is any

    def fits(self, x: object) -> bool:
        """Whether it is handled here."""
        found = isinstance(x, Tensor) and x.dim() == 3 and self.proj_size == 0
        need(
            found or not self.training or self.dropout == 0,
            f"the dropout inside of {type(self).__bases__[-1].__name__} (here with packed sequences, single ones or "
            "projections) draws from a shared generator, so runs would not repeat; use nn.Dropout between layers.",
        )
        return found

    def run(self, x: Tensor, first: list[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
        """Of sequences x (and of first states [layers, b, k]) the last layer's states at all steps, and every layer's
        last states."""
        h = x.transpose(0, 1) if self.batch_first else x  # [t, b, i]
        directions, last = 1 + self.bidirectional, list[list[Tensor]]()
        if first is None:
            first = [h.new_zeros(self.num_layers * directions, h.shape[1], self.hidden_size)] * self.kind.states
        for layer in range(self.num_layers):
            both = list[Tensor]()
            for back in range(directions):
                start = [v[layer * directions + back] for v in first]
                states = self._direction(h.flip(0) if back else h, start, f"_l{layer}{'_reverse' * back}")
                last.append([v[-1] for v in states])
                both.append(states[0][1:].flip(0) if back else states[0][1:])
            h = torch.cat(both, 2) if self.bidirectional else both[0]
            if layer < len(self.between):
                h = self.between[layer](h)
        ends = [torch.stack(each) for each in zip(*last, strict=True)]
        return h.transpose(0, 1) if self.batch_first else h, ends

    def _direction(self, h: Tensor, start: list[Tensor], suffix: str) -> list[Tensor]:
        """[t, b, i] → all states [1 + t, b, k]."""
        Wi, Wh = getattr(self, f"weight_ih{suffix}"), getattr(self, f"weight_hh{suffix}")
        bi = getattr(self, f"bias_ih{suffix}") if self.bias else torch.zeros_like(Wi[:, 0])
        bh = getattr(self, f"bias_hh{suffix}") if self.bias else torch.zeros_like(bi)
        tensors = [v[None] for v in (h.contiguous(), Wi, Wh, bi, bh, *start)]
        found = _Forward.apply(self.kind, torch.is_grad_enabled(), *tensors)  # type: ignore[no-untyped-call]
        return [v[0] for v in found[: self.kind.states]]


class StackedGRU(_Stacked, nn.GRU):
    """nn.GRU."""

    kind = GRU

    def forward(self, input: Any, hx: Tensor | None = None) -> Any:
        if not self.fits(input):
            return super().forward(input, hx)
        output, ends = self.run(input, None if hx is None else [hx])
        return output, ends[0]


class StackedLSTM(_Stacked, nn.LSTM):
    """nn.LSTM."""

    kind = LSTM

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> Any:
        if not self.fits(input):
            return super().forward(input, hx)
        output, ends = self.run(input, None if hx is None else list(hx))
        return output, (ends[0], ends[1])


STACKED: dict[type[nn.Module], type[nn.Module]] = {nn.GRU: StackedGRU, nn.LSTM: StackedLSTM}
