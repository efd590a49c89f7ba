"""Every aggregator against an executed NumPy oracle, its published guarantee, and what none of them may depend on."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from sartor import aggregators, spelling
from sartor.aggregators import (
    NAMES,
    Aggregator,
    Clipping,
    FairDirection,
    GeometricMedian,
    KLoss,
    KNorm,
    Krum,
    Mean,
    Median,
    MultiKrum,
    TrimmedMean,
)
from sartor.aggregators.base import gram, regram
from sartor.aggregators.min_norm import min_norm
from sartor.errors import SartorError
from sartor.methods.parts.last_messages import mean_of_last, remembering
from sartor.run.named_parts import aggregator

ALL = [made() for made in NAMES.values()]
NAME = {type(a): n for n, a in zip(NAMES, ALL, strict=True)}
ids = pytest.mark.parametrize("rule", ALL, ids=lambda a: NAME[type(a)])


def call(rule: Aggregator, messages: np.ndarray, weights: np.ndarray | None = None, **more: np.ndarray) -> np.ndarray:
    """The rule on arrays; k-loss gets losses that rise with the first coordinate unless it is given others."""
    w = np.ones(len(messages)) if weights is None else weights
    more = {"losses": messages[:, 0], **more} if rule.needs_losses else more
    found = rule(torch.as_tensor(messages), torch.as_tensor(w), **{k: torch.as_tensor(v) for k, v in more.items()})
    return found.numpy()


def draw(n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Messages, weights, reference."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, k)), rng.uniform(0.5, 2.0, size=n), rng.normal(size=k)


# --- hand-sized numbers -----------------------------------------------------------------------------------------------

HAND = np.array([[1.0, 10.0], [2.0, 30.0], [4.0, 20.0], [8.0, 0.0], [100.0, -50.0]])


@pytest.mark.parametrize(
    ("text", "more", "answer"),
    [
        ("mean", {}, [23.0, 2.0]),
        ("median", {}, [4.0, 10.0]),
        ("trimmed-mean(share=0.2)", {}, [14 / 3, 10.0]),
        ("trimmed-mean(share=0.4)", {}, [4.0, 10.0]),
        ("krum(f=1)", {}, [4.0, 20.0]),  # its two nearest are 104 and 109 away; of the first message 109 and 149
        ("k-norm(k=1)", {}, [3.75, 15.0]),
        ("k-norm(k=3)", {}, [4.5, 5.0]),
        ("k-loss(k=1)", {"losses": np.array([5.0, 1.0, 4.0, 2.0, 3.0])}, [4.0, 20.0]),
        ("k-loss(k=0)", {"losses": np.array([5.0, 1.0, 4.0, 2.0, 3.0])}, [1.0, 10.0]),
        ("k-loss", {"losses": np.array([5.0, 1.0, 4.0, 2.0, 3.0])}, [100.0, -50.0]),  # the median loss
        ("fedmgda(epsilon=0, eta=1)", {}, (HAND / np.linalg.norm(HAND, axis=1, keepdims=True)).mean(0)),
    ],
)
def test_hand_sized_numbers(text: str, more: dict[str, Any], answer: list[float]) -> None:
    np.testing.assert_allclose(call(aggregator(text), HAND, **more), answer, rtol=1e-12)


def test_weights_count() -> None:
    """A client of weight 3 is three clients of weight 1, for all rules that know weights."""
    once, thrice = HAND, HAND[[0, 1, 1, 1, 2, 3, 4]]
    w = np.array([1.0, 3.0, 1.0, 1.0, 1.0])
    for rule in (Mean(), Median(), GeometricMedian(), Clipping(norm=20.0), FairDirection(epsilon=0.0, eta=1.0)):
        np.testing.assert_allclose(call(rule, once, w), call(rule, thrice), rtol=1e-6, err_msg=str(rule))


# --- executed oracles -------------------------------------------------------------------------------------------------


def by_hand_krum(x: np.ndarray, f: int) -> np.ndarray:
    """Scores by the definition, with loops."""
    n = len(x)
    away = [[float(((x[i] - x[j]) ** 2).sum()) for j in range(n) if j != i] for i in range(n)]
    return np.array([sum(sorted(row)[: n - f - 2]) for row in away])


SIZES = [(5, 3), (8, 1), (9, 40), (12, 7)]


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_medians_and_means_against_numpy(n: int, k: int) -> None:
    x, w, _ = draw(n, k)
    np.testing.assert_allclose(call(Mean(), x, w), np.average(x, axis=0, weights=w), rtol=1e-12)
    np.testing.assert_allclose(call(Median(), x), np.median(x, axis=0), rtol=1e-12)
    for share in (0.1, 0.2, 0.34):
        cut = int(share * n)
        oracle = np.sort(x, axis=0)[cut : n - cut].mean(0)
        np.testing.assert_allclose(call(TrimmedMean(share), x), oracle, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_a_weighted_median_has_half_of_the_weight_on_either_side(n: int, k: int) -> None:
    x, w, _ = draw(n, k)
    m = call(Median(), x, w)
    for j in range(k):
        assert w[x[:, j] < m[j]].sum() <= w.sum() / 2 and w[x[:, j] > m[j]].sum() <= w.sum() / 2


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_krum_against_its_definition(n: int, k: int) -> None:
    x, w, reference = draw(n, k)
    for f in range((n - 3) // 2 + 1):
        scores = by_hand_krum(x, f)
        np.testing.assert_allclose(aggregators.distances.krum_scores(x @ x.T, f), scores, rtol=1e-10)
        np.testing.assert_array_equal(call(Krum(f), x), x[scores.argmin()])
        np.testing.assert_array_equal(call(Krum(f), x, reference=reference), x[scores.argmin()])
        best = np.argsort(scores)[: n - f - 2]
        np.testing.assert_allclose(call(MultiKrum(f), x, w), np.average(x[best], axis=0, weights=w[best]), rtol=1e-10)
        best = np.argsort(scores)[: n - f]
        np.testing.assert_allclose(call(MultiKrum(f, keep=n - f), x), x[best].mean(0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_the_geometric_median_has_no_slope(n: int, k: int) -> None:
    """At the minimum the weighted unit vectors cancel, or the median is one of the messages."""
    x, w, _ = draw(n, k)
    m = call(GeometricMedian(), x, w)

    def cost(p: np.ndarray) -> float:
        return float((w * np.linalg.norm(x - p, axis=1)).sum())

    assert all(cost(m) <= cost(m + 1e-4 * d) for d in np.random.default_rng(1).normal(size=(200, k)))
    away = np.linalg.norm(x - m, axis=1)
    if k == 1:
        assert away.min() == 0  # on a line it is a weighted median
    else:
        slope = (w[:, None] * (x - m) / away[:, None]).sum(0)
        assert np.abs(slope).max() < 1e-8 * w.sum()


def test_the_geometric_median_of_a_triangle_is_its_fermat_point() -> None:
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
    np.testing.assert_allclose(call(GeometricMedian(), corners), corners.mean(0), atol=1e-9)
    lone = np.array([[0.0, 0.0], [1.0, 0.1], [-1.0, 0.1]])  # an angle above 120°: the corner itself
    np.testing.assert_array_equal(call(GeometricMedian(), lone), [0.0, 0.0])
    line = np.array([[1.0], [2.0], [5.0], [9.0]])  # all of [2, 5] is as good
    np.testing.assert_allclose(call(GeometricMedian(), line), [3.5])


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_norm_rules_against_numpy(n: int, k: int) -> None:
    x, w, reference = draw(n, k)
    u = x - reference
    norms = np.linalg.norm(u, axis=1)
    clipped = u * np.minimum(1, np.median(norms) / norms)[:, None]
    oracle = reference + np.average(clipped, axis=0, weights=w)
    np.testing.assert_allclose(call(Clipping(), x, w, reference=reference), oracle, rtol=1e-10, atol=1e-12)
    for kept in (n - 1, n - 2, 1):
        best = np.argsort(norms)[:kept]
        oracle = np.average(x[best], axis=0, weights=w[best])
        np.testing.assert_allclose(call(KNorm(n - kept), x, w, reference=reference), oracle, rtol=1e-10, atol=1e-12)
    losses = np.random.default_rng(2).uniform(size=n)
    for k_ in range(n):
        found = call(KLoss(k_), x, losses=losses)
        np.testing.assert_array_equal(found, x[np.argsort(-losses)[k_]])


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_fedmgda_against_scipy(n: int, k: int, epsilon: float) -> None:
    from scipy.optimize import minimize

    x, w, reference = draw(n, k)
    u = x - reference
    norms = np.linalg.norm(u, axis=1)
    g, first = u / norms[:, None], w / w.sum()
    box = [(max(0, p - epsilon), min(1, p + epsilon)) for p in first]
    oracle = minimize(
        lambda lam: float(((lam @ g) ** 2).sum()),
        first,
        jac=lambda lam: 2 * g @ (lam @ g),
        bounds=box,
        constraints={"type": "eq", "fun": lambda lam: lam.sum() - 1, "jac": lambda lam: np.ones(n)},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 2000},
    )
    found = call(FairDirection(epsilon), x, w, reference=reference)
    np.testing.assert_allclose(found, reference + np.median(norms) * (oracle.x @ g), atol=1e-5)
    lam = min_norm(gram(torch.as_tensor(g)).numpy(), first, *np.array(box).T)
    assert abs(lam.sum() - 1) < 1e-12 and all(a - 1e-12 <= v <= b + 1e-12 for v, (a, b) in zip(lam, box, strict=True))
    assert ((lam @ g) ** 2).sum() <= oracle.fun + 1e-9


# --- published guarantees ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 8, 11, 20])
@pytest.mark.parametrize("together", [True, False], ids=["one far cluster", "scattered"])
def test_krum_takes_benign_messages_only(n: int, together: bool) -> None:
    """With n >= 2f + 3 and outliers far away, Krum and multi-Krum pick benign messages only; all, with keep = n − f."""
    for f in range(1, (n - 3) // 2 + 1):
        rng = np.random.default_rng(n * f)
        benign = rng.normal(size=(n - f, 6))
        far = np.ones((f, 6)) if together else rng.normal(size=(f, 6))
        x = np.concatenate([benign, 1e4 * far])[rng.permutation(n)]
        assert np.abs(call(Krum(f), x)).max() < 10
        assert np.abs(call(MultiKrum(f), x)).max() < 10
        np.testing.assert_allclose(call(MultiKrum(f, keep=n - f), x), benign.mean(0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rule", [Median(), GeometricMedian(), Clipping(), KNorm()], ids=lambda a: NAME[type(a)])
@pytest.mark.parametrize("size", [1e3, 1e9])
def test_a_minority_cannot_move_the_result_far(rule: Aggregator, size: float) -> None:
    """4 of 9 messages as large as they like: the result stays among the benign; the mean does not."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(5, 4)), size * rng.normal(size=(4, 4))])
    assert np.linalg.norm(call(rule, x)) < 10
    assert np.linalg.norm(call(Mean(), x)) > 10


