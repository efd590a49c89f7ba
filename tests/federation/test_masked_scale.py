"""The common scale and the scores through secure aggregation: what crosses, who is refused, the simulation's bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from identities import identities
from sites import NAMES, QUICK, SMALL, Calls, Federation, is_message, last, tables

from sartor.errors import SartorError
from sartor.federation.rounds import Message, decode, encode
from sartor.federation.rounds.masking import SECURE, SUM, mean_scores, summed_scores
from sartor.federation.rounds.messages import Damaged
from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.storage import read_json

FOUR = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def levels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Hospitals whose numbers lie far apart, of very different sizes, with gaps, and a target that is a number."""
    folder, draw = tmp_path_factory.mktemp("levels"), np.random.default_rng(2)
    paths, every = {}, ["age,dose,count,level,hospital"]
    for i, name in enumerate(FOUR):
        rows = []
        for k in range(60 + 9 * i):
            age, dose = draw.normal(50 + 20 * i, 3), draw.normal(i)
            there = "" if i == 1 and k % 3 == 0 else f"{1e-9 * dose:.6g}"
            rows.append(f"{age:.3f},{there},{1e12 + 1e9 * dose:.6g},{1e4 * i + 90 * age + dose:.2f}")
        paths[name] = folder / f"{name}.csv"
        paths[name].write_text("\n".join(["age,dose,count,level", *rows]) + "\n")
        every += [f"{row},{name}" for row in rows]
    paths["all"] = folder / "all.csv"
    paths["all"].write_text("\n".join(every) + "\n")
    return paths


def secure(**more: Any) -> Recipe:
    return Recipe(**SMALL | {"solver": {"kind": "sgd"}, "model": "linear", "engine": "serial"} | more).replace(
        secure_aggregation=True
    )


def of_levels(folder: Path, paths: dict[str, Path]) -> Federation:
    return Federation(folder, secure(method="ditto"), paths, target="level", identities=identities(FOUR))


def measured(calls: Calls, way: str = "up") -> list[tuple[str, Message]]:
    kind = "measured" if way == "up" else "measure"
    return [(site, m) for w, site, d in calls.seen if w == way and (m := decode(d)).kind == kind]


def test_masked_statistics_give_the_scale_and_the_models_of_the_simulation(
    levels: dict[str, Path], tmp_path: Path
) -> None:
    fed = of_levels(tmp_path, levels)
    calls = fed.calls(FOUR)
    fed.play(calls)
    own = {"data": str(levels["all"]), "target": "level", "client_key": "hospital", "diagnostics": False}
    recipe = fed.recipe.replace(**own)
    *_, _ = play_recipe(recipe, clients_of(recipe), tmp_path / "local")
    here, there = (read_json(tmp_path / who / "inputs.json") for who in ("server", "local"))
    assert [here[k] for k in ("columns", "target_scale")] == [there[k] for k in ("columns", "target_scale")]
    models = [(tmp_path / who / "models" / "global.safetensors").read_bytes() for who in ("server", "local")]
    assert models[0] == models[1]
    plain = recipe.replace(secure_aggregation=False)  # and but for rounding and the factor those without masks
    scale = clients_of(plain).inputs
    assert scale is not None and scale.statistics is not None and scale.target_scale is not None
    np.testing.assert_allclose(there["target_scale"], scale.target_scale, rtol=1e-12)
    for at, column in zip((0, 1, 3), there["columns"], strict=True):  # 2 says where a dose is missing
        np.testing.assert_allclose(column["centre"], scale.statistics.centre[:, at], rtol=1e-12)
        ratio = np.array(column["spread"]) / scale.statistics.spread[:, at]
        assert (ratio >= 1 - 1e-12).all() and (ratio <= 2 ** (1 / 64) * (1 + 1e-12)).all()


