"""Every method's defaults are sensible among 4, 10, 100 and 1,000 clients: with the same number of gradients
as `local` and `fedavg`, nobody is below both by more than noise. Most methods have both as limits."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from groups import grouped
from scipy.stats import t as student
from torch import nn

import sartor as st
from sartor.errors import SartorError
from sartor.methods import NAMES
from sartor.run.named_parts import method_from

pytestmark = pytest.mark.long
FEATURES, CLASSES, STEPS, ROUNDS = 10, 3, 12, 20
SPLIT = ("lg-fedavg", "fedper", "fedrep", "fedbabu")  # a model with a body and a head
ELSEWHERE = {"mocha": "a linear model with one output only"}
FAIR = ("fedmgda",)  # looks for a model that serves all: held to the worst clients, not to the mean


@functools.cache
def federation(m: int, apart: float) -> st.Clients:
    """Softmax regressions whose truths lie `apart` from a common one; few rows, so that it pays to learn together."""
    draw = np.random.default_rng([m, int(10 * apart)])
    common, parts = draw.normal(size=(FEATURES, CLASSES)), []
    tested = max(50, 2000 // m)  # of few clients many rows, so that luck does not decide
    for _ in range(m):
        own = common + apart * draw.normal(size=(FEATURES, CLASSES))

        def rows(n: int, own: np.ndarray = own) -> tuple[np.ndarray, np.ndarray]:
            x = draw.normal(size=(n, FEATURES)).astype(np.float32)
            return x, (x @ own + draw.gumbel(size=(n, CLASSES))).argmax(1)

        parts.append({"train": rows(int(draw.integers(30, 60))), "validation": rows(10), "test": rows(tested)})
    return st.Clients.from_parts(parts, CLASSES)


@functools.cache
def accuracies(name: str, m: int, apart: float, deep: bool) -> np.ndarray:
    """[m] the test accuracy of each client's chosen model."""
    method = method_from(name, {})
    model = nn.Linear(FEATURES, CLASSES)
    if deep:
        model = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, CLASSES))  # type: ignore[assignment]
    more = grouped(evaluate_every=ROUNDS, diagnostics=False)
    try:
        method = method.spending(STEPS)
    except SartorError:
        assert method.unsplit()
    result = st.fit(method, model, federation(m, apart), ROUNDS, **more)
    return result.scores["chosen/test/accuracy"]


@pytest.mark.parametrize("m", [4, 10, 100, 1000])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("local", "fedavg", *ELSEWHERE)])
def test_no_default_is_below_both_local_and_fedavg(name: str, m: int) -> None:
    if name in SPLIT and m == 1000:
        pytest.skip("a minute for each of these; nothing in them depends on the number of clients")
    for apart in (0.3, 1.0):
        own = accuracies(name, m, apart, name in SPLIT)
        others = [accuracies(other, m, apart, name in SPLIT) for other in ("local", "fedavg")]
        if name in FAIR:
            worst = [np.sort(v)[: max(1, m // 5)].mean() for v in (own, others[1])]
            assert worst[0] >= worst[1] - 0.05, (apart, *worst)
            continue
        lower = min(others, key=np.mean)
        noise = student.ppf(0.975, m - 1) * (own - lower).std(ddof=1) / np.sqrt(m)  # 3.2 deviations of four clients
        assert own.mean() >= lower.mean() - max(noise, 0.01), (apart, own.mean(), [v.mean() for v in others])
