"""Differential privacy against answers known without it: clipping, the moments of noise, closed forms, identities."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commandline import good, refused, sartor
from federations import quadratics, ragged
from groups import grouped
from scipy import integrate, optimize, stats
from subsets import diagonal

import sartor as st
from sartor.client_table import Rows
from sartor.core import Method, Problem
from sartor.engines import LocalEngine
from sartor.methods import NAMES
from sartor.models import layers
from sartor.run import privacy_account
from sartor.run.named_parts import method_from
from sartor.run.privacy_account import CohortDraws, composed, epsilon, spent, with_noise
from sartor.run.rounds import draw_cohort
from sartor.seeds import stream
from sartor.wrappers.privacy import Private, clipped

SOLVER = st.SGD(lr=0.1, epochs=1, batch=7)
SMALL: dict[str, dict[str, Any]] = {name: {"d_sub": 5} for name in ("flame-lp-proj", "lp-proj-1", "lp-proj-2")}
# What methods' files say; Ditto's is as private as its global method.
AT_SERVER = [name for name, e in NAMES.items() if e.privacy["server"].startswith(("yes", "as"))]
AT_CLIENTS = [name for name, e in NAMES.items() if e.privacy["client"].startswith(("yes", "as"))]


def make(name: str) -> Method:
    own = [f.name for f in fields(NAMES[name].make)]  # type: ignore[arg-type]
    settings = SMALL.get(name, {}) | ({"solver": SOLVER} if "solver" in own else {})
    settings |= {"weighting": "uniform"} if "weighting" in own else {}
    return replace(method_from(name, {}), **settings)  # type: ignore[type-var]


@pytest.mark.parametrize("where", ["server", "client"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "local"])
def test_a_method_s_file_says_where_noise_can_be_added(name: str, where: str) -> None:
    def private() -> Private:
        return Private(make(name), st.Privacy(1.0, where=where), 4, 0)

    if name in {"server": AT_SERVER, "client": AT_CLIENTS}[where]:
        assert private().std > 0
    else:
        assert re.match(r"no:|refused", NAMES[name].privacy[where])
        with pytest.raises(st.SartorError, match=r"cannot be made private|takes no mean"):
            private()


# --- the mechanism --------------------------------------------------------------------------------------------------


def test_a_clipped_message_is_the_nearest_one_in_the_ball() -> None:
    rng = np.random.default_rng(0)
    base, message = rng.normal(size=(6, 9)), rng.normal(size=(6, 9)) * 10.0 ** np.arange(-3, 3)[:, None]
    base[0] = message[0]
    found = clipped(torch.from_numpy(message), torch.from_numpy(base), 2.0).numpy()
    for i in range(6):
        delta = message[i] - base[i]
        scale = min(1.0, 2.0 / max(np.linalg.norm(delta), 1e-300))
        np.testing.assert_allclose(found[i], base[i] + scale * delta, rtol=1e-13)
        if scale == 1.0:
            assert (found[i] == message[i]).all()
    assert (np.linalg.norm(found - base, axis=1) <= 2.0 * (1 + 1e-12)).all()


def problem(m: int, d: int, seed: int = 0) -> Problem:
    return Problem(torch.zeros(d, dtype=torch.float64), torch.full((m,), 1 / m, dtype=torch.float64), seed)


def one_round(
    method: Method, privacy: st.Privacy, m: int, n: int, ids: torch.Tensor, messages: torch.Tensor, round: int = 0
) -> torch.Tensor:
    """The server's next w from its first one."""
    private = Private(method, privacy, n, seed=5)
    server, _ = private.init(problem(m, messages.shape[1]))
    server = {k: v.at(None, k) if isinstance(v, Rows) else v for k, v in server.items()}
    key = "u" if method.keeps_last else "w"
    w: torch.Tensor = private.server(server, ids, {key: messages}, torch.ones(len(ids)).double(), round)["w"]
    return w


