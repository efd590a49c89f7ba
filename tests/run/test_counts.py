"""What a run counts: the steps of training, and beside them those of fine-tuning when models are scored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import sartor as st
from sartor.core import Method
from sartor.models import layers
from sartor.testing import ragged

EPOCH = 1 + 1 + 1 + 1 + 2 + 2 + 3  # batches of 20 of the seven clients of `ragged`
FIVE = st.SGD(epochs=5)
FISHER = 1 + 3 + 9 + 17 + 24 + 40 + 57  # EWC takes a gradient of each sample of one batch


@pytest.mark.parametrize(
    ("method", "finetuned"),
    [
        (st.FedAvg(), 0),
        (st.FLAME(), 0),
        (st.Ditto(), 0),
        (st.FedAvg(finetune=FIVE), 5 * EPOCH),
        (st.FedProx(finetune=st.SGD(steps=3)), 3 * 7),
        (st.Ditto(joint=False, solver=st.SGD(epochs=2), global_solver=st.SGD()), 2 * EPOCH),
        (st.SKL(finetune=FIVE), 5 * EPOCH),
        (st.EWC(finetune=FIVE, fisher_batch=100), 5 * EPOCH + FISHER),
        (st.PerFedAvg(variant="FO"), EPOCH),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Method) else str(v),
)
@pytest.mark.parametrize("engine", ["local", "serial"])
def test_fine_tuning_is_counted_beside_training(method: Method, finetuned: int, engine: str, tmp_path: Path) -> None:
    """It used to be left out. A model that is made when it is scored is made anew each time: the last time counts."""
    result = st.fit(
        method,
        layers(5, 6, 3),
        ragged(),
        4,
        execution=st.Execution(engine=engine, dtype=torch.float64),
        evaluation=st.Evaluation(evaluate_every=2),
    )
    each = 2 if isinstance(method, st.PerFedAvg) else 1
    trained = 4 * EPOCH * (2 if isinstance(method, st.Ditto) and method.joint else each)
    assert (result.summary["steps"], result.summary["finetune_steps"]) == (trained, finetuned)
    assert [line["finetune_steps"] for line in result.history] == [finetuned] * 2
    assert not any("steps" in name for name in result.scores)
    assert json.loads((result.save(tmp_path) / "summary.json").read_text())["finetune_steps"] == finetuned


def test_early_stopping_counts_the_steps_that_were_taken() -> None:
    method = st.FedAvg(finetune=st.Early(epochs=20, patience=1, lr=1e-9))
    steps = st.fit(method, layers(5, 6, 3), ragged(), 1).summary["finetune_steps"]
    assert EPOCH <= steps < 20 * EPOCH


def test_newcomers_are_scored_without_the_count() -> None:
    method = st.FedAvg(finetune=FIVE)
    result = st.fit(method, layers(5, 6, 3), ragged(), 1, unseen=ragged(3, seed=1))
    assert result.unseen is not None and result.unseen["personal"] is not None
