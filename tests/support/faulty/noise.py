"""The noise of a simulation handed to sites, so that a private federation can be held to its bits."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

VARIABLE = "SARTOR_TEST_NOISE"


def simulated(seed: int, size: int, round: int, client: int, step: int) -> np.ndarray:
    """What a simulation with this seed draws: for a client's message (step 0), or for one of its gradients."""
    from sartor.seeds import stream

    purpose = "privacy of a client" if step == 0 else f"privacy of samples {step}"
    return stream(seed, purpose, round, client).standard_normal(size)


def environment(seed: int) -> dict[str, str]:
    """For a process that is to draw it: Python reads sitecustomize.py of this folder before anything else."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    return {VARIABLE: str(seed), "PYTHONPATH": path}