def test_noise_at_the_server_has_the_moments_that_it_is_said_to_have() -> None:
    """Nobody has anything to say, so that w is noise alone, of standard deviation zC/n."""
    d, n, z, C = 200_000, 10, 1.7, 0.3
    rounds = [
        one_round(st.FedAvg(), st.Privacy(z, C), 40, n, torch.arange(n), torch.zeros(n, d).double(), t) for t in (0, 1)
    ]
    for w in rounds:
        assert abs(float(w.mean())) < 5 * z * C / n / math.sqrt(d)
        assert abs(float(w.var()) / (z * C / n) ** 2 - 1) < 5 * math.sqrt(2 / d)
        assert stats.kstest((w / (z * C / n)).numpy(), "norm").pvalue > 1e-4
    assert abs(float(torch.corrcoef(torch.stack(rounds))[0, 1])) < 5 / math.sqrt(d)


def test_noise_at_the_server_of_flame_is_spread_over_all_clients() -> None:
    d, m, z, C = 200_000, 40, 1.7, 0.3
    w = one_round(st.FLAME(), st.Privacy(z, C), m, 10, torch.arange(10), torch.zeros(10, d).double())
    assert abs(float(w.var()) / (z * C / m) ** 2 - 1) < 5 * math.sqrt(2 / d)


def test_every_client_adds_noise_of_its_own() -> None:
    """Clients that do not move (lr = 0 is refused, so a tiny one) send noise of standard deviation zC."""
    z, C = 0.8, 2.0
    clients = ragged()
    result = st.fit(
        st.FedAvg(solver=st.SGD(lr=1e-12)),
        layers(5, 200, 100, 3),
        clients,
        rounds=1,
        privacy=st.Privacy(z, C, where="client"),
        execution=st.Execution(dtype=torch.float64),
    )
    engine, start = result.run.engine, result.run.problem.start
    assert isinstance(engine, LocalEngine)
    _, sent = engine.map("train", 0, torch.arange(7), {"w": start.expand(7, -1)})
    noise, d = sent["w"] - start, len(start)
    assert d > 20_000
    for row in noise:
        assert abs(float(row.mean())) < 5 * z * C / math.sqrt(d)
        assert abs(float(row.var()) / (z * C) ** 2 - 1) < 5 * math.sqrt(2 / d)
    assert float((torch.corrcoef(noise) - torch.eye(7)).abs().max()) < 5 / math.sqrt(d)


def test_the_private_mean_is_the_formula() -> None:
    rng, n, m, C, z = np.random.default_rng(1), 4, 9, 0.5, 0.7
    messages = rng.normal(size=(3, 6))  # one of four did not come: the sum is still divided by four
    kept = messages * np.minimum(1, C / np.linalg.norm(messages, axis=1, keepdims=True))
    noise = z * C * stream(5, "privacy", 2).standard_normal(6)
    ids, sent = torch.tensor([1, 5, 6]), torch.from_numpy(messages)
    privacy = st.Privacy(z, C)
    w = one_round(st.FedAvg(weighting="size"), privacy, m, n, ids, sent, 2)
    np.testing.assert_allclose(w.numpy(), (kept.sum(0) + noise) / n, rtol=1e-12)
    w = one_round(st.PFedMe(beta=0.5), privacy, m, n, ids, sent, 2)
    np.testing.assert_allclose(w.numpy(), 0.5 * (kept.sum(0) + noise) / n, rtol=1e-12)
    for method in (st.FLAME(), st.FedADMM()):
        np.testing.assert_allclose(
            one_round(method, privacy, m, n, ids, sent, 2).numpy(), (kept.sum(0) + noise) / m, rtol=1e-12
        )


