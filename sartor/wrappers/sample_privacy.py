"""Patient-level differential privacy: DP-SGD (Abadi et al. 2016). Every gradient that training takes of a client's
samples is clipped sample by sample and noisy, so whatever is made of gradients tells little of any one sample.

    B: each of the n_i samples by a coin of its own, q_i = b/n_i                                       (b: the batch)
    g = (1/b) ( Σ_{s in B} g_s min(1, C/‖g_s‖) + z_i C·N(0, I) )               (C: `clip`, z_i: noise, b: at most n_i)

One gradient is a Poisson-subsampled Gaussian mechanism, what the accountants are for. Messages, and personal models
that training itself makes, are functions of such gradients and cost nothing more. A method that looks at samples in
another way (all of them at once, a line search, a validation loss) is refused there, with the reason. What a coupling
adds (λ(θ − w)) is no data, and has no noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core import Batch, ClientStack, Coupling, Method, Plan, State
from ..errors import SartorError, need
from ..methods.parts.other_losses import View
from ..seeds import stream
from .base import Wrapper
from .privacy import NoiseSource, Privacy


class SamplePrivate(Wrapper):
    """`method`, whose clients see their own samples through clipping and noise."""

    def __init__(
        self, method: Method, privacy: Privacy, noise: np.ndarray, seed: int, source: NoiseSource | None = None
    ) -> None:
        """`noise` [m]: each client's own. `source`: where a real site's comes from; none: a function of the seed."""
        super().__init__(method)
        self.clip, self.noise, self.seed, self.source = privacy.clip, noise, seed, source

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        noise = self.noise[np.asarray(local.ids)]
        return self.method.client(state, down, PrivateSamples(local, self.clip, noise, self.source or self.simulated))

    def simulated(self, size: int, round: int, client: int, step: int) -> np.ndarray:
        """[size] N(0, 1) of a client."""
        return stream(self.seed, f"privacy of samples {step}", round, client).standard_normal(size)


class PrivateSamples(View):
    """Clients whose gradients are private. Draws are numbered: two for each gradient, who is in it and the noise."""

    def __init__(self, local: ClientStack, clip: float, noise: np.ndarray, draw: NoiseSource) -> None:
        """`noise` [c]: that of each client of the stack."""
        super().__init__(local)
        self.clip, self.noise, self.draw = clip, noise, draw
        self._drawn = 0
        self._all: Batch | None = None

    def _draw(self, sizes: list[int]) -> list[np.ndarray]:
        """N(0, 1) for each of the first clients of the stack; they go in step, so a client's draws are its own."""
        self._drawn += 1
        each = zip(self.ids[: len(sizes)].tolist(), sizes, strict=True)
        return [self.draw(size, self.round, client, self._drawn) for client, size in each]

    def batches(
        self, size: int, *, epochs: int = 1, steps: int | None = None, start: int = 0, stream: int = 0
    ) -> Iterator[tuple[int, Batch]]:
        """As many batches as without privacy, each of samples by chance; `start` and `stream` name no order here."""
        counts = self.samples.cpu().numpy()
        takes = -(-counts // size) * epochs if steps is None else np.full(len(counts), steps)
        if self._all is None:
            _, self._all = next(self.local.batches(int(counts.max()), steps=1))
        for t in range(int(takes.max())):
            a = int((takes > t).sum())
            yield a, self._some(self._all, counts[:a], size)

    def _some(self, everyone: Batch, counts: np.ndarray, size: int) -> Batch:
        """Each client's samples by coins of their own; a sample's weight is its class's, and 0 where it is padding."""
        from scipy.special import ndtri  # slow to import, and only private runs need it

        with np.errstate(divide="ignore"):
            chosen = [
                np.flatnonzero(draw < ndtri(min(1.0, size / n)))
                for n, draw in zip(counts.tolist(), self._draw(counts.tolist()), strict=True)
            ]
        width = max(1, *(len(places) for places in chosen))
        index, there = np.zeros((len(chosen), width), dtype=np.int64), np.zeros((len(chosen), width))
        for at, places in enumerate(chosen):
            index[at, : len(places)], there[at, : len(places)] = places, 1.0
        rows, a = torch.from_numpy(index).to(everyone.y.device), len(chosen)
        weight = (
            everyone.weight[:a].gather(1, rows) * self.samples[:a, None] * torch.from_numpy(there).to(everyone.weight)
        )
        nominal = self.samples[:a].clamp(max=size).to(everyone.weight)
        pick = torch.arange(a, device=rows.device)[:, None]
        return SampledBatch.of(everyone.x[pick, rows], everyone.y[pick, rows], weight, everyone.key[:a], nominal)

    def grad(self, theta: Tensor, batch: Batch) -> Tensor:
        need(isinstance(batch, SampledBatch), "a private gradient is of a batch that was drawn for it.")
        assert isinstance(batch, SampledBatch)
        need(not batch.used, "a private gradient needs a batch of its own; the solver reuses one (reuse).")
        batch.used = True
        total = self.local.clipped_grad(theta, batch, self.clip)
        if self.noise.any():
            drawn = np.stack(self._draw([theta.shape[1]] * len(theta)))
            size = torch.from_numpy(self.noise[: len(theta), None] * self.clip)
            total += size.to(total) * torch.from_numpy(drawn).to(total)
        return total / batch.nominal[:, None]

    def clipped_grad(self, theta: Tensor, batch: Batch, clip: float) -> Tensor:
        raise self._no()

    def descend_(self, theta: Tensor, plan: Plan, coupling: Coupling) -> None:
        need(plan.repeats == 1, "a private gradient needs a batch of its own; the solver takes several steps on one.")
        super().descend_(theta, plan, coupling)

    def _no(self, *_: Any) -> SartorError:
        return SartorError(
            "dp_unit = sample makes minibatch gradients private; this method or its solver looks at samples in another "
            "way. Use the sgd or adam solver, and a method that needs nothing else."
        )

    def validation(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        raise self._no()

    def vjp(self, theta: Tensor, batch: Batch) -> Any:
        raise self._no()

    def design(self) -> tuple[Tensor, Tensor, Tensor]:
        raise self._no()

    def order(self, epochs: int = 1, stream: int = 0) -> Iterator[tuple[int, Tensor]]:
        raise self._no()


class SampledBatch(Batch):
    """A batch of samples by chance: by how many it is divided, and whether a gradient was taken of it."""

    nominal: Tensor  # [a] b
    used: bool

    @classmethod
    def of(cls, x: Tensor, y: Tensor, weight: Tensor, key: Tensor, nominal: Tensor) -> SampledBatch:
        made = cls(x, y, weight, key)
        made.nominal, made.used = nominal, False
        return made
