"""A task: an nn.Module and a loss as functions of flat vectors, for a stack of clients at once.

Plain fully connected models have their gradient written out (dense_gradient.py); other models are vectorised over
clients (torch.func; GRU and LSTM by recurrent.py) and their operations recorded (recorded.py), but not where that is
slower than a loop on a CPU: a stack of small convolutions becomes one grouped convolution, and oneDNN has an LSTM in
one piece, so models that have any of these run client by client. `vectorise` overrides the rule.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from posixpath import commonpath
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap

from ..core import Back, Batch, Blocks, Neighbours, Pull, State
from ..errors import need, unknown
from ..seeds import torch_seed
from . import compiled, large_linear
from .attention import StackedAttention
from .client_layers import KeyedDropout, OwnBatchNorm, own_layers
from .dense_gradient import DenseNet, Layer
from .frozen import digest, frozen_tensors, own_copy, put_given, shared_copy, training_mode
from .large_linear import LargeLinear
from .neighbours import names_of, put_memory, remembering
from .pool_relu import fused
from .recorded import Traced

Loss = Callable[[Tensor, Tensor], Tensor]  # (output [b, k], target [b]) → [b]
_ONEDNN = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """−log softmax(output)[target]."""
    return F.cross_entropy(output, target, reduction="none")


def squared(output: Tensor, target: Tensor) -> Tensor:
    """½ (output − target)²."""
    return 0.5 * (output.reshape(target.shape) - target) ** 2


def hinge(output: Tensor, target: Tensor) -> Tensor:
    """max(0, 1 − target · output) for targets −1/+1."""
    return (1 - target * output.reshape(target.shape)).clamp(min=0)


def squared_hinge(output: Tensor, target: Tensor) -> Tensor:
    """max(0, 1 − target · output)² for targets −1/+1."""
    return hinge(output, target) ** 2


def next_token(output: Tensor, target: Tensor) -> Tensor:
    """Of sequences, output [b, t, k] and target [b, t]: the mean −log softmax(output)[target] over a sequence's places;
    a target of −1 is padding."""
    there = target >= 0
    each = F.cross_entropy(output.flatten(0, 1), target.clamp(min=0).flatten(), reduction="none").view(target.shape)
    return (each * there).sum(1) / there.sum(1).clamp(min=1)


_SMALL = 1 << 16  # parameters of a model whose first weights are kept

LOSSES: dict[str, Loss] = {
    "cross-entropy": cross_entropy, "squared": squared, "hinge": hinge, "squared-hinge": squared_hinge,
    "next-token": next_token,
}  # fmt: skip


class ModelTask:
    """The loss of a model on a batch, its gradient and its predictions, as functions of θ [a, d]."""

    def __init__(
        self,
        model: nn.Module,
        loss: str | Loss = "cross-entropy",
        vectorise: bool | None = None,
        compile: bool = False,
        metric: Loss | None = None,
        given: Sequence[str] = (),
        neighbours: Neighbours | None = None,
    ) -> None:
        self.given = list(given)  # frozen modules that come first: inputs are what they give, not samples
        self._made_of = model, loss, vectorise, compile, metric
        self.metric = metric  # in place of accuracy or R²: a score of every sample, the higher the better
        self.class_weights: Tensor | None = None  # [k] of a sample's class, in training
        self.named_metric: str | None = None  # the same by a name, of many samples together
        self.neighbours = neighbours  # personal models remember samples; none: they do not
        if isinstance(loss, str) and loss not in LOSSES:
            raise unknown("loss", loss, LOSSES)
        self.per_sample: Loss = LOSSES[loss] if isinstance(loss, str) else loss
        self.kind = loss if isinstance(loss, str) else "custom"
        self.original = model
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        held = sum(p.numel() for p in model.parameters())
        need(held > 0, "the model has no parameters to train.")
        need(
            len(parameters) > 0,
            f"the model has nothing to train: all {held:,} parameters have requires_grad=False; "
            f"{'enable its adapters (enable_adapter_layers)' if hasattr(model, 'peft_config') else 'add a head'}.",
        )
        types = {p.dtype for p in parameters.values()}
        need(len(types) == 1, f"all trained parameters must have one type; got {', '.join(map(str, types))}.")
        self.frozen = digest(model)
        left = [m for name, m in model.named_modules() if not any(f"{name}.".startswith(f"{g}.") for g in self.given)]
        alone = any(isinstance(m, nn.modules.conv._ConvNd) for m in left) or _has_fast_lstm(left, types)
        self.vectorise = not alone if vectorise is None else vectorise
        self.training = training_mode(own_layers(model, self.vectorise))
        put_given(self.training, self.given)
        self.names = list(parameters)
        self._head = self.names[-1].rpartition(".")[0]  # the last layer
        self.dense = self._dense() if vectorise is None else None
        if self.dense is None:
            large_linear.put_into(self.training, but=self._head if neighbours is not None else "")
        self.scoring = shared_copy(self.training).eval()
        self._asked = False  # for features, not for outputs
        if neighbours is not None:
            remembering(self.scoring, self._head, neighbours)
        self.shapes = [p.shape for p in parameters.values()]
        self.counts = [p.numel() for p in parameters.values()]
        self.size = sum(self.counts)
        ends = accumulate(self.counts)
        self.blocks = Blocks({n: slice(e - k, e) for n, k, e in zip(self.names, self.counts, ends, strict=True)})
        modules = list(self.training.named_modules())
        self._dropouts = [name for name, m in modules if isinstance(m, KeyedDropout)]
        self._norms = [name for name, m in modules if isinstance(m, OwnBatchNorm)]
        norms = [name for name, m in modules if re.search(r"Norm(\dd)?$", type(m).__name__)]
        self.blocks.norms = frozenset(n for n in self.names if n.rpartition(".")[0] in norms)
        self._alone, self._scoring_alone = (  # for one client at a time
            fused(m) if compiled.available() else m for m in (self.training, self.scoring)
        )
        self._laid_out: tuple[Tensor, list[Layer]] | None = None
        self._recurrent = any(isinstance(m, nn.RNNBase) for _, m in modules)  # steps by the hundred, which are ours
        self._stacked_grad = self._grad_by_vmap if self._recurrent else Traced(self._grad_by_vmap, compile)
        self._starts: dict[int, Tensor] = {}  # of small models by seed: runs of a study share them
        self._no_rule = False  # torch.func was tried and cannot do it
        self.random = bool(self._dropouts)
        self.has_statistics = bool(self._norms)

    def _dense(self) -> DenseNet | None:
        """The model as a dense network; of one whose first part is given, what is trained may be one inside of it."""
        found = DenseNet.of(self.training, self.kind)
        if found is not None or not self.given:
            return found
        owners = {name.rpartition(".")[0] for name in self.names}
        inside = commonpath([f"/{owner.replace('.', '/')}" for owner in owners])[1:].replace("/", ".")
        return DenseNet.of(self.training.get_submodule(inside), self.kind)

    def after(self, given: Sequence[str]) -> ModelTask:
        """The same task for what these modules give."""
        return ModelTask(*self._made_of, given=given, neighbours=self.neighbours)

    def __deepcopy__(self, memo: dict[int, Any]) -> ModelTask:
        """For another worker; what is frozen is the same tensors."""
        made = copy.copy(self)
        memo |= {id(self): made} | {id(v): v for v in frozen_tensors(self.original).values()}
        made.__dict__ = copy.deepcopy(self.__dict__, memo)
        return made

    def multiplies_apart(self, steps: int) -> bool:
        """Whether a stack is multiplied client by client, where samples are sequences of so many steps (1: they are
        none), so that a larger stack gains nothing."""
        layers = [m for m in self.training.modules() if isinstance(m, LargeLinear)]
        return self.vectorise and not self._recurrent and any(m.large(steps) for m in layers)

    def probe(self, x: Tensor, y: Tensor) -> None:
        """Try one sample: a model or loss that cannot be vectorised runs client by client, and says so.

        It looks at values, say, or has an operation that torch.func knows no rule for (nn.RNN, packed sequences).
        """
        batch = Batch(x[None], y[None], x.new_ones(1, len(x)), torch.zeros(1, dtype=torch.int64, device=x.device))
        if not self.vectorise:
            self.grad(x.new_zeros(1, self.size), batch)
            return
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "There is a performance drop")  # a rule that is a loop inside PyTorch
                self._probed(batch)
        except RuntimeError as e:
            if "vmap" not in str(e) and "Batching rule" not in str(e):
                raise
            self.vectorise, self._no_rule = False, True
            self._probed(batch)
            said = str(e).splitlines()[0].partition(". ")[0]
            warnings.warn(f"the model runs client by client, as PyTorch cannot vectorise it: {said}.", stacklevel=2)

    def _probed(self, batch: Batch) -> None:
        theta = batch.x.new_zeros(1, self.size)
        self.grad(theta, batch)
        if self.dense is None:
            self.loss(theta, batch)
            self._outputs(theta, batch)

    # --- flat vectors -------------------------------------------------------------------------------------------------

    def init(self, seed: int | None) -> Tensor:
        """The trained weights, drawn again from `seed` where layers know how (reset_parameters); None: as given. Beside
        a frozen part they always are: who freezes means the weights that are there (LoRA's zeros, too)."""
        if seed is not None and seed in self._starts:
            return self._starts[seed].clone()
        model = shared_copy(self.training)
        if seed is not None and not self.frozen:
            with torch_seed(seed):
                for module in model.modules():
                    if callable(reset := getattr(module, "reset_parameters", None)):
                        reset()
        start = torch.cat([p.detach().reshape(-1) for p in model.parameters() if p.requires_grad])
        if seed is not None and not self.frozen and self.size <= _SMALL:
            self._starts[seed] = start.clone()
        return start

    def unflatten(self, theta: Tensor) -> list[Tensor]:
        """θ [a, d] (or [d]) as the model's parameters, each [a, ...]: views, not copies."""
        lead = theta.shape[:-1]
        parts = torch.split(theta, self.counts, dim=-1)
        return [p.view(lead + s) for p, s in zip(parts, self.shapes, strict=True)]

    def module(self, theta: Tensor, statistics: State | None = None) -> nn.Module:
        """A copy of the user's whole model that holds θ [d]; batch normalisation gets the client's statistics, and the
        last layer what the client remembers. It shares nothing with the run: a user may merge adapters into the frozen
        weights."""
        model = own_copy(self.original, None, theta.dtype).eval()
        values = dict(zip(self.names, self.unflatten(theta), strict=True))
        with torch.no_grad():
            parameters = dict(model.named_parameters())
            for name, value in values.items():
                parameters[name].copy_(value)
            for name in self._norms if statistics else []:
                norm = model.get_submodule(name)
                assert isinstance(norm, nn.modules.batchnorm._BatchNorm) and statistics is not None
                if norm.running_mean is not None and norm.running_var is not None:
                    norm.running_mean.copy_(statistics[f"{name}.mean"])
                    norm.running_var.copy_(statistics[f"{name}.var"])
        if self.neighbours is not None and statistics and names_of(self._head)["labels"] in statistics:
            remembering(model, self._head, self.neighbours)
            put_memory(model, self._head, statistics)
        return model

    # --- one client ---------------------------------------------------------------------------------------------------

    def _one_loss(
        self, params: list[Tensor], x: Tensor, y: Tensor, weight: Tensor, key: Tensor, module: nn.Module
    ) -> Tensor:
        output = self._one_output(params, x, weight, key, {}, module)
        return (self.per_sample(output, y) * weight).sum()

    def _one_output(
        self, params: list[Tensor], x: Tensor, weight: Tensor, key: Tensor, statistics: State, module: nn.Module
    ) -> Tensor:
        tensors = dict(zip(self.names, params, strict=True)) | statistics
        tensors |= {f"{name}.key": key for name in self._dropouts}
        tensors |= {f"{name}.value": x for name in self.given[-1:]}
        tensors |= {f"{name}.weight_of_samples": weight for name in self._norms}
        with StackedAttention():
            output: Tensor = functional_call(module, tensors, (x,))
        return output

    def _module(self, train: bool) -> nn.Module:
        """The model with its random layers on or off. Batch normalisation always uses the batch's own statistics."""
        return self.training if train or self.has_statistics else self.scoring

    # --- a stack of clients -------------------------------------------------------------------------------------------

    def loss(self, theta: Tensor, batch: Batch, train: bool = True) -> Tensor:
        """[a, d] → [a]."""
        if self.dense is not None:
            output = self.dense.scored(self.dense.layers(self.unflatten(theta)), batch.x)
            return (self.errors(output, batch.y) * batch.weight).sum(1)
        params, module = self.unflatten(theta), self._module(train)
        if self.vectorise:
            stacked: Tensor = vmap(self._one_loss, in_dims=(0, 0, 0, 0, 0, None))(params, *batch, module)
            return stacked
        return torch.stack([self._one_loss([p[i] for p in params], *row, module) for i, row in enumerate(_rows(batch))])

    def grad(self, theta: Tensor, batch: Batch, train: bool = True) -> Tensor:
        """[a, d] → [a, d]."""
        if self.dense is not None:
            out = torch.empty(theta.shape, dtype=theta.dtype, device=theta.device)
            self.dense.grad(self._layers(theta), batch, self.dense.layers(self.unflatten(out)))
            return out
        if self.vectorise:
            return self._stacked_grad(train, theta, *batch)
        out = torch.empty_like(theta)
        for i, parts in enumerate(self._each_grad(theta, batch, train)):
            torch.cat([g.reshape(-1) for g in parts], out=out[i])
        return out

    def _grad_by_vmap(self, train: bool, theta: Tensor, *batch: Tensor) -> Tensor:
        one = partial(self._one_loss, module=self._module(train))
        grads = vmap(grad(one))(self.unflatten(theta), *batch)
        return torch.cat([g.flatten(1) if g.dim() > 1 else g[:, None] for g in grads], dim=1)

    def _each_grad(self, theta: Tensor, batch: Batch, train: bool) -> Iterator[Sequence[Tensor]]:
        """The gradients of one client after the other, by parameter."""
        module = self._alone if train else self._module(train)
        for i, row in enumerate(_rows(batch)):
            params = [p.detach().requires_grad_() for p in self.unflatten(theta[i])]
            yield torch.autograd.grad(self._one_loss(params, _channels_last(row[0]), *row[1:], module), params)

    def descend_(self, theta: Tensor, batch: Batch, lr: float, pull: Pull) -> None:
        """theta −= lr ∇loss, in place, with `pull(theta, lr)` before the step lands."""
        if self.dense is not None:
            self.dense.descend_(theta, self._layers(theta), batch, lr, pull)
            return
        if self.vectorise:
            g = self.grad(theta, batch)
            pull(theta, lr)
            theta.sub_(g, alpha=lr)
            return
        grads = list(self._each_grad(theta, batch, True))
        pull(theta, lr)
        for row, parts in zip(theta, grads, strict=True):
            for p, part in zip(self.unflatten(row), parts, strict=True):
                p.sub_(part, alpha=lr)

    def _layers(self, theta: Tensor) -> list[Layer]:
        """θ's layers; made once for the many steps that a solver takes with one tensor."""
        assert self.dense is not None
        if self._laid_out is None or self._laid_out[0] is not theta:
            self._laid_out = theta, self.dense.layers(self.unflatten(theta))
        return self._laid_out[1]

    def vjp(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Back]:
        """Outputs [a, b, k], as in training, and the gradient [a, d] of Σ slope · outputs(θ) as a function of slope."""
        return self._outputs(theta, batch), partial(self._pullback, theta, batch)

    def _outputs(self, theta: Tensor, batch: Batch) -> Tensor:
        params, (x, _, weight, key) = self.unflatten(theta), batch
        if self.vectorise:
            stacked: Tensor = vmap(self._one_output, in_dims=(0, 0, 0, 0, None, None))(
                params, x, weight, key, {}, self.training
            )
            return stacked
        each = [
            self._one_output([p[i] for p in params], x[i], weight[i], key[i], {}, self.training) for i in range(len(x))
        ]
        return torch.stack(each)

    def _pullback(self, theta: Tensor, batch: Batch, slope: Tensor) -> Tensor:
        def back(params: list[Tensor], x: Tensor, weight: Tensor, key: Tensor, slope: Tensor) -> list[Tensor]:
            pulled: list[Tensor] = vjp(lambda p: self._one_output(p, x, weight, key, {}, self.training), params)[1](
                slope
            )[0]
            return pulled

        params, (x, _, weight, key) = self.unflatten(theta), batch
        if self.vectorise:
            grads = vmap(back)(params, x, weight, key, slope)
            return torch.cat([g.reshape(len(theta), -1) for g in grads], dim=1)
        each = [back([p[i] for p in params], x[i], weight[i], key[i], slope[i]) for i in range(len(x))]
        return torch.stack([torch.cat([g.reshape(-1) for g in grads]) for grads in each])

    def design(self, x: Tensor) -> Tensor:
        """[a, b, ...] → X [a, b, d] with outputs Xθ: the inputs, and ones where the linear model has a bias."""
        linear = self.dense is not None and self.dense.linear
        need(linear, f"a {type(self.original).__name__} of {self.size} parameters is not linear with one output.")
        X = x.flatten(2)
        return X if len(self.names) == 1 else torch.cat([X, X.new_ones(*X.shape[:2], 1)], dim=2)

    @torch.no_grad()
    def predict(self, theta: Tensor, x: Tensor, statistics: State | None = None) -> Tensor:
        """Outputs [a, b, k] of models θ [a, d] on inputs [a, b, ...], random layers off."""
        weight, key = x.new_ones(()), torch.zeros((), dtype=torch.int64, device=x.device)
        own = statistics or {}
        one_for_all = len(theta) > 1 and theta.stride(0) == 0 and not own  # an expanded view: one model, so one product
        if one_for_all or len(theta) == 1:
            single = {k: v[0] for k, v in own.items()}
            output = self._scored(self.unflatten(theta[0]), x.flatten(0, 1), weight, key, single)
            return output.reshape(*x.shape[:2], *output.shape[1:])
        if self.dense is not None and not own and not self._asked:
            return self.dense.scored(self.dense.layers(self.unflatten(theta)), x)
        params = self.unflatten(theta)
        if self.vectorise:
            stacked: Tensor = vmap(self._one_output, in_dims=(0, 0, None, None, 0, None))(
                params, x, weight, key, own, self.scoring
            )
            return stacked
        each = [
            self._scored([p[i] for p in params], x[i], weight, key, {k: v[i] for k, v in own.items()})
            for i in range(len(theta))
        ]
        return torch.stack(each)

    def _scored(self, params: list[Tensor], x: Tensor, weight: Tensor, key: Tensor, own: State) -> Tensor:
        """One model's outputs [b, k] on inputs [b, ...]."""
        x = x if self.dense is not None else _channels_last(x)
        return self._one_output(params, x, weight, key, own, self._scoring_alone)

    def features(self, theta: Tensor, x: Tensor, statistics: State | None = None) -> Tensor:
        """What the last layer is given [a, b, p], random layers off; only where models remember samples."""
        heads = [m.get_submodule(self._head) for m in (self.scoring, self._scoring_alone)]
        try:
            self._asked = True
            for head in heads:
                head.asked = True  # type: ignore[assignment]
            return self.predict(theta, x, statistics)
        finally:
            self._asked = False
            for head in heads:
                head.asked = False  # type: ignore[assignment]

    def check_features(self, x: Tensor) -> None:
        """Refuse a model that does something to its last layer's outputs: votes could not be mixed with them. It is
        looked at with the layer as it starts and with its opposite, as of what is above zero ReLU leaves all."""
        theta, x = self.init(0).to(x).repeat(2, 1), x.expand(2, *x.shape)
        own = [name for name in self.names if name.rpartition(".")[0] == self._head]
        for name in own:
            theta[1, self.blocks[name]] *= -1
        parts = dict(zip(self.names, self.unflatten(theta), strict=True))
        given, said = self.features(theta, x), self.predict(theta, x)
        fits = given.shape[:2] == x.shape[:2] and given.shape[2:] == parts[own[0]].shape[2:]
        need(
            fits and same_outputs(torch.stack([F.linear(given[i], *(parts[n][i] for n in own)) for i in (0, 1)]), said),
            f"knn-per needs a model that answers with what its last layer gives; {type(self.original).__name__} does "
            f"something else after {self._head or 'it'}, its last one. Use another model, or fedavg-ft.",
        )

    def remembered(self, features: Tensor, labels: Tensor, share: Tensor) -> State:
        """Samples [a, n, p] with classes [a, n] (−1: none is there) and λ [a] as `statistics` for `predict`."""
        return dict(zip(names_of(self._head).values(), (features, labels, share), strict=True))

    def outputs_alone(self, theta: Tensor, x: Tensor) -> Tensor:
        """What one model θ [d] gives for inputs [b, ...], random layers off; batch normalisation has no statistics."""
        weight, key = x.new_ones(()), torch.zeros((), dtype=torch.int64, device=x.device)
        return self._one_output(self.unflatten(theta), x, weight, key, {}, self.scoring)

    def dense_outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        """The same by the dense network."""
        assert self.dense is not None
        return self.dense.forward(self.dense.layers(self.unflatten(theta[None])), x[None])[0]

    @torch.no_grad()
    def statistics(self, theta: Tensor, batch: Batch) -> State:
        """Each client's batch-normalisation statistics [a, features], from its own batch; empty for other models."""
        if not self._norms:
            return {}

        norms = {name: self.training.get_submodule(name) for name in self._norms}

        def record(params: list[Tensor], x: Tensor, weight: Tensor, key: Tensor) -> State:
            self._one_output(params, x, weight, key, {}, self.training)
            out: State = {}
            for name, norm in norms.items():
                assert isinstance(norm, OwnBatchNorm) and norm.recorded is not None
                out[f"{name}.mean"], out[f"{name}.var"] = norm.recorded
                norm.recorded = None
            return out

        for norm in norms.values():
            norm.recording = True  # type: ignore[assignment]
        try:
            found = self._each_recorded(record, theta, batch)
        finally:
            for norm in norms.values():
                norm.recording = False  # type: ignore[assignment]
        return found

    def _each_recorded(self, record: Callable[..., State], theta: Tensor, batch: Batch) -> State:
        params, rest = self.unflatten(theta), (batch.x, batch.weight, batch.key)
        if not self._no_rule:
            stacked: State = vmap(record)(params, *rest)
            return stacked
        each = [record([p[i] for p in params], *(v[i] for v in rest)) for i in range(len(theta))]
        return {k: torch.stack([one[k] for one in each]) for k in each[0]}

    def quadratic(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(A [a, d, d], b [a, d]) with ∇f(θ) = Aθ − b; only for a linear model with squared error."""
        need(
            self.dense is not None and self.dense.linear and self.kind == "squared",
            f"the exact solver needs a linear model with one output and squared error; got {self.kind} loss on a "
            f"{type(self.original).__name__} of {self.size} parameters. Use the sgd or inexact solver.",
        )
        X = self.design(batch.x)
        weighted = (X * batch.weight[..., None]).mT
        return weighted @ X, (weighted @ batch.y[..., None])[..., 0]

    def correct(self, output: Tensor, y: Tensor) -> Tensor:
        """Which predictions are right, [a, b] as floats (of a sequence's places the share), or what the user's own
        metric says of each; without one only for classification."""
        if self.metric is not None:
            found = self.metric(output.flatten(0, 1), y.flatten(0, 1))
            need(
                found.shape == (y.shape[0] * y.shape[1],),
                f"a metric gives a number for each sample, [{y.shape[0] * y.shape[1]}]; got {list(found.shape)}.",
            )
            return found.reshape(y.shape[:2]).to(torch.float64)
        if y.is_floating_point():
            return (output.reshape(y.shape) * y > 0).to(torch.float64)
        right = (output.argmax(-1) == y).to(torch.float64)
        return right if y.dim() == 2 else right.sum(2) / (y >= 0).sum(2).clamp(min=1)  # of a sequence: the share

    def errors(self, output: Tensor, y: Tensor) -> Tensor:
        """Loss of every sample, [a, b]."""
        return self.per_sample(output.flatten(0, 1), y.flatten(0, 1)).reshape(y.shape[:2])


def same_outputs(said: Tensor, wanted: Tensor) -> bool:
    """Whether two ways to compute a model's outputs agree, up to rounding."""
    size = float(wanted.abs().max())
    return said.shape == wanted.shape and torch.allclose(said, wanted, rtol=1e-4, atol=1e-5 * size)


def _has_fast_lstm(modules: list[nn.Module], types: set[torch.dtype]) -> bool:
    return types == {torch.float32} and _ONEDNN and any(type(m) is nn.LSTM for m in modules)


def _channels_last(value: Tensor) -> Tensor:
    """Images with their channels last in memory, which pooling and thin convolutions on a CPU run far faster with.

    Strides are given outright: with one channel `contiguous` believes that nothing is to be done, and the first
    convolution would fall back to the other layout.
    """
    if value.dim() != 4:
        return value
    n, c, h, w = value.shape
    return value.new_empty_strided((n, c, h, w), (c * h * w, 1, w * c, c)).copy_(value)


def _rows(batch: Batch) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """One client at a time, without its padding."""
    counts = (batch.weight > 0).sum(1).tolist()
    return [(batch.x[i, :n], batch.y[i, :n], batch.weight[i, :n], batch.key[i]) for i, n in enumerate(counts)]
