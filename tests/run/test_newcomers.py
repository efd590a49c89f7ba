"""Clients that join when training is over get what their method says, by answers known without it."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commandline import good, refused, sartor
from federations import Quadratics, quadratics, ragged
from groups import grouped
from torch import nn

import sartor as st
from sartor.client_table import Rows
from sartor.core import Method
from sartor.couplings import Projection
from sartor.methods import NAMES
from sartor.models import layers
from sartor.run.assemble import assemble
from sartor.run.complete import clients_of
from sartor.run.named_parts import method_from
from sartor.run.newcomers import hold_out, query_clients, serve
from sartor.run.recipe import Recipe
from sartor.testing import data_for, model_for

EXACT, WHOLE = st.Exact(), st.SGD(lr=0.5, batch=1000)


def flat(module: nn.Module) -> np.ndarray:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()


def newcomer_of(q: Quadratics, i: int) -> tuple[np.ndarray, np.ndarray]:
    rows = q.clients.rows(i, "train")
    return q.clients.x[rows].numpy(), q.clients.y[rows].numpy()


def stranger(d: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Somebody's x and y, and A, b of its loss."""
    rng = np.random.default_rng(77)
    x = rng.normal(size=(15, d))
    y = x @ rng.normal(size=d) + rng.normal(size=15)
    return x, y, x.T @ x / 15, x.T @ y / 15


def proximal(lam: float) -> dict[str, Method]:
    return {
        "ditto": st.Ditto(lam=lam, solver=EXACT),
        "ditto-finetuned": st.Ditto(lam=lam, joint=False, solver=EXACT),
        "pfedme": st.PFedMe(lam=lam, eta=0.1 / lam, R=1, solver=EXACT),
        "flame": st.FLAME(lam=lam, rho=lam, solver=EXACT),
        "l2sgd": st.L2SGD(lam=lam, solver=EXACT),
    }


@pytest.mark.parametrize("name", list(proximal(1.0)))
def test_a_newcomer_takes_a_proximal_step_from_the_global_model(name: str) -> None:
    """θ = (A + λI)⁻¹ (b + λw); as λ → 0 the local optimum, as λ → ∞ the global model."""
    q, (x, y, A, b) = quadratics(), stranger()
    for lam in (1e-7, 0.3, 1.0, 20.0, 1e7):
        result = q.fit(proximal(lam)[name], 5)
        shared = result.run.method.shared(result.run.server)
        assert shared is not None
        w = shared.numpy()
        found = flat(result.newcomer((x, y), steps=1))
        np.testing.assert_allclose(found, np.linalg.solve(A + lam * np.eye(4), b + lam * w), atol=1e-9)
        if lam < 1e-6:
            np.testing.assert_allclose(found, np.linalg.solve(A, b), atol=1e-5)
        if lam > 1e6:
            np.testing.assert_allclose(found, w, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "rounds", "steps"),
    [("ditto", 60, 1), ("l2sgd", 2000, 1), pytest.param("flame", 3000, 400, marks=pytest.mark.long)],
)
def test_a_newcomer_with_a_known_clients_data_gets_its_model(name: str, rounds: int, steps: int) -> None:
    q = quadratics()
    method = replace(proximal(0.7)[name], **({"global_solver": EXACT} if name == "ditto" else {}))
    result = q.fit(method, rounds)
    for i in (0, 3):
        np.testing.assert_allclose(
            flat(result.newcomer(newcomer_of(q, i), steps=steps)), flat(result.personal(i)), atol=1e-6
        )
    assert not np.allclose(flat(result.newcomer(newcomer_of(q, 0), steps=steps)), flat(result.personal(3)), atol=1e-2)


def test_without_personal_models_a_newcomer_gets_the_global_one() -> None:
    q, (x, y, _, _) = quadratics(), stranger()
    for method in (st.FedAvg(solver=EXACT), st.SCAFFOLD(), st.FedADMM(solver=EXACT), st.QFFL(), st.TERM()):
        result = q.fit(method, 3)
        assert (flat(result.newcomer((x, y))) == flat(result.shared())).all()


