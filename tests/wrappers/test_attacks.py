"""Attacks: every hostile message has the stated distribution, benign clients are untouched, and nothing but the seed
decides who attacks and how."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
import torch
from federations import quadratics, ragged

import sartor as st
from sartor import spelling
from sartor.core import Method, Server, State
from sartor.data import Clients
from sartor.engines import LocalEngine
from sartor.errors import SartorError
from sartor.models import layers
from sartor.run.assemble import prepare
from sartor.run.result import Result
from sartor.run.settings import attack
from sartor.seeds import stream
from sartor.wrappers import Attack, hostile_clients
from sartor.wrappers.attacks import ALIE, IPM, NAMES

SOLVER = st.SGD(lr=0.1, epochs=1, batch=7)
METHODS: dict[str, Method] = {
    "flame": st.FLAME(solver=SOLVER),
    "pfedme": st.PFedMe(R=2, train_all=True, solver=st.SGD(lr=0.05, steps=2, reuse=True, batch=7)),
    "ditto": st.Ditto(solver=SOLVER),
    "lp-proj-1": st.LpProj(p=1.0, d_sub=4, solver=SOLVER),
    "flame-lp-proj": st.FlameLpProj(d_sub=4, solver=SOLVER),
    "fedamp": st.FedAMP(solver=SOLVER),
    "fedavg": st.FedAvg(solver=SOLVER),
    "local": st.LocalOnly(solver=SOLVER),
}


def fixed(m: int = 12, n: int = 24, classes: int = 4, seed: int = 0) -> Clients:
    """Clients of equal size, so that moments of their labels can be told."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(m):
        y = rng.integers(classes, size=n)
        x = rng.normal(size=(n, 5)) + y[:, None]
        parts.append({"train": (x, y), "validation": (x[:4], y[:4]), "test": (x[:6], y[:6])})
    return st.Clients.from_parts(parts, classes)


def ready(name: str, text: str, attackers: float = 0.4, clients: Clients | None = None, **options: object) -> Result:
    data = ragged() if clients is None else clients
    assert data.classes is not None
    return prepare(
        METHODS[name],
        layers(5, 6, data.classes),
        data,
        seed=3,
        dtype=torch.float64,
        attack=attack(text),
        attackers=attackers,
        **options,  # type: ignore[arg-type]
    )


def messages(result: Result, rounds: Sequence[int] = (0,)) -> list[State]:
    """What clients send in these rounds from the first states, and what becomes of it at the server's door."""
    run, found = result.run, []
    assert isinstance(run.engine, LocalEngine)
    kept = {k: v.clone() for k, v in run.engine.save().items()}
    everyone = torch.arange(run.problem.clients)
    for r in rounds:
        seen: list[State] = []
        inner = getattr(run.method, "method", run.method)
        _, sent = run.engine.map("train", r, everyone, run.method.downlink(run.server, everyone, r))
        run.engine.restore(kept)
        wrapped = inner.server

        def watch(server: Server, ids: torch.Tensor, arrived: State, round: int, seen: list[State] = seen) -> Server:
            seen.append(arrived)
            return server

        object.__setattr__(inner, "server", watch)
        run.method.server(run.server, everyone, sent, r)
        object.__setattr__(inner, "server", wrapped)
        found.append(seen[0])
    return found


# --- who is hostile ---------------------------------------------------------------------------------------------------


def test_the_hostile_are_a_function_of_the_seed_and_nested_in_their_share() -> None:
    sets = [hostile_clients(50, share, seed=1) for share in (0.0, 0.1, 0.2, 0.5, 0.8)]
    assert [len(s) for s in sets] == [0, 5, 10, 25, 40]
    assert all(a < b for a, b in itertools.pairwise(sets))
    assert hostile_clients(50, 0.5, 1) == sets[3] != hostile_clients(50, 0.5, 2)
    counts = np.zeros(20)
    for seed in range(2000):
        counts[list(hostile_clients(20, 0.25, seed))] += 1
    assert np.abs(counts / 2000 - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 2000)


