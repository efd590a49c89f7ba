"""Dynamic λ: each client picks its λ on validation data, in one pass; nothing else changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commandline import good, refused, same_run, sartor, stop_in_round
from federations import quadratics, ragged
from groups import grouped
from torch import Tensor

import sartor as st
from sartor.core import Method
from sartor.engines.stack import Stack
from sartor.errors import SartorError
from sartor.models import layers
from sartor.run.named_parts import method_from, to_table
from sartor.run.recipe import Recipe
from sartor.run.result import Result
from sartor.tasks.task import ModelTask
from sartor.wrappers.dynamic_lam import DynamicLam

LAMS = (0.05, 0.5, 2.0)
MAKE: dict[str, Method] = {
    "flame": st.FLAME(),
    "flame-lp-proj": st.FlameLpProj(d_sub=20, solver=st.SGD(epochs=3)),
    "pfedme": st.PFedMe(R=2),
    "ditto": st.Ditto(),
    "ditto-finetuned": st.Ditto(joint=False),
    "ditto-shared-batches": st.Ditto(shared_batches=True),
    "lp-proj-1": st.LpProj(p=1.0, d_sub=5),
    "lp-proj-2-all": st.LpProj(p=2.0, d_sub=20, train_all=True, solver=st.SGD(epochs=3)),
    "flame-inexact": st.FLAME(solver=st.Inexact(lr=0.05, max_steps=20)),
    "ditto-adam": st.Ditto(solver=st.Adam(lr=0.01)),
}


def fit(method: Method, clients: st.Clients, rounds: int = 4, **options: Any) -> Result:
    return st.fit(
        method, layers(5, 6, 3), clients, rounds, **grouped(**{"cohort": 4, "dtype": torch.float64} | options)
    )


def models(result: Result) -> Tensor:
    return result._personal["personal"]


@pytest.mark.parametrize("name", MAKE)
def test_one_candidate_is_the_plain_method_bit_for_bit(name: str) -> None:
    plain, one = MAKE[name], DynamicLam(MAKE[name], (0.3,))
    a, b = (fit(m, ragged(), dtype=torch.float32) for m in (replace(plain, lam=0.3), one))  # type: ignore[type-var]
    assert torch.equal(models(a), models(b))
    assert a.run.server.keys() == b.run.server.keys() and a.run.bytes_up == b.run.bytes_up
    for key, value in a.run.server.items():
        assert torch.equal(value, b.run.server[key]) if isinstance(value, Tensor) else True, key
    assert {k: v for k, v in a.summary.items() if k != "seconds"} == {
        k: v for k, v in b.summary.items() if k != "seconds"
    }


def half_misled() -> st.Clients:
    """Every second client's validation labels are wrong, so that it does well to learn little: a large λ."""
    clients = ragged()
    y = clients.y.clone()
    for i in range(0, len(clients), 2):
        rows = clients.rows(i, "validation")
        y[rows] = (y[rows] + 1) % 3
    return replace(clients, y=y)


def one_by_one(method: Method, clients: st.Clients) -> tuple[np.ndarray, Tensor]:
    """The oracle: a round with each λ alone; validation losses [k, m] and models [k, m, d]."""
    task = ModelTask(layers(5, 6, 3).double())
    losses, thetas = [], []
    for lam in LAMS:
        theta = models(fit(replace(method, lam=lam), clients, rounds=1, cohort=7))  # type: ignore[type-var]
        thetas.append(theta)
        for i in range(len(clients)):
            part = clients.rows(i, "validation")
            output = task.predict(theta[i : i + 1], clients.x[part].double()[None])
            losses.append(float(task.errors(output, clients.y[part][None]).mean()))
    return np.array(losses).reshape(len(LAMS), -1), torch.stack(thetas)


def kept(result: Result) -> list[int]:
    """The place of each client's λ in the list."""
    return [LAMS.index(round(lam, 6)) for lam in result.run.engine.save()["state/lam"][:, 0].tolist()]


@pytest.mark.parametrize("name", [n for n in MAKE if n != "ditto-finetuned"])  # see the next test
def test_the_kept_candidate_is_the_best_on_validation(name: str) -> None:
    clients = half_misled()
    found = fit(DynamicLam(MAKE[name], LAMS), clients, rounds=1, cohort=7)
    losses, thetas = one_by_one(MAKE[name], clients)
    first, second, _ = np.sort(losses, axis=0)
    best, far = losses.argmin(0), second > first * (1 + 1e-4)  # nearer ones may count as the same
    assert len(set(best[far])) > 1  # else this would not be a test of the choice
    assert np.array_equal(np.array(kept(found))[far], best[far])
    torch.testing.assert_close(models(found), thetas[kept(found), torch.arange(7)], rtol=1e-9, atol=1e-11)


