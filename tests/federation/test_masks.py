"""Secure aggregation in a federation: what the server sees, who is refused, and that nothing is lost on the way."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from identities import certificate, identities
from killed import Killed, killed_at
from sites import NAMES, QUICK, SMALL, Calls, Federation, is_message, last, simulated, tables, vectors
from subsets import first

from sartor.errors import SartorError
from sartor.federation.masks import Identity, ServerMasks, SignedKey, SiteMasks, add_stream
from sartor.federation.rounds import Message, decode, encode
from sartor.federation.rounds.masking import KEY, SECURE, SEED, SumOf
from sartor.run.recipe import Recipe
from sartor.seeds import stream as seeded

FOUR = ("a", "b", "c", "d")
RUN = "0" * 32


def group(tmp_path: Path, names: tuple[str, ...] = NAMES) -> tuple[ServerMasks, dict[str, SiteMasks]]:
    """The two halves, without a federation."""
    known = identities(names)
    sites = {name: SiteMasks(tmp_path / name, RUN, known[name], 3) for name in names}
    server = ServerMasks(RUN, 3, known[names[0]].authority)
    for name, site in sites.items():
        server.take(name, list(site.signed_key()))
    return server, sites


def asked(fed: Federation, calls: Calls, site: str, kind: str, round: int) -> Message:
    return next(
        m
        for way, s, d in calls.seen
        if way == "down" and s == site and (m := decode(d)).kind == kind and m.round == round
    )


# --- what the server sees ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [NAMES, ("a", "b", "c", "d", "e")])
def test_the_sum_is_exact(names: tuple[str, ...], tmp_path: Path) -> None:
    """Of numbers as large as they may be, of two arrays, of sites with several clients."""
    server, sites = group(tmp_path, names)
    draw = np.random.default_rng(0)
    most = 2**62 // len(names) // 3
    sent = {n: {"w": draw.integers(-most, most, (3, 50)), "c": draw.integers(-9, 9, (3, 7))} for n in names}
    told = server.told(list(names))
    masked = {n: sites[n].masked(SumOf(4), told, rows) for n, rows in sent.items()}
    opened = {n: server.opened(masked[n], sites[n].opened(SumOf(4), told)) for n in names}
    for key in ("w", "c"):
        assert np.array_equal(sum(opened[n][key].sum(0) for n in names), sum(sent[n][key].sum(0) for n in names))
        assert not any(np.array_equal(opened[n][key].sum(0), sent[n][key].sum(0)) for n in names)


@pytest.mark.parametrize("word", [np.int16, np.int32])
def test_short_words_are_masked_and_summed_modulo_their_own_size(word: Any, tmp_path: Path) -> None:
    """Those of a common grid: every bit of what is sent is a coin, and the sum is exact."""
    server, sites = group(tmp_path)
    draw, told, n = np.random.default_rng(0), server.told(list(NAMES)), 100_000
    sent = {name: {"w": draw.integers(-3000, 3000, (2, n)).astype(word)} for name in NAMES}
    masked = {name: sites[name].masked(SumOf(2), told, rows) for name, rows in sent.items()}
    opened = [server.opened(masked[name], sites[name].opened(SumOf(2), told))["w"] for name in NAMES]
    total = np.concatenate(opened).sum(0, dtype=word)
    assert np.array_equal(total, np.concatenate([rows["w"] for rows in sent.values()]).sum(0, dtype=word))
    for rows in masked.values():
        assert rows["w"].dtype == word and not rows["w"][1:].any()
        bits = np.unpackbits(rows["w"][0].view(np.uint8)).reshape(n, -1)
        assert abs(bits.mean(0) - 0.5).max() < 5.5 * 0.5 / np.sqrt(n)


def looks_uniform(words: np.ndarray, other: np.ndarray) -> None:
    """Each of the 64 bits is 0 as often as 1, bytes are equally frequent, and nothing goes together with `other`."""
    count = len(words)
    bits = np.unpackbits(words.view(np.uint8)).reshape(count, 64)
    assert abs(bits.mean(0) - 0.5).max() < 5.5 * 0.5 / np.sqrt(count)
    between = np.corrcoef(bits[:, :32].T)[np.triu_indices(32, 1)]
    assert abs(between).max() < 5.5 / np.sqrt(count)
    freq = np.bincount(words.view(np.uint8), minlength=256)
    chi2 = ((freq - 8 * count / 256) ** 2 / (8 * count / 256)).sum()
    assert abs(chi2 - 255) < 6 * np.sqrt(2 * 255)
    assert abs(np.corrcoef(words.astype(np.float64), other.astype(np.float64))[0, 1]) < 5.5 / np.sqrt(count)
    assert abs(np.corrcoef(words[:-1].astype(np.float64), words[1:].astype(np.float64))[0, 1]) < 5.5 / np.sqrt(count)


@pytest.mark.parametrize("message", ["zeros", "constant", "a model"])
def test_a_single_masked_message_cannot_be_told_from_noise(message: str, tmp_path: Path) -> None:
    """As it was sent; and after the server has taken off all that it can."""
    n = 100_000
    values = {
        "zeros": np.zeros(n),
        "constant": np.full(n, 1e6),
        "a model": np.random.default_rng(1).normal(size=n) * 2**32,
    }
    q = values[message].astype(np.int64)
    server, sites = group(tmp_path)
    told = server.told(list(NAMES))
    masked = {name: site.masked(SumOf(0), told, {"w": q[None]}) for name, site in sites.items()}
    ramp = np.arange(n) if message == "zeros" or message == "constant" else q
    for name, rows in masked.items():
        looks_uniform(rows["w"][0].view(np.uint64), ramp)
        looks_uniform(server.opened(rows, sites[name].opened(SumOf(0), told))["w"][0].view(np.uint64), ramp)
    again = sites["a"].masked(SumOf(1), told, {"w": q[None]})  # the same message in another round
    looks_uniform((again["w"][0] - masked["a"]["w"][0]).view(np.uint64), ramp)
    two = (masked["a"]["w"][0] + masked["b"]["w"][0]).view(np.uint64)  # and what two of three add up to
    looks_uniform(two, ramp)


def test_what_crosses_is_masked_and_the_numbers_are_those_of_the_simulation(
    tmp_path: Path, paths: dict[str, Path]
) -> None:
    recipe = Recipe(**SMALL | {"rounds": 5}, method="flame", secure_aggregation=True)
    fed = Federation(tmp_path, recipe, paths, identities=identities(NAMES))
    calls = fed.calls()
    fed.play(calls)
    replies = [decode(d) for way, _, d in calls.seen if way == "up"]
    sent = [m.arrays["message/u"][0] for m in replies if m.note.get("stage") == "train"]
    assert len(sent) == 15 and all(v.dtype == np.int64 for v in sent)
    assert np.median(np.abs(np.concatenate(sent).astype(np.float64))) > 2.0**61  # a message itself is below 2^36


@pytest.mark.parametrize(
    "case",
    first(
        [
            {"method": "flame"},
            {"method": "flame", "cohort": 3, "secure_sites": 3},
            {"method": "ditto", "compress_down": "int8"},
            {"method": "scaffold"},
            {"method": "lp-proj-2", "settings": {"d_sub": 5}},
            {"method": "fedavg", "settings": {"weighting": "size"}},
            {"method": "fedavg", "dp_noise": 1.0},
            {"method": "flame", "dp_noise": 1.0, "dp_clip": 0.5, "dp_where": "client"},
            {"method": "l2sgd"},
            {"method": "flame", "compress": "sketch(k=0.3)"},
            {"method": "ditto", "compress": "projection(k=0.3)"},
            {"method": "flame", "compress": "grid"},
            {"method": "fedavg", "compress": "grid(step=0.001, bits=32)", "settings": {"weighting": "size"}},
            {"method": "mr-mtl", "dp_noise": 1.0, "dp_unit": "sample", "local_steps": 4},
        ],
        {"method": "flame"},
        {"method": "ditto", "compress_down": "int8"},
        {"method": "fedavg", "dp_noise": 1.0},
        {"method": "flame", "compress": "sketch(k=0.3)"},
        {"method": "flame", "compress": "grid"},
    ),
    ids=str,
)
def test_masks_change_no_bit(case: dict[str, Any], tmp_path: Path) -> None:
    """Four sites, with the noise of the simulation where there is any."""
    paths = tables(tmp_path / "tables", FOUR)
    recipe = Recipe(**SMALL | {"rounds": 4}, secure_aggregation=True, **case)
    purpose = "privacy of a client" if "dp_unit" not in case else "privacy of samples {}"
    noise = lambda size, t, i, step: seeded(3, purpose.format(step), t, i).standard_normal(size)  # noqa: E731
    fed = Federation(tmp_path, recipe, paths, identities=identities(FOUR), noise=noise)
    found = fed.play(fed.calls(FOUR)).summary
    there = simulated(recipe.replace(engine="serial"), paths, tmp_path / "local").summary
    hidden = {"data", "seconds", "warnings", "choice", "personal", "global", "chosen", "accuracy_per_megabyte"}
    assert {k: v for k, v in found.items() if k not in hidden} == {k: v for k, v in there.items() if k not in hidden}
    for model in [m for m in ("personal", "global") if there[m] is not None]:
        for score in ("accuracy_mean", "loss_mean"):
            assert found[model][score] == pytest.approx(there[model][score], rel=1e-13)
        assert found[model]["accuracy_std"] is None and there[model]["accuracy_std"] > 0
    theirs, ours = ((tmp_path / who / "models" / "global.safetensors") for who in ("server", "local"))
    assert theirs.exists() == ours.exists() and (not ours.exists() or theirs.read_bytes() == ours.read_bytes())


def test_many_clients_at_a_site_are_summed_there(tmp_path: Path) -> None:
    paths = tables(tmp_path / "tables", FOUR)
    recipe = Recipe(**QUICK, method="fedavg", secure_aggregation=True)
    fed = Federation(tmp_path, recipe, dict.fromkeys(NAMES, paths["all"]), key="hospital", identities=identities(NAMES))
    calls = fed.calls()
    result = fed.play(calls)
    plain = Federation(tmp_path / "plain", recipe.replace(secure_aggregation=False), fed.paths, key="hospital").play()
    torch.testing.assert_close(result.run.server["w"], plain.run.server["w"], atol=1e-6, rtol=1e-6)
    reply = next(m for way, s, d in calls.seen if way == "up" and (m := decode(d)).note.get("stage") == "train")
    assert reply.arrays["message/w"].shape[0] == 4 and not reply.arrays["message/w"][1:].any()


# --- keys -------------------------------------------------------------------------------------------------------------


def false_keys() -> dict[str, Callable[[SignedKey], SignedKey]]:
    """What a server could say is site c's key."""
    mine = X25519PrivateKey.generate().public_key().public_bytes_raw()
    known, strangers = identities(NAMES), identities(NAMES, "others")
    c = known["c"]
    old = Identity("c", certificate("c", c.key, "trial", c.key, -3), c.key, c.authority)
    return {
        "its own under the old signature": lambda key: key._replace(public=b64encode(mine).decode()),
        "signed by another authority's c": lambda key: strangers["c"].sign(RUN, mine),
        "signed by b": lambda key: replace(known["b"], site="c").sign(RUN, mine),
        "of another run": lambda key: c.sign("1" * 32, mine),
        "signed by itself and out of date": lambda key: old.sign(RUN, mine),
        "no certificate": lambda key: key._replace(certificate="AAAA"),
        "no signature": lambda key: key._replace(signature=""),
    }