def test_what_needs_no_state_is_made_from_the_global_model() -> None:
    """Fine-tuning with the exact solver ends in the local optimum; Per-FedAvg takes one step α over all its data."""
    q, (x, y, A, b) = quadratics(), stranger()
    tuned = q.fit(st.FedAvg(solver=EXACT, finetune=EXACT), 3)
    np.testing.assert_allclose(flat(tuned.newcomer((x, y))), np.linalg.solve(A, b), atol=1e-9)
    meta = q.fit(st.PerFedAvg(alpha=0.2), 3)
    w = meta.run.server["w"].numpy()
    np.testing.assert_allclose(flat(meta.newcomer((x, y))), w - 0.2 * (A @ w - b), atol=1e-12)
    alone = q.fit(st.LocalOnly(solver=EXACT), 2)
    np.testing.assert_allclose(flat(alone.newcomer((x, y), steps=1)), np.linalg.solve(A, b), atol=1e-9)
    mixed = q.fit(st.APFL(alpha=0.0, alpha_lr=0.0), 3)
    np.testing.assert_allclose(flat(mixed.newcomer((x, y))), flat(mixed.shared()), atol=1e-12)


@pytest.mark.parametrize("lp", [st.LpProj(p=2.0, lam=1e6, d_sub=2), st.FlameLpProj(lam=1e6, rho=1e6, d_sub=2)])
def test_a_newcomer_of_a_subspace_lands_on_the_servers_point_of_it(lp: Any) -> None:
    """As λ → ∞, Px = w; within the null space of P it fits its own data: min f over {x: Px = w}."""
    q, (x, y, A, b) = quadratics(), stranger()
    result = q.fit(replace(lp, solver=EXACT, lam=1.0, **({"eta": 0.5} if isinstance(lp, st.LpProj) else {})), 5)
    run = result.run
    run.method = replace(lp, solver=EXACT)
    w, P = run.server["w"].numpy(), Projection(2, 4, 0, "gaussian").project(torch.eye(4).double()).numpy().T
    found = flat(result.newcomer((x, y), steps=1))
    np.testing.assert_allclose(P @ found, w, atol=1e-5)
    kkt = np.block([[A, P.T], [P, np.zeros((2, 2))]])
    np.testing.assert_allclose(found, np.linalg.solve(kkt, np.concatenate([b, w]))[:4], atol=1e-4)


@pytest.mark.parametrize(
    ("attention", "alpha"), [("exp", None), ("exp", 2.0), ("exp", 1e6), ("sqrt", None), ("cosine", None)]
)
def test_fedamp_attends_to_the_known_models(attention: str, alpha: float | None) -> None:
    """ξ by NumPy, from eqs (4), (9) to (11); an α too large for one more client is scaled down."""
    q = quadratics()
    method = st.FedAMP(attention=attention, sigma=3.0, self_weight=0.4, solver=EXACT)
    result = q.fit(method, 3)
    method = replace(method, alpha=alpha)
    W, own = result.run.server["w"].whole().numpy(), np.random.default_rng(1).normal(size=(2, 4))
    for w, found in zip(own, sent(method, result, own), strict=True):
        t = ((W - w) ** 2).sum(1)
        if attention == "cosine":
            A = np.exp(3.0 * (W @ w) / np.linalg.norm(W, axis=1) / np.linalg.norm(w))
        else:
            A = np.exp(-t / 3.0) / 3.0 if attention == "exp" else np.where(t <= 9, 1 / 6, 1 / (2 * np.sqrt(t)))
        xi = 0.6 * A / A.sum() if alpha is None else alpha * A / max(1.0, alpha * A.sum())
        np.testing.assert_allclose(found, xi @ W + (1 - xi.sum()) * w, atol=1e-12)


def sent(method: st.FedAMP, result: st.Result, own: np.ndarray) -> np.ndarray:
    class Two:
        ids, round = np.arange(2), 3

    return method.welcome(result.run.server, {"w": torch.from_numpy(own)}, Two())["u"].numpy()  # type: ignore[arg-type]


def test_a_newcomer_of_fedamp_steps_from_its_mixture() -> None:
    q, (x, y, A, b) = quadratics(), stranger()
    method = st.FedAMP(sigma=3.0, self_weight=0.4, beta=2.0, solver=EXACT)
    result = q.fit(method, 3)
    w = result.run.server["w"].whole().mean(0).numpy()  # before its first visit it knows no better
    for _ in range(3):
        u = sent(method, result, np.stack([w, w]))[0]
        w = np.linalg.solve(A + 0.5 * np.eye(4), b + 0.5 * u)
    np.testing.assert_allclose(flat(result.newcomer((x, y), steps=3)), w, atol=1e-9)


