"""`sartor list`, `--help` and `--version`."""

from __future__ import annotations

import json

import pytest
from commandline import METHODS, good, refused

from sartor import __version__


def test_the_version_and_an_option_that_there_is_not() -> None:
    assert good("--version").out == f"sartor {__version__}\n"
    assert refused("--verson").endswith("See sartor --help.")
    assert refused("run", "--lamda", 3).endswith("See sartor run --help.")


def test_list_names_every_method_with_its_paper() -> None:
    rows = json.loads(good("list", "methods", "--json").out)
    assert {r["name"] for r in rows} >= set(METHODS)
    assert all(set(r) == {"name", "paper", "line"} and all(r.values()) for r in rows)


@pytest.mark.parametrize(
    ("kind", "some"),
    [
        (
            "aggregators",
            {
                *("mean", "median", "trimmed-mean", "geometric-median", "krum", "multi-krum"),
                *("clipping", "k-norm", "k-loss", "fedmgda"),
            },
        ),
        (
            "attacks",
            {
                *("label-poison", "dirty-labels", "same-value", "sign-flip", "gaussian", "random-update"),
                *("model-replacement", "scaled-poison", "alie", "ipm"),
            },
        ),
        (
            "compressors",
            {"projection", "sketch", "qsgd", "top-k", "dgc", "lbgm", "int8", "int4", "float16", "grid"},
        ),
        ("partitions", {"iid", "labels", "dirichlet", "hybrid", "natural"}),
        ("datasets", {"digits", "mnist", "femnist"}),
        ("models", {"softmax", "mlp", "cnn"}),
        ("losses", {"cross-entropy", "squared", "hinge"}),
        ("solvers", {"sgd", "adam", "exact", "inexact"}),
    ],
)
def test_list_other_kinds(kind: str, some: set[str]) -> None:
    rows = json.loads(good("list", kind, "--json").out)
    assert {r["name"] for r in rows} >= some
    assert all(r["line"] for r in rows)
    text = good("list", kind).out
    assert len(text.splitlines()) == len(rows) and all(
        line.startswith(r["name"]) for line, r in zip(text.splitlines(), rows, strict=True)
    )


def test_list_of_an_unknown_kind_offers_the_nearest() -> None:
    assert "did you mean methods" in refused("list", "method")


def test_help_is_readable() -> None:
    top, bare = good("--help").out, good().out
    assert top == bare and "..." not in top.split("Commands:")[1]
    text = good("run", "--help").out
    for option in ("--method", "--client-key", "--set", "--resume", "--out", "--cohort"):
        assert option in text
    assert max(map(len, text.splitlines())) <= 120


def test_version() -> None:
    assert good("version").out.strip() == __version__
