"""A head on a frozen encoder of 22 million parameters: what its kept outputs save, and what memory 1,000 clients take.

python benchmarks/frozen.py: seconds of a round with and without kept outputs. With --memory: the most memory that a
run with 1,000 clients takes. Both with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import resource
import warnings

import numpy as np
import torch
from torch import Tensor, nn

import sartor as st
from sartor.tasks import frozen_outputs


class Encoded(nn.Module):
    """Seven transformer layers (22,075,392 parameters, frozen) under a linear head (4,104, trained)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
        self.first = nn.Linear(16, 512)
        self.encoder = nn.TransformerEncoder(layer, 7, enable_nested_tensor=False)
        self.requires_grad_(False)
        self.head = nn.Linear(512, 8)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.head(self.encoder(self.first(x)).mean(1))
        return h


def clients(m: int, samples: int) -> st.Clients:
    """Clients whose samples are sequences of four."""
    draw = np.random.default_rng(0)

    def part(n: int) -> tuple[np.ndarray, np.ndarray]:
        return draw.normal(size=(n, 4, 16)).astype(np.float32), draw.integers(8, size=n)

    return st.Clients.from_parts([{"train": part(samples), "test": part(2)} for _ in range(m)], 8)


def played(m: int, samples: int, rounds: int, kept: bool) -> st.Result:
    """A run of Ditto; `kept`: whether outputs of the encoder may be kept."""
    frozen_outputs.MOST_BYTES = frozen_outputs.MOST_ON_DISK = 1 << 30 if kept else 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that they are too many
        evaluation = st.Evaluation(evaluate_every=10**6, diagnostics=False)
        result = st.fit(st.Ditto(), Encoded(), clients(m, samples), rounds, evaluation=evaluation)
    assert (result.frozen is not None) == kept
    return result


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--memory", action="store_true")
    if ask.parse_args().memory:
        result = played(1000, 4, 3, kept=True)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        numbers = result.run.bytes_up // (4 * 3 * 1000)
        print(f"1,000 clients with two models each: {used:.2f} GiB; a message has {numbers:,} numbers")
        return
    each = {}
    for kept, rounds in ((False, 2), (True, 50)):
        result = played(20, 20, rounds, kept)
        each[kept] = result.run.seconds / rounds
        print(f"{'kept' if kept else 'computed at every step'}: {each[kept]:.4f} s a round (20 clients, 20 samples)")
    print(f"{each[False] / each[True]:.0f} times as fast")


if __name__ == "__main__":
    main()
