"""Every partition: disjoint, minimum held, a function of the seed; and the exact answers of each."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sartor.data import partitions as p
from sartor.data.partitions.assignment import divide
from sartor.data.partitions.by_label import deal
from sartor.errors import SartorError

Y = np.repeat(np.arange(10), 200)[np.random.default_rng(7).permutation(2000)]
KEYS = np.array([f"writer {i}" for i in np.random.default_rng(8).integers(0, 12, 2000)])
DISJOINT = [
    p.IID(),
    p.Labels(2),
    p.Labels(3),
    p.Shards(2),
    p.Dirichlet(0.5),
    p.Quantity(0.5),
    p.Noise(0.1),
    p.Natural(),
    p.Hybrid(2, 0.5),
    p.Dominant(),
    p.PowerLaw(2, 1.0),
]


def assign(partition: p.Partition, clients: int | None = 10, seed: int = 0, minimum: int = 10, y=Y, classes=10):
    return partition.assign(y, classes, KEYS[: len(y)], clients, seed, minimum)


def same(a: p.Assignment, b: p.Assignment) -> bool:
    return len(a.rows) == len(b.rows) and all(map(np.array_equal, a.rows, b.rows))


@pytest.mark.parametrize("partition", DISJOINT, ids=p.spell)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_disjoint_and_minimum(partition: p.Partition, seed: int) -> None:
    out = assign(partition, seed=seed)
    everything = np.concatenate(out.rows)
    assert len(out.rows) == 10
    assert min(map(len, out.rows)) >= 10
    assert len(np.unique(everything)) == len(everything)
    assert everything.min() >= 0 and everything.max() < len(Y)
    assert not out.overlap


@pytest.mark.parametrize("partition", DISJOINT, ids=p.spell)
def test_function_of_the_seed(partition: p.Partition) -> None:
    assert same(assign(partition, seed=3), assign(partition, seed=3))
    assert not same(assign(partition, seed=3), assign(partition, seed=4))


@pytest.mark.parametrize("partition", [x for x in DISJOINT if type(x) not in (p.Natural, p.Dominant)], ids=p.spell)
def test_all_samples_are_dealt_out(partition: p.Partition) -> None:
    assert sum(map(len, assign(partition).rows)) == len(Y)


@settings(max_examples=40, deadline=None)
@given(
    which=st.sampled_from(
        [p.IID(), p.Labels(1), p.Labels(2), p.Shards(2), p.Dirichlet(1.0), p.Quantity(0.3), p.Hybrid(1)]
    ),
    sizes=st.lists(st.integers(20, 60), min_size=2, max_size=6),
    clients=st.integers(2, 7),
    minimum=st.integers(1, 8),
    seed=st.integers(0, 2**40),
)
def test_any_data(which: p.Partition, sizes: list[int], clients: int, minimum: int, seed: int) -> None:
    y = np.repeat(np.arange(len(sizes)), sizes)
    try:
        out = which.assign(y, len(sizes), None, clients, seed, minimum)
    except SartorError as error:
        assert "at least" in str(error) or "samples" in str(error)
        assert "\n" not in str(error)
        return
    everything = np.concatenate(out.rows)
    assert len(out.rows) == clients
    assert min(map(len, out.rows)) >= minimum
    assert len(np.unique(everything)) == len(everything)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(2, 12), st.data())
def test_deal_gives_distinct_labels_evenly(clients: int, classes: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, classes))
    labels = deal(clients, k, np.arange(classes), np.random.default_rng(0))
    counts = np.bincount(labels.ravel(), minlength=classes)
    assert all(len(set(row)) == k for row in labels.tolist())
    assert counts.max() - counts.min() <= 1


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20), st.integers(0, 5), st.integers(0, 1000))
def test_divide(weights: list[float], floor: int, extra: int) -> None:
    total = floor * len(weights) + extra
    counts = divide(np.array(weights), total, floor)
    exact = floor + extra * np.array(weights) / sum(weights)
    assert counts.sum() == total
    assert counts.min() >= floor
    assert np.abs(counts - exact).max() < 1 + 1e-9


@pytest.mark.parametrize("k", [1, 2, 5, 10])
@pytest.mark.parametrize("seed", range(5))
def test_labels_are_exactly_k(k: int, seed: int) -> None:
    out = assign(p.Labels(k), seed=seed)
    assert [len(np.unique(Y[r])) for r in out.rows] == [k] * 10
    assert [len(r) for r in out.rows] == [200] * 10


def test_labels_hold_the_minimum_by_another_deal() -> None:
    """Classes of 30 and 2: with one unlucky pair (2 + 2 samples) the minimum fails, and a lucky deal exists."""
    y = np.repeat(np.arange(4), [30, 30, 2, 2])
    for seed in range(20):
        out = p.Labels(2).assign(y, 4, None, 2, seed, 10)
        assert [len(r) for r in out.rows] == [32, 32]


def test_shards_are_contiguous_in_label_and_of_one_size() -> None:
    out = assign(p.Shards(2))
    assert all(len(r) == 200 and len(np.unique(Y[r])) <= 2 for r in out.rows)


def test_dirichlet_small_beta_is_more_skewed() -> None:
    def top(beta: float) -> float:
        rows = assign(p.Dirichlet(beta)).rows
        return float(np.mean([np.bincount(Y[r]).max() / len(r) for r in rows]))

    assert top(100.0) < 0.2 < 0.4 < top(0.1)


def test_quantity_sizes_and_common_labels() -> None:
    y = np.tile(np.arange(10), 7000)
    out = p.Quantity(0.5).assign(y, 10, None, 10, 0, 100)
    sizes = np.array([len(r) for r in out.rows])
    assert sizes.sum() == 70_000 and sizes.min() >= 100 and 3 * np.median(sizes) < sizes.max()
    largest = out.rows[int(sizes.argmax())]
    assert np.abs(np.bincount(y[largest]) / len(largest) - 0.1).max() < 0.01


def test_noise_levels() -> None:
    stated = assign(p.Noise(0.4), clients=4).noise
    assert stated is not None
    np.testing.assert_allclose(stated**2, [0.1, 0.2, 0.3, 0.4])


def test_natural_takes_all_keys_in_order() -> None:
    out = assign(p.Natural(), clients=None)
    assert out.names == [f"writer {i}" for i in range(12)]
    for name, rows in zip(out.names, out.rows, strict=True):
        np.testing.assert_array_equal(rows, np.flatnonzero(name == KEYS))


def test_natural_leaves_small_keys_out_and_says_so() -> None:
    keys = np.repeat([3, 1, 2], [20, 5, 30])
    out = p.Natural().assign(np.zeros(55), None, keys, None, 0, 10)
    assert out.names == ["2", "3"] and [len(r) for r in out.rows] == [30, 20] and out.left_out == 1
    with pytest.raises(SartorError, match="3 clients asked for, but only 2 keys have at least 10"):
        p.Natural().assign(np.zeros(55), None, keys, 3, 0, 10)
    with pytest.raises(SartorError, match=r"none of the 3 keys has 31 samples .the most is 30."):
        p.Natural().assign(np.zeros(55), None, keys, None, 0, 31)


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


REFUSED = [
    (lambda: p.Labels(0), "Labels needs k to be a whole number of at least 1; got 0"),
    (lambda: p.Labels(2.5), "Labels needs k"),
    (lambda: p.Labels(True), "Labels needs k"),
    (lambda: p.Shards(-1), "Shards needs k"),
    (lambda: p.Dirichlet(0), "Dirichlet needs beta > 0; got 0"),
    (lambda: p.Dirichlet(float("nan")), "Dirichlet needs beta > 0; got nan"),
    (lambda: p.Dirichlet("x"), "Dirichlet needs beta to be a number; got 'x'"),
    (lambda: p.Quantity(-1), "Quantity needs beta > 0"),
    (lambda: p.Noise(0), "Noise needs sigma > 0"),
    (lambda: p.Hybrid(labels=0), "Hybrid needs labels"),
    (lambda: p.Dominant(groups=1, sizes=(5,)), "Dominant needs at least 2 groups; got 1"),
    (lambda: p.Dominant(share=1.2), "Dominant needs share <= 1; got 1.2"),
    (lambda: p.Dominant(sizes=(1, 2)), "one size for each of the 5 groups"),
    (lambda: p.Dominant(widths=(1, 2)), "one width for each of the 5 groups"),
    (lambda: assign(p.Dominant(widths=(1, 1, 1, 1, 1))), "widths add up to the number of classes"),
    (lambda: p.PowerLaw(sigma=0), "PowerLaw needs sigma > 0"),
    (lambda: assign(p.Labels(11)), "11 labels per client asked for; the data have 10 classes"),
    (lambda: assign(p.IID(), clients=0), "IID needs clients to be a whole number of at least 1; got 0"),
    (
        lambda: assign(p.IID(), clients=201),
        "201 clients with at least 10 samples each need 2010 samples; the data have 2000",
    ),
    (lambda: assign(p.IID(), minimum=0), "IID needs minimum"),
    (lambda: assign(p.Hybrid(), clients=1), "Hybrid needs at least 2 clients"),
    (lambda: assign(p.Dominant(), clients=4), "5 groups need at least as many clients; got 4"),
    (lambda: assign(p.Dominant(), y=Y % 3, classes=3), "5 groups need as many classes; the data have 3"),
    (lambda: assign(p.Dominant(), y=Y, classes=11), "a class has no samples .class 10."),
    (lambda: assign(p.Dirichlet(0.001), minimum=150), "no draw in 200 gave each of 10 clients 150 samples"),
    (lambda: assign(p.PowerLaw(1), clients=100, minimum=21), "need 2100 samples"),
    (lambda: p.Natural().assign(Y, 10, None, None, 0, 10), "Natural needs a client key"),
    (lambda: p.Labels(1).assign(np.array([0] * 50 + [1]), 2, None, 4, 0, 1), "class 1 has 1 samples"),
    (lambda: p.Labels(1).assign(np.array([0] * 50 + [1] * 5), 2, None, 2, 0, 10), "leaves client . with 5 samples"),
    (lambda: p.Shards(3).assign(np.zeros(100, int), 1, None, 10, 0, 10), "Shards.k=3. with 10 clients leaves client"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_refused(make, message: str) -> None:
    with pytest.raises(SartorError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [p.Labels, p.Shards, p.Dirichlet, p.Hybrid, p.Dominant, p.PowerLaw])
def test_label_partitions_refuse_regression(kind: type) -> None:
    with pytest.raises(SartorError, match=f"{kind.__name__} needs class labels"):
        kind().assign(np.linspace(0, 1, 2000), None, None, 10, 0, 10)


@pytest.mark.parametrize("kind", [p.IID, p.Quantity, p.Noise])
def test_other_partitions_take_regression(kind: type) -> None:
    assert len(kind().assign(np.linspace(0, 1, 2000), None, None, 10, 0, 10).rows) == 10


@pytest.mark.parametrize("name", sorted(p.NAMES))
def test_frozen_documented_and_named(name: str) -> None:
    partition = p.NAMES[name]()
    assert (type(partition).__doc__ or "").split("\n")[0].endswith((".", ":"))
    assert p.name_of(partition) == name
    with pytest.raises((FrozenInstanceError, AttributeError)):
        partition.beta = 3
    assert p.parse(p.spell(partition)) == partition
