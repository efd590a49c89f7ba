"""Your own nn.Module and your own loss, with any method.

    python examples/own_model.py

The loss is a function of outputs [b, k] and targets [b] that returns a number for each sample.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

import sartor as st


class Residual(nn.Module):
    """A small network with a shortcut."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.into, self.middle, self.out = nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.into(x))
        return self.out(h + F.relu(self.middle(h)))


def smoothed(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy that expects one label in ten to be wrong."""
    return F.cross_entropy(output, target, reduction="none", label_smoothing=0.1)


def main() -> None:
    clients = st.data.load("digits").split(st.Labels(3), clients=8, seed=0)
    result = st.fit(st.PFedMe(), Residual(64, 24, 10), clients, rounds=5, loss=smoothed)
    print(result.table())
    print(result.personal(0))  # an nn.Module of your class, ready to predict


if __name__ == "__main__":
    main()
