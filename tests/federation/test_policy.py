"""A site's policy: rules in a file that no recipe passes, checked before anything is computed; refusals name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from identities import identities
from sites import NAMES, QUICK, Federation

from sartor.errors import SartorError
from sartor.federation.limits import SiteLimits, policy
from sartor.federation.rounds import decode
from sartor.federation.site_config import SiteConfig
from sartor.run.recipe import Recipe

POLICY = """
allowed_methods = "flame, ditto"
allowed_models = "softmax, mlp"
least_rows = 12
most_rounds = 50
least_sites = 3
most_epsilon = 4.0
share = "none"
"""


def written(folder: Path, text: str) -> Path:
    (folder / "policy.toml").write_text(text)
    return folder / "policy.toml"


def test_a_policy_is_the_limits_in_a_file(tmp_path: Path) -> None:
    limits, share = policy(written(tmp_path, POLICY), {"most_steps": 77})
    wanted = {"least_rows": 12, "most_rounds": 50, "least_sites": 3, "most_epsilon": 4.0, "most_steps": 77}
    names = {"allowed_methods": "flame, ditto", "allowed_models": "softmax, mlp"}
    assert limits == SiteLimits(**wanted, **names) and share == "none"  # type: ignore[arg-type]
    assert SiteConfig("a.csv", share=share, limits=limits).limits.private


@pytest.mark.parametrize(
    ("text", "given", "words"),
    [
        ("most_round = 5", {}, "most_rounds"),
        ("most_rounds = 5", {"most_rounds": 7}, "most_rounds stands in .* and is given as an option"),
        ('most_rounds = "many"', {}, "most-rounds is a whole number"),
        ("most_rounds = 0", {}, "most-rounds is a whole number of at least 1"),
        ("least_sites = 2", {}, "least-sites is a whole number of at least 3"),
        ('most_epsilon = "little"', {}, "most-epsilon is a number above 0"),
        ("allowed_methods = 7", {}, "allowed-methods are names"),
        ('allowed_methods = "flame,,ditto"', {}, "allowed-methods are names"),
        ("most_epsilon = 3.0\nmost_epsilon_total = 2.0", {}, "most-epsilon of a run is at most its most-epsilon-total"),
        ('share = "some"', {}, "share in .* is each, mean or none"),
        ("most_rounds = ", {}, "not valid TOML"),
    ],
)
def test_a_policy_that_makes_no_sense_is_one_line(text: str, given: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(SartorError, match=words) as e:
        policy(written(tmp_path, text), given)
    assert "\n" not in str(e.value)


def test_a_policy_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    limits, share = policy(written(tmp_path, 'most_epsilon = 2.0\nshare = "each"'), {})
    with pytest.raises(SartorError, match="a site that limits epsilon sends no scores"):
        SiteConfig("a.csv", share=str(share), limits=limits)
    for text, words in (
        ('least_sites = 3\nallowed_methods = "fedamp, rsa"', "no method in its allowed-methods goes with it"),
        ('allowed_methods = "flame, dito"', "dito"),
    ):
        limits, _ = policy(written(tmp_path, text), {})
        with pytest.raises(SartorError, match=words) as e:
            SiteConfig("a.csv", limits=limits)
        assert "\n" not in str(e.value)
    limits, _ = policy(written(tmp_path, 'least_sites = 3\nallowed_methods = "fedamp, ditto"'), {})
    assert SiteConfig("a.csv", limits=limits).limits.methods == ["fedamp", "ditto"]
    with pytest.raises(SartorError, match="cannot read"):
        policy(tmp_path / "nowhere.toml", {})


@pytest.mark.parametrize(
    ("rule", "recipe"),
    [
        ({"allowed_methods": "ditto, fedavg"}, {}),
        ({"allowed_models": "mlp"}, {}),
        ({"least_sites": 3}, {}),
        ({"least_sites": 4}, {"secure_aggregation": True}),
        ({"most_rounds": 2}, {}),
        ({"least_rows": 1000}, {}),
    ],
    ids=str,
)
def test_a_recipe_against_a_rule_is_refused_by_its_name_and_nothing_is_computed(
    rule: dict[str, Any], recipe: dict[str, Any], tmp_path: Path, paths: dict[str, Path]
) -> None:
    fed = Federation(tmp_path, Recipe(method="flame", **QUICK, **recipe), paths, limits=SiteLimits(**rule))
    fed.identities = identities(NAMES)
    calls = fed.calls()
    with pytest.raises(SartorError, match=f"only 0 of at least 1 sites can take part.*limit {next(iter(rule))}"):
        fed.play(calls)
    assert {decode(d).kind for way, _, d in calls.seen if way == "up"} == {"refused"}
    assert any(f"({next(iter(rule)).replace('_', '-')})" in s for s in fed.said)


def test_what_a_policy_allows_is_played(tmp_path: Path, paths: dict[str, Path]) -> None:
    limits = SiteLimits(allowed_methods="flame", allowed_models="softmax,mlp", least_sites=3)
    recipe = Recipe(method="flame", **QUICK | {"model": "mlp(6)"}, secure_aggregation=True)
    fed = Federation(tmp_path, recipe, paths, limits=limits, identities=identities(NAMES))
    assert fed.play().run.counts["trained"] == 9
