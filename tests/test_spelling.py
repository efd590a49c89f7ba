"""Partitions, data sets, models and lists as text."""

from __future__ import annotations

import pytest

from sartor.data import Dirichlet, Dominant, Hybrid, Labels, Noise, Quantity, load, parse, spell
from sartor.errors import SartorError
from sartor.models import build
from sartor.spelling import parse_value, split_compressor, split_list, write_value

READ = {
    "labels=3": Labels(3),
    "labels(3)": Labels(3),
    "labels(k=3)": Labels(3),
    "hybrid": Hybrid(),
    "dirichlet(beta=0.1)": Dirichlet(0.1),
    "dirichlet=1": Dirichlet(1),
    "hybrid(labels=3,beta=0.25)": Hybrid(3, 0.25),
    "hybrid(3, 0.25)": Hybrid(3, 0.25),
    " noise=0.1 ": Noise(0.1),
    "quantity(beta=1)": Quantity(1),
    "dominant(groups=2, sizes=30/20)": Dominant(groups=2, sizes=(30, 20)),
    "hybrid()": Hybrid(),
}

REFUSED = {
    "labls": "unknown partition 'labls': did you mean labels?",
    "hybrid(label=2)": "unknown setting of hybrid 'label': did you mean labels?",
    "iid(k=2)": "iid has no settings",
    "iid=2": r"iid takes 0 settings \(none\); got 1",
    "labels(2, true, 4)": r"labels takes 1 settings \(k\); got 3",
    "labels(2, k=3)": "labels: k is given twice",
    "labels=two": "Labels needs k to be a whole number of at least 1; got 'two'",
    "noise=": "a partition is written NAME",
    "noise(sigma=)": "Noise needs sigma to be a number; got ''",
    "labels(2": "a partition is written NAME",
    "": "a partition is written NAME",
}


@pytest.mark.parametrize("text", READ)
def test_read(text: str) -> None:
    assert parse(text) == READ[text]
    assert parse(spell(READ[text])) == READ[text]


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(SartorError, match=REFUSED[text]):
        parse(text)


def test_spelled_out() -> None:
    assert spell(Hybrid()) == "hybrid(labels=2, beta=0.5)"
    assert spell(Dominant()) == "dominant(groups=5, share=0.8, sizes=600/500/400/300/200)"
    assert spell(Dominant(groups=2, sizes=(9, 8), widths=(1, 2))).endswith("sizes=9/8, widths=1/2)")


@pytest.mark.parametrize("value", [True, False, None, 3, 0.5, 1e-9, "word", (6, 5, 4)])
def test_values_round_trip(value: object) -> None:
    assert parse_value(write_value(value)) == value


def test_data_set_with_arguments() -> None:
    data = load("synthetic(0, 0.25, clients=3)", seed=1)
    assert data.name == "synthetic(0,0.25)" and data.keys is not None and len(set(data.keys)) == 3
    with pytest.raises(SartorError, match="clients is given twice"):
        load("synthetic(clients=3)", clients=4)
    with pytest.raises(SartorError, match="alpha is given twice"):
        load("synthetic(0)", alpha=1)
    with pytest.raises(SartorError, match="unknown setting of synthetic 'client'"):
        load("synthetic", client=4)
    with pytest.raises(SartorError, match="unknown dataset 'mnst': did you mean mnist"):
        load("mnst")


def test_commas_inside_brackets_belong_to_an_item() -> None:
    assert split_list("krum(f=2,m=3), trimmed-mean(share=0.2),mean", "aggregators") == [
        "krum(f=2,m=3)",
        "trimmed-mean(share=0.2)",
        "mean",
    ]
    for text, word in [
        ("a,,b", "names"),
        ("", "names"),
        ("krum(f=2", "closed"),
        ("a),b", "opened"),
        ("a,b,a", "twice"),
    ]:
        with pytest.raises(SartorError, match=word):
            split_list(text, "aggregators")


def test_a_compressor_behind_a_method() -> None:
    assert split_compressor("fedavg+top-k(k=0.05)") == ("fedavg", "top-k(k=0.05)")
    assert split_compressor(" fedavg + int8 ") == ("fedavg", "int8") and split_compressor("flame") == ("flame", None)


def test_models_are_read_in_the_same_notation() -> None:
    def widths(text: str) -> list[int]:
        return [p.shape[0] for p in build(text, (4,), 3).parameters() if p.ndim == 2]

    assert widths("mlp(20,10)") == widths(" mlp(20, 10) ") == [20, 10, 3] and widths("mlp") == [128, 64, 3]
    for text, why in {
        "mlp(20": "a model is written NAME",
        "mlp(a)": "hidden sizes are whole numbers",
        "mlp(1.5)": "hidden sizes are whole numbers",
        "mlp(hidden=5)": "hidden sizes are whole numbers",
        "mlp(0)": "hidden sizes are at least 1",
        "softmax(5)": "only mlp takes hidden sizes",
        "mpl": "unknown model 'mpl': did you mean mlp?",
    }.items():
        with pytest.raises(SartorError, match=why):
            build(text, (4,), 3)