@pytest.mark.parametrize("what", false_keys())
def test_a_server_that_swaps_keys_is_refused(what: str, tmp_path: Path) -> None:
    server, sites = group(tmp_path)
    told = server.told(list(NAMES))
    rows = {"w": np.zeros((1, 5), np.int64)}
    assert sites["a"].masked(SumOf(0), told, rows)
    swapped = told | {"c": list(false_keys()[what](SignedKey(*told["c"])))}
    with pytest.raises(SartorError, match="the key of site c is not signed by that site's certificate"):
        sites["a"].masked(SumOf(0), swapped, rows)
    with pytest.raises(SartorError, match="the key of site c is not signed"):
        sites["a"].opened(SumOf(0), swapped)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda told: {k: told[k] for k in ("a", "b")}, "fewer than 3 sites"),
        (lambda told: None, "fewer than 3 sites"),
        (lambda told: {"b": told["b"], "c": told["c"], "d": told["d"]}, "another key in this site's name"),
        (lambda told: told | {"c": told["c"][:2]}, "no signed key"),
        (lambda told: told | {"c": 7}, "no signed key"),
    ],
)
def test_a_set_of_sites_that_makes_no_sense_is_refused(change: Any, words: str, tmp_path: Path) -> None:
    server, sites = group(tmp_path, FOUR)
    with pytest.raises(SartorError, match=words):
        sites["a"].masked(SumOf(0), change(server.told(list(FOUR))), {"w": np.zeros((1, 5), np.int64)})