def test_no_sites_own_statistics_or_scores_cross(levels: dict[str, Path], tmp_path: Path) -> None:
    """All numbers that leave a site before and between the rounds are masked, and the server's report says so."""
    fed = of_levels(tmp_path, levels)
    calls = fed.calls(FOUR)
    result = fed.play(calls)
    told = [m for _, m in measured(calls)]
    assert {frozenset(m.arrays) for m in told} == {
        frozenset(names) for names in ([], ["counts", "sums", "squares"], ["apart"], ["seed"])
    }
    looks = [decode(d) for way, _, d in calls.seen if way == "up"]
    looks = [m for m in looks if m.note.get("stage") == "evaluate"]
    assert looks
    for message in [*looks, *(m for m in told if m.arrays and "seed" not in m.arrays)]:
        words = np.concatenate([v.ravel() for v in message.arrays.values()])
        assert words.dtype == np.int64 and np.median(np.abs(words.astype(np.float64))) > 2.0**61
    rows = read_json(tmp_path / "server" / "clients.json")
    assert all(row[k] is None for row in rows for k in row if k.endswith(("_loss", "_accuracy")))
    assert any("scores are means over all clients" in w for w in result.summary["warnings"])
    assert result.summary["personal"]["loss_mean"] > 0 and result.summary["personal"]["accuracy_worst10"] is None


def test_the_means_are_those_of_scores_in_the_clear(tmp_path: Path, paths: dict[str, Path]) -> None:
    """Also where a site keeps all of its scores to itself, and with several clients at a site."""
    recipe = Recipe(**QUICK, method="ditto")
    where = dict.fromkeys(NAMES, paths["all"])
    found = Federation(
        tmp_path / "a", recipe.replace(secure_aggregation=True), where, key="hospital", identities=identities(NAMES)
    ).play()
    clear = Federation(tmp_path / "b", recipe, where, key="hospital").play()
    for model in ("personal", "global"):
        wanted = clear.scores[f"{model}/test/accuracy"].mean()
        assert found.summary[model]["accuracy_mean"] == pytest.approx(wanted, abs=2e-2)  # 2^-32 in the model's sums
    none = Federation(tmp_path / "c", recipe.replace(secure_aggregation=True), paths, identities=identities(NAMES))
    none.share = "none"
    assert none.play().summary["personal"] is None


def test_sums_of_scores_are_exact_and_nonsense_is_refused() -> None:
    draw = np.random.default_rng(0)
    each = [{"x/test/loss": draw.normal(size=5) * 10.0**k, "y": np.array([np.nan, 1.0])} for k in range(6)]
    total = {k: sum(summed_scores(own)[k][0] for own in each) for k in ("x/test/loss", "y")}
    found = mean_scores(total, 30)
    assert found["x/test/loss"] == pytest.approx(np.mean([own["x/test/loss"] for own in each]), rel=1e-13)
    assert found["y"] == 1.0 and np.isnan(mean_scores({"z": np.zeros(17, np.int64)}, 3)["z"])
    with pytest.raises(Damaged, match="of 30 clients, where 29 were asked"):
        mean_scores(total, 29)


def lost(site: str, part: str) -> Any:
    """Nothing comes of a site in one part of the measuring."""
    return lambda who, data: [] if who == site and decode(data).note.get(SUM, "").startswith(part) else [data]


@pytest.mark.parametrize("part", ["key", "sums", "apart"])
def test_a_silent_site_takes_the_others_scale(part: str, levels: dict[str, Path], tmp_path: Path) -> None:
    fed = of_levels(tmp_path, levels)
    calls = fed.calls(FOUR)
    calls.after = lost("c", part)
    result = last(fed.lead(calls))
    summed = read_json(tmp_path / "server" / "summed.json")
    assert [summed["sums"], summed["apart"]] == {
        "key": [["a", "b", "d"]] * 2,
        "sums": [["a", "b", "d"], [*FOUR]],
        "apart": [[*FOUR], ["a", "b", "d"]],
    }[part]
    assert result.run.counts["trained"] == 16  # it takes part in the rounds


