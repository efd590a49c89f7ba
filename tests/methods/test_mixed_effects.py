"""Mixed effects against answers known without them: pooled fits, closed-form best linear unbiased predictions, EM."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from villages import DOUBLE, played, train, villages

import sartor as st
from sartor.models import layers


def test_without_random_effects_it_is_the_pooled_least_squares() -> None:
    clients = villages()
    X, y = (np.concatenate(v) for v in zip(*(train(clients, i) for i in range(12)), strict=True))
    design = np.column_stack([X, np.ones(len(X))])
    found = played(st.MixedEffects(random="nothing", ridge=0.0), clients, 3)
    np.testing.assert_allclose(found.run.server["w"].numpy(), np.linalg.lstsq(design, y)[0], atol=1e-8)
    assert found.summary["personal"] is None


def test_without_random_effects_it_is_the_pooled_logistic_regression() -> None:
    clients = villages(classes=2)
    X, y = (np.concatenate(v) for v in zip(*(train(clients, i) for i in range(12)), strict=True))
    w = played(st.MixedEffects(random="nothing", ridge=2.0), clients, 12).run.server["w"].numpy()
    theirs = LogisticRegression(C=1.0, tol=1e-12, max_iter=10000).fit(X, y)  # see tests/test_convex_solvers.py
    np.testing.assert_allclose(w[3:6] - w[:3], theirs.coef_[0], atol=1e-5)
    np.testing.assert_allclose(w[7] - w[6], theirs.intercept_[0], atol=1e-5)


@pytest.mark.parametrize("random", ["all", "intercept"])
def test_with_given_variances_it_is_the_best_linear_unbiased_prediction(random: str) -> None:
    """Henderson's mixed-model equations, all clients at once, with σ² as it was estimated."""
    clients, tau = villages(m=5), 0.8
    result = played(st.MixedEffects(random=random, variance=tau, ridge=0.0), clients, 60)
    phi, w = float(result.run.server["phi"]), result.run.server["w"].numpy()
    r = [0, 1, 2, 3] if random == "all" else [3]
    q = len(r)
    size = 4 + 5 * q
    A, b, rss = np.zeros((size, size)), np.zeros(size), 0.0
    designs = []
    for i in range(5):
        x, y = train(clients, i)
        Z = np.zeros((len(x), size))
        Z[:, :4] = np.column_stack([x, np.ones(len(x))])
        at = slice(4 + i * q, 4 + (i + 1) * q)
        Z[:, at] = Z[:, r]
        A += Z.T @ Z / phi
        b += Z.T @ y / phi
        A[at, at] += np.eye(q) / tau
        designs.append((Z, y))
    solved = np.linalg.solve(A, b)
    np.testing.assert_allclose(w, solved[:4], atol=1e-6)
    theta = result.run.query_clients("personal")["personal"].numpy()
    for i in range(5):
        own = solved[:4].copy()
        own[r] += solved[4 + i * q : 4 + (i + 1) * q]
        np.testing.assert_allclose(theta[i], own, atol=1e-6)
        rss += ((designs[i][1] - designs[i][0] @ solved) ** 2).sum()
    inverse = np.linalg.inv(A[4:, 4:])  # V of every client, given w: the blocks do not touch
    fitted = sum(1 - inverse[j, j] / tau for j in range(5 * q))
    n = sum(len(y) for _, y in designs)
    np.testing.assert_allclose(phi, rss / (n - fitted - 4), rtol=1e-6)


def test_variances_settle_where_fellner_and_schall_s_equation_holds() -> None:
    clients = villages(m=40, seed=1)
    result = played(st.MixedEffects(ridge=0.0), clients, 200)
    server = result.run.server
    tau, phi, w = server["tau"].numpy(), float(server["phi"]), server["w"].numpy()
    theta = result.run.query_clients("personal")["personal"].numpy()
    fitted = np.zeros(4)
    for i in range(40):
        x, _ = train(clients, i)
        Z = np.column_stack([x, np.ones(len(x))])
        fitted += 1 - np.diag(np.linalg.inv(Z.T @ Z / phi + np.diag(1 / tau))) / tau
    u2 = ((theta - w) ** 2).sum(0)
    fitted *= 39 / 40
    common = u2[:3].sum() / fitted[:3].sum()
    np.testing.assert_allclose(tau[:3], (u2[:3] + 2 * common) / (fitted[:3] + 2), rtol=1e-5)
    np.testing.assert_allclose(tau[3], u2[3] / fitted[3], rtol=1e-5)
    # And they are near what the clients were drawn with: slopes 0.5², intercepts 1.5², noise 0.7².
    assert 0.15 < tau[:3].mean() < 0.4 and 1.2 < tau[3] < 4 and 0.4 < phi < 0.6


