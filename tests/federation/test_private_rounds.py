"""Client-level privacy in a federation: noise of the sites' own, an account that no kill and no recipe gets around."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from killed import Mortal
from opacus.accountants import RDPAccountant
from scipy import stats
from sites import EXACT, NAMES, QUICK, SMALL, Calls, Federation, is_message, last, simulated
from subsets import first

from sartor.errors import SartorError, Silent
from sartor.federation.limits import SiteLimits
from sartor.federation.os_noise import standard_normal
from sartor.federation.privacy_ledger import LEDGER, PrivacyLedger
from sartor.federation.rounds import decode, encode
from sartor.federation.site_config import SiteConfig
from sartor.run.privacy_account import ORDERS
from sartor.run.recipe import Recipe
from sartor.seeds import stream
from sartor.storage import read_json

PRIVATE: dict[str, Any] = {"dp_noise": 2.0, "dp_clip": 0.5, "dp_where": "client"}


def drawn(size: int, round: int, client: int, step: int) -> np.ndarray:
    """What the simulation draws with the tests' seed."""
    return stream(int(SMALL["seed"]), "privacy of a client", round, client).standard_normal(size)


def opacus(*events: tuple[float, int], delta: float = 1e-5) -> float:
    """ε of so many Gaussian mechanisms with such noise."""
    account = RDPAccountant()
    account.history = [(noise, 1.0, count) for noise, count in events]
    with mock.patch("warnings.warn"):  # of orders at the end of the range
        return float(account.get_epsilon(delta, alphas=ORDERS))


def messages(calls: Calls, site: str) -> dict[int, set[bytes]]:
    """By round: all different messages that a site has sent."""
    found: dict[int, set[bytes]] = {}
    for way, name, data in calls.seen:
        if way == "up" and name == site and (reply := decode(data)).note.get("stage") == "train":
            vectors = [v.tobytes() for k, v in sorted(reply.arrays.items()) if k != "steps"]
            found.setdefault(reply.round, set()).add(b"".join(vectors))
    return found


# --- the mechanism ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    first(
        [
            {"method": m, **c}
            for m in ("flame", "ditto", "fedamp")
            for c in ({}, {"compress": "qsgd(s=16)"}, {"cohort": 2})
        ],
        {"method": "flame"},
        {"method": "ditto", "compress": "qsgd(s=16)"},
    ),
    ids=str,
)
def test_with_the_same_noise_sites_give_the_numbers_of_the_simulation(
    case: dict[str, Any], tmp_path: Path, paths: dict[str, Path]
) -> None:
    recipe = Recipe(**SMALL, **PRIVATE, **case)
    found = Federation(tmp_path, recipe, paths, noise=drawn).play().summary
    there = simulated(recipe.replace(engine="serial"), paths, tmp_path / "local").summary
    names = {"data", "seconds"}
    assert {k: v for k, v in found.items() if k not in names} == {k: v for k, v in there.items() if k not in names}
    assert found["privacy"]["where"] == "client" and found["privacy"]["epsilon"] > 1


