"""Judging against answers known without it: hand-computed spreads, SciPy's own test, coverage of intervals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

from sartor.judge import (
    choose,
    entropy,
    gini,
    highest,
    holm,
    interval,
    jain,
    judge,
    lowest,
    signed_rank,
    summarise,
    validated,
    with_chosen,
)

# --- spread -----------------------------------------------------------------------------------------------------------


def test_spread_by_hand() -> None:
    x = np.array([3.0, 1.0, 4.0, 2.0])
    assert jain(x) == pytest.approx(10**2 / (4 * 30), rel=1e-14)
    assert gini(x) == pytest.approx(20 / (2 * 4 * 10), rel=1e-14)  # the twelve differences sum to 20
    p = [0.3, 0.1, 0.4, 0.2]
    assert entropy(x) == pytest.approx(-sum(q * math.log(q) for q in p), rel=1e-14)
    assert lowest(x, 0.5) == 1.5 and highest(x, 0.5) == 3.5 and lowest(x) == 1.0 and highest(x) == 4.0


@pytest.mark.parametrize("n", [1, 2, 7])
def test_spread_at_its_ends(n: int) -> None:
    even, one = np.full(n, 0.3), np.eye(n)[0]
    assert jain(even) == pytest.approx(1) and gini(even) == pytest.approx(0, abs=1e-15)
    assert entropy(even) == pytest.approx(math.log(n))
    assert jain(one) == pytest.approx(1 / n) and gini(one) == pytest.approx((n - 1) / n) and entropy(one) == 0


@given(some.lists(some.floats(0.01, 100), min_size=2, max_size=12), some.floats(0.1, 10))
def test_spread_knows_no_units_and_is_as_defined(values: list[float], unit: float) -> None:
    x = np.array(values)
    differences = np.abs(x[:, None] - x[None, :]).sum()
    assert gini(x) == pytest.approx(differences / (2 * len(x) * x.sum()), rel=1e-9, abs=1e-12)
    cosine = x.sum() / (np.sqrt(len(x)) * np.linalg.norm(x))
    assert jain(x) == pytest.approx(cosine**2, rel=1e-9)
    assert entropy(x) == pytest.approx(stats.entropy(x), rel=1e-9)
    for measure in (jain, gini, entropy):
        assert measure(unit * x) == pytest.approx(measure(x), rel=1e-9, abs=1e-12)


def test_where_a_spread_says_nothing() -> None:
    for values in (np.zeros(3), np.array([0.5, -0.1])):
        assert jain(values) is gini(values) is entropy(values) is None


# --- summaries --------------------------------------------------------------------------------------------------------


def scores() -> dict[str, np.ndarray]:
    """Five clients: the third has no test data, the fifth is hostile; on validation data 0, 2, 4 take their own. They
    have so many validation samples that chance plays no part."""
    own, common = np.array([0.9, 0.2, 0.5, 0.3, 1.0]), np.array([0.1, 0.4, 0.5, 0.6, 0.0])
    return {
        "personal/validation/merit": own,
        "global/validation/merit": common,
        "global&global/validation/covariance": np.full(5, 0.25),
        "validation/samples": np.full(5, 1e12),
        "personal/validation/accuracy": own,
        "personal/validation/loss": np.array([1.0, 1.0, 1.0, 1.0, 1.0]),
        "global/validation/accuracy": common,
        "global/validation/loss": np.array([2.0, 2.0, 2.0, 2.0, 2.0]),
        "personal/test/accuracy": np.array([0.8, 0.1, np.nan, 0.2, 0.0]),
        "personal/test/loss": np.array([0.5, 2.0, np.nan, 1.0, 9.0]),
        "global/test/accuracy": np.array([0.9, 0.6, np.nan, 0.4, 0.0]),
        "global/test/loss": np.array([0.4, 0.8, np.nan, 1.2, 9.0]),
    }


BENIGN = np.array([True, True, True, True, False])
COUNTS = np.array([10, 30, 0, 20, 99])


def test_a_summary_by_hand() -> None:
    assert choose(scores()).tolist() == ["personal", "global", "personal", "global", "personal"]
    found = judge(scores(), COUNTS, BENIGN)["chosen"]  # accuracies 0.8, 0.6, 0.4; losses 0.5, 0.8, 1.2
    assert found is not None
    expected = {
        "accuracy_mean": 0.6,
        "accuracy_std": math.sqrt(0.08 / 3),
        "accuracy_var": 0.08 / 3,
        "accuracy_worst10": 0.4,
        "accuracy_best10": 0.8,
        "accuracy_min": 0.4,
        "accuracy_max": 0.8,
        "accuracy_pooled": (10 * 0.8 + 30 * 0.6 + 20 * 0.4) / 60,
        "accuracy_jain": 1.8**2 / (3 * 1.16),
        "accuracy_gini": 1.6 / (2 * 3 * 1.8),  # differences 0.2, 0.4, 0.2, each twice
        "accuracy_entropy": float(stats.entropy([4, 3, 2])),
        "loss_mean": 2.5 / 3,
        "loss_var": float(np.var([0.5, 0.8, 1.2])),
        "loss_std": float(np.std([0.5, 0.8, 1.2])),
        "loss_worst10": 1.2,
        "loss_best10": 0.5,
        "loss_min": 0.5,
        "loss_max": 1.2,
        "loss_pooled": (10 * 0.5 + 30 * 0.8 + 20 * 1.2) / 60,
        "loss_jain": 2.5**2 / (3 * (0.25 + 0.64 + 1.44)),
        "loss_gini": 2 * (0.3 + 0.7 + 0.4) / (2 * 3 * 2.5),
        "loss_entropy": float(stats.entropy([5, 8, 12])),
        "clients_scored": 3,
    }
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_hostile_client_counts_only_without_the_mask() -> None:
    with_it, without = summarise(scores())["personal"], summarise(scores(), BENIGN)["personal"]
    assert with_it is not None and without is not None
    assert (with_it["clients_scored"], without["clients_scored"]) == (4, 3)
    assert without["loss_mean"] == pytest.approx(3.5 / 3) and with_it["loss_mean"] == pytest.approx(12.5 / 4)


def test_the_history_and_the_summary_agree() -> None:
    brief, full = summarise(scores(), BENIGN), judge(scores(), COUNTS, BENIGN)
    for model, numbers in brief.items():
        assert numbers is not None and (whole := full[model]) is not None
        assert numbers == {k: whole[k] for k in numbers} and len(whole) == 23


def test_negative_r2_has_no_gini() -> None:
    found = judge({k: v - 0.5 if "accuracy" in k else v for k, v in scores().items()}, COUNTS, BENIGN)["chosen"]
    assert found is not None and found["accuracy_gini"] is found["accuracy_jain"] is found["accuracy_entropy"] is None
    assert found["loss_gini"] is not None and found["accuracy_min"] == pytest.approx(-0.1)


def test_the_oracle_looks_at_test_data_and_only_where_asked() -> None:
    assert not any("oracle" in k for k in with_chosen(scores())) and "oracle" not in summarise(scores())
    full = with_chosen(scores(), oracle=True)
    assert full["oracle/test/accuracy"][[0, 1, 3]].tolist() == [0.9, 0.6, 0.4]
    assert full["chosen/test/accuracy"][[0, 1, 3]].tolist() == [0.8, 0.6, 0.4]
    found = judge(full, COUNTS, BENIGN)
    assert (oracle := found["oracle"]) is not None and oracle["accuracy_mean"] == pytest.approx(1.9 / 3)


def test_a_round_is_chosen_by_benign_validation() -> None:
    assert validated(scores(), BENIGN) == pytest.approx((0.9 + 0.4 + 0.5 + 0.6) / 4)
    assert validated(scores()) == pytest.approx((0.9 + 0.4 + 0.5 + 0.6 + 1.0) / 5)
    assert validated({k: v * np.nan for k, v in scores().items()}) is None


# --- tests of significance --------------------------------------------------------------------------------------------


def test_signed_ranks_by_hand() -> None:
    """d = 1, −2, 3, 0: |d| has ranks 2, 3, 4 and, for the zero, 1; of the 8 possible signs 3 give R⁺ = 6 or more."""
    ours, theirs = np.array([2.0, 1.0, 4.0, 5.0]), np.array([1.0, 3.0, 1.0, 5.0])
    found = signed_rank(ours, theirs)
    assert found is not None
    assert (found.n, found.zeros, found.mean, found.median) == (4, 1, 0.5, 0.5)
    assert found.effect == pytest.approx((2 + 4 - 3) / 9)
    ups = [sum(r for r, s in zip((2, 3, 4), signs, strict=True) if s) for signs in itertools.product([0, 1], repeat=3)]
    tail = min(np.mean([u >= 6 for u in ups]), np.mean([u <= 6 for u in ups]))
    assert found.p == pytest.approx(min(1.0, 2 * tail))


@pytest.mark.parametrize("n", [8, 13, 14, 40, 51, 300])
@pytest.mark.parametrize("coarse", [False, True], ids=["no ties", "ties and zeros"])
def test_signed_ranks_are_scipys(n: int, coarse: bool) -> None:
    draw = np.random.default_rng(n)
    a, b = draw.integers(-6, 9, size=n) if coarse else draw.normal(0.2, 1, size=n), np.zeros(n)
    found = signed_rank(a, b)
    direct = stats.wilcoxon(a, b, zero_method="pratt", correction=False)
    assert found is not None and found.p == pytest.approx(direct.pvalue, rel=1e-12)
    ranks = stats.rankdata(np.abs(a))
    up, down = ranks[a > 0].sum(), ranks[a < 0].sum()
    assert direct.statistic == min(up, down) and found.effect == pytest.approx((up - down) / (up + down))
    back = signed_rank(b, a)
    assert back is not None and (back.p, back.effect) == (pytest.approx(found.p), pytest.approx(-found.effect))


def test_differences_that_are_equal_are_ties() -> None:
    """0.9 − 0.8 and 0.4 − 0.3 differ in the last digit of a float; as accuracies they are the same."""
    assert 0.9 - 0.8 != 0.4 - 0.3
    a = signed_rank(np.array([0.9, 0.4, 0.5]), np.array([0.8, 0.3, 0.7]))
    b = signed_rank(np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, 2.0]))
    assert a is not None and b is not None and (a.effect, a.p) == (b.effect, b.p)


def test_nothing_to_test() -> None:
    same = signed_rank(np.array([0.5, 0.7]), np.array([0.5, 0.7]))
    assert same is not None and (same.p, same.effect, same.zeros) == (1.0, 0.0, 2)
    assert signed_rank(np.array([np.nan]), np.array([0.5])) is None
    one = signed_rank(np.array([np.nan, 0.6]), np.array([0.5, 0.5]))
    assert one is not None and one.n == 1 and one.p == 1.0


def test_under_no_difference_p_is_uniform() -> None:
    draw = np.random.default_rng(0)
    found = [signed_rank(draw.normal(size=40), draw.normal(size=40)) for _ in range(2000)]
    share = np.mean([f.p < 0.05 for f in found if f is not None])
    assert abs(share - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 2000)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == [] and holm([0.2]) == [0.2]


# --- intervals --------------------------------------------------------------------------------------------------------


def test_an_interval_needs_two_seeds() -> None:
    assert interval([]) is interval([0.5]) is None
    assert interval([0.5, 0.5]) == (0.5, 0.5)


def test_an_interval_of_two_is_known() -> None:
    """Of resamples of (0, 1) a quarter is all 0 and a quarter all 1."""
    assert interval([0.0, 1.0]) == (0.0, 1.0)
    found = interval([0.0, 1.0], level=0.4)
    assert found == (0.5, 0.5)  # the middle half


def test_an_interval_is_a_function_of_the_values() -> None:
    values = np.random.default_rng(1).normal(size=12).tolist()
    assert interval(values) == interval(values)
    low, high = interval(values) or (0, 0)
    shifted = interval([v + 1 for v in values])
    assert shifted == pytest.approx((low + 1, high + 1))


def test_an_interval_is_close_to_scipys() -> None:
    values = np.random.default_rng(2).gamma(2, size=25)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=20000, rng=3).confidence_interval
    spread = theirs.high - theirs.low
    assert interval(values.tolist()) == pytest.approx((theirs.low, theirs.high), abs=0.03 * spread)


def test_intervals_cover_the_truth() -> None:
    """Normal numbers with mean 2: for 40 of them the percentile interval covers t-distribution-like often."""
    draw, n, times = np.random.default_rng(4), 40, 1000
    covered = 0
    for _ in range(times):
        low, high = interval(draw.normal(2.0, 3.0, size=n).tolist()) or (0, 0)
        covered += low <= 2.0 <= high
    # The bootstrap's spread is σ̂ = s√((n−1)/n) and its quantiles the normal's, where Student's t would be exact.
    expected = 1 - 2 * stats.t.sf(stats.norm.ppf(0.975) * math.sqrt((n - 1) / n), n - 1)
    assert abs(covered / times - expected) < 4 * math.sqrt(expected * (1 - expected) / times)
    assert expected > 0.93