def test_a_newcomer_of_fedamp_has_the_mean_of_what_clients_have_of_their_own() -> None:
    q, (x, y, _, _) = quadratics(), stranger()
    own, beta = np.linspace(0, 0.8, q.m), np.linspace(0.1, 3, q.m)
    each = st.FedAMP(sigma=3.0, self_weight=tuple(own), beta=tuple(beta), solver=EXACT)
    result = q.fit(each, 3)
    found = flat(result.newcomer((x, y), steps=3))
    result.run.method = replace(each, self_weight=float(own.mean()), beta=float(beta.mean()))
    np.testing.assert_allclose(flat(result.newcomer((x, y), steps=3)), found, atol=1e-12)


def test_a_newcomer_of_mocha_is_a_task_by_itself() -> None:
    """min ½ Σ (w·x − y)² + (λ_1 m + λ_2)/2 ‖w‖²: ridge regression, as for every task while Ω = I/m."""
    q, (x, y, _, _) = quadratics(), stranger()
    result = q.fit(st.MOCHA(lam1=0.5, lam2=0.1), 3)
    ridge = np.linalg.solve(x.T @ x + (0.5 * q.m + 0.1) * np.eye(4), x.T @ y)
    np.testing.assert_allclose(flat(result.newcomer((x, y), steps=300)), ridge, atol=1e-8)


def deep(method: Method, **options: Any) -> st.Result:
    model = layers(5, 6, 3)
    return st.fit(
        method,
        model,
        ragged(),
        rounds=3,
        **grouped(dtype=torch.float64, evaluate_every=3, **options),
    )


def classes(n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    y = rng.integers(3, size=n)
    return rng.normal(size=(3, 5))[y] + 0.3 * rng.normal(size=(n, 5)), y


def loss(module: nn.Module, x: np.ndarray, y: np.ndarray) -> float:
    with torch.no_grad():
        return float(nn.functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y)))


@pytest.mark.parametrize(
    ("method", "body"),
    [
        (st.FedPer(solver=WHOLE), "own head"),
        (st.FedRep(solver=WHOLE), "own head"),
        (st.LGFedAvg(solver=WHOLE), "own body"),
    ],
)
def test_with_split_models_a_newcomer_trains_its_own_part_only(method: Method, body: str) -> None:
    result, (x, y) = deep(method), classes()
    w = result.run.server["w"].numpy()
    few, many = (result.newcomer((x, y), steps=s) for s in (1, 60))
    for module in (few, many):
        theta = flat(module)
        assert np.array_equal(theta[: len(w)] if body == "own head" else theta[-len(w) :], w)
    assert loss(many, x, y) < loss(few, x, y) < loss(result.newcomer((x, y), steps=0), x, y)
    first = result.task.module(torch.from_numpy(flat(result.newcomer((x, y), steps=0))))
    for p in first.parameters():
        p.requires_grad_()
    nn.functional.cross_entropy(first(torch.from_numpy(x)), torch.from_numpy(y)).backward()
    slope = torch.cat([p.grad.reshape(-1) for p in first.parameters() if p.grad is not None]).numpy()
    own = slice(len(w), None) if body == "own head" else slice(0, len(slope) - len(w))
    np.testing.assert_allclose(flat(few)[own], (flat(first) - 0.5 * slope)[own], atol=1e-12)  # one step over all data


def test_with_clusters_a_newcomer_takes_the_one_that_fits_it_best() -> None:
    result, (x, y) = deep(st.IFCA(k=4)), classes()
    theta = result.run.server["w"]
    losses = [loss(result.task.module(t), x, y) for t in theta]
    assert np.array_equal(flat(result.newcomer((x, y))), theta[int(np.argmin(losses))].numpy())


def make(name: str) -> Method:
    own = {f.name for f in fields(NAMES[name].make)}  # type: ignore[arg-type]
    settings = {"d_sub": 5} if "d_sub" in own else {}
    return replace(method_from(name, {}), **settings)  # type: ignore[type-var]