def test_the_trimmed_mean_stays_between_benign_values() -> None:
    """Yin et al.: with at most as many hostile as are trimmed, every coordinate lies in the benign range."""
    rng = np.random.default_rng(0)
    benign = rng.normal(size=(7, 5))
    for hostile in (np.full((3, 5), 1e6), np.full((3, 5), -1e6), 1e6 * rng.normal(size=(3, 5))):
        found = call(TrimmedMean(0.3), np.concatenate([benign, hostile]))
        assert (found >= benign.min(0)).all() and (found <= benign.max(0)).all()


def test_k_loss_leaves_out_the_k_largest_losses() -> None:
    x, _, _ = draw(7, 3)
    losses = np.array([0.1, 9.0, 0.3, 8.0, 0.2, 7.0, 0.15])
    np.testing.assert_array_equal(call(KLoss(3), x, losses=losses), x[2])


def test_fedmgda_descends_for_everybody() -> None:
    """Hu et al.: with ε = 1 the common direction has no negative product with any update (here they are far apart)."""
    for seed in range(5):
        x, w, _ = draw(6, 30, seed)
        step = call(FairDirection(epsilon=1.0), x, w)
        assert ((x @ step) > -1e-9).all()


# --- what no rule may depend on ---------------------------------------------------------------------------------------


