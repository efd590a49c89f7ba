"""kNN-Per: its answers are those of nearest neighbours written out in NumPy, and of scikit-learn; without votes it is
FedAvg; what a client remembers is its own, and stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import quadratics, ragged
from method_runs import play, states
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

import sartor as st
from sartor.models import layers

SGD = st.SGD(lr=0.1, epochs=2, batch=7)
DATA = ragged().to(dtype=torch.float64)  # 1, 3, 9, 17, 24, 40 and 57 training samples; some have no test samples


def run(share: float | None = None, **options: Any) -> st.Result:
    settings = {k: options.pop(k) for k in ("k", "scale", "capacity") if k in options}
    return play(st.KNNPer(share=share, solver=SGD, **settings), **options)


def part(i: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    rows = DATA.rows(i, name)
    return DATA.x[rows].numpy(), DATA.y[rows].numpy()


def features(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Of the model 5-6-3."""
    return np.maximum(x @ w[:30].reshape(6, 5).T + w[30:36], 0)


def softmax(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    logits = np.exp(features(w, x) @ w[36:54].reshape(3, 6).T + w[54:])
    return np.asarray(logits / logits.sum(1, keepdims=True))


def votes(w: np.ndarray, i: int, x: np.ndarray, k: int = 10, scale: float = 1.0) -> np.ndarray:
    """A loop over samples: sort, take the first k, let them vote."""
    near, y = features(w, part(i, "train")[0]), part(i, "train")[1]
    out = np.zeros((len(x), 3))
    for row, phi in zip(out, features(w, x), strict=True):
        far = ((near - phi) ** 2).sum(1)
        for j in np.argsort(far)[:k]:
            row[y[j]] += np.exp(-far[j] / (scale * 6))
        row /= row.sum()
    return out


@pytest.mark.parametrize(("share", "k", "scale"), [(0.3, 4, 1.0), (0.8, 1, 0.1), (1.0, 100, 0.5)])
def test_answers_are_votes_and_the_model_by_hand(share: float, k: int, scale: float) -> None:
    """Of every client, the smallest have fewer than k samples: nobody votes from where the others have more."""
    result = run(share, k=k, scale=scale)
    w = result.run.server["w"].numpy()
    for i in range(7):
        x, y = part(i, "test")
        if not len(y):
            continue
        wanted = share * votes(w, i, x, k, scale) + (1 - share) * softmax(w, x)
        said = np.exp(result.personal(i)(torch.as_tensor(x)).detach().numpy())
        np.testing.assert_allclose(said, wanted, rtol=1e-7, atol=1e-9)
        true = np.maximum(wanted[np.arange(len(y)), y], np.finfo(float).tiny)
        assert result.scores["personal/test/loss"][i] == pytest.approx(-np.log(true).mean(), rel=1e-7)
        assert result.scores["personal/test/accuracy"][i] == pytest.approx((wanted.argmax(1) == y).mean())


def test_votes_alone_are_scikit_learns() -> None:
    result = run(1.0, k=5)
    w = result.run.server["w"].numpy()
    for i in (4, 5, 6):
        x, y = part(i, "train")
        theirs = KNeighborsClassifier(5, weights=lambda far: np.exp(-(far**2) / 6)).fit(features(w, x), y)
        asked = part(i, "test")[0]
        said = np.exp(result.personal(i)(torch.as_tensor(asked)).detach().numpy())
        np.testing.assert_allclose(said[:, theirs.classes_], theirs.predict_proba(features(w, asked)), atol=1e-9)


def test_without_votes_it_is_fedavg() -> None:
    ours, theirs = run(0.0), play(st.FedAvg(solver=SGD))
    assert torch.equal(ours.run.server["w"], theirs.run.server["w"])
    for i in range(7):
        x = DATA.x[DATA.rows(i, "validation")]
        torch.testing.assert_close(ours.personal(i)(x), theirs.shared()(x), rtol=0, atol=0)
    for score in ("loss", "accuracy"):
        for part in ("validation", "test"):
            np.testing.assert_allclose(ours.scores[f"personal/{part}/{score}"], theirs.scores[f"global/{part}/{score}"])


def test_the_global_model_remembers_nothing() -> None:
    """It is FedAvg's, in every score and file, whatever votes say."""
    ours, theirs = run(1.0), play(st.FedAvg(solver=SGD))
    np.testing.assert_array_equal(ours.scores["global/test/loss"], theirs.scores["global/test/loss"])
    assert ours.metrics()["models"].keys() >= {"global", "personal"}
    both = [made.metrics()["models"]["global"] for made in (ours, theirs)]
    of_each = [[{**row, "intervals": None} for row in found.pop("clients")] for found in both]
    assert of_each[0] == of_each[1] and both[0] == both[1]  # intervals of clients are the chosen models'
    assert ours.metrics()["models"]["personal"] != ours.metrics()["models"]["global"]
    assert ours.shared().state_dict().keys() == theirs.shared().state_dict().keys()


def test_each_client_chooses_its_share_on_validation_data() -> None:
    result = run()
    w, grid, chosen = result.run.server["w"].numpy(), np.arange(11) / 10, []
    for i in range(7):
        x, y = part(i, "validation")
        p, q = (said[np.arange(len(y)), y] for said in (votes(w, i, x), softmax(w, x)))
        losses = [-np.log(np.maximum(v * p + (1 - v) * q, np.finfo(float).tiny)).sum() for v in grid]
        chosen.append(grid[int(np.argmin(losses))])
    found = result.run.query_clients("personal")["3.share"].numpy()
    np.testing.assert_allclose(found, chosen)
    assert len(set(chosen)) > 1


def test_without_validation_data_votes_are_half() -> None:
    parts = [{"train": part(i, "train"), "test": part(i, "test")} for i in (4, 5)]
    parts[1]["validation"] = part(5, "validation")
    found = run(clients=st.Clients.from_parts(parts, 3)).run.query_clients("personal")["3.share"]
    assert found[0] == 0.5
    alone = run(clients=st.Clients.from_parts(parts[:1], 3)).run.query_clients("personal")["3.share"]
    assert alone.tolist() == [0.5]  # one client, and no validation data at all


def test_client_by_client_is_the_same() -> None:
    stacked, serial = run(), run(engine="serial")
    both = stacked.run.query_clients("personal"), serial.run.query_clients("personal")
    assert both[0].keys() == both[1].keys() == {"personal", "3.features", "3.labels", "3.share"}
    for name in both[0]:
        torch.testing.assert_close(both[0][name], both[1][name])
    for name, score in stacked.scores.items():
        np.testing.assert_allclose(score, serial.scores[name], rtol=1e-9, atol=1e-12)


def test_padding_is_empty_and_a_memory_is_the_clients_own() -> None:
    result = run()
    held, w = result.run.query_clients("personal"), result.run.server["w"].numpy()
    for i, n in enumerate(DATA.counts("train")):
        x, y = part(i, "train")
        labels, kept = held["3.labels"][i].numpy(), held["3.features"][i].numpy()
        assert (labels[n:] == -1).all() and (kept[n:] == 0).all()
        order, theirs = np.lexsort(kept[:n].T), np.lexsort(features(w, x).T)
        np.testing.assert_allclose(kept[:n][order], features(w, x)[theirs], rtol=1e-9, atol=1e-12)
        assert np.bincount(labels[:n], minlength=3).tolist() == np.bincount(y, minlength=3).tolist()


def test_a_bounded_memory_holds_some_of_the_samples() -> None:
    result, again = run(capacity=12), run(capacity=12, rounds=1)
    held, w = result.run.query_clients("personal"), result.run.server["w"].numpy()
    assert held["3.features"].shape == (7, 12, 6)
    counts = (held["3.labels"] >= 0).sum(1)
    assert counts.tolist() == [min(12, n) for n in DATA.counts("train")]
    own = features(w, part(6, "train")[0])
    for phi in held["3.features"][6].numpy():
        assert np.isclose(own, phi).all(1).any()
    other = again.run.query_clients("personal")  # the same samples, by another model
    assert torch.equal(held["3.labels"], other["3.labels"])
    assert run(capacity=100).run.query_clients("personal")["3.labels"].shape == (7, 57)


def test_nothing_of_a_memory_is_sent_or_kept() -> None:
    ours, theirs = run(), play(st.FedAvg(solver=SGD))
    assert states(ours).keys() == states(theirs).keys() == {"visits"}
    assert (ours.run.bytes_up, ours.run.bytes_down) == (theirs.run.bytes_up, theirs.run.bytes_down)
    assert set(ours.run.server) == {"w"}


class Normed(nn.Module):
    """Convolution and batch normalisation under a last layer: client by client, with statistics beside the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.ReLU())
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(x).flatten(1))
        return out


@pytest.mark.parametrize("model", [Normed, lambda: layers(5, 3)])
def test_a_saved_model_says_what_was_scored(model: Any) -> None:
    """With batch normalisation; and with one layer, which is given the inputs themselves."""
    result = run(0.7, model=model())
    for i in (4, 6):
        x, y = (torch.as_tensor(v) for v in part(i, "test"))
        loss = nn.functional.cross_entropy(result.personal(i)(x), y)
        assert result.scores["personal/test/loss"][i] == pytest.approx(float(loss.detach()), rel=1e-6)
    assert not np.allclose(result.scores["personal/test/loss"][6], result.scores["global/test/loss"][6])


def test_a_newcomers_own_samples_vote() -> None:
    """All of them, and it has more than anybody who took part."""
    result = run(1.0, k=100, clients=ragged().take([0, 1, 2, 3]))
    w, (x, y) = result.run.server["w"].numpy(), part(6, "train")
    module = result.newcomer((x, y))
    asked = part(6, "test")[0]
    said = np.exp(module(torch.as_tensor(asked)).detach().numpy())
    np.testing.assert_allclose(said, votes(w, 6, asked, 100), atol=1e-9)


def test_a_model_file_brings_its_memory(tmp_path: Path) -> None:
    result = run(0.5)
    path, x = result.export(6, tmp_path / "own.safetensors", "personal"), torch.as_tensor(part(6, "test")[0])
    fresh = layers(5, 6, 3)
    torch.testing.assert_close(st.load_model(path, fresh)(x), result.personal(6)(x).softmax(1))
    assert fresh.state_dict().keys() == layers(5, 6, 3).state_dict().keys()  # the given one stays as it was


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"k": 0}, "k >= 1"),
        ({"share": 1.5}, r"share in \[0, 1\]"),
        ({"scale": 0.0}, "scale > 0"),
        ({"capacity": 0}, "capacity >= 1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(st.SartorError, match=text):
        st.KNNPer(**settings)


def test_bad_models_and_targets() -> None:
    with pytest.raises(st.SartorError, match="vote on classes: it needs the loss cross-entropy; got squared"):
        quadratics().fit(st.KNNPer(), 1)
    with pytest.raises(st.SartorError, match=r"last layer is nn\.Linear; this one's is 1, a LayerNorm"):
        run(model=nn.Sequential(nn.Linear(5, 3), nn.LayerNorm(3)))
    with pytest.raises(st.SartorError, match="does something else after 0"):
        run(model=nn.Sequential(nn.Linear(5, 3), nn.ReLU()))
    with pytest.raises(st.SartorError, match="dp_unit = sample does not go with knn-per"):
        run(privacy=st.Privacy(epsilon=5.0, unit="sample"))
    with pytest.raises(st.SartorError, match="needs a method with a lam"):
        st.DynamicLam(st.KNNPer(), (0.1, 1.0))