@pytest.mark.parametrize(("method", "divisor"), [(st.FedAvg(), 4), (st.Ditto(), 4), (st.FLAME(), 9)])
def test_one_client_moves_the_mean_by_at_most_the_clip_over_the_divisor(method: Method, divisor: int) -> None:
    """Whether it says the most extreme thing or nothing: this is the sensitivity that the noise is made for."""
    rng, C = np.random.default_rng(2), 0.5
    for scale in (1e-3, 1.0, 1e6):
        messages = torch.from_numpy(rng.normal(size=(4, 6)) * scale)
        without = messages.clone()
        without[2] = 0
        a, b = (
            one_round(method, st.Privacy(1.0, C), 9, 4, torch.tensor([0, 3, 4, 8]), rows)
            for rows in (messages, without)
        )
        moved = float((a - b).norm())
        assert moved <= C / divisor * (1 + 1e-9)
        assert scale < 1 or moved >= C / divisor * (1 - 1e-9)
        absent = one_round(method, st.Privacy(1.0, C), 9, 4, torch.tensor([0, 3, 8]), messages[[0, 1, 3]])
        torch.testing.assert_close(absent, b, atol=1e-12, rtol=0)  # nothing said is the same as not there


def bits(result: st.Result) -> dict[str, torch.Tensor]:
    server = {k: v.whole() if isinstance(v, Rows) else v for k, v in result.run.server.items()}
    return server | {f"client {k}": v.clone() for k, v in result.run.engine.save().items()}


def fit(method: Method, clients: st.Clients | None = None, **options: Any) -> st.Result:
    return st.fit(
        method,
        layers(5, 6, 3),
        clients or ragged(),
        rounds=3,
        **grouped(dtype=torch.float64, evaluate_every=3, **options),
    )


@pytest.mark.parametrize(
    ("name", "where", "cohort"),
    [
        *((name, "client", 4) for name in AT_CLIENTS),
        *((name, "server", 7 if NAMES[name].make.keeps_last else 4) for name in AT_SERVER),
    ],
)
def test_without_noise_and_clipping_nothing_changes(name: str, where: str, cohort: int) -> None:
    """Bit for bit. (At a private server FLAME and its kin do not keep last messages, so theirs holds with everyone.)"""
    plain = bits(fit(make(name), cohort=cohort))
    private = bits(fit(make(name), cohort=cohort, privacy=st.Privacy(0.0, math.inf, where=where)))
    assert plain.keys() == private.keys()
    for k, v in plain.items():
        if k != "u" or where == "client":  # the table of last messages is not used
            assert torch.equal(v, private[k]), k


@pytest.mark.filterwarnings("ignore:3 workers")
@pytest.mark.parametrize(
    ("name", "where"), diagonal(["fedavg", "flame", "pfedme", "lp-proj-2", "fedrep"], ["server", "client"])
)
def test_engine_chunks_and_workers_change_nothing(name: str, where: str) -> None:
    options: dict[str, Any] = {"cohort": 5, "privacy": st.Privacy(0.3, 0.2, where=where)}
    reference = bits(fit(make(name), **options))
    for other in ({"engine": "serial"}, {"chunk": 2, "workers": 3}, {"chunk": 1}):
        found = bits(fit(make(name), **options, **other))
        for k, v in reference.items():
            torch.testing.assert_close(v, found[k], atol=1e-9, rtol=1e-9)
    other_seed = bits(fit(make(name), **options, seed=1))
    assert not torch.equal(reference["w"], other_seed["w"])


@pytest.mark.parametrize("name", ["fedavg", "per-fedavg", "ditto", "pfedme"])
def test_nobody_is_weighed_by_its_size(name: str) -> None:
    sized = replace(make(name), weighting="size")  # type: ignore[type-var]
    privacy = st.Privacy(0.1, 0.5)
    a, b = (fit(method, privacy=privacy).run.server["w"] for method in (make(name), sized))
    torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)


def test_with_little_noise_a_private_run_finds_the_optimum() -> None:
    """FLAME's closed form on quadratics, with a clip that nothing reaches in the end."""
    q = quadratics()
    w, _ = q.moreau(1.0)
    method = st.FLAME(lam=1.0, rho=2.0 / q.m, solver=st.Exact())
    found = q.fit(method, 400, privacy=st.Privacy(1e-9, 50.0)).run.server["w"]
    np.testing.assert_allclose(found.numpy(), w, atol=1e-6)


