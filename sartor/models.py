"""The papers' models, by name: softmax, mlp, dnn, 2nn, cnn, linear, svm; and small ones of sequences: cnn1d, lstm, gru,
transformer. Sized from the data they are to fit.

    >>> model = st.models.layers(64, 32, 10)  # fully connected, or by name:
    >>> model = st.models.build("mlp(32)", (64,), 10)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import spelling
from .errors import SartorError, need, see, unknown

Shape = tuple[int, ...]


def layers(*sizes: int) -> nn.Sequential:
    """Fully connected layers with ReLU between them: layers(784, 128, 64, 10).

    For example:

        >>> st.models.layers(64, 32, 10)(clients.x[:5]).shape
        torch.Size([5, 10])
    """
    stack: list[nn.Module] = [nn.Flatten()]
    for i, (a, b) in enumerate(pairwise(sizes)):
        stack += [nn.ReLU()] if i else []
        stack += [nn.Linear(a, b)]
    return nn.Sequential(*stack)


def cnn(
    shape: Shape, outputs: int, widths: tuple[int, int] = (32, 64), hidden: int = 512, padding: int = 2
) -> nn.Sequential:
    """Two 5×5 convolutions with 2×2 pooling and a hidden layer (McMahan et al. 2017; 1,663,370 parameters).

    For example:

        >>> sum(p.numel() for p in st.models.cnn((1, 28, 28), 10).parameters())
        1663370
    """
    need(len(shape) == 3, f"cnn needs images [channels, height, width]; got samples of shape {list(shape)}. Use mlp.")
    channels, height, width = shape
    for _ in range(2):
        height, width = (height + 2 * padding - 4) // 2, (width + 2 * padding - 4) // 2
    if height < 1 or width < 1:
        raise SartorError(f"cnn needs images of at least 4 x 4 pixels; got {shape[1]} x {shape[2]}. Use mlp.")
    return nn.Sequential(
        nn.Conv2d(channels, widths[0], 5, padding=padding),
        nn.MaxPool2d(2),  # before the ReLU: the same numbers, as both are monotone, for a quarter of its work
        nn.ReLU(),
        nn.Conv2d(widths[0], widths[1], 5, padding=padding),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(widths[1] * height * width, hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )


def flame_cnn(shape: Shape, outputs: int) -> nn.Sequential:
    """FLAME's CNN for CIFAR-10: 3×3×16, 3×3×32, 128 (268,650 parameters)."""
    height, width = _halved("cnn-flame", shape, 1, 3, 4)
    return nn.Sequential(
        *_pooled(nn.Conv2d(shape[0], 16, 3, padding=1)),
        *_pooled(nn.Conv2d(16, 32, 3, padding=1)),
        nn.Flatten(),
        nn.Linear(32 * height * width, 128),
        nn.ReLU(),
        nn.Linear(128, outputs),
    )


def flame_medical_cnn(shape: Shape, outputs: int) -> nn.Sequential:
    """FLAME's CNN for Medical MNIST: 3×3×32, 3×3×16, dropout, 64 (206,678 parameters on colour images of 64×64)."""
    height, width = _halved("cnn-flame-medical", shape, 0, 3, 10)
    return nn.Sequential(
        *_pooled(nn.Conv2d(shape[0], 32, 3)),
        *_pooled(nn.Conv2d(32, 16, 3)),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(16 * height * width, 64),
        nn.ReLU(),
        nn.Linear(64, outputs),
    )


def flame_femnist_cnn(shape: Shape, outputs: int) -> nn.Sequential:
    """FLAME's CNN for FEMNIST: 7×7×32, 3×3×64 and one linear layer (214,590 parameters)."""
    height, width = _halved("cnn-flame-femnist", shape, 1, 3, 4)
    return nn.Sequential(
        *_pooled(nn.Conv2d(shape[0], 32, 7, padding=3)),
        *_pooled(nn.Conv2d(32, 64, 3, padding=1)),
        nn.Flatten(),
        nn.Linear(64 * height * width, outputs),
    )


def _pooled(convolution: nn.Conv2d) -> list[nn.Module]:
    return [convolution, nn.MaxPool2d(2), nn.ReLU()]  # in this order: see cnn


