"""What every partition keeps to and refuses."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from dealt import Y, assign
from hypothesis import given, settings
from hypothesis import strategies as st

from sartor.data import partitions as p
from sartor.errors import SartorError

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