@pytest.mark.parametrize("name", list(NAMES))
def test_every_method_serves_newcomers_alone_as_among_others_and_changes_nothing(name: str) -> None:
    clients, model = data_for(make(name)), model_for(make(name))
    seen, unseen = clients.take(range(5)), clients.take([5, 6])
    result = st.fit(
        make(name),
        model,
        seen,
        rounds=2,
        unseen=unseen,
        execution=st.Execution(dtype=torch.float64),
        evaluation=st.Evaluation(evaluate_every=2),
        federation=st.Federation(unseen_steps=2),
    )
    run = result.run
    before = {k: (v.whole() if isinstance(v, Rows) else v).clone() for k, v in run.server.items()}
    states = {k: v.clone() for k, v in run.engine.save().items()}
    assert result.held_out is not None
    engine = serve(run, result.task, result.data, result.held_out, 2)
    together = query_clients(run, engine, "personal")
    for i in range(2):
        alone = flat(result.newcomer(unseen.take([i]), steps=2))
        assert np.isfinite(alone).all()
        if "personal" in together:  # the order of batches differs: each is drawn for a client's number
            assert together["personal"][i].shape == alone.shape
            if i == 0:
                np.testing.assert_allclose(together["personal"][i].numpy(), alone, atol=1e-9)
    for k, v in run.server.items():
        assert torch.equal(before[k], v.whole() if isinstance(v, Rows) else v), k
    for k, v in run.engine.save().items():
        assert torch.equal(states[k], v), k
    found = result.summary["unseen"]
    assert found["clients"] == 2 and found["steps"] == 2 and found["chosen"]["clients_scored"] == 2
    assert (found["global"] is None) == (run.method.shared(run.server) is None)
    assert (found["personal"] is None) == ("personal" not in together)


@pytest.mark.parametrize("chunk", [1, 2])
def test_chunks_change_nothing(chunk: int) -> None:
    result = deep(st.FLAME(), unseen=None)
    data = ragged(seed=9).to(dtype=torch.float64)
    models = []
    for size in (None, chunk):
        engine = serve(result.run, result.task, result.data, data, 0)
        engine.chunk = size
        for visit in range(3):
            engine.map("train", visit, torch.arange(7), {})
        models.append(query_clients(result.run, engine, "personal")["personal"])
    torch.testing.assert_close(models[0], models[1], atol=1e-9, rtol=1e-9)


def test_a_list_of_lams_privacy_and_attacks_serve_newcomers_too() -> None:
    x, y = classes()
    for options in ({"privacy": st.Privacy(0.5, 0.1)}, {"attack": st.attacks.SignFlip(), "attackers": 0.3}):
        result = deep(st.Ditto(lam=1e6, solver=st.SGD(lr=1e-8)), **options)
        np.testing.assert_allclose(flat(result.newcomer((x, y))), flat(result.shared()), atol=1e-6)
    result = deep(st.DynamicLam(st.FlameLpProj(d_sub=5), (0.1, 1.0)))
    assert np.isfinite(flat(result.newcomer((x, y)))).all()


# --- held-out clients -----------------------------------------------------------------------------------------------


def test_clients_that_are_held_out_are_a_function_of_the_seed() -> None:
    clients = ragged()
    seen, unseen = hold_out(clients, 0.3, 1)
    assert unseen is not None and sorted(seen.names + unseen.names) == clients.names and len(unseen) == 2
    assert hold_out(clients, 0.3, 1)[0].names == seen.names
    assert len({tuple(hold_out(clients, 0.3, s)[0].names) for s in range(8)}) > 1
    assert hold_out(clients, 0.0, 1) == (clients, None)


def test_unseen_clients_are_never_trained_on(tmp_path: Path) -> None:
    """Other labels at those held out change their own scores and nothing else."""
    recipe = Recipe(method="flame", model="softmax", rounds=3, clients=8, unseen=0.25, unseen_steps=2)
    clients = clients_of(recipe)
    _, held = hold_out(clients, 0.25, 0)
    assert held is not None
    y = clients.y.clone()
    for i in range(len(held)):
        everything = slice(int(held.bounds[i, 0]), int(held.bounds[i, 3]))
        y[everything] = (y[everything] + 1) % 10
    results = []
    for data in (clients, replace(clients, y=y)):
        result = assemble(recipe, data)
        for _ in range(3):
            result.run.step()
        result.run.evaluate(False)
        results.append(result)
    a, b = results
    assert torch.equal(a.run.server["w"], b.run.server["w"]) and a.summary["personal"] == b.summary["personal"]
    assert a.summary["unseen"]["global"] != b.summary["unseen"]["global"]
    assert a.summary["clients"] == 6 and a.summary["cohort"] == 6