def test_attackers_cannot_get_around_the_clip() -> None:
    """A private server clips what it receives: 3 attackers of 7 that replace the model move w by 3C/7 at most."""
    options: dict[str, Any] = {"privacy": st.Privacy(0.0, 0.01), "attackers": 0.4}
    result = fit(make("fedavg"), attack=st.attacks.SameValue(std=100.0), **options)
    assert float((result.run.server["w"] - result.run.problem.start).norm()) <= 3 * 0.01 * (1 + 1e-9)


# --- the accounting -------------------------------------------------------------------------------------------------


def gaussian_delta(eps: float, mu: float) -> float:
    """δ(ε) of the Gaussian mechanism with sensitivity/σ = μ (Balle, Wang 2018, Theorem 8), exact."""
    return float(stats.norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * stats.norm.cdf(-mu / 2 - eps / mu))


@pytest.mark.parametrize(("z", "count"), [(1.0, 1), (2.0, 10), (5.0, 100), (20.0, 3)])
def test_without_sampling_epsilon_is_the_closed_form(z: float, count: int) -> None:
    delta = 1e-5
    alpha = np.array(privacy_account.ORDERS, dtype=float)
    rdp = count * alpha / (2 * z**2)  # of the Gaussian mechanism (Mironov 2017, Corollary 3)
    best = (rdp + np.log((alpha - 1) / alpha) - (np.log(delta) + np.log(alpha)) / (alpha - 1)).min()
    found = epsilon(z, 1.0, count, delta, "rdp")
    assert found == pytest.approx(best, rel=1e-12)
    exact = optimize.brentq(lambda e: gaussian_delta(e, math.sqrt(count) / z) - delta, 0, 100, xtol=1e-12)
    prv = epsilon(z, 1.0, count, delta, "prv")
    assert exact <= prv <= exact + 0.03  # its promised error is 0.01 either way
    assert exact <= found <= 1.15 * exact + 0.05


@pytest.mark.parametrize(("z", "q"), [(0.8, 0.1), (1.5, 0.3), (0.6, 0.02)])
def test_one_sampled_round_is_the_hockey_stick_integral(z: float, q: float) -> None:
    """δ(ε) = ∫ max(0, (1 − q)N(0, z²) + qN(1, z²) − e^ε N(0, z²)): solved for ε by quadrature."""
    delta = 1e-5

    def exact(eps: float) -> float:
        def excess(x: float) -> float:
            p, r = stats.norm.pdf(x, 0, z), stats.norm.pdf(x, 1, z)
            return max(0.0, (1 - q) * p + q * r - math.exp(eps) * p)

        cross = z**2 * math.log((math.exp(eps) - 1 + q) / q) + 0.5  # where the integrand begins
        return float(integrate.quad(excess, cross, cross + 20 * z, limit=200)[0])

    known = optimize.brentq(lambda e: exact(e) - delta, 1e-4, 50, xtol=1e-10)
    assert known <= epsilon(z, q, 1, delta, "prv") <= known + 0.03
    assert known <= epsilon(z, q, 1, delta, "rdp")


def test_sampled_rdp_is_mironovs_sum() -> None:
    """At whole orders A_α = Σ_k binom(α, k) (1 − q)^{α−k} q^k e^{(k² − k)/2z²}; no order gives less than ε."""
    z, q, count, delta = 1.1, 0.05, 200, 1e-6
    found = epsilon(z, q, count, delta, "rdp")
    bounds = []
    for a in range(2, 30):
        A = sum(math.comb(a, k) * (1 - q) ** (a - k) * q**k * math.exp((k * k - k) / (2 * z**2)) for k in range(a + 1))
        rdp = count * math.log(A) / (a - 1)
        bounds.append(rdp + math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1))
    assert 0.97 * min(bounds) <= found <= min(bounds) + 1e-9