def test_noise_is_standard_normal_and_never_the_same() -> None:
    found = standard_normal(200_001, round=0, client=0)
    assert found.shape == (200_001,) and stats.kstest(found, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 5 / np.sqrt(len(found))
    half = len(found) // 2  # both halves come from the same bits
    assert abs(np.corrcoef(found[:half], found[half : 2 * half])[0, 1]) < 5 / np.sqrt(half)
    assert not np.isin(standard_normal(1000), found).any()


def test_a_site_clips_and_adds_noise_that_no_seed_tells(tmp_path: Path, paths: dict[str, Path]) -> None:
    """Two federations alike differ in every message, by noise of the size that was agreed on."""
    recipe = Recipe(method="fedavg", **QUICK | {"model": "mlp(50)"}, dp_noise=3.0, dp_clip=1e-3, dp_where="client")
    sent = []
    for name in ("one", "two"):
        fed = Federation(tmp_path / name, recipe, paths)
        calls = fed.calls()
        fed.play(calls)
        replies = [decode(d) for way, s, d in calls.seen if way == "up" and s == "a"]
        sent.append(next(r.arrays["message/w"][0] for r in replies if r.note.get("stage") == "train" and r.round == 0))
    difference = (sent[0] - sent[1]).astype(np.float64)
    wanted = np.sqrt(2) * 3e-3
    assert abs(difference.std() / wanted - 1) < 5 / np.sqrt(2 * len(difference)) and len(difference) > 400


def test_noise_at_a_server_is_refused(tmp_path: Path, paths: dict[str, Path]) -> None:
    recipe = Recipe(method="fedavg", **QUICK, dp_noise=1.0)
    with pytest.raises(SartorError, match="noise at the server needs a server that is trusted with every message"):
        Federation(tmp_path, recipe, paths).play()


# --- the account ------------------------------------------------------------------------------------------------------


def test_the_epsilon_of_a_played_federation_is_that_of_opacus_for_the_same_messages(
    tmp_path: Path, paths: dict[str, Path]
) -> None:
    """Two of three clients in a round: each pays for the rounds in which it was asked, run after run."""
    fed = Federation(tmp_path, Recipe(method="flame", **QUICK | {"rounds": 5}, **PRIVATE, cohort=2), paths)
    calls = fed.calls()
    fed.play(calls)
    for name in NAMES:
        first_run = len(messages(calls, name))
        member = fed.member(name)
        (line,) = read_json(tmp_path / name / LEDGER)["0"].values()
        wanted = {"noise": 2.0, "messages": first_run, "last": max(messages(calls, name)), "rate": 1.0, "gradients": 1}
        assert line == wanted
        ledger = PrivacyLedger(tmp_path / name, "another", [1.5], ["0"], member.own.limits)
        assert ledger.epsilon("0") == (0.0, opacus((2.0, first_run)))
        assert ledger.epsilon("0", 3) == (opacus((1.5, 3)), opacus((1.5, 3), (2.0, first_run)))
    assert sum(len(messages(calls, n)) for n in NAMES) == 10
    assert any("the run is over; it has spent epsilon" in s for s in fed.said)


def limited(tmp_path: Path, paths: dict[str, Path], rounds: int = 6, **limits: Any) -> Federation:
    recipe = Recipe(method="flame", **QUICK | {"rounds": rounds, "evaluate_every": rounds}, **PRIVATE, patience=2)
    return Federation(tmp_path, recipe, paths, share="none", limits=replace(EXACT, **limits))


def test_a_site_whose_epsilon_is_reached_stops_and_says_so(tmp_path: Path, paths: dict[str, Path]) -> None:
    """Site b allows what three messages cost: it sends three and not one more, the others play on."""
    most = opacus((2.0, 3))
    fed = limited(tmp_path, paths)
    own = fed.calls()
    strict = limited(tmp_path, paths, most_epsilon=most)
    strict.said = fed.said
    own.members["b"] = strict.member("b").answer
    result = last(fed.lead(own))
    assert len(messages(own, "b")) == 3 and len(messages(own, "a")) == 6
    assert result.run.round == 6 and result.run.counts["trained"] == 15
    assert sum("site b refused (limit: most-epsilon)" in s for s in fed.said) == 3
    said = next(s for s in fed.said if s.startswith("b: refused (limit)"))
    assert f"epsilon would be {opacus((2.0, 4)):.3g} at delta 1e-05; {most:.3g} is spent" in said
    assert read_json(tmp_path / "b" / LEDGER)["0"][decode(own.seen[0][2]).run]["messages"] == 3


def test_all_runs_together_stay_within_the_total(tmp_path: Path, paths: dict[str, Path]) -> None:
    """The second run may make one message of what two runs of four would cost, and the third none: it is not joined."""
    fed = limited(tmp_path, paths, 4, most_epsilon_total=opacus((2.0, 5)), most_rounds=99)
    made = []
    for run in range(3):
        calls = Calls({n: replace_start(fed, n, str(run)).answer for n in NAMES})
        lead = fed.lead(calls)
        lead.folder = tmp_path / f"server {run}"
        try:
            last(lead)
        except (SartorError, Silent) as e:
            fed.said.append(str(e))
        made.append(len(messages(calls, "a")))
    assert made == [4, 1, 0]
    assert any("only 0 of at least 1 sites can take part" in s and "most_epsilon_total" in s for s in fed.said)


def replace_start(fed: Federation, name: str, start: str) -> Any:
    """The site, started once more by its owner."""
    member = fed.member(name)
    member.own = replace(member.own, start=start)
    return member


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({"dp_noise": None, "dp_clip": None, "dp_where": None}, {"most_epsilon": 8.0}),
        ({"dp_noise": 0.0}, {"most_epsilon_total": 8.0}),
        ({"dp_noise": 0.5}, {"most_epsilon": 1.0}),
        ({"dp_noise": None, "dp_epsilon": 50.0, "rounds": 1, "evaluate_every": 1}, {"most_epsilon": 1.0}),
    ],
    ids=["no noise", "noise of 0", "a round costs more", "an epsilon far above"],
)
def test_no_recipe_passes_a_sites_epsilon(
    change: dict[str, Any], limit: dict[str, float], tmp_path: Path, paths: dict[str, Path]
) -> None:
    """Nothing is computed."""
    fed = limited(tmp_path, paths, **limit)
    fed.recipe = fed.recipe.replace(**change)
    calls = fed.calls()
    with pytest.raises(SartorError, match=f"only 0 of at least 1 sites can take part.*limit {next(iter(limit))}"):
        fed.play(calls)
    assert not any(messages(calls, name) for name in NAMES) and not list(tmp_path.rglob(LEDGER))


