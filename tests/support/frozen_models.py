"""Models by name of which a part is frozen: for tables of runs that engines play by their recipes."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import torch
from torch import Tensor, nn

from sartor import models

BODY, ADAPTERS = "test-frozen-body", "test-adapters"


class Net(nn.Module):
    """Two layers by name; the frozen weights are the same wherever it is built."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(inputs, 12), nn.Linear(12, outputs)
        draw = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(0.5 * torch.randn(parameter.shape, generator=draw))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(torch.tanh(self.body(x)))
        return found


def frozen_body(shape: tuple[int, ...], outputs: int) -> nn.Module:
    made = Net(shape[0], outputs)
    made.body.requires_grad_(False)
    return made


def adapters(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """LoRA with A frozen."""
    import peft

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        config = peft.LoraConfig(r=2, target_modules=["body", "head"])
        made: nn.Module = peft.get_peft_model(Net(shape[0], outputs), config)
    for name, parameter in made.named_parameters():
        parameter.requires_grad_("lora_B" in name)
    return made


def in_processes() -> dict[str, str]:
    """The environment of processes that are to know them: there Python reads faulty/sitecustomize.py."""
    here = Path(__file__).parent
    path = os.pathsep.join(filter(None, [str(here / "faulty"), str(here), os.environ.get("PYTHONPATH")]))
    return {"SARTOR_TEST_MODELS": "1", "PYTHONPATH": path}


def known() -> list[str]:
    """Make them models like any other in this process; the names of those that can be built."""
    models.NAMES[BODY] = ("a frozen body under a head", frozen_body)
    if importlib.util.find_spec("peft") is None:
        return [BODY]
    models.NAMES[ADAPTERS] = ("LoRA on a frozen network", adapters)
    return [BODY, ADAPTERS]