@pytest.mark.parametrize("accountant", ["rdp", "prv"])
def test_epsilon_grows_with_rounds_and_rate_and_falls_with_noise_and_delta(accountant: str) -> None:
    rounds = [epsilon(1.5, 0.1, t, 1e-5, accountant) for t in (1, 10, 50, 200)]
    rates = [epsilon(1.5, q, 50, 1e-5, accountant) for q in (0.01, 0.1, 0.5, 1.0)]
    noises = [epsilon(z, 0.1, 50, 1e-5, accountant) for z in (4.0, 2.0, 1.0, 0.7)]
    deltas = [epsilon(1.5, 0.1, 50, d, accountant) for d in (1e-3, 1e-5, 1e-7)]
    for values in (rounds, rates, noises, deltas):
        assert values == sorted(values) and len(set(values)) == len(values)
    assert epsilon(1.5, 0.1, 0, 1e-5, accountant) == 0 and epsilon(0.0, 0.1, 1, 1e-5, accountant) == math.inf


def test_cohorts_of_fixed_size_claim_no_gain_from_sampling() -> None:
    """Counted by hand: how often the busiest client is asked."""
    m, n, rounds, seed = 20, 5, 30, 3
    asked = np.zeros(m, dtype=int)
    for t in range(rounds):
        asked[stream(seed, "cohort", t).choice(m, n, replace=False)] += 1
    for where in ("server", "client"):
        assert composed(where, CohortDraws(m, n, "uniform", seed), rounds) == (1.0, asked.max())
    coins = np.sum([stream(seed, "cohort", t).random(m) < n / m for t in range(rounds)], axis=0)
    assert composed("client", CohortDraws(m, n, "poisson", seed), rounds) == (1.0, coins.max())
    assert composed("server", CohortDraws(m, n, "poisson", seed), rounds) == (0.25, rounds)
    assert composed("server", CohortDraws(m, m, "uniform", seed), rounds) == (1.0, rounds)


def test_poisson_cohorts_are_independent_coins() -> None:
    known = problem(50, 1, seed=2)
    drawn = np.zeros((4000, 50))
    for t in range(4000):
        drawn[t, draw_cohort(known, 10, "poisson", t).numpy()] = 1
    assert abs(drawn.mean() - 0.2) < 5 * math.sqrt(0.2 * 0.8 / drawn.size)
    sizes = drawn.sum(1)
    assert abs(sizes.var() / (50 * 0.2 * 0.8) - 1) < 5 * math.sqrt(2 / 4000) + 0.01  # of fixed size it would be 0
    assert torch.equal(draw_cohort(known, 10, "poisson", 7), draw_cohort(known, 10, "poisson", 7))


@pytest.mark.parametrize(
    ("draws", "accountant"),
    diagonal(
        [CohortDraws(500, 60, "poisson", 0), CohortDraws(20, 5, "uniform", 0), CohortDraws(10, 10, "uniform", 0)],
        ["rdp", "prv"],
    ),
)
def test_the_noise_for_an_epsilon_spends_that_epsilon(draws: CohortDraws, accountant: str) -> None:
    privacy = with_noise(st.Privacy(epsilon=4.0, delta=1e-5, accountant=accountant), draws, 40)
    assert privacy.noise is not None and privacy.epsilon is None
    assert 0.97 * 4.0 <= spent(privacy, draws, 40) <= 4.0


def test_rounds_that_may_be_empty_are_counted_or_refused() -> None:
    fine = CohortDraws(1000, 60, "poisson", 0)
    assert spent(st.Privacy(1.0), fine, 100) == epsilon(1.0, 0.06, 100, 0.99e-5, "rdp")
    with pytest.raises(st.SartorError, match=r"empty too often.*--cohort \d+ or more"):
        spent(st.Privacy(1.0), fine._replace(cohort=10), 100)


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    epsilon.cache_clear()
    monkeypatch.setitem(sys.modules, "opacus.accountants", None)
    with pytest.raises(st.SartorError, match=r"pip install 'sartor\[privacy\]'"):
        fit(make("fedavg"), privacy=st.Privacy(1.0))


# --- what is reported, and what is refused --------------------------------------------------------------------------


