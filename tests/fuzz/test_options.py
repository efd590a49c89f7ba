"""Options of the command line with any words: the options are taken from the commands themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import click
import pytest
import typer
from commandline import hospitals
from fuzzing import NAMES, NUMBERS, TEXTS, examples, spelled, survives
from hypothesis import given
from hypothesis import strategies as st

from sartor.cli import compare, run
from sartor.cli.commands import COMMANDS, load
from sartor.errors import SartorError
from sartor.federation import kits
from sartor.run.assemble import assembled
from sartor.run.recipe import SETTINGS
from sartor.study import tune

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]
SMALL = ("--model", "softmax", "--rounds", "1", "--clients", "3")
SKIPPED = ("help", "track", "address")
WORDS = st.one_of(
    TEXTS.map(lambda text: text.replace("\0", "")),
    st.sampled_from(
        ["digits", "0.5", "1", "2", "0", "-1", "1,2", "a=b", "lam=0.5", "solver.lr=nan", "\udcff", "--", "-x"]
    ),
    NUMBERS.map(lambda number: f"{number}"[:4000]),
)


def options(command: str) -> dict[str, click.Parameter]:
    """A command's options, by the name of what they set."""
    return {p.name: p for p in load(command).params if isinstance(p, click.Option) and p.name not in SKIPPED}


@st.composite
def calls(draw: Any, command: str) -> list[str]:
    """Some options with any words after them."""
    known = options(command)
    words: list[str] = []
    for name in draw(st.lists(st.sampled_from(sorted(known)), max_size=4)):
        option = known[name]
        words.append(draw(st.sampled_from([*option.opts, *option.secondary_opts])))
        if option.is_flag:
            continue
        about = SETTINGS.get(name)
        some = [WORDS, WORDS]
        if about is not None and about.names:
            some += [spelled(NAMES[about.names]).map(lambda text: text.replace("\0", ""))] * 2
        if about is not None and about.choices:
            some.append(st.sampled_from([c for c in about.choices if c != "ray"]))
        words.append(draw(st.one_of(some)))
    return words + ([draw(WORDS)] if draw(st.integers(0, 9)) == 0 else [])


def _only_assembled(recipe: Any, split: Any, folder: Any, quiet: bool, track: Any) -> None:
    assembled(recipe, split, folder)
    raise typer.Exit


def _only_first(steps: Any, *_: Any) -> None:
    next(iter(steps))
    raise typer.Exit


@pytest.fixture(autouse=True, scope="module")
def aside(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder of its own, as words may be taken as names of files; nothing is trained."""
    patch = pytest.MonkeyPatch()
    patch.chdir(tmp_path_factory.mktemp("options"))
    hospitals(Path("visits.csv"), each=20)
    with (
        mock.patch.object(run, "_play", _only_assembled),
        mock.patch.object(compare, "_play_all", _only_first),
        mock.patch.object(tune, "_try", lambda _, asked, *__: [vars(tune.Trial(dict(one), 0.5)) for one in asked]),
    ):
        yield
    patch.undo()


@given(calls("run"), st.booleans())
@examples(400)
def test_run(words: list[str], own: bool) -> None:
    survives("run", *SMALL, *(["--data", "visits.csv", "--target", "outcome"] if own else []), *words)


@given(calls("compare"))
@examples(100)
def test_compare(words: list[str]) -> None:
    survives("compare", "--methods", "fedavg,local", "--seeds", "0", *SMALL, *words)


@given(calls("tune"))
@examples(100)
def test_tune(words: list[str]) -> None:
    survives("tune", "--methods", "fedavg", "--seeds", "0", *SMALL, *words, "--budget", "2")


@given(st.sampled_from(["report", "predict", "export", "list", "version", "rum", ""]), st.data())
@examples(150)
def test_the_other_commands(command: str, data: st.DataObject) -> None:
    survives(
        command,
        *data.draw(calls(command if command in COMMANDS else "version")),
        *data.draw(st.lists(WORDS, max_size=2)),
    )


@given(st.sampled_from(["--name", "--server", "--sites", "--days", "--out"]), WORDS)
@examples(200)
def test_kits(option: str, word: str) -> None:
    good = ("--name", "demo", "--server", "localhost:8002", "--sites", "a,b", "--out", "kits")
    with mock.patch.object(kits, "_provision", side_effect=SartorError("now they would be made")):
        survives("federation", "init", *good, option, word)