def test_the_judge_reports_unseen_clients(tmp_path: Path) -> None:
    options = ("--model", "softmax", "--rounds", 3, "--clients", 10, "--unseen", 0.3, "--unseen-steps", 3)
    out = " ".join(good("run", "--method", "ditto", *options, "--out", tmp_path / "a").out.split())
    assert "3 unseen clients after 3 visits: global" in out and "(unseen)" in out
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    rows = json.loads((tmp_path / "a" / "clients.json").read_text())
    assert [r["unseen"] for r in rows] == 7 * [False] + 3 * [True] and summary["clients"] == 7
    for model in ("personal", "global", "chosen"):
        accuracy = np.array([r[f"{model}_test_accuracy"] for r in rows if r["unseen"]])
        losses = np.array([r[f"{model}_test_loss"] for r in rows if r["unseen"]])
        found = summary["unseen"][model]
        assert found["accuracy_mean"] == pytest.approx(accuracy.mean(), abs=1e-12)
        assert found["accuracy_std"] == pytest.approx(accuracy.std(), abs=1e-12)
        assert found["accuracy_worst10"] == pytest.approx(accuracy.min(), abs=1e-12)
        assert found["loss_mean"] == pytest.approx(losses.mean(), abs=1e-12)
    assert "(unseen)" in (tmp_path / "a" / "report.html").read_text()
    good("run", "--resume", tmp_path / "a", "--rounds", 4, "--quiet")
    assert json.loads((tmp_path / "a" / "recipe.toml").read_text().split("unseen = ")[1].split()[0]) == 0.3
    compare = ("compare", "--methods", "fedavg,ditto,local", *options, "--seeds", "0,1", "--out", tmp_path / "c")
    out = " ".join(good(*compare).out.split())
    assert "unseen, fedavg: 3 unseen clients after 3 visits: global" in out and "unseen, local: 3" in out
    plan = r"\d+ runs, .*? in lockstep "  # of what is still to play
    assert " ".join(good(*compare).out.split()) == re.sub(plan, "", out)  # the second time from its folder


def test_bad_shares_and_bad_newcomers_are_refused() -> None:
    run = ("run", "--model", "softmax", "--rounds", 1)
    assert "share in [0, 1)" in refused(*run, "--unseen", 1)
    assert "is no client" in refused(*run, "--unseen", 0.01)
    assert "is all of them" in refused(*run, "--unseen", 0.99)
    assert "0 visits or more" in refused(*run, "--unseen", 0.2, "--unseen-steps", -1)
    assert "--report last" in refused(*run, "--unseen", 0.2, "--report", "best")
    assert "cohort needs 1 to 8" in refused(*run, "--unseen", 0.2, "--cohort", 10)
    result, (x, y) = deep(st.FedAvg()), classes()
    for data, words in (
        ((x[:, :3], y), "shape"),
        ((x[:0], y[:0]), "at least one sample"),
        ((x, y + 3), "labels must lie"),
        ((x, y / 2), "classes 0..2"),
        ((x, y[:3]), "rows of x"),
        ((np.where(x == x.max(), np.nan, x), y), "NaN"),
        (ragged(), "one client"),
    ):
        with pytest.raises(st.SartorError, match=words):
            result.newcomer(data)
    with pytest.raises(st.SartorError, match="0 visits or more"):
        result.newcomer((x, y), steps=-1)


# --- sartor predict -------------------------------------------------------------------------------------------------