def test_the_summary_states_the_guarantee() -> None:
    result = fit(make("ditto"), cohort=7, privacy=st.Privacy(2.0, 0.5, delta=1e-4))
    found = result.summary["privacy"]
    assert found == {
        "epsilon": epsilon(2.0, 1.0, 3, 1e-4, "rdp"),
        "delta": 1e-4,
        "noise": 2.0,
        "clip": 0.5,
        "where": "server",
        "accountant": "rdp",
        "sampling": "uniform",
        "sampling_rate": 1.0,
        "rounds": 3,
        "compositions": 3,
        "neighbouring": "add or remove one client",
        "weights": "uniform",
    }
    assert fit(make("ditto")).summary["privacy"] is None
    alone = fit(make("local"), privacy=st.Privacy(2.0)).summary["privacy"]
    assert alone["epsilon"] == 0 and alone["compositions"] == 0
    assert fit(make("fedavg"), privacy=st.Privacy(0.0, math.inf)).summary["privacy"]["epsilon"] is None


def test_a_resumed_run_goes_on_and_goes_on_spending(tmp_path: Path) -> None:
    options = ("--method", "flame", "--model", "softmax", "--clients", 6, "--cohort", 3, "--dp-clip", 0.1)
    options = (*options, "--checkpoint-every", 2)
    good("run", *options, "--dp-noise", 3, "--rounds", 6, "--out", tmp_path / "whole", "--quiet")
    good("run", *options, "--dp-noise", 3, "--rounds", 3, "--out", tmp_path / "parts", "--quiet")
    before = json.loads((tmp_path / "parts" / "summary.json").read_text())["privacy"]
    good("run", "--resume", tmp_path / "parts", "--rounds", 6, "--quiet")
    a, b = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("whole", "parts"))
    assert a["privacy"] == b["privacy"] and before["epsilon"] < b["privacy"]["epsilon"]
    assert a["personal"] == b["personal"] and a["global"] == b["global"]
    for name in ("models/global.safetensors", "models/personal.safetensors", "clients.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_an_epsilon_becomes_noise_that_a_resumed_run_keeps(tmp_path: Path) -> None:
    options = ("--method", "fedavg", "--model", "softmax", "--clients", 5, "--rounds", 2)
    out = good("run", *options, "--dp-epsilon", 8, "--dp-clip", 0.5, "--out", tmp_path / "a").out
    assert "private at the level of clients: epsilon" in " ".join(out.split())
    recipe = (tmp_path / "a" / "recipe.toml").read_text()
    assert "dp_noise" in recipe and "dp_epsilon" not in recipe and 'dp_where = "server"' in recipe
    first = json.loads((tmp_path / "a" / "summary.json").read_text())["privacy"]
    assert 7.7 < first["epsilon"] <= 8
    good("run", "--resume", tmp_path / "a", "--rounds", 4, "--quiet")
    later = json.loads((tmp_path / "a" / "summary.json").read_text())["privacy"]
    assert later["noise"] == first["noise"] and later["epsilon"] == epsilon(first["noise"], 1.0, 4, 1e-5, "rdp") > 8
    assert "private at the level of clients" in (tmp_path / "a" / "report.html").read_text()


def test_a_comparison_states_it_for_each_method(tmp_path: Path) -> None:
    options = ("--methods", "fedavg,ditto,local,scaffold", "--model", "softmax", "--clients", 5, "--rounds", 2)
    answer = refused("compare", *options, "--seeds", 0, "--dp-noise", 1)
    assert "SCAFFOLD cannot be made private" in answer and "fedavg" in answer
    options = ("--methods", "fedavg,ditto,local", *options[2:])
    out = " ".join(good("compare", *options, "--seeds", "0,1", "--dp-noise", 1, "--out", tmp_path / "c").out.split())
    assert "fedavg, ditto" in out and "nothing leaves a client" in out
    cells = json.loads((tmp_path / "c" / "compare.json").read_text())
    assert [round(c["privacy"]["epsilon"], 6) for c in cells if c["method"] != "local"] == 4 * [
        round(epsilon(1.0, 1.0, 2, 1e-5, "rdp"), 6)
    ]
    assert "nothing leaves a client" in (tmp_path / "c" / "report.html").read_text()


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        (make("mocha"), {}, "duals"),
        (make("scaffold"), {}, "control variate"),
        (make("term"), {}, "the loss"),
        (make("qffl"), {"where": "client"}, "the loss"),
        (make("ifca"), {"where": "client"}, "the cluster"),
        (make("fedfomo"), {"where": "client"}, "validation samples"),
        (make("fedamp"), {}, "takes no mean.*--dp-where client"),
        (make("rsa"), {}, "takes no mean"),
        (make("fedmgda"), {}, "takes no mean"),
        (st.FLAME(weighting="size"), {}, "weighting=uniform"),
        (st.FedADMM(weighting="size"), {"where": "client"}, "weighting=uniform"),
        (st.Ditto(global_method=st.SCAFFOLD()), {}, "SCAFFOLD cannot be made private"),
        (st.FedAvg(aggregate=st.aggregators.Median()), {}, "made for the mean.*Median"),
        (st.FedAvg(aggregate=st.aggregators.KLoss()), {"where": "client"}, "needs every client's loss"),
    ],
)
def test_what_cannot_be_made_private_is_refused_with_the_reason(
    method: Method, options: dict[str, Any], words: str
) -> None:
    from federations import two_sided

    convex = isinstance(method, st.MOCHA)
    model, clients = (layers(5, 1), two_sided()) if convex else (layers(5, 6, 3), ragged())
    with pytest.raises(st.SartorError, match=words):
        st.fit(method, model, clients, rounds=1, privacy=st.Privacy(1.0, **options))


