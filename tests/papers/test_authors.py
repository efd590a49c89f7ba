"""What the papers' authors ran but did not write: against their code's draws, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics

import sartor as st
from sartor import data
from sartor.data import Dataset, Labels, Partition, PowerLaw, parse, spell
from sartor.data.partitions import Assignment
from sartor.errors import SartorError
from sartor.papers.authors import (
    FlameDirichlet,
    FlameHybrid,
    FlameLabels,
    FlameNoise,
    FlameQuantity,
    LpProjFromZero,
    PFedMePowerLaw,
    PFedMeScoringW,
)
from sartor.papers.authors.datasets import each_pixel
from sartor.run.named_parts import method_from

Y = np.repeat(np.arange(10), 200)[np.random.default_rng(7).permutation(2000)]
OVERLAPPING = [FlameDirichlet(0.5), FlameQuantity(0.5), FlameHybrid(2, 0.5)]


def assign(partition: Partition, clients: int = 10, seed: int = 0) -> Assignment:
    return partition.assign(Y, 10, None, clients, seed, 10)


@pytest.mark.parametrize("partition", OVERLAPPING, ids=spell)
def test_overlap_shares_between_clients_but_not_within(partition: Partition) -> None:
    out = assign(partition)
    everything = np.concatenate(out.rows)
    assert out.overlap and len(np.unique(everything)) < len(everything)
    assert all(len(np.unique(r)) == len(r) >= 10 for r in out.rows)


def test_labels_by_the_authors_draw() -> None:
    """ceil(2·10/10) = 2 shards of each class; some client meets a label twice in one of a few seeds."""
    kinds = [len(np.unique(Y[r])) for s in range(10) for r in assign(FlameLabels(2), seed=s).rows]
    assert set(kinds) == {1, 2}
    assert [len(r) for r in assign(FlameLabels(2)).rows] == [200] * 10
    # 3 clients, 2 labels: one shard for each of ten classes, of which six are taken.
    assert [len(r) for r in assign(FlameLabels(2), clients=3).rows] == [400] * 3


def test_hybrid_overlap_is_the_published_setting() -> None:
    """FLAME, section 6: five clients own two complete classes (14,000 samples), five draw from all 70,000."""
    y = np.repeat(np.arange(10), 7000)
    out = FlameHybrid(2, 0.5).assign(y, 10, None, 10, 0, 100)
    assert [len(r) for r in out.rows[:5]] == [14_000] * 5
    owned = [set(np.unique(y[r]).tolist()) for r in out.rows[:5]]
    assert set.union(*owned) == set(range(10)) and [len(o) for o in owned] == [2] * 5
    second = sum(len(r) for r in out.rows[5:])
    assert 70_000 - 5 <= second <= 70_000 + 5 * 100
    assert all(len(np.unique(y[r])) == 10 for r in out.rows[5:])


def test_hybrid_overlap_draws_labels_as_the_authors_do() -> None:
    """With ten clients in the first half each class has two shards, and some client meets a label twice."""
    kinds = {
        len(np.unique(Y[r])) for seed in range(10) for r in assign(FlameHybrid(2, 0.5), clients=20, seed=seed).rows[:10]
    }
    assert kinds == {1, 2}


def test_a_power_law_with_overlap_gives_every_client_the_first_of_its_classes() -> None:
    y = np.tile(np.arange(10), 700)
    apart, shared = (kind(2, 0.4).assign(y, 10, None, 20, 0, 10) for kind in (PowerLaw, PFedMePowerLaw))
    assert shared.overlap and not apart.overlap
    for a, b in zip(apart.rows, shared.rows, strict=True):
        assert (np.bincount(y[a], minlength=10) == np.bincount(y[b], minlength=10)).all()
        for c in np.unique(y[b]):
            assert (b[y[b] == c] == c + 10 * np.arange((y[b] == c).sum())).all()  # the c-th, the (c+10)-th, ... sample
    assert len(np.unique(np.concatenate(shared.rows))) < 0.5 * len(y)


def test_flame_s_noise_is_a_standard_deviation_and_starts_at_zero() -> None:
    levels = assign(FlameNoise(0.4), clients=4).noise
    assert levels is not None
    np.testing.assert_allclose(levels, [0.0, 0.1, 0.2, 0.3])
    clients = Dataset(np.zeros((800, 500), dtype=np.float32), np.zeros(800), None).split(FlameNoise(0.5), 4)
    spread = [float(clients.x[low:high].std()) for low, high in clients.bounds[:, [0, 3]]]
    np.testing.assert_allclose(spread, [0.5 * i / 4 for i in range(4)], rtol=0.02)


@pytest.mark.parametrize(
    "partition", [*OVERLAPPING, FlameLabels(3), FlameNoise(0.1), PFedMePowerLaw(2, 0.4)], ids=spell
)
def test_they_are_named_with_authors_before_them(partition: Partition) -> None:
    assert spell(partition).startswith("authors.") and parse(spell(partition)) == partition
    once, again = (np.concatenate(assign(partition, seed=3).rows) for _ in range(2))
    assert np.array_equal(once, again)


def test_they_are_not_listed_and_not_taken_for_something_else() -> None:
    assert all(not name.startswith(("authors", "flame")) for name in (*data.NAMES, *data.DATASETS))
    with pytest.raises(SartorError, match=r"unknown partition 'authors\.drifting'"):
        parse("authors.drifting")
    with pytest.raises(SartorError, match="labels takes 1 settings"):
        parse("labels(2, false)")
    assert parse("labels=2") == Labels(2)


def test_each_pixel_has_its_own_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """(x − mean)/(std + 0.001) over all images, as pFedMe's data are made."""
    images = np.random.default_rng(0).integers(0, 256, (30, 1, 4, 4)).astype(np.uint8)
    images[:, 0, 0, 0] = 0  # always black
    images[:, 0, 1, 1] = 8 * np.arange(30)  # tells the images apart
    plain = Dataset(images, np.arange(30) % 10, 10, "tiny", scale=((0.1307,), (0.3081,)))
    monkeypatch.setattr("sartor.papers.authors.datasets.load", lambda name: plain)
    x = each_pixel("tiny").split("iid", clients=1, parts=(1.0, 0.0, 0.0)).x.double().numpy()[:, 0]
    wanted = ((images - images.mean(0)) / (images.std(0) + 0.001))[:, 0]
    order = lambda a: a[np.argsort(a[:, 1, 1])]  # noqa: E731  # clients' samples are in another order
    np.testing.assert_allclose(order(x), order(wanted), rtol=1e-4, atol=1e-4)
    assert (x[:, 0, 0] == 0).all()


def test_pfedme_s_published_score_is_that_of_the_local_model() -> None:
    q, settings = quadratics(), {"R": 2, "lam": 1.0, "solver": st.SGD(lr=0.05, steps=1, batch=100)}
    theirs, ours = (q.fit(kind(**settings), 3).run for kind in (PFedMeScoringW, st.PFedMe))  # type: ignore[arg-type]
    torch.testing.assert_close(theirs.server["w"], ours.server["w"])  # training is the same
    states = theirs.engine.save()
    local = torch.as_tensor(states["state/w"]).reshape(q.m, -1)
    assert torch.equal(theirs.query_clients("personal")["personal"], local)
    assert not torch.equal(ours.query_clients("personal")["personal"], local)


def test_lp_proj_from_zero() -> None:
    problem = quadratics().fit(st.LpProj(d_sub=2), 1).run.problem
    assert not LpProjFromZero(d_sub=2).init(problem)[0]["w"].any() and st.LpProj(d_sub=2).init(problem)[0]["w"].any()
    assert method_from("authors.lp-proj-from-zero", {"p": 1.0, "d_sub": 2}) == LpProjFromZero(p=1.0, d_sub=2)