def _halved(name: str, shape: Shape, padding: int, kernel: int, least: int) -> tuple[int, int]:
    """Height and width after two convolutions with 2×2 pooling."""
    need(len(shape) == 3, f"{name} needs images [channels, height, width]; got samples of shape {list(shape)}.")
    _, height, width = shape
    for _ in range(2):
        height, width = ((side + 2 * padding - kernel + 1) // 2 for side in (height, width))
    need(min(height, width) >= 1, f"{name} needs images of at least {least} x {least} pixels; got {shape[1:]}.")
    return height, width


# --- sequences: numbers [channels, steps] that have a class, or tokens [steps] whose next ones are to be said ---------


class Recurrent(nn.Module):
    """An LSTM or GRU of one layer; the class of a sequence is said after its last step, the next token after each."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU], shape: Shape, outputs: int, tokens: bool, width: int = 64) -> None:
        super().__init__()
        self.tokens = tokens
        self.embed = nn.Embedding(outputs, width // 2) if tokens else nn.Identity()
        self.cells = kind(width // 2 if tokens else shape[0], width, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        steps = self.embed(x.long()) if self.tokens else x.transpose(1, 2)
        states = self.cells(steps)[0]
        said: Tensor = self.head(states if self.tokens else states[:, -1])
        return said


def cnn1d(shape: Shape, outputs: int, widths: tuple[int, int] = (32, 64)) -> nn.Sequential:
    """Two convolutions of width 5 over time with group normalisation, ReLU and pooling by 4, and a mean over time."""
    _is_sequence("cnn1d", shape, least=16)
    stack: list[nn.Module] = []
    for a, b in pairwise((shape[0], *widths)):
        stack += [nn.Conv1d(a, b, 5, padding=2), nn.GroupNorm(8, b), nn.ReLU(), nn.MaxPool1d(4)]
    return nn.Sequential(*stack, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(widths[-1], outputs))


class Attention(nn.Module):
    """Self-attention with several heads; `causal`: to what came before only."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (part(x).view(b, t, self.heads, -1).transpose(1, 2) for part in (self.query, self.key, self.value))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        found: Tensor = self.out(seen.transpose(1, 2).reshape(b, t, -1))
        return found


class TransformerLayer(nn.Module):
    """Attention and a small network, each behind a layer normalisation and beside a shortcut."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.attention, self.wide, self.narrow = (
            Attention(width, heads, causal), nn.Linear(width, 4 * width), nn.Linear(4 * width, width),
        )  # fmt: skip
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.narrow(F.gelu(self.wide(self.norm2(x))))
        return y


class Transformer(nn.Module):
    """A small transformer (2 layers of 64, 4 heads): classes from the mean over steps, or the next token at each."""

    def __init__(self, shape: Shape, outputs: int, tokens: bool, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.tokens, self.most = tokens, shape[-1]
        self.embed = nn.Embedding(outputs, width) if tokens else nn.Linear(shape[0], width)
        self.position = nn.Embedding(self.most, width)
        self.layers = nn.Sequential(*(TransformerLayer(width, 4, causal=tokens) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        steps = x.shape[-1]
        need(steps <= self.most, f"this transformer takes sequences of at most {self.most} steps; got {steps}.")
        h = self.embed(x.long() if self.tokens else x.transpose(1, 2))
        h = self.norm(self.layers(h + self.position(torch.arange(steps, device=x.device))))
        said: Tensor = self.head(h if self.tokens else h.mean(1))
        return said


def _is_sequence(name: str, shape: Shape, least: int = 1) -> None:
    need(
        len(shape) == 2 and shape[1] >= least,
        f"{name} needs sequences [channels, steps >= {least}]; got samples of shape {list(shape)}. Use mlp.",
    )


def _of_sequences(name: str, shape: Shape, outputs: int, tokens: bool) -> nn.Module:
    """lstm, gru or transformer."""
    if not tokens:
        _is_sequence(name, shape)
    if name == "transformer":
        return Transformer(shape, outputs, tokens)
    return Recurrent({"lstm": nn.LSTM, "gru": nn.GRU}[name], shape, outputs, tokens)


# name → (one line, builder from (sample shape, outputs))
NAMES: dict[str, tuple[str, Callable[[Shape, int], nn.Module]]] = {
    "softmax": ("softmax (multinomial logistic) regression: one linear layer", lambda s, k: layers(math.prod(s), k)),
    "mlp": ("d-128-64-k, FLAME's MLP (109,386 parameters on MNIST)", lambda s, k: layers(math.prod(s), 128, 64, k)),
    "dnn": ("d-100-k, pFedMe's DNN", lambda s, k: layers(math.prod(s), 100, k)),
    "2nn": ("d-100-100-k, Lp-Proj's network", lambda s, k: layers(math.prod(s), 100, 100, k)),
    "cnn": ("5x5x32, 5x5x64, 512: the CNN of McMahan et al. that FedAMP uses", lambda s, k: cnn(s, k)),
    "cnn-ditto": ("5x5x32, 5x5x64, 1024: the CNN that Ditto uses", lambda s, k: cnn(s, k, hidden=1024)),
    "cnn-flame": ("3x3x16, 3x3x32, 128: FLAME's CNN for CIFAR-10 (268,650 parameters)", flame_cnn),
    "cnn-flame-medical": (
        "3x3x32, 3x3x16, dropout, 64: FLAME's CNN for Medical MNIST (206,678 parameters on 3 x 64 x 64)",
        flame_medical_cnn,
    ),
    "cnn-flame-femnist": ("7x7x32, 3x3x64: FLAME's CNN for FEMNIST (214,590 parameters)", flame_femnist_cnn),
    "cnn1d": ("5x32, 5x64 over time with group normalisation: sequences [channels, steps]", cnn1d),
    "lstm": ("an LSTM of 64: sequences, or the next token", lambda s, k: _of_sequences("lstm", s, k, False)),
    "gru": ("a GRU of 64: sequences, or the next token", lambda s, k: _of_sequences("gru", s, k, False)),
    "transformer": (
        "a small one, 2 layers of 64 with 4 heads: sequences, or the next token",
        lambda s, k: _of_sequences("transformer", s, k, False),
    ),
    "linear": ("linear regression (squared error)", lambda s, k: layers(math.prod(s), 1)),
    "svm": ("linear support vector machine (hinge loss, targets -1/+1)", lambda s, k: layers(math.prod(s), 1)),
}

MOST = 1 << 28  # weights of a model with hidden sizes: a gigabyte for every client
WIDEST = 1 << 22  # numbers of a sample: images of 1000 x 1000 pixels have three million
OF_TOKENS = ("lstm", "gru", "transformer")
LOSS = {"linear": "squared", "svm": "hinge"}  # the others: cross-entropy


def build(name: str, shape: Shape, outputs: int, tokens: bool = False) -> nn.Module:
    """The named model for samples of this shape. A name may list hidden sizes: "mlp(200,100)". tokens: samples are
    sequences of tokens, of which the model says the next ones.

        >>> model = st.models.build("mlp(32)", (64,), 10)
    """
    base, hidden, named = spelling.read("model", name)
    if base not in NAMES:
        raise unknown("model", base, NAMES, see("names-and-settings"))
    need(
        math.prod(shape) + outputs <= WIDEST, f"samples and outputs have at most {WIDEST:,} numbers; got {list(shape)}."
    )
    need(not tokens or base in OF_TOKENS, f"{base} does not say the next token; use {', '.join(OF_TOKENS)}.")
    if tokens and not hidden and not named:
        return _of_sequences(base, shape, outputs, tokens)
    if not hidden and not named:
        return NAMES[base][1](shape, outputs)
    need(base == "mlp", f"only mlp takes hidden sizes, as in mlp(200,100); got {name!r}.")
    sizes = [size for size in hidden if isinstance(size, int) and not isinstance(size, bool)]
    good = len(sizes) == len(hidden) and not named
    need(good, f"hidden sizes are whole numbers, as in mlp(200,100); got {name!r}.")
    need(all(size >= 1 for size in sizes), f"hidden sizes are at least 1; got {name!r}.")
    each = [math.prod(shape), *sizes, outputs]
    weights = sum(a * b for a, b in pairwise(each))
    need(weights <= MOST, f"{name} has {weights:,} weights on these data; at most {MOST:,} are built by name.")
    return layers(*each)
