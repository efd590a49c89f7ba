"""peft models are taken as they are: the body is frozen, adapters are trained, and a mean of both factors is named."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch
from every_method import make
from federations import ragged
from torch import nn

import sartor as st
from sartor.tasks.frozen import frozen_tensors
from sartor.tasks.task import ModelTask
from sartor.testing import PROPERTIES, check_method
from sartor.wrappers import PersonalParts

peft = pytest.importorskip("peft")
ROOT = Path(__file__).parents[1]


class Net(nn.Module):
    """Three layers by name."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.middle(torch.tanh(self.first(x)))))


def lora(train_A: bool = False) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = peft.get_peft_model(Net(), peft.LoraConfig(r=2, target_modules=["middle", "last"]))
    for name, parameter in model.named_parameters():
        if "lora_A" in name:
            parameter.requires_grad_(train_A)
    return model


def test_only_adapters_are_trained_and_sent() -> None:
    model = lora()
    before = {k: v.clone() for k, v in frozen_tensors(model).items()}
    result = st.fit(st.FedAvg(), model, ragged(), rounds=2)
    assert result.task.size == 8 * 2 + 3 * 2  # B of both layers
    assert result.run.bytes_up == 2 * 7 * 4 * 22
    assert not torch.any(result.run.problem.start)  # LoRA begins at B = 0
    made = result.shared()
    assert isinstance(made, peft.PeftModel)
    assert all(torch.equal(v, before[k]) for k, v in frozen_tensors(made).items())
    x = ragged().x[:3].float()
    with torch.no_grad():
        merged = made.merge_and_unload()  # into the body, in place
        torch.testing.assert_close(merged(x), result.shared()(x))
        assert not torch.allclose(merged(x), model(x))
    assert result.summary["warnings"] == st.fit(st.FedAvg(), lora(), ragged(), rounds=2).summary["warnings"]
    assert not any("mean(B)" in line for line in result.summary["warnings"])


def test_with_A_frozen_the_mean_of_adapters_is_the_mean_of_models() -> None:
    task = ModelTask(lora().double())
    theta = torch.randn(4, task.size, generator=torch.Generator().manual_seed(1)).double()

    def weight(theta: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = task.module(theta).merge_and_unload().middle.weight
        return found.detach()

    torch.testing.assert_close(weight(theta.mean(0)), torch.stack([weight(t) for t in theta]).mean(0))


def test_a_mean_of_both_factors_is_said() -> None:
    clients = ragged()
    both = st.fit(st.FedAvg(), lora(True), clients, rounds=1)
    assert sum("mean(B)·mean(A) is not mean(BA)" in line for line in both.summary["warnings"]) == 1
    own_B = st.fit(st.FedAvg(), lora(True), clients, rounds=1, personal="*.lora_B")
    alone = st.fit(st.LocalOnly(), lora(True), clients, rounds=1)
    for result in (own_B, alone):
        assert not any("mean(B)" in line for line in result.summary["warnings"])
    assert own_B.run.bytes_up == 7 * 4 * (2 * 8 + 2 * 8)  # FedSA-LoRA sends A


def test_disabled_adapters_are_refused() -> None:
    model = lora()
    model.disable_adapter_layers()  # type: ignore[operator]
    with pytest.raises(st.SartorError, match=r"nothing to train.*enable its adapters \(enable_adapter_layers\)"):
        st.fit(st.FedAvg(), model, ragged(), rounds=1)


@pytest.mark.long
@pytest.mark.parametrize("name", ["flame", "own lora_B"])  # others are in the table of conformance (tests/engines)
def test_every_property_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pure, dtype, sat out, engines, workers, disk, resume; with B trained alone, and with B at each client."""
    own = name == "own lora_B"
    monkeypatch.setattr("sartor.testing.model_for", lambda method: lora(train_A=own))
    rest = [p for p in PROPERTIES if p != "is settings and functions"]
    check_method(PersonalParts(make("ditto"), "*.lora_B") if own else make(name), rest)


@pytest.mark.long
@pytest.mark.skipif(not st.data.find("shakespeare"), reason="the text is not here")
def test_the_example_in_small(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["adapters", "--small"])
    runpy.run_path(str(ROOT / "examples" / "adapters.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    shown = {line.split()[0]: float(line.split()[3]) for line in lines if "perplexity" in line}
    assert shown.keys() == {"local", "fedavg", "fedavg-ft", "ditto", "flame", "pfedme", "fedsa-lora"}
    assert all(1 < v < 65 for v in shown.values())  # better than guessing among 65 letters
    assert "gain most" in lines[-2]
