"""A user's script is checked by mypy and by pyright: the public names have types, and a wrong argument is found."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
from pathlib import Path

import numpy as np
from torch import nn

import sartor as st

clients: st.Clients = st.data.load("digits").split(st.Hybrid(labels=2, beta=0.5), clients=10, seed=0)
model: nn.Module = st.models.layers(64, 32, 10)
result: st.Result = st.fit(
    st.FLAME(lam=0.5, solver=st.SGD(lr=0.05)),
    model,
    clients,
    rounds=3,
    federation=st.Federation(cohort=5),
    attack=st.Attacked(st.attacks.SignFlip(), 0.2),
    traffic=st.Traffic(compress=st.compressors.TopK(0.1)),
    evaluation=st.Evaluation(evaluate_every=2),
    privacy=st.Privacy(noise=1.0),
)
alone = st.fit(st.LocalOnly(), model, clients, rounds=3)
shown: str = result.table(local=alone)
mine: nn.Module = result.personal(3)
where: Path = result.save("runs/a")
robust = st.Ditto(global_method=st.FedAvg(aggregate=st.aggregators.Median()))
recipe: st.Recipe = st.Recipe(data="a.csv", method="ditto").replace(rounds=3)
try:
    st.load_model("client.safetensors")
except st.SartorError as error:
    print(error)
estimator = st.PersonalizedClassifier(method="flame").fit([[0.0]], [0], groups=["a"])
answers: np.ndarray = estimator.predict([[0.0]], groups=["a"])
"""
WRONG = {'st.fit("flame", model, clients)': "Method", "result.personal()": "client", "st.FLAME(lamda=1.0)": "lamda"}
pytestmark = pytest.mark.long


def checked(folder: Path, *command: str) -> tuple[int, str]:
    (folder / "right.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "wrong.py").write_text(SCRIPT + "\n".join(WRONG) + "\n", encoding="utf-8")
    env = os.environ | {"MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", *command, "right.py", "wrong.py"]
    answer = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return answer.returncode, answer.stdout + answer.stderr


def judged(code: int, said: str) -> None:
    """Nothing in the script that is right; in the other one, every line that is wrong."""
    assert code == 1 and "right.py" not in said.replace("wrong.py", ""), said
    first = SCRIPT.count("\n") + 1
    for line, word in enumerate(WRONG.values(), first):
        assert any(f"wrong.py:{line}" in found and word in found for found in said.splitlines()), (line, said)


def test_mypy_strict(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    judged(*checked(tmp_path, "mypy", "--strict", "--no-error-summary", "--cache-dir", str(ROOT / ".mypy_cache")))


def test_pyright(tmp_path: Path) -> None:
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed: pip install 'pyright[nodejs]'")
    settings = f'{{"typeCheckingMode": "standard", "extraPaths": ["{ROOT}"]}}'
    (tmp_path / "pyrightconfig.json").write_text(settings, encoding="utf-8")
    code, said = checked(tmp_path, "pyright", "--pythonpath", sys.executable)
    judged(code, said.replace("/wrong.py:", " wrong.py:"))