def test_clients_that_are_alike_get_the_pooled_model() -> None:
    rng = np.random.default_rng(5)
    parts = []
    for _ in range(30):
        x = rng.normal(size=(40, 3))
        parts.append({"train": (x, x @ np.array([1.0, 2.0, 3.0]) + 0.5 * rng.normal(size=40))})
    clients = st.Clients.from_parts(parts, None)
    mixed, pooled = (played(st.MixedEffects(random=r), clients, 100) for r in ("all", "nothing"))
    theta, w = mixed.run.query_clients("personal")["personal"], pooled.run.server["w"]
    alone = played(st.LocalOnly(solver=st.Newton()), clients, 1).run.query_clients("personal")["personal"]
    assert float((theta - w).norm(dim=1).mean()) < 0.35 * float((alone - w).norm(dim=1).mean())


def test_an_own_intercept_is_the_fixed_effects_model() -> None:
    """As if there were a column for each client: least squares with dummies."""
    clients = villages(m=6)
    data = [train(clients, i) for i in range(6)]
    X, y = np.concatenate([x for x, _ in data]), np.concatenate([y for _, y in data])
    dummies = np.zeros((len(X), 6))
    dummies[np.arange(len(X)), np.repeat(np.arange(6), [len(y) for _, y in data])] = 1
    expected = np.linalg.lstsq(np.column_stack([X, dummies]), y)[0]
    result = played(st.MixedEffects(random="intercept", variance=1e6, ridge=0.0), clients, 40)
    theta = result.run.query_clients("personal")["personal"].numpy()
    np.testing.assert_allclose(theta[:, :3], np.tile(expected[:3], (6, 1)), atol=1e-4)
    np.testing.assert_allclose(theta[:, 3], expected[3:], atol=1e-4)


def test_it_beats_local_and_pooled_models_on_what_it_was_made_for() -> None:
    clients = villages(m=40, classes=2, seed=3)
    loss = {}
    for name, method in {
        "mixed": st.MixedEffects(),
        "twice": st.MixedEffects(factor=2.0),
        "pooled": st.MixedEffects(random="nothing"),
        "local": st.LocalOnly(solver=st.Newton()),
    }.items():
        scores = played(method, clients, 30).scores
        model = "global" if name == "pooled" else "personal"
        loss[name] = float(np.mean(scores[f"{model}/test/loss"]))
    assert max(loss["mixed"], loss["twice"]) < min(loss["local"], loss["pooled"])


def test_what_it_is_not_for_is_refused() -> None:
    clients = villages(classes=2)
    with pytest.raises(st.SartorError, match=r"mixed effects are for linear models .* Use such a model, or ditto"):
        st.fit(st.MixedEffects(), layers(3, 8, 2), clients, 1)
    with pytest.raises(st.SartorError, match="without intercepts"):
        st.fit(st.MixedEffects(random="intercept"), torch.nn.Sequential(torch.nn.Linear(3, 2, bias=False)), clients, 1)
    with pytest.raises(st.SartorError, match="random"):
        st.MixedEffects(random="slope")
    with pytest.raises(st.SartorError, match="variance"):
        st.MixedEffects(variance=0.0)


def test_separable_classes_stay_finite() -> None:
    parts = []
    for i in range(4):
        x = np.linspace(-2, 2, 10)[:, None] + 0.01 * i
        parts.append({"train": (x, (x[:, 0] > 0).astype(int)), "test": (x, (x[:, 0] > 0).astype(int))})
    clients = st.Clients.from_parts(parts, 2)
    result = st.fit(st.MixedEffects(), layers(1, 2), clients, 40, execution=DOUBLE)
    assert bool(torch.isfinite(result.run.server["w"]).all())
    assert result.summary["chosen"]["accuracy_mean"] == 1.0
