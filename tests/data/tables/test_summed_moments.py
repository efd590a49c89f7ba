"""The common scale from exact sums, against the values themselves and against the unmasked way."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from sartor.data.tables.moments import FAR, Moments, columns_scale, moments, pooled
from sartor.data.tables.summed_moments import pooled_of, summed_scale, sums_of
from sartor.errors import SartorError
from sartor.exact_sums import LIMBS, from_words, to_words, whole, worth

SIZES = np.array([1e-25, 1e-9, 1.0, 1e9, 1e25])


def clients(count: int = 7, apart: float = 1.0) -> tuple[Moments, np.ndarray, np.ndarray]:
    """Values of sizes from 1e-25 to 1e25, two columns far from zero, gaps; their moments, and all values [n, 7]."""
    draw, each, values = np.random.default_rng(0), [], []
    for i in range(count):
        own = draw.normal(size=(10 + 3 * i, 7)) + apart * i
        own[:, :5] *= SIZES
        own[:, 5] = 1e9 + 10 * own[:, 5]  # digits cancel in Σx² − (Σx)²/n: 1e18 beside 1e2
        own[:, 6] = 7.0  # a constant
        own[i % 3 :: 5, 2] = np.nan
        each.append(moments(own))
        values.append(own)
    whole = np.concatenate(values)
    return Moments.joined(each), whole, np.ones(7, dtype=bool)


def test_words_add_up_to_the_exact_sum() -> None:
    draw = np.random.default_rng(1)
    numbers = [float(v) for v in draw.normal(size=200) * 10.0 ** draw.integers(-40, 40, 200)]
    total = sum((to_words([whole(v)])[0] for v in numbers), np.zeros(LIMBS, np.int64))
    (found,) = from_words(total[None])
    exact = sum(map(Fraction, numbers))
    assert abs(Fraction(found, 2**256) - exact) <= 200 * Fraction(1, 2**256) and worth(found) == float(exact)
    assert from_words(to_words([-1, 2**500, -(2**511), 0])) == [-1, 2**500, -(2**511), 0]


def test_mean_and_spread_are_those_of_the_values_whatever_their_size() -> None:
    """To 1e-12 of the spread; to 1e-6 for a column a billion away from zero, of whose own means digits are lost."""
    each, values, _ = clients(apart=0.1)
    mean, spread = pooled_of(sums_of(each))
    exact = [[Fraction(v) for v in column[~np.isnan(column)]] for column in values.T]
    for at, column in enumerate(exact[:6]):
        centre = sum(column) / len(column)
        std = float(sum((v - centre) ** 2 for v in column) / len(column)) ** 0.5
        near = 1e-6 if at == 5 else 1e-12
        assert abs(spread[at] / std - 1) < near and abs(mean[at] - float(centre)) < near * std
    assert (mean[6], spread[6]) == (7.0, 1.0)
    plain = pooled(each)
    np.testing.assert_allclose(mean, plain[0], rtol=1e-14)
    np.testing.assert_allclose(spread, plain[1], rtol=1e-12)


@pytest.mark.parametrize("apart", [0.1, 1.0, 30.0])
def test_the_factor_is_at_most_a_64th_of_a_power_of_two_larger(apart: float) -> None:
    each, _, scaled = clients(apart=apart)
    plain, summed = columns_scale(each, scaled), summed_scale(each, scaled)
    ratio = summed[1] / plain[1]
    assert ratio.max() <= 2 ** (1 / 64) * (1 + 1e-9) and ratio.min() >= 1 - 1e-9
    distance = np.sqrt((((each.means - summed[0]) / summed[1]) ** 2).sum(axis=1)).max()
    assert distance <= FAR * (1 + 1e-9) and (apart < 1 or distance > 0.98 * FAR)


def test_sums_do_not_depend_on_who_is_summed_with_whom() -> None:
    each, _, _ = clients()
    parts = [sums_of(Moments(*(v[part] for v in each))) for part in (slice(0, 2), slice(2, 3), slice(3, 7))]
    together = [[sum(v) for v in zip(*values, strict=True)] for values in zip(*parts, strict=True)]
    assert together == [list(v) for v in sums_of(each)]


def test_nobody_has_a_value_and_numbers_too_large() -> None:
    nothing = Moments(np.zeros((3, 1)), np.zeros((3, 1)), np.zeros((3, 1)))
    assert [float(v[0]) for v in summed_scale(nothing, np.ones(1, dtype=bool))] == [0.0, 1.0]
    with pytest.raises(SartorError, match="above 1e30, too large to be summed"):
        sums_of(moments(np.full((20, 1), 1e40)))