def test_one_key_for_two_sites_is_refused(tmp_path: Path) -> None:
    """Masks of a pair whose keys are one server's would not be secret."""
    server, sites = group(tmp_path)
    told = server.told(list(NAMES))
    public = sites["a"]._secret().public_key().public_bytes_raw()
    told["c"] = list(identities(NAMES)["c"].sign(RUN, public))
    with pytest.raises(SartorError, match="one key twice"):
        sites["a"].masked(SumOf(0), told, {"w": np.zeros((1, 5), np.int64)})


@pytest.mark.parametrize("kind", ["measure", "train", "evaluate"])
def test_a_site_refuses_a_federation_whose_server_swaps_keys(kind: str, tmp_path: Path, paths: dict[str, Path]) -> None:
    """No statistics, message or scores leave it, and its log says why."""
    recipe = Recipe(**QUICK, method="flame", secure_aggregation=True, patience=2)
    fed = Federation(tmp_path, recipe, paths, identities=identities(NAMES))
    calls = fed.calls()
    mine = X25519PrivateKey.generate().public_key().public_bytes_raw()

    def swapping(site: str, data: bytes) -> list[bytes]:
        request = decode(data)
        if site != "a" or SECURE not in request.note or request.kind != kind:
            return [data]
        keys = dict(request.note[SECURE])
        keys["b"] = [b64encode(mine).decode(), *keys["b"][1:]]
        return [encode(replace(request, note=request.note | {SECURE: keys}))]

    calls.before = swapping
    if kind == "evaluate":
        assert fed.play(calls).summary["personal"] is None  # nobody's scores are known
    else:
        words = {"measure": "2 sites answer, and a sum of statistics needs 3", "train": "nobody answered in 2 rounds"}
        with pytest.raises(SartorError, match=words[kind]):
            fed.play(calls)
    assert any(
        "a: refused (limit): the server sends a false key: the key of site b is not signed" in s for s in fed.said
    )
    what = "it refused (limit secure_keys)" if kind == "measure" else "site a refused (limit: secure-keys)"
    assert any(what in s for s in fed.said)
    left = [decode(d) for way, s, d in calls.seen if way == "up" and s == "a"]
    assert not any(m.note.get("stage") == kind or (kind == "measure" and m.arrays) for m in left)
    assert kind == "measure" or any("2 sites are left, and a sum needs 3; it is skipped" in s for s in fed.said)


