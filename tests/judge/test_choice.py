"""The choice between personal, global and mixed models: against a plain oracle, its limits, and federations whose truth
is known."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from groups import grouped
from scipy import linalg, stats
from torch import nn

import sartor as st
from sartor.data import Clients
from sartor.judge import SHARES, better_of_two, choose, expected_gains, summarise, validated, with_chosen
from sartor.judge.choice import unguided
from sartor.models import layers
from sartor.testing import ragged

Samples = list[dict[str, np.ndarray]]  # for each client the merit of every model on each of its validation samples


def told(samples: Samples, **test: np.ndarray) -> dict[str, np.ndarray]:
    """What clients with these validation samples tell, by the definition of each number."""
    out: dict[str, np.ndarray] = {"validation/samples": np.array([len(one["personal"]) for one in samples], float)}
    others = [m for m in samples[0] if m != "personal"]
    for a, b in itertools.combinations_with_replacement(others, 2):
        both = [np.stack([one[a] - one["personal"], one[b] - one["personal"]]) for one in samples]
        out[f"{a}&{b}/validation/covariance"] = np.array(
            [np.cov(x, bias=True)[0, 1] if x.size else np.nan for x in both]
        )
    for model in samples[0]:
        nothing = [len(one[model]) == 0 for one in samples]
        means = [np.nan if no else one[model].mean() for no, one in zip(nothing, samples, strict=True)]
        out[f"{model}/validation/merit"] = np.array(means)
        for part in ("validation", "test"):
            out[f"{model}/{part}/accuracy"] = test.get(model, np.array(means))
            out[f"{model}/{part}/loss"] = 1 - out[f"{model}/{part}/accuracy"]
    return out


def oracle(samples: Samples) -> list[float]:
    """The expected gains of the global model where there are two: client by client, as a textbook writes them
    (DerSimonian and Laird's moments for how clients differ, then precisions)."""
    gaps = [one["global"] - one["personal"] for one in samples]
    heard = [gap for gap in gaps if len(gap)]
    means, sizes = [sum(gap) / len(gap) for gap in heard], [len(gap) for gap in heard]
    squares = sum(sum((x - mean) ** 2 for x in gap) for gap, mean in zip(heard, means, strict=True))
    sigma2 = squares / sum(n - 1 for n in sizes)
    pooled = sum(n * mean for n, mean in zip(sizes, means, strict=True)) / sum(sizes)
    q = sum(n * (mean - pooled) ** 2 for n, mean in zip(sizes, means, strict=True)) / sigma2
    scale = (sum(sizes) - sum(n * n for n in sizes) / sum(sizes)) / sigma2
    tau2 = max(0.0, (q - (len(heard) - 1)) / scale)
    precision = [1 / (tau2 + sigma2 / n) for n in sizes]
    mu = sum(p * mean for p, mean in zip(precision, means, strict=True)) / sum(precision)
    found = []
    for gap in gaps:
        if len(gap) == 0 or tau2 == 0:
            found.append(mu)
        else:  # precision-weighted mean of what the client says and of what is usual
            own, usual = len(gap) / sigma2, 1 / tau2
            found.append((own * sum(gap) / len(gap) + usual * mu) / (own + usual))
    return found


def oracle_of_all(samples: Samples) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mean [4] and covariance [4, 4] of every client's gains: the same for all models at once. What is not known of a
    client has the covariance of (true gains − estimate), which is that of its errors, term by term."""
    gaps = [np.stack([one[m] - one["personal"] for m in list(SHARES)[1:]], 1) for one in samples]
    heard = [gap for gap in gaps if len(gap)]
    means, sizes = np.array([gap.mean(0) for gap in heard]), np.array([len(gap) for gap in heard])
    sigma = sum(np.atleast_2d(np.cov(gap.T)) * (len(gap) - 1) for gap in heard if len(gap) > 1)
    sigma = sigma / sum(n - 1 for n in sizes)
    pooled = np.average(means, axis=0, weights=sizes)
    around = sum(n * np.outer(x - pooled, x - pooled) for n, x in zip(sizes, means, strict=True))
    excess = (around - (len(heard) - 1) * sigma) / (sizes.sum() - (sizes**2).sum() / sizes.sum())
    values, vectors = linalg.eigh(excess)
    between = sum(max(v, 0.0) * np.outer(x, x) for v, x in zip(values, vectors.T, strict=True))
    weights = 1 / (np.trace(between) + np.trace(sigma) / sizes)
    mu = np.average(means, axis=0, weights=weights)
    parts = (weights / weights.sum()) ** 2
    of_mu = sum(part * (between + sigma / n) for part, n in zip(parts, sizes, strict=True))
    found = []
    for gap in gaps:
        if len(gap) == 0:
            found.append((mu, between + of_mu))
            continue
        b = np.linalg.lstsq(between + sigma / len(gap), between, rcond=1e-10)[0].T
        left = np.eye(4) - b
        spread = left @ between @ left.T + b @ sigma @ b.T / len(gap) + left @ of_mu @ left.T
        found.append((mu + b @ (gap.mean(0) - mu), spread))
    return found


def drawn(seed: int, sizes: list[int], spread: float = 0.3, models: tuple[str, ...] = tuple(SHARES)) -> Samples:
    """Right and wrong answers of clients whose models are right with other probabilities each."""
    rng = np.random.default_rng(seed)
    chances = [{m: np.clip(0.6 + spread * rng.standard_normal(), 0.05, 0.95) for m in models} for _ in sizes]
    return [
        {m: (rng.random(n) < chance).astype(float) for m, chance in own.items()}
        for own, n in zip(chances, sizes, strict=True)
    ]


SIZES = [1, 2, 3, 0, 8, 20, 50, 4]


@pytest.mark.parametrize("seed", range(8))
def test_with_two_models_the_rule_is_the_textbook_s(seed: int) -> None:
    samples = drawn(seed, SIZES, models=("personal", "global"))
    found, wanted = expected_gains(told(samples)), oracle(samples)
    assert list(found) == ["personal", "global"] and not found["personal"].any()
    assert found["global"] == pytest.approx(wanted, abs=1e-12)
    assert choose(told(samples)).tolist() == ["global" if gain > 0 else "personal" for gain in wanted]


@pytest.mark.parametrize("seed", range(8))
def test_with_all_models_the_rule_is_what_it_says(seed: int) -> None:
    """The share that is taken is nearest to the mean of the best one's, here by other and many more draws."""
    samples = drawn(seed, SIZES)
    scores, shares = told(samples), np.array(list(SHARES.values()))
    found, picked = expected_gains(scores), choose(scores).tolist()
    assert list(found) == list(SHARES)
    for i, (mean, spread) in enumerate(oracle_of_all(samples)):
        expected = np.array([found[m][i] for m in SHARES])
        assert expected[1:] == pytest.approx(mean, abs=1e-9)
        draws = np.random.default_rng(seed).multivariate_normal(mean, spread, 50_000, method="eigh")
        gains = np.column_stack([np.zeros(len(draws)), draws])
        wanted = shares[gains.argmax(1)].mean()
        doubt = gains[:, [expected.argmax()]] - gains
        allowed = expected.max() - expected <= 3.0 * doubt.std(0) + 1e-12
        nearest = np.abs(shares[allowed] - wanted).min()
        assert allowed[list(SHARES).index(picked[i])]
        assert abs(SHARES[picked[i]] - wanted) <= nearest + 0.1  # 128 draws have the mean to about 0.04


def test_who_cannot_know_takes_a_mixture_and_never_one_that_is_worse_beyond_doubt() -> None:
    """Both models are right on every other sample, the mixtures on all of them or, as with networks, on none."""
    one = {"personal": np.tile([1.0, 0.0], 40), "global": np.tile([0.0, 1.0], 40)}
    for right, takes in ((1.0, {"mix75", "mix50", "mix25"}), (0.0, {"personal", "global"})):
        samples = [{m: one.get(m, np.full(80, right)) for m in SHARES} for _ in range(5)]
        assert set(choose(told(samples)).tolist()) <= takes
    flat = [{m: np.roll(np.tile([1.0, 0.0], 3), i + j) for j, m in enumerate(SHARES)} for i in range(8)]
    assert set(choose(told(flat)).tolist()) == {"mix50"}  # in the mean all are alike, and nobody differs


@pytest.mark.parametrize("seed", range(4))
def test_it_does_not_matter_which_model_the_others_are_held_against(seed: int) -> None:
    """With personal and global models in each other's places gains change sign, and choices their names."""
    other = {"personal": "global", "global": "personal"}
    samples = drawn(seed, SIZES, models=("personal", "global"))
    turned = [{other[m]: v for m, v in one.items()} for one in samples]
    assert expected_gains(told(turned))["global"] == pytest.approx(-expected_gains(told(samples))["global"])


def test_clients_that_do_not_differ_take_what_is_best_in_general() -> None:
    """Every client's samples are the same few draws: no spread between clients beyond chance."""
    one = {"personal": np.array([1.0, 0, 0, 1]), "global": np.array([1.0, 1, 1, 0])}
    samples = [{m: np.roll(v, i) for m, v in one.items()} for i in range(6)] + [{m: v[:0] for m, v in one.items()}]
    found = expected_gains(told(samples))["global"]
    assert found == pytest.approx(np.full(7, 0.25)) and choose(told(samples)).tolist() == ["global"] * 7


def test_a_client_with_few_samples_is_led_by_the_others_and_one_with_many_is_not() -> None:
    """Two of two samples speak for the global model, or two thousand: 20 others are better off without it."""
    rng = np.random.default_rng(0)
    others = [{"personal": (rng.random(50) < 0.9) * 1.0, "global": (rng.random(50) < 0.6) * 1.0} for _ in range(20)]
    for n, takes in ((2, "personal"), (2000, "global")):
        odd = {"personal": np.tile([0.0, 1.0], n // 2), "global": np.ones(n)}
        picked = choose(told([*others, odd]))
        assert picked[-1] == takes and set(picked[:-1]) == {"personal"}


@pytest.mark.parametrize("seed", range(5))
def test_with_many_samples_every_client_takes_its_own_best(seed: int) -> None:
    samples = drawn(seed, [200_000] * 5)
    best = [max(one, key=lambda m: one[m].mean()) for one in samples]
    assert choose(told(samples)).tolist() == best and len(set(best)) > 1


def test_with_one_sample_each_nothing_is_known_of_chance() -> None:
    samples = [{"personal": np.ones(1), "global": np.zeros(1)}] * 3 + [{"personal": np.zeros(1), "global": np.ones(1)}]
    assert choose(told(samples)).tolist() == ["personal"] * 4


def test_hostile_clients_count_for_nothing() -> None:
    samples = drawn(3, [5, 9, 14, 30, 7])
    benign = np.array([True, True, True, False, True])
    heard = {k: np.where(benign, v, np.nan) for k, v in told(samples).items()}
    without = told([one for one, good in zip(samples, benign, strict=True) if good])
    assert choose(heard)[benign].tolist() == choose(without).tolist()
    assert validated(heard) == validated(heard, benign) == validated(without)


def test_the_choice_does_not_look_at_test_data() -> None:
    scores = told(drawn(1, [4, 7, 12, 3, 25]))
    other = {k: np.random.default_rng(0).random(len(v)) if "/test/" in k else v for k, v in scores.items()}
    assert choose(scores).tolist() == choose(other).tolist() and validated(scores) == validated(other)
    assert better_of_two(scores, "test").tolist() != better_of_two(other, "test").tolist()  # as the oracle does
    found = with_chosen(other)
    assert found["chosen/test/loss"].tolist() == [
        other[f"{m}/test/loss"][i] for i, m in enumerate(choose(scores).tolist())
    ]


def test_without_validation_data_everyone_takes_its_own_and_is_told_why() -> None:
    scores = told([{m: np.zeros(0) for m in SHARES}] * 3)
    assert choose(scores).tolist() == ["personal"] * 3 and validated(scores) is None and expected_gains(scores) == {}
    assert "no client has validation data" in unguided(scores)[0] and not unguided(told(drawn(0, [1, 0])))
    alone = {k: v for k, v in scores.items() if k.startswith("personal/") and "covariance" not in k}
    assert choose(alone).tolist() == ["personal"] * 3 and not unguided(alone)


# --- federations whose truth is known ---------------------------------------------------------------------------------


def simulated(seed: int, between: float, clients: int = 40) -> tuple[Samples, dict[str, np.ndarray]]:
    """Clients with 2 to 12 validation samples, and every model's true chance to be right at each client.

    A sample's margins are normal, with correlation 0.7 between the two models; a mixture's margin is the mixture of
    theirs, as of linear models. In general the two are equally good; clients differ in which is better by `between`.
    """
    rng, rest = np.random.default_rng(seed), 0.7
    level, gap = rng.normal(0.8, 0.4, clients), rng.normal(0.0, between, clients)
    own, common = level - gap / 2, level + gap / 2
    truth = {
        m: stats.norm.cdf((s * own + (1 - s) * common) / np.sqrt(s**2 + (1 - s) ** 2 + 2 * rest * s * (1 - s)))
        for m, s in SHARES.items()
    }
    samples = []
    for i, n in enumerate(rng.integers(2, 13, clients)):
        z = rng.standard_normal((3, n))
        a, b = (mean + np.sqrt(rest) * z[0] + np.sqrt(1 - rest) * z[k] for k, mean in ((1, own[i]), (2, common[i])))
        samples.append({m: (s * a + (1 - s) * b > 0).astype(float) for m, s in SHARES.items()})
    return samples, truth


def worth(truth: dict[str, np.ndarray], picked: np.ndarray) -> float:
    return float(np.mean([truth[m][i] for i, m in enumerate(picked.tolist())]))


@pytest.mark.parametrize("between", [0.0, 0.2])
def test_where_clients_differ_little_it_beats_the_better_of_two(between: float) -> None:
    """In the mean over 60 federations: above the model that is truly better in general, which nobody is told, and above
    the better of two on each client's samples."""
    ours, before, general = [], [], []
    for seed in range(60):
        samples, truth = simulated(seed, between)
        scores = told(samples)
        ours.append(worth(truth, choose(scores)))
        before.append(worth(truth, better_of_two(scores, "validation")))
        general.append(max(truth["personal"].mean(), truth["global"].mean()))
    for other in (before, general):
        lead = np.array(ours) - np.array(other)
        assert lead.mean() > 3 * lead.std() / np.sqrt(60)


@pytest.mark.parametrize("between", [0.8, 1.2])
def test_where_clients_differ_much_each_goes_its_own_way(between: float) -> None:
    """Then one model for all is points worse, and the better of two on each client's samples by half a point better."""
    each = []
    for seed in range(60):
        samples, truth = simulated(seed, between)
        scores = told(samples)
        before = worth(truth, better_of_two(scores, "validation"))
        each.append((worth(truth, choose(scores)), before, max(truth["personal"].mean(), truth["global"].mean())))
    ours, before, general = np.mean(each, axis=0)
    assert ours - general > 0.03 and before - ours < 0.006


@pytest.mark.parametrize("between", [0.0, 0.2, 0.8])
def test_what_is_expected_is_what_comes(between: float) -> None:
    """The best of five models on the samples that chose it promises 6 points too much; what is expected, 1 or 2."""
    expected, naive, came = [], [], []
    for seed in range(60):
        samples, truth = simulated(seed, between)
        scores = told(samples)
        raw = np.array([max(SHARES, key=lambda m: one[m].mean()) for one in samples])
        expected.append(validated(scores))
        naive.append(np.mean([one[m].mean() for one, m in zip(samples, raw.tolist(), strict=True)]))
        came.append((worth(truth, choose(scores)), worth(truth, raw)))
    ours, theirs = np.mean(came, axis=0)
    assert np.mean(naive) - theirs > 0.05 and abs(np.mean(expected) - ours) < 0.4 * (np.mean(naive) - theirs)


# --- what clients tell ------------------------------------------------------------------------------------------------


def fitted(clients: Clients, model: nn.Module, method: Any = None, **options: Any) -> Any:
    """A short run in double precision, so that merits can be computed again from its models."""
    options = {"diagnostics": False, "dtype": "float64"} | options
    return st.fit(method or st.Ditto(lam=0.5), model, clients, 3, **grouped(**options))


def outputs(result: Any, client: int, share: float, x: torch.Tensor) -> torch.Tensor:
    """Of the mixture, parameter by parameter."""
    module, own, common = result.shared(), result.personal(client), result.shared()
    with torch.no_grad():
        for p, a, b in zip(module.parameters(), own.parameters(), common.parameters(), strict=True):
            p.copy_(share * a + (1 - share) * b)
        return module(x)


def held_against(result: Any, clients: Clients, merit: Any) -> None:
    for i in range(len(clients)):
        rows = clients.rows(i, "validation")
        each = {m: merit(i, outputs(result, i, s, clients.x[rows]), clients.y[rows]) for m, s in SHARES.items()}
        assert result.scores["validation/samples"][i] == rows.stop - rows.start
        for model, values in each.items():
            if not len(values):
                assert np.isnan(result.scores[f"{model}/validation/merit"][i])
                continue
            assert result.scores[f"{model}/validation/merit"][i] == pytest.approx(values.mean(), rel=1e-5, abs=1e-6)
        for a, b in itertools.combinations_with_replacement(list(SHARES)[1:] if len(each["personal"]) else [], 2):
            spread = np.cov(each[a] - each["personal"], each[b] - each["personal"], bias=True)[0, 1]
            assert result.scores[f"{a}&{b}/validation/covariance"][i] == pytest.approx(spread, rel=1e-3, abs=1e-6)


def test_merits_of_classes_are_right_answers() -> None:
    clients = ragged()
    result = fitted(clients, layers(5, 6, 3))
    held_against(result, clients, lambda i, out, y: (out.argmax(1) == y).double().numpy())
    for m in SHARES:
        accuracy = result.scores[f"{m}/validation/accuracy"]
        assert np.array_equal(result.scores[f"{m}/validation/merit"], accuracy, equal_nan=True)


def numbers(seed: int = 0) -> Clients:
    """Five clients whose targets are numbers, with 1 to 9 validation samples; one has targets that are all alike."""
    rng, parts = np.random.default_rng(seed), []
    for i, n in enumerate((1, 2, 4, 9, 3)):
        x = rng.standard_normal((30 + n + 6, 3))
        y = np.full(len(x), 0.5) if i == 4 else x @ rng.standard_normal(3) + i + 0.5 * rng.standard_normal(len(x))
        cut = (slice(0, 30), slice(30, 30 + n), slice(30 + n, None))
        parts.append({k: (x[c], y[c]) for k, c in zip(("train", "validation", "test"), cut, strict=True)})
    return Clients.from_parts(parts)


def test_merits_of_numbers_are_in_units_of_the_training_targets() -> None:
    clients = numbers()
    result = fitted(clients, nn.Linear(3, 1))

    def merit(i: int, out: torch.Tensor, y: torch.Tensor) -> np.ndarray:
        spread = clients.y[clients.rows(i, "train")].numpy().var() if i < 4 else 1.0
        return 1 - (out[:, 0] - y).numpy() ** 2 / spread

    held_against(result, clients, merit)
    assert (summary := result.summary["chosen"]) is not None and np.isfinite(summary["accuracy_mean"])


def test_merits_are_the_user_s_own_metric_where_there_is_one() -> None:
    clients = ragged()

    def margin(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return output.softmax(1).gather(1, y[:, None])[:, 0]

    result = fitted(clients, layers(5, 6, 3), metric=margin)
    held_against(result, clients, lambda i, out, y: margin(out, y).double().numpy())


def test_the_chosen_model_is_the_one_that_was_scored() -> None:
    """A mixture is one model with one set of parameters, and its scores are its own."""
    clients = ragged()
    result = fitted(clients, layers(5, 6, 3), st.FedAvg(finetune=st.SGD(lr=0.5)))
    taken = choose(result.scores).tolist()
    assert any(m.startswith("mix") for m in taken)  # else this would not be a test
    for i, model in enumerate(taken):
        rows = clients.rows(i, "test")
        x, y = clients.x[rows], clients.y[rows]
        output = result.chosen(i)(x)
        assert torch.allclose(output, outputs(result, i, SHARES[model], x), atol=1e-6)
        if len(y):
            assert result.scores["chosen/test/accuracy"][i] == pytest.approx(
                float((output.argmax(1) == y).float().mean())
            )
    assert result.summary["choice"] == {m: taken.count(m) for m in SHARES}
    assert [row["chosen"] for row in result.clients] == taken


def test_batch_normalisation_is_not_mixed() -> None:
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    result = fitted(ragged(), model)
    assert not any(k.startswith("mix") for k in result.scores)
    assert (
        set(choose(result.scores)) <= {"personal", "global"} and "global&global/validation/covariance" in result.scores
    )


def test_one_model_is_no_choice() -> None:
    for method, model in ((st.FedAvg(), "global"), (st.LocalOnly(), "personal")):
        result = fitted(ragged(), layers(5, 6, 3), method)
        assert set(choose(result.scores)) == {model} and result.summary["choice"] is None
        assert validated(result.scores) == pytest.approx(np.nanmean(result.scores[f"{model}/validation/accuracy"]))
        found = summarise(result.scores)
        assert found["chosen"] == found[model]