@pytest.mark.parametrize("share", [1.0, -0.1, float("nan"), float("inf"), 0.96, 0.04])
def test_refused_shares(share: float) -> None:
    with pytest.raises(SartorError, match="attackers"):
        hostile_clients(10, share, 0)


# --- data -------------------------------------------------------------------------------------------------------------


def changed(before: Clients, after: Clients, client: int, part: str) -> np.ndarray:
    rows = before.rows(client, part)
    return (before.y[rows] != after.y[rows]).numpy()


@pytest.mark.parametrize("text", ["label-poison", "dirty-labels(share=0.5)", "model-replacement", "scaled-poison"])
def test_only_training_labels_of_hostile_clients_change(text: str) -> None:
    clients, hostile = fixed(), frozenset({1, 4, 7})
    made = attack(text)
    assert made is not None
    after = made.data(clients, hostile, seed=0)
    assert torch.equal(clients.x, after.x) and np.array_equal(clients.bounds, after.bounds)
    for i in range(12):
        assert changed(clients, after, i, "train").any() == (i in hostile)
        assert not changed(clients, after, i, "validation").any() and not changed(clients, after, i, "test").any()
    assert torch.equal(after.y, made.data(clients, hostile, seed=0).y)
    assert not torch.equal(after.y, made.data(clients, hostile, seed=1).y)
    fewer = made.data(clients, frozenset({4}), seed=0)  # who else attacks does not matter
    assert torch.equal(fewer.y[clients.rows(4, "train")], after.y[clients.rows(4, "train")])


def test_poisoned_labels_are_uniform() -> None:
    clients = fixed(m=10, n=2000, classes=5)
    after = attack("label-poison").data(clients, frozenset(range(5)), 0)  # type: ignore[union-attr]
    for i in range(5):
        drawn = after.y[clients.rows(i, "train")].numpy()
        share = np.bincount(drawn, minlength=5) / 2000
        assert np.abs(share - 0.2).max() < 4 * np.sqrt(0.2 * 0.8 / 2000)
        assert abs(changed(clients, after, i, "train").mean() - 0.8) < 4 * np.sqrt(0.2 * 0.8 / 2000)


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6])
def test_dirty_labels_are_wrong_and_so_many(share: float) -> None:
    clients = fixed(m=6, n=2000, classes=5)
    after = attack(f"dirty-labels(share={share})").data(clients, frozenset({0, 3}), 0)  # type: ignore[union-attr]
    for i in (0, 3):
        wrong = changed(clients, after, i, "train")
        assert wrong.sum() == round(2000 * share)
        rows = clients.rows(i, "train")
        step = ((after.y[rows] - clients.y[rows]) % 5).numpy()[wrong]
        assert np.abs(np.bincount(step, minlength=5)[1:] / len(step) - 0.25).max() < 4 * np.sqrt(0.19 / len(step))


def test_two_classes_are_flipped() -> None:
    clients = fixed(classes=2)
    after = attack("label-poison").data(clients, frozenset({2}), 0)  # type: ignore[union-attr]
    assert changed(clients, after, 2, "train").all()
    signs = st.Clients(clients.x, 2.0 * clients.y - 1, clients.bounds, clients.names, 2)
    after = attack("label-poison").data(signs, frozenset({2}), 0)  # type: ignore[union-attr]
    assert torch.equal(after.y[signs.rows(2, "train")], -signs.y[signs.rows(2, "train")])


@pytest.mark.parametrize("text", ["label-poison", "dirty-labels"])
def test_numbers_have_no_labels_to_poison(text: str) -> None:
    world = quadratics()
    with pytest.raises(SartorError, match="needs labels"):
        prepare(st.FedAvg(), world.model(), world.clients, attack=attack(text), attackers=0.5)