def test_a_site_that_limits_epsilon_sends_no_scores() -> None:
    with pytest.raises(SartorError, match="sends no scores, as they have no noise"):
        SiteConfig("a.csv", limits=SiteLimits(most_epsilon=3.0))
    for bad in (
        {"most_epsilon": 0.0},
        {"most_epsilon_total": -1},
        {"most_epsilon": float("nan")},
        {"epsilon_delta": 1.0},
    ):
        with pytest.raises(SartorError, match="a site's"):
            SiteLimits(**bad)  # type: ignore[arg-type]


# --- kills ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_anywhere_a_message_has_one_noise_and_is_paid_once(
    when: str, tmp_path: Path, paths: dict[str, Path]
) -> None:
    """Site b is a new process for each request, and dies at one of its writes: whatever it sent in a round is one
    message, and the ledger has one entry for each round."""
    deaths = 0
    for at in range(6):
        fed = limited(tmp_path / str(at), paths, 3, most_epsilon=opacus((2.0, 3)))
        calls, site = fed.calls(), Mortal(lambda data, fed=fed: fed.member("b").answer(data), at, when)  # type: ignore[misc]
        calls.members["b"] = site
        result = last(fed.patient(calls, 30))
        deaths += site.deaths
        found = messages(calls, "b")
        assert {len(v) for v in found.values()} == {1} and len(found) == 3 and result.run.counts["trained"] == 9
        (line,) = read_json(fed.folder / "b" / LEDGER)["0"].values()
        assert line["messages"] == 3
    assert deaths == 6


def test_a_doubled_request_is_answered_with_the_same_noise(tmp_path: Path, paths: dict[str, Path]) -> None:
    fed = limited(tmp_path, paths, 3)
    calls = fed.calls()
    calls.before = lambda site, data: [data, data]
    fed.play(calls)
    assert {len(v) for name in NAMES for v in messages(calls, name).values()} == {1}


def test_some_clients_first_and_then_all_draws_no_second_noise(tmp_path: Path, paths: dict[str, Path]) -> None:
    """A server asks for one client of a site, and then for all three in the same round."""
    recipe = Recipe(method="flame", **QUICK, **PRIVATE)
    fed = Federation(tmp_path, recipe, {"a": paths["all"]}, key="hospital")
    calls, sent = fed.calls(["a"]), {}

    def before(site: str, data: bytes) -> list[bytes]:
        if not is_message(data, "train", None, 0):
            return [data]
        asked = decode(data)
        one = encode(replace(asked, clients=asked.clients[1:2], since=asked.since[1:2]))
        sent["one"] = decode(calls.members["a"](one) or b"").arrays["message/u"][0]
        return [data]

    def after(site: str, data: bytes) -> list[bytes]:
        if is_message(data, "answer", "train", 0):
            sent["all"] = decode(data).arrays["message/u"]
        return [data]

    calls.before, calls.after = before, after
    fed.play(calls)
    assert np.array_equal(sent["all"][1], sent["one"]) and not np.array_equal(sent["all"][0], sent["all"][1])
    assert {line["messages"] for runs in read_json(tmp_path / "a" / LEDGER).values() for line in runs.values()} == {3}