def test_a_site_with_a_false_key_is_left_out_and_named(tmp_path: Path) -> None:
    paths = tables(tmp_path / "tables", FOUR)
    recipe = Recipe(**QUICK, method="flame", secure_aggregation=True)
    fed = Federation(tmp_path, recipe, paths, identities=identities(FOUR))
    calls = fed.calls(FOUR)

    def lying(site: str, data: bytes) -> list[bytes]:
        reply = decode(data)
        if site != "b" or KEY not in reply.note:
            return [data]
        return [encode(replace(reply, note=reply.note | {KEY: ["AAAA", "AAAA", "AAAA"]}))]

    calls.after = lying
    result = last(fed.lead(calls))
    assert result.run.round == 3 and result.run.counts["trained"] == 9
    assert any(
        "site b is left out: it sent what nobody can use: the key of site b is not signed" in s for s in fed.said
    )


@pytest.mark.parametrize("sites", [("a", "b"), ("a",)])
def test_two_sites_are_refused_in_one_line(sites: tuple[str, ...], tmp_path: Path, paths: dict[str, Path]) -> None:
    """Also where one of the two has many clients."""
    recipe = Recipe(**QUICK, method="flame", secure_aggregation=True)
    fed = Federation(tmp_path, recipe, dict.fromkeys(sites, paths["all"]), key="hospital", identities=identities(NAMES))
    calls = fed.calls(sites)
    with pytest.raises(SartorError, match=f"secure aggregation needs at least 3 sites.*; got {len(sites)}."):
        fed.play(calls)
    assert {decode(d).kind for way, _, d in calls.seen if way == "up"} <= {"joined", "measured"}