def test_a_finetuned_ditto_keeps_the_lam_and_makes_the_model_anew() -> None:
    found = fit(DynamicLam(MAKE["ditto-finetuned"], LAMS), half_misled(), rounds=1, cohort=7)
    each = [models(fit(st.Ditto(joint=False, lam=lam), half_misled(), rounds=1, cohort=7)) for lam in LAMS]
    assert len(set(kept(found))) > 1
    expected = torch.stack([each[k][i] for i, k in enumerate(kept(found))])
    torch.testing.assert_close(models(found), expected, rtol=1e-9, atol=1e-11)


def test_the_message_is_the_kept_candidates() -> None:
    """pFedMe's message depends on λ: the server's mean is that of the clients' own choices."""
    clients, method = half_misled(), st.PFedMe(R=2)
    found = fit(DynamicLam(method, LAMS), clients, rounds=1, cohort=7)
    each = [fit(replace(method, lam=lam), clients, rounds=1, cohort=7).run.engine.save()["state/w"] for lam in LAMS]
    w = torch.stack([each[k][i] for i, k in enumerate(kept(found))]).mean(0)
    torch.testing.assert_close(found.run.server["w"], w, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(found.run.server["w"], torch.stack(each).mean((0, 1)), rtol=1e-4)


@pytest.mark.parametrize("attack", [st.attacks.GradientFlip(), st.attacks.LabelPoison(), st.attacks.SignFlip()])
def test_under_attack_every_copy_of_a_client_is_as_hostile_as_it(attack: st.attacks.Attack) -> None:
    """A round of Ditto with each λ alone under the same attack has the models that are kept, hostile clients' too."""
    options = {"attack": attack, "attackers": 0.4, "rounds": 1, "cohort": 7}
    found = fit(DynamicLam(st.Ditto(), LAMS), half_misled(), **options)
    each = torch.stack([models(fit(st.Ditto(lam=lam), half_misled(), **options)) for lam in LAMS])
    assert found.summary["hostile"] == 3 and len(set(kept(found))) > 1
    torch.testing.assert_close(models(found), each[kept(found), torch.arange(7)], rtol=1e-9, atol=1e-11)
    plain = fit(st.Ditto(lam=LAMS[0]), half_misled(), **options)
    torch.testing.assert_close(found.run.server["w"], plain.run.server["w"], rtol=1e-9, atol=1e-11)  # w knows no λ


def test_an_aggregator_is_checked_behind_the_choice() -> None:
    krum = DynamicLam(st.Ditto(aggregate=st.aggregators.Krum(f=4)), LAMS)
    with pytest.raises(SartorError, match="Krum with f = 4 needs"):
        fit(krum, ragged())
    arguments = ("--method", "flame", "--lams", "0.1,1", "--aggregator", "k-loss", "--attack", "ipm", "--json")
    found = json.loads(good("run", "--model", "softmax", "--rounds", 2, *arguments).out)
    assert (found["aggregator"], found["attack"], found["hostile"]) == ("k-loss", "ipm", 2)


def test_copies_of_a_client_have_the_same_batches() -> None:
    clients = ragged().to(dtype=torch.float64)
    task = ModelTask(layers(5, 6, 3).double())
    ids = np.argsort(-clients.counts("train"), kind="stable")
    stack = Stack(task, clients, ids, torch.ones(7, dtype=torch.int64), 3, seed=1)
    copies = stack.take(torch.arange(7).repeat_interleave(2))
    for (a, batch), (b, twice) in zip(stack.batches(4, epochs=2), copies.batches(4, epochs=2), strict=True):
        assert b == 2 * a
        for one, two in zip(batch, twice, strict=True):
            assert torch.equal(one.repeat_interleave(2, 0), two)


@pytest.mark.parametrize("name", ["ditto", "flame"])
def test_test_data_are_not_looked_at(name: str) -> None:
    clients = ragged()
    y = clients.y.clone()
    for i in range(len(clients)):
        rows = clients.rows(i, "test")
        y[rows] = (y[rows] + 1) % 3
    other = replace(clients, y=y)
    a, b = (fit(DynamicLam(MAKE[name], LAMS), c, report="best") for c in (clients, other))
    assert torch.equal(models(a), models(b))
    assert torch.equal(a.run.engine.save()["state/lam"], b.run.engine.save()["state/lam"])
    assert a.summary["reported_round"] == b.summary["reported_round"]
    assert [r["chosen"] for r in a.clients] == [r["chosen"] for r in b.clients]
    assert a.summary["chosen"] != b.summary["chosen"]  # the scores do change


def test_few_validation_samples_take_the_middle_candidate() -> None:
    """Ditto's rule: below 4 samples no choice; the paper's fixed λ is the middle of its lists."""
    assert DynamicLam(st.Ditto(), (0.05, 0.1, 0.2)).middle == 0.1
    assert DynamicLam(st.Ditto(), (2.0, 0.1, 1.0)).middle == 1.0
    parts = []
    draw = np.random.default_rng(0)
    for i in range(6):
        size = {"train": 20, "validation": i, "test": 5}
        parts.append({k: (draw.normal(size=(n, 5)), draw.integers(3, size=n)) for k, n in size.items()})
    clients = st.Clients.from_parts(parts, 3)
    found = fit(DynamicLam(st.Ditto(), LAMS), clients, cohort=6, rounds=1)
    lam = found.run.engine.save()["state/lam"][:, 0].tolist()
    assert lam[:4] == [0.5] * 4
    plain = fit(st.Ditto(lam=0.5), clients, cohort=6, rounds=1)
    torch.testing.assert_close(models(found)[:4], models(plain)[:4], rtol=1e-12, atol=1e-14)
    assert any(x != 0.5 for x in lam[4:])


@pytest.mark.parametrize("engine", ["serial", "local"])
@pytest.mark.parametrize("name", ["ditto", "flame", "pfedme"])
def test_engines_and_chunks_agree(name: str, engine: str) -> None:
    method = DynamicLam(MAKE[name], LAMS)
    whole = fit(method, ragged())
    other = fit(method, ragged(), engine=engine, **({"chunk": 2} if engine == "local" else {}))
    torch.testing.assert_close(models(whole), models(other), rtol=1e-9, atol=1e-11)
    assert torch.equal(whole.run.engine.save()["state/lam"], other.run.engine.save()["state/lam"])


def test_diagnostics_use_each_clients_own_lam() -> None:
    """For Ditto λ(w − v): the mean over clients of each one's, by hand."""
    q = quadratics()
    method = DynamicLam(st.Ditto(), LAMS)
    found = q.fit(method, 3, diagnostics=True)
    state, w = found.run.engine.save(), found.run.server["w"]
    by_hand = (state["state/lam"] * (w - state["state/v"])).mean(0).norm()
    facts = found.history[-1]["diagnostics"]
    assert facts["envelope_gradient_norm"] == pytest.approx(float(by_hand), rel=1e-12)
    assert facts["lam_mean"] == pytest.approx(float(state["state/lam"].mean()), rel=1e-12)
    assert q.fit(DynamicLam(st.FLAME(), LAMS), 3, diagnostics=True).history[-1]["diagnostics"]["lam_max"] <= 2.0


@pytest.mark.parametrize(
    ("lams", "method", "words"),
    [
        ((), st.Ditto(), "at least one"),
        ((0.1, 0.1), st.Ditto(), "twice"),
        ((0.1, -1.0), st.Ditto(), "lam > 0; got -1.0"),
        ((0.1, float("nan")), st.FLAME(), "lam > 0"),
        ((0.1, 1.0), st.FedAvg(), "FedAvg has none"),
        ((0.1, 1.0), st.LocalOnly(), "LocalOnly has none"),
    ],
)
def test_bad_lists_are_refused(lams: tuple[float, ...], method: Method, words: str) -> None:
    with pytest.raises(SartorError, match=words):
        DynamicLam(method, lams)


def test_settings_and_back() -> None:
    method = method_from("ditto", {"lam": "0.1,1,2", "weighting": "size"}, {"lr": 0.2})
    assert method == DynamicLam(st.Ditto(lam=0.1, weighting="size", solver=st.SGD(lr=0.2)), (0.1, 1.0, 2.0))
    table = to_table(method)
    assert table["lam"] == [0.1, 1.0, 2.0] and method_from("ditto", table) == method
    assert method_from("ditto", {"lam": [0.3]}) == DynamicLam(st.Ditto(lam=0.3), (0.3,))


RUN = ("run", "--method", "ditto", "--model", "softmax", "--rounds", 5, "--lams", "0.05,0.5,2", "--quiet")


def test_the_command_line_and_resume(tmp_path: Path) -> None:
    good(*RUN, "--checkpoint-every", 2, "--out", tmp_path / "a")
    assert Recipe.load(tmp_path / "a" / "recipe.toml").settings["lam"] == [0.05, 0.5, 2.0]
    with stop_in_round(3):
        assert sartor(*RUN, "--checkpoint-every", 2, "--out", tmp_path / "b").code == 130
    assert "lam" in refused("run", "--resume", tmp_path / "b", "--lams", "0.05,0.5")
    good("run", "--resume", tmp_path / "b", "--lams", "0.05,0.5,2", "--quiet")
    same_run(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--method", "local", "--lams", "0.1,1"), ("setting of local", "lam")),
        (("--method", "ditto", "--lams", "0.1,x"), ("ditto's lam", "'x'")),
        (("--method", "ditto", "--lams", "0.1,-1"), ("lam > 0",)),
    ],
)
def test_bad_requests(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    line = refused("run", *arguments)
    assert all(word in line for word in words), line