@pytest.mark.parametrize("where", ["server", "client"])
def test_ditto_is_as_private_as_what_trains_its_global_model(where: str) -> None:
    """With FLAME inside, w is FLAME's own, noise and all."""
    privacy = st.Privacy(0.5, 0.3, where=where)
    inside = fit(st.Ditto(global_method=make("flame"), solver=SOLVER), cohort=4, privacy=privacy)
    alone = fit(make("flame"), cohort=4, privacy=privacy)
    assert torch.equal(inside.run.server["w"], alone.run.server["w"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampling": "size", "cohort": 3}, "do not depend on data"),
        ({"stragglers": 0.2}, "--stale discard"),
        ({"report": "best"}, "--report last"),
    ],
)
def test_what_would_break_the_guarantee_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(st.SartorError, match=words):
        fit(make("fedavg"), privacy=st.Privacy(1.0), **options)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "either noise or epsilon"),
        ({"noise": 1.0, "epsilon": 1.0}, "either noise or epsilon"),
        ({"noise": -1.0}, "noise >= 0"),
        ({"noise": math.nan}, "noise >= 0"),
        ({"epsilon": 0.0}, "epsilon > 0"),
        ({"noise": 1.0, "clip": 0.0}, "clip > 0"),
        ({"noise": 1.0, "clip": math.nan}, "clip > 0"),
        ({"noise": 1.0, "clip": math.inf}, "must be finite"),
        ({"noise": 1.0, "delta": 0.0}, "delta in"),
        ({"noise": 1.0, "where": "cloud"}, "'server', 'client'"),
        ({"noise": 1.0, "accountant": "gdp"}, "'rdp', 'prv'"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(st.SartorError, match=words):
        st.Privacy(**settings)


def test_the_command_line_refuses_in_one_line() -> None:
    run = ("run", "--model", "softmax", "--rounds", 1)
    assert "does nothing without dp_noise or dp_epsilon" in refused(*run, "--dp-clip", 1)
    assert "either noise or epsilon" in refused(*run, "--dp-noise", 1, "--dp-epsilon", 1)
    assert "clip > 0" in refused(*run, "--dp-noise", 1, "--dp-clip", -1)
    assert "empty too often" in refused(*run, "--dp-noise", 1, "--cohort", 5, "--sampling", "poisson")
    assert "cohort needs 1 to 10" in refused(*run, "--dp-epsilon", 1, "--cohort", 50)
    assert sartor(*run, "--dp-noise", 1, "--dp-where", "cloud").code == 2
