"""Sums in fixed point: every method that averages gives its own numbers up to the grid; the others are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from commandline import QUICK, good, refused
from every_method import METHODS, make
from federations import ragged
from groups import grouped
from subsets import first

import sartor as st
from sartor.compressors import CommonGrid, RandomProjection, Sketch
from sartor.core import Problem
from sartor.models import layers
from sartor.testing import finish, plain, start
from sartor.wrappers import Compressed
from sartor.wrappers.privacy import Private
from sartor.wrappers.secure_sum import F, SecureSum, fixed, value

NO_MEAN = [name for name in METHODS if make(name).averaging() is None]  # FedAMP, RSA, MOCHA, ...
REFUSED = dict.fromkeys(NO_MEAN, "takes no mean, it must see single messages")
REFUSED |= {"ifca": "averaged by themselves", "term": "weighted by its client's loss"}
CODES = [RandomProjection(k=0.4), Sketch(k=0.5), RandomProjection(k=0.4, fresh=False)]


@pytest.mark.parametrize("name", [n for n in METHODS if n not in REFUSED])
def test_the_mean_is_all_that_a_server_needs(name: str) -> None:
    """Four rounds, in each some of the clients: the method's numbers, up to a grid of 2^−32."""
    wanted, found = finish(start(make(name)), 4), finish(start(SecureSum(make(name), False)), 4)
    server, other = plain(wanted.server), plain(found.server)
    for k, v in server.items():
        if k != "u":  # single messages, which nobody has
            torch.testing.assert_close(other[k], v, atol=1e-7, rtol=1e-7)
    for k, scores in wanted.scores.items() if name != "lp-proj-1" else ():  # its pull is a sign, which one bit turns
        np.testing.assert_allclose(found.scores[k], scores, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_a_server_that_needs_single_messages_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(st.SartorError, match=REFUSED[name]):
        SecureSum(make(name), False)


@pytest.mark.parametrize("rule", [st.aggregators.Median(), st.aggregators.Krum(f=1), st.aggregators.KLoss(k=2)])
def test_robust_aggregators_are_refused(rule: Any) -> None:
    with pytest.raises(st.SartorError, match="it compares single messages, which nobody sees"):
        SecureSum(st.FedAvg(aggregate=rule), False)


@pytest.mark.parametrize("up", CODES)
@pytest.mark.parametrize("name", ["fedavg", "ditto", "flame", "scaffold", "lp-proj-2", "fedadmm"])
def test_the_sum_of_linear_codes_is_the_code_of_the_sum(name: str, up: Any) -> None:
    """The same run as with every message coded by itself, up to the grid; in fewer bytes than without a code."""
    wanted = finish(start(Compressed(make(name), up, None, 3)), 4)
    found = finish(start(SecureSum(make(name), False, up, 3)), 4)
    server, other = plain(wanted.server), plain(found.server)
    for k, v in server.items():
        if k != "u":
            torch.testing.assert_close(other[k], v, atol=1e-6, rtol=1e-6)
    assert found.bytes_up < finish(start(SecureSum(make(name), False)), 4).bytes_up


AVERAGED = [name for name in METHODS if name not in REFUSED]


@pytest.mark.parametrize("name", first(AVERAGED, "fedavg", "flame", "scaffold", "lp-proj-2"))
def test_a_fine_common_grid_changes_little_and_halves_the_bytes(name: str) -> None:
    wanted = finish(start(SecureSum(make(name), False)), 4)
    found = finish(start(SecureSum(make(name), False, CommonGrid(step=2.0**-24, bits=32))), 4)
    server, other = plain(wanted.server), plain(found.server)
    for k, v in server.items():
        if k != "u":
            torch.testing.assert_close(other[k], v, atol=1e-5, rtol=1e-5)
    assert found.bytes_up == wanted.bytes_up // 2


EQUAL = [st.FedAvg(weighting="uniform"), st.Ditto(global_method=st.FedAvg(weighting="uniform")), st.FLAME()]


@pytest.mark.parametrize("method", EQUAL, ids=lambda method: method.name)
def test_the_sum_on_a_coarse_grid_is_that_of_messages_on_it(method: Any) -> None:
    """As with every message coded by itself, to less than a step: there the sums are of numbers that were rounded."""
    up = CommonGrid(step=2.0**-10)
    wanted = finish(start(Compressed(method, up, None, 3)), 4)
    found = finish(start(SecureSum(method, False, up, 3)), 4)
    torch.testing.assert_close(found.server["w"], wanted.server["w"], atol=up.step, rtol=0.0)
    assert found.bytes_up == finish(start(SecureSum(method, False)), 4).bytes_up // 4


@pytest.mark.parametrize("bits", [16, 32])
def test_words_of_a_grid_wrap_around_under_masks_and_come_back(bits: int) -> None:
    """The sum of masked words is that of the words themselves, modulo their own size."""
    word = {16: torch.int16, 32: torch.int32}[bits]
    made, n = SecureSum(st.FedAvg(), False, CommonGrid(bits=bits)), 5
    x = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, size=(n, 200)))
    q = made._whole(x, n)
    masks = torch.from_numpy(np.random.default_rng(1).integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (n, 200))).to(word)
    masks[-1] -= masks.sum(0).to(word)  # they cancel
    total = (q + masks).sum(0).to(word)
    assert q.dtype == word and torch.equal(total, q.sum(0).to(word))
    step = CommonGrid().step
    assert float((made._worth(q) - x).abs().max()) <= step / 2
    assert float((made._worth(total) - x.sum(0)).abs().max()) <= n * step / 2