def test_a_ledger_that_cannot_be_written_lets_nothing_leave(tmp_path: Path, paths: dict[str, Path]) -> None:
    fed = limited(tmp_path, paths, 3)
    calls, replace_ = fed.calls(), os.replace

    def full(a: Any, b: Any) -> None:
        if str(b).endswith(f"b/{LEDGER}"):
            raise OSError(28, "No space left on device")
        replace_(a, b)

    with mock.patch.object(os, "replace", full):
        result = fed.play(calls)
    assert not messages(calls, "b") and result.run.counts["trained"] == 6
    assert any("site b refused (disk)" in s for s in fed.said)


# --- samples ----------------------------------------------------------------------------------------------------------

SAMPLES: dict[str, Any] = {"dp_noise": 1.5, "dp_clip": 0.5, "dp_unit": "sample", "local_steps": 4}


def drawn_for_samples(size: int, round: int, client: int, step: int) -> np.ndarray:
    """What the simulation draws with the tests' seed."""
    return stream(int(SMALL["seed"]), f"privacy of samples {step}", round, client).standard_normal(size)


@pytest.mark.parametrize("method", ["fedavg", "ditto", "flame", "mr-mtl"])
def test_with_the_same_draws_private_samples_give_the_numbers_of_the_simulation(
    method: str, tmp_path: Path, paths: dict[str, Path]
) -> None:
    recipe = Recipe(**SMALL, **SAMPLES, method=method)
    found = Federation(tmp_path, recipe, paths, noise=drawn_for_samples).play().summary
    there = simulated(recipe.replace(engine="serial"), paths, tmp_path / "local").summary
    names = {"data", "seconds"}
    assert {k: v for k, v in found.items() if k not in names} == {k: v for k, v in there.items() if k not in names}
    assert found["privacy"]["unit"] == "sample" and len(found["privacy"]["epsilon_of_each"]) == 3


def test_a_site_accounts_for_its_samples_as_opacus_does_and_stops_where_its_epsilon_is_reached(
    tmp_path: Path, paths: dict[str, Path]
) -> None:
    """Four gradients behind each message, each of a share of the site's rows."""
    recipe = Recipe(**QUICK | {"rounds": 6, "evaluate_every": 6}, **SAMPLES, method="fedavg")
    rows = {
        name: int(fed.own.read().split("natural", None, 3).counts("train")[0])
        for name, fed in members(tmp_path, paths, recipe)
    }

    def after(name: str, messages_sent: int) -> float:
        account = RDPAccountant()
        account.history = [(1.5, min(1.0, 20 / rows[name]), 4 * messages_sent)]
        with mock.patch("warnings.warn"), np.errstate(all="ignore"):
            return float(account.get_epsilon(1e-5, alphas=ORDERS))

    limits = replace(EXACT, most_epsilon=after("b", 3))
    fed = Federation(tmp_path / "fed", recipe, paths, share="none", limits=limits)
    calls = fed.calls()
    fed.play(calls)
    assert len(messages(calls, "b")) == 3
    for name in NAMES:
        sent = len(messages(calls, name))
        assert after(name, sent) <= limits.most_epsilon < after(name, sent + 1)  # type: ignore[operator]
        (line,) = read_json(fed.folder / name / LEDGER)["0"].values()
        assert (line["messages"], line["gradients"]) == (sent, 4) and line["rate"] == 20 / rows[name]


def members(folder: Path, paths: dict[str, Path], recipe: Recipe) -> list[tuple[str, Any]]:
    fed = Federation(folder / "asked", recipe, paths)
    return [(name, fed.member(name)) for name in NAMES]
