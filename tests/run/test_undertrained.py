"""A run that was too short says so at its end."""

from __future__ import annotations

import numpy as np
import pytest
from groups import grouped
from torch import nn

import sartor as st
from sartor.data import Clients
from sartor.run.named_parts import method_from
from sartor.run.undertrained import undertrained
from sartor.testing import ragged


def lines(*values: float | None) -> list[dict[str, float | int | None]]:
    return [{"round": 10 * (i + 1), "validation": v} for i, v in enumerate(values)]


def test_models_that_still_get_better() -> None:
    (said,) = undertrained(lines(0.7, 0.75, 0.8), 10, 10, False)
    assert said == (
        "the models still get better (validation 0.750 after round 20, 0.800 after round 30): play more rounds."
    )
    for settled in ((0.7, 0.8, 0.805), (0.8, 0.7), (0.8,), (None, None), (0.1, None)):
        assert undertrained(lines(*settled), 10, 10, False) == []


def test_clients_that_never_trained() -> None:
    """(1 − S/m)^T of them, in the mean."""
    (said,) = undertrained(lines(0.8, 0.8), 100, 2, False)
    assert "about 67% of the clients have never trained" in said
    assert undertrained(lines(0.8, 0.8), 100, 5, False) == [] == undertrained(lines(0.8, 0.8), 100, 2, True)


@pytest.mark.parametrize(("method", "warned"), [("flame", True), ("local", False)])
def test_it_is_said_at_the_end_of_a_run(method: str, warned: bool) -> None:
    result = st.fit(
        method_from(method, {}), nn.Linear(5, 3), ragged(), 2, **grouped(cohort=1, evaluate_every=1, diagnostics=False)
    )
    found = [line for line in result.summary["warnings"] if "never trained" in line]
    assert bool(found) == warned and not any("never trained" in w for w in result.history[0]["warnings"])


def test_a_regression_that_runs_away_is_called_diverged() -> None:
    """Numbers that are finite still: an R² of −10¹² was once reported as a result."""
    draw = np.random.default_rng(0)
    parts = []
    for _ in range(3):
        x = 3 * draw.normal(size=(30, 4))
        y = x.sum(1)
        parts.append({"train": (x[:20], y[:20]), "test": (x[20:], y[20:])})
    clients = Clients.from_parts(parts)
    for method in (st.FedAvg(solver=st.SGD(lr=0.5)), st.LocalOnly(solver=st.SGD(lr=0.5))):
        with pytest.raises(st.SartorError, match=r"diverged by round 10: the .* test loss of client \d is [0-9.]+e\+"):
            st.fit(method, st.models.layers(4, 1), clients, 10, loss="squared")
