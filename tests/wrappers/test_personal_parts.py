"""Personal parts by name: FedPer, LG-FedAvg and FedBN are settings of it; what is shared is the mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from every_method import NAMES, SOLVER, make
from federations import ragged
from torch import nn

import sartor as st
from sartor.core import Blocks, Method
from sartor.methods.parts.own_parts import matching
from sartor.tasks.task import ModelTask
from sartor.testing import PROPERTIES, check_method, finish, same, start
from sartor.wrappers import PersonalParts

FITS = [
    *("flame", "pfedme", "ditto", "mr-mtl", "fedavg", "fedprox", "fedavg-ft", "per-fedavg", "apfl", "l2sgd", "mapper"),
    *("ewc", "skl", "rsa", "fedadmm", "term", "qffl", "fedmgda", "fedadam", "fedala", "fedrod"),
    "knn-per",
]


@pytest.mark.parametrize(
    ("known", "parts"),
    [
        (st.FedPer(solver=SOLVER), "head"),
        (st.FedPer(solver=SOLVER), "3"),
        (st.FedPer(solver=SOLVER), "3.weight, 3.bias"),
        (st.LGFedAvg(solver=SOLVER), "1.*"),
    ],
)
def test_methods_that_split_a_model_are_settings_of_it(known: Method, parts: str) -> None:
    """To the bit: states, messages' mean, scores."""
    ours, theirs = (finish(start(m)) for m in (PersonalParts(st.FedAvg(solver=SOLVER), parts), known))
    same(ours.server, theirs.server, "the server")
    same(ours.engine.save(), theirs.engine.save(), "the clients")
    for k, v in theirs.scores.items():
        np.testing.assert_array_equal(ours.scores[k], v)


class Normed(nn.Module):
    """One of each kind of layer that normalises."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.batch = nn.Linear(5, 6), nn.BatchNorm1d(6)
        self.second, self.layer = nn.Linear(6, 6), nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.layer(self.second(torch.tanh(self.batch(self.first(x)))))))


BLOCKS = ModelTask(Normed()).blocks


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("norm", ["batch.weight", "batch.bias", "layer.weight", "layer.bias"]),
        ("bias", ["first.bias", "batch.bias", "second.bias", "layer.bias", "head.bias"]),
        ("head", ["head.weight", "head.bias"]),
        ("head,first.bias", ["first.bias", "head.weight", "head.bias"]),
        ("*.weight", ["first.weight", "batch.weight", "second.weight", "layer.weight", "head.weight"]),
        ("sec*", ["second.weight", "second.bias"]),
        ("*[rt]ch", ["batch.weight", "batch.bias"]),
    ],
)
def test_words_and_globs(text: str, wanted: list[str]) -> None:
    assert matching(text, BLOCKS) == wanted


def test_adapters_go_by_the_modules_name() -> None:
    names = ["model.q.lora_A.default.weight", "model.q.lora_B.default.weight"]
    blocks = Blocks({name: slice(i, i + 1) for i, name in enumerate(names)})
    assert matching("*.lora_B", blocks) == names[1:]


def vectors(result: st.Result) -> torch.Tensor:
    """[7, d] the personal models."""
    each = [result.personal(i).parameters() for i in range(7)]
    return torch.stack([nn.utils.parameters_to_vector(p).detach() for p in each])


def test_fedbn_shares_all_but_normalisation() -> None:
    """One round from the same start: shared coordinates are the clients' mean, those of normalisation are their own."""
    clients = ragged()
    result = st.fit(st.FedAvg(solver=SOLVER, weighting="uniform"), Normed(), clients, rounds=1, personal="norm")
    theirs = vectors(st.fit(st.LocalOnly(solver=SOLVER), Normed(), clients, rounds=1))
    own = torch.zeros(theirs.shape[1], dtype=torch.bool)
    for name, at in BLOCKS.items():
        own[at] = name.startswith(("batch", "layer"))
    mine = vectors(result)
    torch.testing.assert_close(mine[:, own], theirs[:, own])
    torch.testing.assert_close(mine[:, ~own], theirs.mean(0)[~own].expand(7, -1))
    assert result.run.bytes_up == 7 * 4 * int((~own).sum())
    with pytest.raises(st.SartorError, match="no global model"):
        result.shared()


@pytest.mark.parametrize("name", [name for name in NAMES if make(name).models == "any"])
def test_which_methods_take_it(name: str) -> None:
    """Those that share one global model; the others say why not."""
    method = PersonalParts(make(name), "bias")
    if name in FITS or make(name).name in {make(n).name for n in FITS}:
        run = finish(start(method), 2)
        assert run.scores["personal/test/loss"].shape == (7,)
        return
    with pytest.raises(st.SartorError, match="personal parts need a method that shares one global model"):
        start(method)


@pytest.mark.long
@pytest.mark.parametrize("name", ["flame", "ditto", "fedavg", "fedavg-ft", "pfedme"])
def test_it_has_every_property(name: str) -> None:
    rest = [p for p in PROPERTIES if p != "is settings and functions"]
    check_method(PersonalParts(make(name), "bias"), rest)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ("nrom", "--personal 'nrom' matches no parameter; there are 1.weight, 1.bias, 3.weight, 3.bias"),
        ("norm", "--personal 'norm' matches no parameter"),
        ("", "--personal '' matches no parameter"),
        ("head,*.lora_B", r"--personal '\*.lora_B' matches no parameter"),
        ("*", r"--personal '\*' matches all parameters .*nothing is left to share"),
        ("head,1", "matches all parameters"),
    ],
)
def test_bad_parts_are_one_line(parts: str, said: str) -> None:
    with pytest.raises(st.SartorError, match=said) as e:
        st.fit(st.FedAvg(), st.models.layers(5, 6, 3), ragged(), rounds=1, personal=parts)
    assert "\n" not in str(e.value)


def test_a_model_of_one_layer_has_no_head() -> None:
    with pytest.raises(st.SartorError, match="--personal head splits a model into representation and head"):
        st.fit(st.FedAvg(), st.models.layers(5, 3), ragged(), rounds=1, personal="head")


def test_a_newcomer_s_own_part_can_be_solved_to_the_end() -> None:
    """Own intercepts of a linear model, by Newton: at the end their slope is zero, and the shared part is untouched."""
    clients = ragged().to(dtype=torch.float64)
    data = (clients.x[20:60].numpy(), clients.y[20:60].numpy())
    execution = st.Execution(dtype="float64")
    method = st.FedAvg(solver=st.Newton(ridge=0.0))
    result = st.fit(method, st.models.layers(5, 3), clients, rounds=1, personal="bias", execution=execution)
    model = result.newcomer(data, steps=3)
    loss = torch.nn.functional.cross_entropy(model(torch.as_tensor(data[0])), torch.as_tensor(data[1]))
    weight, bias = torch.autograd.grad(loss, list(model.parameters()))
    assert float(bias.abs().max()) < 1e-6 < float(weight.abs().max())
    assert torch.equal(model[1].weight.reshape(-1), result.run.server["w"])  # type: ignore[index, union-attr]