def table(path: Path, n: int, seed: int, site: str, outcome: bool = True) -> Path:
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["site", "sex", "age", *(["outcome"] if outcome else [])])
        for _ in range(n):
            sex, age = rng.choice(["f", "m"]), round(float(rng.normal()), 3)
            writer.writerow([site, sex, age, *(["ill" if (age > 0) ^ (site == "odd") else "well"] if outcome else [])])
    return path


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    """A run on a table of four hospitals, which a default partition deals out by hospital."""
    whole = tmp_path / "all.csv"
    parts = [table(tmp_path / f"{s}.csv", 60, i, s).read_text().splitlines() for i, s in enumerate("abcd")]
    whole.write_text("\n".join([parts[0][0], *(line for part in parts for line in part[1:])]) + "\n")
    own = ("--data", whole, "--target", "outcome", "--client-key", "site", "--model", "softmax", "--rounds", 10)
    own = (*own, "--columns", "raw")  # so that the global model is the same function at every hospital
    good("run", "--method", "ditto", *own, "--lr", 0.5, "--set", "lam=0.001", "--out", tmp_path / "run", "--quiet")
    assert 'partition = "natural"' in (tmp_path / "run" / "recipe.toml").read_text()
    return tmp_path


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_predict_serves_known_clients_and_newcomers(hospitals: Path) -> None:
    run = ("predict", "--run", hospitals / "run")
    new = table(hospitals / "new.csv", 40, 9, "b", outcome=False)
    known = rows(good(*run, "--client", "b", "--data", new).out)
    assert rows(good(*run, "--client", 1, "--data", new).out) == known and len(known) == 40
    ages = [float(r["age"]) for r in rows(new.read_text())]
    right = [r["prediction"] == ("ill" if age > 0 else "well") for r, age in zip(known, ages, strict=True)]
    assert np.mean(right) > 0.9 and all(0.5 <= float(r["probability"]) <= 1 for r in known)
    odd = table(hospitals / "odd.csv", 60, 10, "odd")  # where everything is the other way round
    strange = rows(good(*run, "--newcomer", odd, "--data", new, "--steps", 200).out)
    wrong = [r["prediction"] == ("well" if age > 0 else "ill") for r, age in zip(strange, ages, strict=True)]
    assert np.mean(wrong) > 0.9
    assert rows(good(*run, "--newcomer", odd, "--data", new, "--model", "global").out) == rows(
        good(*run, "--client", "a", "--data", new, "--model", "global").out
    )
    assert len(rows(good(*run, "--newcomer", odd).out)) == 60  # without --data: its own samples
    good(*run, "--client", "b", "--data", new, "--json", "--out", hospitals / "p.json")
    assert [r["prediction"] for r in json.loads((hospitals / "p.json").read_text())] == [r["prediction"] for r in known]


def test_predict_refuses_in_one_line(hospitals: Path) -> None:
    run = ("predict", "--run", hospitals / "run")
    new = table(hospitals / "new.csv", 5, 9, "b", outcome=False)
    (hospitals / "whose.csv").write_text("age,sex\n1,f\n")
    assert "the file has no column site" in refused(*run, "--data", hospitals / "whose.csv")
    assert "either --client" in refused(*run, "--client", "a", "--newcomer", new)
    assert "--data FILE" in refused(*run, "--client", "a")
    assert "unknown client" in refused(*run, "--client", "z", "--data", new)
    assert "has no outcome" in refused(*run, "--newcomer", new)
    assert "no recipe.toml" in refused("predict", "--run", hospitals, "--client", "a", "--data", new)
    assert "there is no file" in refused(*run, "--client", "a", "--data", hospitals / "none.csv")
    assert "'chosen', 'personal', 'global'" in refused(*run, "--client", "a", "--data", new, "--model", "best")
    (hospitals / "short.csv").write_text("age\n1\n")
    assert "'sex'" in refused(*run, "--client", "a", "--data", hospitals / "short.csv")
    (hospitals / "text.csv").write_text("age,sex\n1,x\n")
    answer = sartor(*run, "--client", "a", "--data", hospitals / "text.csv")
    assert answer.code == 0 and "column sex holds 'x', which the model has never seen" in answer.err
    (hospitals / "label.csv").write_text("age,sex,outcome\n1,f,dead\n")
    assert "unknown class" in refused(*run, "--newcomer", hospitals / "label.csv")
    (hospitals / "run" / "summary.json").unlink()
    assert "not complete" in refused(*run, "--client", "a", "--data", new)


def test_predict_takes_arrays_of_images_and_numbers(tmp_path: Path) -> None:
    good("run", "--method", "fedavg", "--model", "softmax", "--rounds", 20, "--out", tmp_path / "run", "--quiet")
    data = st.data.load("digits")
    np.savez(tmp_path / "some.npz", x=data.x[:50], y=data.y[:50])
    found = rows(good("predict", "--run", tmp_path / "run", "--newcomer", tmp_path / "some.npz").out)
    assert np.mean([int(r["prediction"]) == y for r, y in zip(found, data.y[:50], strict=True)]) > 0.7
    np.savez(tmp_path / "bad.npz", x=data.x[:50, :9])
    bad = refused("predict", "--run", tmp_path / "run", "--client", 0, "--data", tmp_path / "bad.npz")
    assert "shape [9]" in bad and "[64]" in bad