@ids
def test_the_order_of_messages_does_not_matter(rule: Aggregator) -> None:
    for n in (1, 2, 3, 4, 5):
        x, w, reference = draw(n, 4, seed=n)
        found = call(rule, x, w, reference=reference)
        for order in itertools.permutations(range(n)):
            again = call(rule, x[list(order)], w[list(order)], reference=reference)
            np.testing.assert_allclose(again, found, rtol=1e-9, atol=1e-9)


@ids
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_type_and_shape_are_kept_and_nothing_is_changed(rule: Aggregator, dtype: torch.dtype) -> None:
    x, w, reference = (torch.as_tensor(v).to(dtype) for v in draw(7, 9))
    kept = x.clone()
    found = rule(x, w, reference, x[:, 0].clone())
    assert found.dtype == dtype and found.shape == (9,) and torch.equal(x, kept)


@ids
def test_equal_messages_give_that_message(rule: Aggregator) -> None:
    """So on clients that all have the same data, no rule changes any method."""
    for n in (1, 2, 3, 6):
        x = np.tile([1.5, -2.0, 7.0], (n, 1))
        np.testing.assert_allclose(call(rule, x, reference=np.zeros(3)), x[0], rtol=1e-6)
    assert np.array_equal(call(rule, np.zeros((4, 3))), np.zeros(3))


@ids
def test_moving_and_scaling_the_messages_moves_and_scales_the_result(rule: Aggregator) -> None:
    x, w, reference = draw(8, 5)
    losses = {"losses": x[:, 1].copy()} if rule.needs_losses else {}
    found = call(rule, x, w, reference=reference, **losses)
    moved = call(rule, 3 * x + 7, w, reference=3 * reference + 7, **losses)
    np.testing.assert_allclose(moved, 3 * found + 7, rtol=1e-6)


