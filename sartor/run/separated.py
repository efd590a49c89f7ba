"""Linear models that are never wrong on what they were trained on: said at the end of a run."""

from __future__ import annotations

import numpy as np
import torch

from ..data.clients import Clients
from ..engines.stack import Stack
from ..tasks.task import ModelTask


def separated(task: ModelTask, data: Clients, models: torch.Tensor) -> list[str]:
    """Where the training samples of some clients are separated by their models [m, d], what that means."""
    stack = Stack(task, data, np.arange(len(data)), torch.zeros(len(data)), 0, 0)
    never_wrong = int((stack.score(models, "train")[1] == 1).sum())
    if not never_wrong:
        return []
    return [
        f"a linear model separates the training samples of {never_wrong} of {len(data)} clients: only the penalty "
        "(--ridge) bounds its weights, and its probabilities are surer than it is right. See --calibrate."
    ]