def test_without_certificates_it_is_refused(tmp_path: Path, paths: dict[str, Path]) -> None:
    recipe = Recipe(**QUICK, method="flame", secure_aggregation=True)
    with pytest.raises(SartorError, match="secure aggregation needs the certificates of kits"):
        Federation(tmp_path, recipe, paths).play()
    known = identities(NAMES)
    fed = Federation(tmp_path / "b", recipe, paths, identities={"a": known["a"], "c": known["c"]})
    with pytest.raises(SartorError, match="only 2 of at least 3 sites can take part"):
        fed.play()
    assert any("secure aggregation needs a kit's certificate, and site b has none" in s for s in fed.said)


# --- who does not answer ----------------------------------------------------------------------------------------------


@pytest.fixture
def four(tmp_path: Path) -> Federation:
    recipe = Recipe(**QUICK, method="flame", secure_aggregation=True)
    return Federation(tmp_path / "fed", recipe, tables(tmp_path / "tables", FOUR), identities=identities(FOUR))


def test_a_round_is_repeated_without_the_site_that_does_not_answer(four: Federation) -> None:
    """The run equals one without masks in which the site sat out that round."""
    calls = four.calls(FOUR)
    calls.after = lambda site, data: [] if site == "c" and is_message(data, "answer", "train", 1) else [data]
    result = last(four.lead(calls))
    assert any(s == "round 2: the sum lacks c; it is taken of a, b, d" for s in four.said)
    plain = Federation(four.folder.parent / "plain", four.recipe.replace(secure_aggregation=False), four.paths)
    silent = plain.calls(FOUR)
    silent.before = lambda site, data: [] if site == "c" and is_message(data, "train", None, 1) else [data]
    wanted = last(plain.lead(silent))
    torch.testing.assert_close(result.run.server["w"], wanted.run.server["w"], atol=1e-6, rtol=1e-6)
    assert result.run.counts["trained"] == wanted.run.counts["trained"] == 11
    requests = [
        m
        for way, s, d in calls.seen
        if way == "down" and s == "a" and (m := decode(d)).kind == "train" and m.round == 1
    ]
    assert {frozenset(m.note[SECURE]) for m in requests} == {frozenset(FOUR), frozenset("abd")}


def test_fewer_than_three_left_the_round_is_skipped(four: Federation) -> None:
    calls = four.calls(FOUR)
    calls.after = lambda site, data: [] if site in "cd" and is_message(data, "answer", "train", 1) else [data]
    result = last(four.lead(calls))
    assert result.run.counts["skipped"] == 1 and result.run.round == 3
    assert any("round 2: 2 sites are left, and a sum needs 3; it is skipped" in s for s in four.said)


def test_a_sum_that_cannot_be_opened_has_not_happened(four: Federation) -> None:
    """A site is gone between its message and the word that opens the sum."""
    calls = four.calls(FOUR)
    calls.after = lambda site, data: [] if site == "d" and is_message(data, "answer", "unmask", 1) else [data]
    result = last(four.lead(calls))
    assert result.run.counts["skipped"] == 1 and result.run.counts["trained"] == 8 and result.run.round == 3
    assert all(torch.isfinite(v).all() for v in result.run.server.values() if isinstance(v, torch.Tensor))
    assert float(result.run.server["w"].abs().max()) < 10  # no mask is left in it


def test_a_site_opens_one_sum_in_a_round(tmp_path: Path) -> None:
    """A server that says a site is gone, and has its message: the difference of the two sums would be that message."""
    server, sites = group(tmp_path, FOUR)
    rows = {"w": np.arange(5)[None].astype(np.int64)}
    all_four, three = server.told(list(FOUR)), server.told(["a", "b", "c"])
    for told in (all_four, three):
        assert sites["a"].masked(SumOf(2), told, rows)
    seed = sites["a"].opened(SumOf(2), all_four)
    assert sites["a"].opened(SumOf(2), all_four) == seed and sites["a"].masked(SumOf(2), all_four, rows)
    again = SiteMasks(tmp_path / "a", RUN, identities(FOUR)["a"], 3)  # a new process
    for site in (sites["a"], again):
        for refused in (
            lambda s: s.opened(SumOf(2), three),
            lambda s: s.masked(SumOf(2), three, rows),
            lambda s: s.opened(SumOf(1), all_four),
        ):
            with pytest.raises(SartorError, match="the sum of round 3 is open already, of other sites or clients"):
                refused(site)
        assert site.opened(SumOf(2), all_four) == seed
    assert sites["a"].opened(SumOf(3), three) != seed