def test_what_does_not_fit_on_a_grid_comes_later() -> None:
    """Numbers beyond its end are cut, and sent in later rounds; what is no number ends the run."""
    up = CommonGrid(step=2.0**-12, bits=16)
    assert up.nearest(torch.tensor([[100.0, -100.0, 1e-9]]), 3).tolist() == [[10922.0, -10922.0, 0.0]]
    coarse = st.fit(
        st.FedAvg(weighting="uniform"),
        layers(5, 3),
        ragged(),
        30,
        **grouped(secure_aggregation=True, compress="grid(step=0.0001)", diagnostics=False),
    )
    plain_run = st.fit(st.FedAvg(weighting="uniform"), layers(5, 3), ragged(), 30, **grouped(diagnostics=False))
    torch.testing.assert_close(coarse.run.server["w"], plain_run.run.server["w"], atol=2e-3, rtol=0.0)
    made = SecureSum(st.FedAvg(), False, up)
    with pytest.raises(st.SartorError, match=r"a sum of 5000 clients leaves each 6 multiples.* Use grid\(bits=32\)"):
        made.init(Problem(torch.zeros(3), torch.full((5000,), 1 / 5000), 0))
    for bad in (math.nan, math.inf):
        with pytest.raises(st.SartorError, match="cannot be summed"):
            made._whole(torch.tensor([[1.0, bad]]), 3)


def test_whole_numbers_add_up_without_rounding() -> None:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 40)) * 1e3)
    q = fixed(x, 50)
    assert torch.equal(q.sum(0).double(), sum(row.double() for row in q))  # below 2^53 doubles are exact, too
    assert float((value(q) - x).abs().max()) <= 2.0 ** -(F + 1) and torch.equal(value(q.sum(0)), value(q).sum(0))
    for bad in (math.nan, math.inf, 2.0**30):
        with pytest.raises(st.SartorError, match="too large to be summed"):
            fixed(torch.tensor([[1.0, bad]]), 50)


def test_the_sum_of_the_fewest_messages_carries_the_whole_noise() -> None:
    """k messages with noise (zC/√k) each."""
    privacy = st.Privacy(noise=2.0, clip=0.5)
    for k in (3, 9):
        made = Private(st.FedAvg(), privacy, 10, 0, together=k)
        assert made.std * math.sqrt(k) == pytest.approx(2.0 * 0.5)
    drawn = np.stack([made._draw(torch.zeros(1, 20_000), 0, client).numpy() for client in range(9)])
    assert drawn.sum(0).std() == pytest.approx(1.0, abs=5 / math.sqrt(2 * 20_000))
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 5 / math.sqrt(20_000)


@pytest.mark.parametrize("method", [st.FLAME(), st.FedAvg(weighting="uniform"), st.Ditto()])
def test_a_private_sum_without_noise_is_clipping_at_the_server(method: Any) -> None:
    """Noise of 0: the same clipped sum, whether the server clips messages or clients do."""
    model, clients = layers(5, 3), ragged()
    options = {"privacy": st.Privacy(noise=0.0, clip=0.05), "cohort": 4, "diagnostics": False}
    wanted = st.fit(method, model, clients, 4, **grouped(**options))
    found = st.fit(method, model, clients, 4, **grouped(**options, secure_aggregation=True))
    for k in ("w",):
        torch.testing.assert_close(found.run.server[k], wanted.run.server[k], atol=1e-6, rtol=1e-6)


def test_on_the_command_line() -> None:
    found = good("run", *QUICK, "--method", "flame", "--secure-aggregation", "--clients", "4")
    assert found
    for options, words in (
        (("--clients", "2"), "needs at least 3 clients in a round"),
        (("--clients", "6", "--cohort", "2"), "as the sum of two tells each the other's message"),
        (("--clients", "5", "--secure-sites", "2"), "secure_sites"),
        (("--clients", "5", "--compress", "top-k"), "compress with projection, sketch(rows=1) or grid"),
        (("--clients", "5", "--compress", "sketch", "--compress-down", "int8"), "not both"),
        (("--clients", "5", "--compress", "sketch", "--dp-noise", "1"), "noise that only the sum carries"),
        (("--clients", "5", "--aggregator", "median"), "compares single messages"),
        (("--clients", "5", "--stragglers", "0.2"), "use --stale discard"),
        (
            ("--clients", "40", "--cohort", "35", "--sampling", "poisson", "--dp-noise", "1"),
            "--sampling poisson hides nobody",
        ),
    ):
        assert words in refused("run", *QUICK, "--method", "flame", "--secure-aggregation", *options)