# --- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("text", NAMES)
def test_benign_clients_are_untouched(text: str, name: str) -> None:
    """In the first round all are sent the same with and without attackers, so every benign bit must be the same."""
    clean, under = ready(name, "none", 0.0), ready(name, text)
    hostile = under.run.hostile
    assert hostile.sum() == 3
    before, after = messages(clean)[0], messages(under)[0]
    assert before.keys() == after.keys()
    different = False
    for k in before:
        assert torch.equal(before[k][~hostile], after[k][~hostile])
        different |= not torch.equal(before[k][hostile], after[k][hostile])
    assert different or name == "local" or (text == "alie" and name != "local")  # z = 0 for so few: see below
    for result in (clean, under):
        result.run.step()
    for k, v in clean.run.engine.save().items():
        assert torch.equal(v[~hostile], under.run.engine.save()[k][~hostile]), k
    for part in ("train", "validation", "test"):
        for i in np.flatnonzero(~hostile):
            rows = clean.data.rows(int(i), part)
            assert torch.equal(clean.data.y[rows], under.data.y[rows])
            assert torch.equal(clean.data.x[rows], under.data.x[rows])


ROUNDS = range(150)


def drawn(text: str, name: str = "fedavg") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[rounds, hostile, k]: hostile messages, the honest ones in their place, and [k] what all were sent."""
    clients = fixed()
    under, clean = ready(name, text, 0.5, clients), ready(name, "none", 0.0, clients)
    key = "u" if name.startswith("flame") else "w"
    hostile = under.run.hostile
    bad = np.stack([m[key][hostile].numpy() for m in messages(under, ROUNDS)])
    honest = np.stack([m[key][hostile].numpy() for m in messages(clean, ROUNDS)])
    return bad, honest, under.run.server["w"].numpy()


def moments(values: np.ndarray, std: float) -> None:
    """Independent N(0, std²): mean, variance, fourth moment and no correlation of neighbours, at four sigma."""
    z = values.ravel() / std
    n = len(z)
    assert abs(z.mean()) < 4 / np.sqrt(n)
    assert abs((z**2).mean() - 1) < 4 * np.sqrt(2 / n)
    assert abs((z**4).mean() - 3) < 4 * np.sqrt(96 / n)
    assert abs((z[1:] * z[:-1]).mean()) < 4 / np.sqrt(n)


STDS = [
    ("same-value", {"": np.sqrt(0.1), "like=lp-proj": 100.0, "std=3": 3.0}),
    ("sign-flip", {"": np.sqrt(0.1), "like=lp-proj": 10.0, "std=3": 3.0}),
    ("gaussian", {"": np.sqrt(0.1), "like=lp-proj": 100.0, "std=3": 3.0}),
]


@pytest.mark.parametrize(
    ("name", "setting", "std"), [(n, s, v) for n, table in STDS for s, v in table.items()], ids=lambda v: str(v)
)
def test_messages_of_the_three_byzantine_attacks(name: str, setting: str, std: float) -> None:
    bad, honest, _ = drawn(f"{name}({setting})")
    if name == "same-value":
        assert (bad == bad[:, :, :1]).all()
        moments(bad[:, :, 0], std)
    if name == "sign-flip":
        scale = bad / honest
        np.testing.assert_allclose(scale, np.broadcast_to(scale[:, :, :1], scale.shape), rtol=1e-9)
        p = scale[:, :, 0]
        assert (p < 0).all()
        n = p.size
        assert abs((p / std).mean() + np.sqrt(2 / np.pi)) < 4 * np.sqrt((1 - 2 / np.pi) / n)  # of −|N(0, 1)|
        assert abs(((p / std) ** 2).mean() - 1) < 4 * np.sqrt(2 / n)
    if name == "gaussian":
        moments(bad, std)


@pytest.mark.parametrize("name", ["flame", "lp-proj-1", "fedavg"])
def test_attacks_act_on_the_message_as_sent(name: str) -> None:
    """FLAME's u, Lp-Proj's point of the subspace, FedAvg's model."""
    bad, honest, _ = drawn("sign-flip", name)
    assert bad.shape[-1] == (4 if name == "lp-proj-1" else 64)
    scale = bad / honest
    assert np.allclose(scale, scale[:, :, :1]) and (scale < 0).all()