def test_of_fewer_clients_of_a_site_no_difference_can_be_taken(tmp_path: Path) -> None:
    """A server that asks for clients 0, 1 and 2 of a site, and then for 0 and 1: the same pairs of masks, but not the
    same mask of the site's own, and only one of the two is opened."""
    server, sites = group(tmp_path, FOUR)
    told, n = server.told(list(FOUR)), 20_000
    rows = {"w": np.random.default_rng(0).integers(-(2**40), 2**40, (3, n))}
    three, two = (SumOf(0, "train", asked) for asked in ("0,1,2", "0,1"))
    whole = sites["a"].masked(three, told, rows)["w"][0]
    fewer = sites["a"].masked(two, told, {"w": rows["w"][:2]})["w"][0]
    looks_uniform((whole - fewer).view(np.uint64), rows["w"][2])
    seed = sites["a"].opened(three, told)
    for step in (sites["a"].opened, lambda of, told: sites["a"].masked(of, told, rows)):
        with pytest.raises(SartorError, match="open already"):
            step(two, told)
    without = server.opened({"w": fewer[None]}, seed)["w"][0]
    assert not np.array_equal(whole - without, rows["w"][2])


def test_a_late_answer_to_another_set_of_sites_is_not_taken(four: Federation) -> None:
    """The round is repeated without c, and the others' first answers come once more, under masks that do not cancel."""
    calls, first = four.calls(FOUR), dict[str, bytes]()

    def late(site: str, data: bytes) -> list[bytes]:
        if not is_message(data, "answer", "train", 1):
            return [data]
        if site == "c":
            return []
        again = site in first and first[site] != data
        return [first[site], data] if again else [first.setdefault(site, data)]

    calls.after = late
    result = last(four.lead(calls))
    assert result.run.counts["trained"] == 11 and float(result.run.server["w"].abs().max()) < 10


def test_a_sum_is_not_opened_before_the_site_has_answered(four: Federation) -> None:
    calls = four.calls(FOUR)
    four.play(calls)
    request = asked(four, calls, "a", "unmask", 2)
    for path in four.folder.glob("a/*/client-*/*"):
        path.unlink()
    first_state = replace(request, since=(-1,))
    reply = decode(four.member("a").answer(encode(first_state)))
    assert reply.kind == "refused" and reply.note["why"] == "early" and SEED not in reply.arrays


# --- kills ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, paths: dict[str, Path]) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("calm")
    recipe = Recipe(**QUICK, method="flame", secure_aggregation=True)
    Federation(folder, recipe, paths, identities=identities(NAMES)).play()
    return vectors(folder)


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_between_writes_masked_rounds_end_in_the_same_bytes(
    when: str, tmp_path: Path, paths: dict[str, Path], calm: dict[str, bytes]
) -> None:
    recipe = Recipe(**QUICK, method="flame", secure_aggregation=True)
    with killed_at(10**9, "before") as done:
        Federation(tmp_path / "count", recipe, paths, identities=identities(NAMES)).play()
    for at in range(when == "after", len(done), 6):
        fed = Federation(tmp_path / str(at), recipe, paths, identities=identities(NAMES))
        with killed_at(at, when), pytest.raises(Killed):
            fed.play()
        fed.play()
        assert vectors(fed.folder) == calm, at


def test_lost_and_doubled_masked_messages_change_nothing(
    tmp_path: Path, paths: dict[str, Path], calm: dict[str, bytes]
) -> None:
    recipe = Recipe(**QUICK, method="flame", secure_aggregation=True)
    fed = Federation(tmp_path, recipe, paths, identities=identities(NAMES))
    fed.play_lost_and_doubled()
    assert vectors(fed.folder) == calm


def test_a_key_stream_is_chacha20s() -> None:
    """The first block of RFC 8439's test vector 1 (A.1): key and nonce of zeros."""
    wanted = (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
    words = np.zeros(20_000, np.uint64)
    add_stream(words, bytes(32), 1)
    assert words[:8].tobytes().hex() == wanted and len(set(words.tolist())) == len(words)
    add_stream(words, bytes(32), -1)
    assert not words.any()
