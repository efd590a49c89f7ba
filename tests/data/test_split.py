"""Dataset.split: parts, scaling, noise, what is recorded and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sartor.data import IID, NAMES, Clients, Dataset, Hybrid, Labels, Natural, Noise, from_arrays, load
from sartor.data.dataset import cut_sizes
from sartor.data.partitions.assignment import Assignment
from sartor.errors import SartorError
from sartor.run.complete import resolve, target_of
from sartor.run.recipe import Recipe

N = 400


def numbered(n: int = N, classes: int = 4) -> Dataset:
    """Samples whose only feature is their number, so that we see where each went."""
    keys = np.arange(n) // 20
    return Dataset(np.arange(n, dtype=np.float64)[:, None], np.arange(n) % classes, classes, "numbered", keys)


def rows(clients: Clients) -> list[int]:
    return clients.x[:, 0].round().long().tolist()


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"noise", "dominant"}))
def test_no_sample_twice_and_labels_follow(name: str) -> None:
    clients = numbered().split(name, clients=8, seed=1)
    where = rows(clients)
    assert len(set(where)) == len(where) == clients.bounds[-1, 3]
    assert clients.y.tolist() == [i % 4 for i in where]
    assert (clients.bounds[1:, 0] == clients.bounds[:-1, 3]).all() and clients.bounds[0, 0] == 0
    assert len(clients) == len(clients.names) == 8


@pytest.mark.parametrize(
    ("n", "parts", "sizes"),
    [
        (7000, (0.72, 0.08, 0.20), (5040, 560, 1400)),
        (7000, (0.8, 0.0, 0.2), (5600, 0, 1400)),
        (10, (0.72, 0.08, 0.20), (7, 1, 2)),
        (10, (0.7, 0.15, 0.15), (6, 2, 2)),
        (3, (0.72, 0.08, 0.20), (1, 1, 1)),
        (2, (0.72, 0.08, 0.20), (1, 0, 1)),
        (1, (0.72, 0.08, 0.20), (1, 0, 0)),
        (2, (0.5, 0.5, 0.0), (1, 1, 0)),
        (10, (0.01, 0.5, 0.49), (1, 4, 5)),
        (5, (1.0, 0.0, 0.0), (5, 0, 0)),
        (1, (0.1, 0.0, 0.9), (1, 0, 0)),
    ],
)
def test_rounding_rule(n: int, parts: tuple[float, float, float], sizes: tuple[int, int, int]) -> None:
    assert cut_sizes(n, parts) == sizes


@given(st.integers(1, 5000), st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 1))
def test_parts_make_up_the_whole(n: int, a: float, b: float, c: float) -> None:
    parts = [v / (a + b + c) for v in (a, b, c)]
    sizes = cut_sizes(n, parts)
    assert sum(sizes) == n and sizes[0] >= 1 and min(sizes) >= 0
    if n >= 200:
        assert max(abs(s - n * p) for s, p in zip(sizes, parts, strict=True)) <= 2


def test_parts_are_shuffled_and_seeded() -> None:
    one, two, other = (numbered().split("iid", 4, seed) for seed in (0, 0, 1))
    assert rows(one) == rows(two) != rows(other)
    natural = numbered().split("natural", seed=0)
    assert rows(natural) != rows(numbered().split("natural", seed=1))  # same clients, other parts
    train = natural.x[natural.rows(0, "train"), 0].tolist()
    assert train != sorted(train)  # not the first rows of the client, but any
    assert natural.counts("train").tolist() == [14] * 20 and natural.counts("validation").tolist() == [2] * 20
    assert sorted(rows(natural)[:20]) == list(range(20))


def test_number_of_clients() -> None:
    assert len(numbered().split("iid")) == 10
    assert len(numbered().split(Natural())) == 20
    some = numbered().split(Natural(), clients=7, seed=0)
    assert len(some) == 7 and some.names != numbered().split(Natural(), clients=7, seed=1).names
    first = int(some.names[0])
    assert {i // 20 for i in rows(some)[:20]} == {first}


def test_images_are_scaled_by_channel() -> None:
    x = np.zeros((60, 2, 3, 3), dtype=np.uint8)
    x[:, 0], x[:, 1] = 255, 51
    data = Dataset(x, np.zeros(60, dtype=np.int64), 1, scale=((0.5, 0.1), (0.25, 0.2)))
    out = data.split("iid", 2)
    assert out.x.dtype == torch.float32 and out.x.shape == (60, 2, 3, 3)
    torch.testing.assert_close(out.x[:, 0], torch.full((60, 3, 3), 2.0))
    torch.testing.assert_close(out.x[:, 1], torch.full((60, 3, 3), 0.5))
    assert data.split("iid", 2, dtype=torch.float64).x.dtype == torch.float64
    assert data.x.max() == 255  # the data set itself stays as it was


def test_noise_has_the_stated_variance() -> None:
    clients = Dataset(np.zeros((800, 500), dtype=np.float32), np.zeros(800), None).split(Noise(0.5), 4)
    spread = [float(clients.x[low:high].var()) for low, high in clients.bounds[:, [0, 3]]]
    expected = [0.5 * i / 4 for i in (1, 2, 3, 4)]
    np.testing.assert_allclose(spread, expected, rtol=0.03)
    assert clients.about["noise_std"] == pytest.approx(np.sqrt(expected).tolist())
    again = Dataset(np.zeros((800, 500), dtype=np.float32), np.zeros(800), None).split(Noise(0.5), 4)
    assert torch.equal(clients.x, again.x)


def test_what_is_recorded() -> None:
    about = load("digits").split(Hybrid(2, 0.5), clients=10, seed=3).about
    assert about["source"] == "digits" and about["seed"] == 3 and about["overlap"] is False
    assert about["partition"] == {
        "name": "hybrid",
        "settings": {"labels": 2, "beta": 0.5},
        "text": "hybrid(labels=2, beta=0.5)",
    }
    sizes = about["sizes"]
    assert isinstance(sizes, dict) and sum(sizes.values()) == 1797 and sizes["test"] == pytest.approx(0.2 * 1797, abs=5)
    assert isinstance(about["measures"], dict) and about["measures"]["samples"] == 1797


def test_signs_stay_targets_and_can_be_split_by_label() -> None:
    y = np.where(np.arange(100) % 2, 1.0, -1.0)
    clients = Dataset(y[:, None].copy(), y, 2).split(Labels(1), 2)
    assert clients.y.is_floating_point() and set(clients.y.tolist()) == {-1.0, 1.0}
    assert len(set(clients.y[: int(clients.bounds[0, 3])].tolist())) == 1


@dataclass(frozen=True)
class Wrong:
    """A user's partition that breaks its promise."""

    rows: tuple[tuple[int, ...], ...]

    def assign(self, y, classes, keys, clients, seed, minimum) -> Assignment:
        return Assignment([np.array(r) for r in self.rows])