def test_random_updates_have_the_spread_of_the_own_update() -> None:
    bad, honest, w = drawn("random-update")
    spread = (honest - w).std(axis=2, keepdims=True)
    moments((bad - w) / spread, 1.0)


def test_model_replacement_scales_the_poisoned_update() -> None:
    clients = fixed()
    under = ready("fedavg", "model-replacement", 0.5, clients, cohort=6)
    poisoned = ready("fedavg", "label-poison", 0.5, clients)
    honest = ready("fedavg", "model-replacement(scale=3, poison=false)", 0.5, clients)
    clean = ready("fedavg", "none", 0.0, clients)
    w, h = clean.run.server["w"], under.run.hostile
    one, two, three, four = (messages(r)[0]["w"][h] - w for r in (under, poisoned, honest, clean))
    torch.testing.assert_close(one, 6 * two)  # as many as are asked
    torch.testing.assert_close(three, 3 * four)
    assert not torch.allclose(two, four)


def test_scaled_poison_is_label_poison_times_a_normal_number() -> None:
    clients = fixed()
    bad, _, _ = drawn("scaled-poison")
    poisoned = ready("fedavg", "label-poison", 0.5, clients)
    base = np.stack([m["w"][poisoned.run.hostile].numpy() for m in messages(poisoned, ROUNDS)])
    scale = bad / base
    assert np.allclose(scale, scale[:, :, :1])
    moments(scale[:, :, 0], 20.0)


def test_alie_is_just_inside_the_crowd() -> None:
    clients = fixed(m=50, n=6)
    under, clean = ready("fedavg", "alie", 0.24, clients), ready("fedavg", "none", 0.0, clients)
    h = under.run.hostile
    bad, good = messages(under)[0]["w"].numpy(), messages(clean)[0]["w"].numpy()
    z = NormalDist().inv_cdf((50 - 12 - 14) / (50 - 12))  # s = ⌊50/2 + 1⌋ − 12 = 14 benign make a majority
    oracle = good[~h].mean(0) - z * good[~h].std(0)
    np.testing.assert_allclose(bad[h], np.broadcast_to(oracle, bad[h].shape), rtol=1e-9, atol=1e-12)
    assert ALIE().z_of(50, 24) == NormalDist().inv_cdf((26 - 2) / 26)
    assert 0 < ALIE().z_of(50, 40) < 2 and ALIE().z_of(4, 1) == 0 and ALIE(z=1.5).z_of(4, 1) == 1.5


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 10.0])
def test_ipm_turns_the_mean_round_where_it_says(epsilon: float) -> None:
    clients = fixed()
    under, clean = ready("fedavg", f"ipm(epsilon={epsilon})", 0.25, clients), ready("fedavg", "none", 0.0, clients)
    h, w = under.run.hostile, clean.run.server["w"].numpy()
    bad, good = messages(under)[0]["w"].numpy() - w, messages(clean)[0]["w"].numpy() - w
    benign = good[~h].mean(0)
    np.testing.assert_allclose(bad[h], np.broadcast_to(-epsilon * benign, bad[h].shape), rtol=1e-9, atol=1e-12)
    assert (bad.mean(0) @ benign < 0) == (epsilon > (12 - 3) / 3)


def test_who_sees_all_but_has_nobody_to_look_at_stays_honest() -> None:
    x = torch.randn(3, 2)
    run = ready("fedavg", "ipm", 0.4).run
    ids = torch.from_numpy(np.flatnonzero(run.hostile))
    w = torch.randn(3, len(run.server["w"]), dtype=torch.float64)
    after = run.method.server(run.server, ids, {"w": w}, 0)["w"]
    weights = run.server["share"][ids]
    torch.testing.assert_close(after, (weights / weights.sum()) @ w)
    assert IPM().together(x, 0 * x, torch.tensor([True, False, False])).shape == (1, 2)