def test_a_sum_that_cannot_be_opened_ends_in_one_line_and_goes_on_later(
    levels: dict[str, Path], tmp_path: Path
) -> None:
    fed, calm = of_levels(tmp_path / "a", levels), of_levels(tmp_path / "b", levels)
    calls = fed.calls(FOUR)
    calls.after = lost("c", "open sums")
    with pytest.raises(SartorError, match=r"only 3 of at least 4 sites can take part; missing .* c\."):
        fed.play(calls)
    fed.play(fed.calls(FOUR))
    calm.play(calm.calls(FOUR))
    scales = [read_json(f.folder / "server" / "roster.json")["scale"] for f in (fed, calm)]
    assert scales[0] == scales[1]


def test_messages_that_come_twice_or_never_change_no_scale(levels: dict[str, Path], tmp_path: Path) -> None:
    disturbed, calm = of_levels(tmp_path / "a", levels), of_levels(tmp_path / "b", levels)
    disturbed.paths = calm.paths = {k: levels[k] for k in NAMES}
    disturbed.identities = calm.identities = identities(NAMES)
    disturbed.play_lost_and_doubled()
    calm.play()
    scales = [read_json(f.folder / "server" / "roster.json")["scale"] for f in (disturbed, calm)]
    assert scales[0] == scales[1]


def test_a_site_tells_its_part_of_one_sum_and_of_one_scale(levels: dict[str, Path], tmp_path: Path) -> None:
    """Asked again for other columns, another scale, or with fewer sites once a sum is open, it says nothing."""
    fed = of_levels(tmp_path, levels)
    calls = fed.calls(FOUR)
    fed.play(calls)
    site = fed.member("a")
    asked = {m.note[SUM].split()[0]: m for _, m in measured(calls, "down") if _ == "a"}
    assert set(asked) == {"key", "sums", "open", "apart"}
    other = asked["apart"].note["scale"] | {"mean": [0.0, 0.0, 0.0]}
    fewer = {k: v for k, v in asked["sums"].note[SECURE].items() if k != "d"}
    for request, why in (
        (replace(asked["apart"], note=asked["apart"].note | {"scale": other}), "measured"),
        (replace(asked["sums"], note=asked["sums"].note | {"first": 1}), "measured"),
        (replace(asked["sums"], note=asked["sums"].note | {SECURE: fewer}), None),
        (replace(asked["sums"], note=asked["sums"].note | {SECURE: fewer, "open": True}), None),
    ):
        reply = decode(site.answer(encode(request)))
        assert reply.kind == "refused" and not reply.arrays and reply.note.get("limit") == why
    again = decode(site.answer(encode(asked["sums"])))  # word for word the same, and the same masks
    first = next(m for s, m in measured(calls) if s == "a" and "sums" in m.arrays)
    assert np.array_equal(again.arrays["sums"], first.arrays["sums"])


def test_false_statistics_end_in_one_line(levels: dict[str, Path], tmp_path: Path) -> None:
    fed = of_levels(tmp_path, levels)
    calls = fed.calls(FOUR)

    def lying(site: str, data: bytes) -> list[bytes]:
        message = decode(data)
        if site != "b" or "sums" not in message.arrays:
            return [data]
        more = {"counts": message.arrays["counts"] + 10**6}
        return [encode(replace(message, arrays=message.arrays | more))]

    calls.after = lying
    with pytest.raises(SartorError, match=r"add up to what cannot be: one of them sends nonsense.*hides which"):
        fed.play(calls)


def test_scores_of_fewer_than_three_sites_are_not_known_and_that_is_said(tmp_path: Path) -> None:
    paths = tables(tmp_path / "tables", FOUR)
    recipe = Recipe(**QUICK, method="flame", secure_aggregation=True)
    fed = Federation(tmp_path / "fed", recipe, paths, identities=identities(FOUR))
    calls = fed.calls(FOUR)
    calls.after = lambda site, data: [] if site in "cd" and is_message(data, "answer", "evaluate", 3) else [data]
    result = last(fed.lead(calls))
    assert result.run.round == 3 and result.summary["personal"] is None
    assert any("2 sites are left, and a sum needs 3" in s for s in fed.said)