GOOD = np.zeros((20, 2))
BAD = np.array([[np.nan, 0.0]] * 20)
REFUSED = [
    (lambda: Dataset(BAD, np.zeros(20, dtype=int), 2), "the data hold NaN or Inf"),
    (lambda: Dataset(GOOD + np.inf, np.zeros(20, dtype=int), 2), "the data hold NaN or Inf"),
    (lambda: Dataset(GOOD, np.full(20, np.nan), None), "the targets hold NaN or Inf"),
    (lambda: Dataset(GOOD, np.full(20, 2), 2), r"labels must lie in 0..1; got 2..2"),
    (lambda: Dataset(GOOD, np.full(20, -1), 2), r"labels must lie in 0..1; got -1..-1"),
    (lambda: Dataset(GOOD, np.zeros(19, dtype=int), 2), "20 rows of x but 19 of y"),
    (lambda: Dataset(GOOD, np.zeros((20, 1), dtype=int), 2), "y must be one number per sample"),
    (lambda: Dataset(GOOD, np.zeros(20, dtype=int), 2, keys=np.zeros(3)), "20 samples but 3 client keys"),
    (lambda: Dataset(GOOD.astype(int), np.zeros(20, dtype=int), 2), "x must be float or uint8; got int64"),
    (lambda: Dataset(GOOD, np.zeros(20, dtype=int), None), "targets without classes must be float"),
    (lambda: Dataset(GOOD, np.arange(20.0), 2), "20 distinct targets but classes=2"),
    (lambda: Dataset(GOOD[:0], np.zeros(0), None), "there are no samples"),
    (lambda: numbered().split("iid", 0), "clients to be a whole number of at least 1; got 0"),
    (
        lambda: numbered().split("iid", 41),
        "41 clients with at least 10 samples each need 410 samples; the data have 400",
    ),
    (lambda: numbered().split("labels=5"), "5 labels per client asked for; the data have 4 classes"),
    (lambda: numbered().split("iid", parts=(0.5, 0.1, 0.1)), "sum to 1"),
    (lambda: numbered().split("iid", parts=(0.5, 0.5)), "three numbers"),
    (lambda: numbered().split("iid", parts=(1.2, -0.4, 0.2)), "three numbers"),
    (lambda: numbered().split("iid", parts=(0.0, 0.5, 0.5)), "the first above 0"),
    (lambda: numbered().split("iid", minimum=0), "split needs minimum"),
    (lambda: numbered().split("iid", seed=0.5), "split needs seed to be a whole number; got 0.5"),
    (lambda: load("digits").split("natural"), "Natural needs a client key"),
    (lambda: numbered().split(Wrong(((0, 1), (1, 2))), minimum=1), "1 samples belong to two clients"),
    (lambda: numbered().split(Wrong(((0, 0), (1, 2))), minimum=1), "client 0 holds a sample twice"),
    (lambda: numbered().split(Wrong(((0, 400),)), minimum=1), r"client 0 has rows outside 0..399"),
    (lambda: numbered().split(Wrong(((0, 1),)), minimum=3), "leaves client 0 with 2 samples; at least 3"),
    (lambda: numbered().split(Wrong(()), minimum=3), "made no clients"),
    (lambda: from_arrays(GOOD, np.linspace(0, 1, 20)).split("labels"), "Labels needs class labels"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_refused(make, message: str) -> None:
    with pytest.raises(SartorError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_ones_own_partition_is_welcome() -> None:
    clients = numbered().split(Wrong(((5, 6, 7), (1, 2))), minimum=1)
    assert sorted(rows(clients)[:3]) == [5, 6, 7]
    partition = clients.about["partition"]
    assert isinstance(partition, dict) and partition["name"] == "Wrong"


def test_split_takes_objects_and_text() -> None:
    assert rows(numbered().split(IID(), 3)) == rows(numbered().split("iid", 3))


def test_targets_that_are_numbers_are_put_to_one_scale() -> None:
    """By all clients' training rows, against NumPy: a difference between clients stays one; test rows have no say."""
    draw = np.random.default_rng(0)
    keys = np.repeat(["a", "b"], 100)
    x, y = draw.normal(size=(200, 3)), 1000 + 50 * (keys == "b") + draw.normal(size=200)
    data = load((x, y, keys), task="regression")
    clients, plain = (data.split("natural", dtype=torch.float64, target=how) for how in ("pooled", "raw"))
    assert clients.inputs is not None and plain.inputs is not None and plain.inputs.target_scale == (0.0, 1.0)
    train = np.concatenate([plain.y[plain.rows(i, "train")].numpy() for i in range(2)])
    assert clients.inputs.target_scale == pytest.approx((train.mean(), train.std()), rel=1e-12)
    np.testing.assert_allclose(clients.y, (plain.y.numpy() - train.mean()) / train.std(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(clients.inputs.in_units(clients.y), plain.y, rtol=1e-12)
    np.testing.assert_allclose(clients.inputs.scaled_target(plain.y.numpy()), clients.y, rtol=1e-12)
    a, b = (float(clients.y[clients.rows(i, "train")].mean()) for i in range(2))
    assert b - a == pytest.approx(50 / train.std(), rel=0.02)


def test_a_constant_target_and_one_that_is_huge_stay_finite() -> None:
    x, keys = np.zeros((40, 1)), np.repeat(["a", "b"], 20)
    flat = load((x, np.full(40, 7.3), keys), task="regression").split("natural")
    assert flat.inputs is not None and flat.inputs.target_scale == pytest.approx((7.3, 1.0), rel=1e-6)
    assert float(flat.y.abs().max()) < 1e-5
    huge = load((x, np.linspace(-1e200, 1e200, 40), keys), task="regression")
    assert bool(torch.isfinite(huge.split("natural", dtype=torch.float64).y).all())
    with pytest.raises(SartorError, match="target to be one of 'pooled', 'raw'; got 'own'"):
        huge.split("natural", target="own")


def test_classes_and_ends_are_not_scaled() -> None:
    data = Dataset(np.zeros((40, 1)), np.tile([-1.0, 1.0], 20), 2)
    assert set(data.split("iid", clients=2).y.tolist()) == {-1.0, 1.0}
    assert load("digits").split("iid").y.dtype == torch.int64


def test_statistics_of_all_clients_are_not_used_where_privacy_is_promised() -> None:
    own = {"data": "digits", "target": None}
    assert resolve(Recipe(**own)).columns == "pooled" and target_of(Recipe(**own)) == "pooled"
    private = Recipe(**own, dp_noise=1.0)
    assert resolve(private).columns == "own" and target_of(private) == "raw"
    assert resolve(private.replace(columns="pooled")).columns == "pooled"


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    found = load("digits")
    assert np.array_equal(found.x, (x / 16).astype(np.float32)) and np.array_equal(found.y, y)