@pytest.mark.parametrize(
    "solver", [SOLVER, st.SGD(lr=0.1, momentum=0.5), st.Inexact(max_steps=3)], ids=["sgd", "m", "i"]
)
def test_gradient_flip_climbs(solver: st.SGD) -> None:
    """The first step of plain SGD is turned round exactly; on any solver the hostile clients' loss rises."""
    clients = fixed(n=7)
    method = st.FedAvg(solver=solver)
    options = {"seed": 3, "dtype": torch.float64, "attackers": 0.5}
    made = [prepare(method, layers(5, 4), clients, attack=a, **options) for a in (attack("gradient-flip"), None)]  # type: ignore[arg-type]
    w, h = made[0].run.server["w"], made[0].run.hostile
    bad, good = (messages(r)[0]["w"][h] - w for r in made)
    if solver == SOLVER:  # one batch of 7 holds all
        torch.testing.assert_close(bad, -good)
    assert ((bad * good).sum(1) < 0).all()


# --- the run ----------------------------------------------------------------------------------------------------------


def play(result: Result, rounds: int = 3) -> Result:
    for _ in range(rounds):
        result.run.step()
    result.run.evaluate(diagnose=True)
    return result


def equal(a: Result, b: Result, tolerance: float = 0.0) -> None:
    assert a.run.method.hostile == b.run.method.hostile
    for x, y in ((a.run.engine.save(), b.run.engine.save()), (a.run.scores, b.run.scores)):
        for k in x:
            one, two = torch.as_tensor(x[k]), torch.as_tensor(y[k])
            torch.testing.assert_close(one, two, atol=tolerance, rtol=tolerance, equal_nan=True)
    w = [r.run.method.shared(r.run.server) for r in (a, b)]
    if w[0] is not None:
        torch.testing.assert_close(w[0], w[1], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("text", ["gaussian", "alie(z=1)", "scaled-poison(std=0.5)", "gradient-flip"])
@pytest.mark.filterwarnings("ignore:3 workers")
def test_engine_chunks_and_workers_change_nothing(text: str, name: str) -> None:
    options = {"cohort": 5, "failures": st.Failures(drop=0.2, stragglers=0.3)}
    one = play(ready(name, text, **options))
    for more in ({"engine": "serial"}, {"chunk": 1}, {"chunk": 3, "workers": 3}):
        equal(one, play(ready(name, text, **options, **more)), 1e-8)
    equal(one, play(ready(name, text, **options)))


@pytest.mark.parametrize("name", ["flame", "pfedme", "fedamp", "fedavg"])
@pytest.mark.parametrize("store", [False, True], ids=["memory", "disk"])
def test_a_resumed_run_equals_an_unbroken_one(name: str, store: bool, tmp_path: Path) -> None:
    def make(folder: str) -> Result:
        place = tmp_path / folder if store else None
        failures = st.Failures(drop=0.2, stragglers=0.5)
        return ready(name, "gaussian", cohort=4, failures=failures, store=place)

    whole = make("a")
    for _ in range(5):
        whole.run.step()
    broken = make("b")
    for _ in range(3):
        broken.run.step()
    assert broken.run.late is not None  # so that the test tests something
    broken.run.save(tmp_path / "state", "same")
    broken.run.step()
    again = make("b")
    again.run.restore(tmp_path / "state", "same")
    again.run.step()
    again.run.step()
    assert again.run.counts == whole.run.counts
    for result in (whole, again):
        result.run.evaluate(diagnose=False)
    for k, v in whole.run.scores.items():
        np.testing.assert_array_equal(v, again.run.scores[k])


def test_scores_are_of_benign_clients_only() -> None:
    result = st.fit(
        st.FLAME(solver=SOLVER), layers(5, 4), fixed(), 2, attack=attack("same-value"), attackers=0.5, evaluate_every=1
    )
    rows, summary = result.clients, result.summary
    assert sum(r["hostile"] for r in rows) == summary["hostile"] == 6
    benign = [r["personal_test_accuracy"] for r in rows if not r["hostile"]]
    assert summary["personal"]["accuracy_mean"] == pytest.approx(np.mean(benign))
    assert summary["personal"]["clients_scored"] == 6
    assert all(r["personal_test_accuracy"] is None for r in rows if r["hostile"])
    assert summary["attack"] == "same-value" and summary["attackers"] == 0.5
    assert "(hostile)" in result.table()


def test_attackers_without_an_attack_are_only_left_out() -> None:
    """So that a clean run can be compared on the very clients that are benign under attack."""
    runs = [
        st.fit(st.FedAvg(solver=SOLVER), layers(5, 4), fixed(), 2, attackers=share, attack=None) for share in (0.0, 0.5)
    ]
    assert torch.equal(*(r.run.server["w"] for r in runs))
    left = ~runs[1].run.hostile
    np.testing.assert_array_equal(
        runs[0].scores["global/test/accuracy"][left], runs[1].scores["global/test/accuracy"][left]
    )
    assert np.isnan(runs[1].scores["global/test/accuracy"][~left]).all()
    assert runs[1].summary["attack"] == "none"


class Poison(Attack):
    """Sends NaN, Inf, or numbers whose square is none."""

    def message(self, honest: torch.Tensor, base: torch.Tensor, draw: np.random.Generator, cohort: int) -> torch.Tensor:
        bad = honest.clone()
        bad[0] = draw.choice([np.nan, np.inf, -np.inf, 1e300])
        return bad


@pytest.mark.parametrize("name", METHODS)
def test_a_message_that_is_no_number_is_left_out_and_counted(name: str) -> None:
    """The server's state is as if the hostile had not answered at all, and the run goes on."""
    result = prepare(
        METHODS[name], layers(5, 6, 3), ragged(), seed=3, dtype=torch.float64, attack=Poison(), attackers=0.4
    )
    run = result.run
    benign = torch.from_numpy(np.flatnonzero(~run.hostile))
    alone = ready(name, "none", 0.0).run
    for r in range(3):
        run.step()
        down = alone.method.downlink(alone.server, torch.arange(7), r)
        _, sent = alone.engine.map("train", r, torch.arange(7), down)
        alone.server = alone.method.server(alone.server, benign, {k: v[benign] for k, v in sent.items()}, r)
    assert run.counts["excluded"] == (0 if name == "local" else 9)
    run.evaluate(diagnose=True)
    assert run.history[-1]["excluded"] == run.counts["excluded"]
    shared = run.method.shared(run.server)
    if shared is not None:
        assert torch.isfinite(shared).all() and torch.equal(shared, alone.server["w"])


def test_a_hostile_client_that_overflows_stops_nobody_and_an_honest_one_does() -> None:
    world = quadratics(m=6)
    method = st.FedAvg(solver=st.SGD(lr=1e200, steps=4))
    run = prepare(
        method, world.model(), world.clients, dtype=torch.float64, attack=attack("gradient-flip"), attackers=0.5
    ).run
    with pytest.raises(st.Diverged):
        run.step()
    run.method.hostile = frozenset(range(6))
    run.step()
    assert run.counts["excluded"] == 6 and run.counts["skipped"] == 1


def test_hostile_streams_do_not_meet_those_of_others() -> None:
    """A draw for an attack is another than the batches' or the cohort's of the same round and client."""
    draws = [stream(3, p, 1, 2).random() for p in ("attack w", "attack u", "batches 0", "cohort", "hostile", "labels")]
    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize("text", [*NAMES, "sign-flip(std=3, like=lp-proj)", "dirty-labels(0.4)", "alie(z=1.5)"])
def test_text_gives_the_attack_back(text: str) -> None:
    made = attack(text)
    assert made is not None and attack(spelling.write(NAMES, made)) == made
    assert attack("none") is None