@ids
def test_long_messages_are_taken_in_parts(rule: Aggregator, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, reference = draw(7, 50)
    whole = call(rule, x, w, reference=reference)
    monkeypatch.setattr(aggregators.base, "_COLUMNS", 8)
    np.testing.assert_allclose(call(rule, x, w, reference=reference), whole, rtol=1e-7, atol=1e-9)


@ids
def test_a_rule_with_too_few_messages_takes_what_fits(rule: Aggregator) -> None:
    """Clients fail: a rule that was right for the cohort must still answer, and answer finite numbers."""
    harsh = {Krum: Krum(5), MultiKrum: MultiKrum(5, keep=6), KNorm: KNorm(5), KLoss: KLoss(5)}.get(type(rule), rule)
    for n in (1, 2, 3):
        x, w, _ = draw(n, 3)
        found = call(harsh, x, w)
        assert np.isfinite(found).all()
        if n == 1:
            np.testing.assert_allclose(found, x[0], rtol=1e-6)


# --- text and bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [*NAMES, "krum(f=2)", "multi-krum(f=1, keep=3)", "trimmed-mean(share=0.1)", "clipping(norm=2.5)", "fedmgda(0.5)"],
)
def test_text_gives_the_rule_back(text: str) -> None:
    rule = aggregator(text)
    assert aggregator(spelling.write(NAMES, rule)) == rule
    assert text.split("(")[0] == spelling.write(NAMES, rule).split("(")[0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Krum(-1), "f >= 0"),
        (lambda: MultiKrum(keep=0), "keep >= 1"),
        (lambda: TrimmedMean(0.5), "trims everything"),
        (lambda: TrimmedMean(float("nan")), "trims everything"),
        (lambda: TrimmedMean(-0.1), "share"),
        (lambda: KNorm(-1), "k >= 0"),
        (lambda: KLoss(-1), "k >= 0"),
        (lambda: Clipping(0.0), "norm > 0"),
        (lambda: GeometricMedian(smooth=0.0), "smooth > 0"),
        (lambda: FairDirection(1.5), "epsilon"),
        (lambda: FairDirection(eta=-1.0), "eta > 0"),
        (lambda: Krum(2).check(6), "2f \\+ 3 = 7"),
        (lambda: MultiKrum(2).check(6), "2f \\+ 3 = 7"),
        (lambda: Krum().check(2), "at least 3"),
        (lambda: MultiKrum(1, keep=9).check(9), "keep <= 8"),
        (lambda: KNorm(5).check(5), "k <= 4"),
        (lambda: KLoss(5).check(5), "k <= 4"),
        (lambda: KLoss()(torch.ones(3, 2), torch.ones(3)), "losses"),
    ],
)
def test_refused(make: Any, words: str) -> None:
    with pytest.raises(SartorError, match=words):
        make()


def test_enough_messages_are_not_refused() -> None:
    Krum(2).check(7)
    MultiKrum(2, keep=5).check(7)
    TrimmedMean(0.2).check(5)
    KNorm(4).check(5)


def test_inner_products_are_taken_anew_only_with_what_changed() -> None:
    rng = np.random.default_rng(5)
    x = torch.as_tensor(rng.normal(size=(7, 40)))
    G = gram(x)
    x[[2, 5]] = torch.as_tensor(rng.normal(size=(2, 40)))
    G[0, 1] = G[1, 0] = 99.0  # of clients that did not change: believed, not computed
    new = regram(G, x, torch.tensor([2, 5]))
    expected = x.numpy() @ x.numpy().T
    expected[0, 1] = expected[1, 0] = 99.0
    np.testing.assert_allclose(new.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("aggregate", [Krum(), MultiKrum(), GeometricMedian()])
def test_from_kept_products_as_from_the_messages(aggregate: Aggregator) -> None:
    """FLAME keeps the products of everyone's last u about the origin; a cohort of 4 of 9 changes them bit by bit."""
    rng = np.random.default_rng(6)
    first = torch.as_tensor(rng.normal(size=12))
    server = remembering(9, first, aggregate)
    last = first.expand(9, -1).clone()
    for _ in range(6):
        ids = torch.as_tensor(np.sort(rng.choice(9, 4, replace=False)))
        last[ids] = torch.as_tensor(rng.normal(size=(4, 12)))
        server = mean_of_last(server, ids, {"u": last[ids]}, aggregate)
        expected = aggregate(last, torch.ones(9, dtype=torch.float64), torch.as_tensor(rng.normal(size=12)))
        torch.testing.assert_close(server["w"], expected, rtol=1e-6, atol=1e-6)
