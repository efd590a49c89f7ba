"""Partitions of the papers with a structure of their own."""

from __future__ import annotations

import numpy as np
from dealt import Y, assign

from sartor.data import partitions as p


def test_hybrid_halves() -> None:
    out = assign(p.Hybrid(2, 0.5), clients=9)
    kinds = [len(np.unique(Y[r])) for r in out.rows]
    assert kinds[:5] == [2] * 5
    assert sum(len(r) for r in out.rows[:5]) == round(2000 * 5 / 9)
    big = [k for k, r in zip(kinds[5:], out.rows[5:], strict=True) if len(r) > 100]
    assert big and min(big) == 10


def test_dominant_shares_are_exact() -> None:
    """100 clients in 5 groups of 20 as in FedAMP: 80 % in the group's two classes, 20 % in the other eight."""
    y = np.tile(np.arange(10), 7000)
    out = p.Dominant().assign(y, 10, None, 100, 0, 10)
    for i, rows in enumerate(out.rows):
        group = i // 20
        counts = np.bincount(y[rows], minlength=10)
        size = (600, 500, 400, 300, 200)[group]
        own = counts[2 * group : 2 * group + 2]
        others = np.delete(counts, [2 * group, 2 * group + 1])
        assert counts.sum() == size and own.tolist() == [0.4 * size] * 2
        assert others.sum() == 0.2 * size and others.max() - others.min() <= 1


def test_dominant_groups_may_have_other_widths() -> None:
    y = np.repeat(np.arange(6), 2000)
    wide = p.Dominant(groups=3, share=0.6, sizes=(600, 400, 200), widths=(1, 2, 3))
    counts = np.array([np.bincount(y[r], minlength=6) for r in wide.assign(y, 6, None, 12, 0, 10).rows])
    group = np.repeat([0, 1, 2], [2, 4, 6])  # clients in proportion to the widths
    for own, size, at in (([0], 600, 0), ([1, 2], 400, 1), ([3, 4, 5], 200, 2)):
        mine = counts[group == at]
        assert (mine.sum(1) == size).all() and (mine[:, own].sum(1) == 0.6 * size).all()
        assert np.ptp(mine[:, own], axis=1).max() <= 1
    equal = p.Dominant(groups=3, sizes=(600, 400, 200), widths=(2, 2, 2)).assign(y, 6, None, 12, 0, 10)
    plain = p.Dominant(groups=3, sizes=(600, 400, 200)).assign(y, 6, None, 12, 0, 10)
    assert all((a == b).all() for a, b in zip(equal.rows, plain.rows, strict=True))
    assert p.parse("dominant(groups=3, share=0.6, sizes=600/400/200, widths=1/2/3)") == wide


def test_dominant_shrinks_to_the_data() -> None:
    sizes = np.array([len(r) for r in assign(p.Dominant()).rows])
    assert sizes.sum() <= 2000
    np.testing.assert_allclose(sizes / sizes[0], np.repeat([6, 5, 4, 3, 2], 2) / 6, atol=0.02)
    assert sizes[0] > 150  # class 0 and 1 suffice for 2 · 0.4 · size + others ≤ 200


def test_power_law_has_labels_and_a_long_tail() -> None:
    y = np.tile(np.arange(10), 7000)
    out = p.PowerLaw(2, 2.0).assign(y, 10, None, 100, 0, 10)
    sizes = np.array([len(r) for r in out.rows])
    assert all(len(np.unique(y[r])) == 2 for r in out.rows)
    assert sizes.sum() == 70_000 and sizes.max() > 10 * np.median(sizes) and sizes.min() >= 10
