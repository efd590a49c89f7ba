"""Folders of runs, comparisons and tunings in which a file is damaged: used or refused, and nothing is lost."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tomli_w
from commandline import files, good, hospitals
from fuzzing import NESTED, PLAIN, changed, examples, refused_or_fine, survives
from hypothesis import given
from hypothesis import strategies as st

from sartor.report import live, material, page
from sartor.study import tune
from sartor.study.verdict import verdict

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]
SMALL = ("--model", "softmax", "--rounds", "1", "--quiet")
OWN = ("--target", "outcome", "--client-key", "hospital")
JUNK = st.one_of(PLAIN, st.none(), st.lists(PLAIN, max_size=2), st.dictionaries(st.text(max_size=3), PLAIN, max_size=2))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table, one of FedAMP, a comparison under attack, a tuning."""
    found = tmp_path_factory.mktemp("folders")
    table = hospitals(found / "visits.csv", each=20)
    data = ("--data", table, *OWN)
    good("run", *SMALL, *data, "--dp-noise", "1", "--report", "last", "--out", found / "run")
    good("run", *SMALL, *data, "--method", "fedamp", "--unseen", "0.3", "--out", found / "amp")
    scene = ("--methods", "fedavg,local", "--seeds", "0", "--attack", "none,sign-flip", "--attackers", "0.4")
    good("compare", *SMALL, *data, *scene, "--out", found / "compare")
    good("tune", *SMALL, *data, "--methods", "fedavg", "--budget", "1", "--seeds", "0", "--out", found / "tune")
    for made in found.rglob("report.html"):
        made.unlink()  # five megabytes each
    return found


def report(folder: Path) -> None:
    found = material.read([folder])
    if found.comparison is not None and found.found is None:
        found.found = verdict(found.comparison)
    page.of(found)


def use(place: Path, name: str) -> None:
    """Everything that reads a folder of this name."""
    folder, table = place / name, place / "visits.csv"
    if name == "tune":
        survives("compare", "--tuned", folder, "--seeds", "1", "--quiet", "--out", place / "fresh")
        with mock.patch.object(tune, "_try", lambda _, asked, *__: [vars(tune.Trial(dict(one), 0.5)) for one in asked]):
            again = ("--methods", "fedavg", "--budget", "1", "--seeds", "0", "--out", folder)
            survives("tune", *SMALL, "--data", table, *OWN, *again)
        return
    with refused_or_fine():
        report(folder)
    with refused_or_fine():
        live.state(folder)
    if name == "compare":
        scene = ("--methods", "fedavg,local", "--seeds", "0", "--attack", "none,sign-flip", "--attackers", "0.4")
        survives("compare", *SMALL, "--data", table, *OWN, *scene, "--out", folder)
        return
    survives("predict", "--run", folder, "--data", table, "--out", place / "predictions.csv")
    survives("predict", "--run", folder, "--newcomer", table, "--steps", "1", "--out", place / "predictions.csv")
    survives("export", "--run", folder, "--client", "A", "--out", place / "model.safetensors")
    survives("run", "--resume", folder, "--quiet")


def _plain(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def _written(path: Path, value: Any) -> str:
    if path.suffix == ".toml":
        return tomli_w.dumps(value)
    dump: Callable[[Any], str] = json.dumps
    lines = value if path.suffix == ".jsonl" and isinstance(value, list) else [value]
    return "".join(dump(line) + "\n" for line in lines)


def _damaged(draw: Any, path: Path) -> bytes | None:
    """The file's new content; None: it is gone."""
    whole = path.read_bytes()
    kind = draw(st.sampled_from(["field"] * 8 + ["cut", "bytes", "gone"]))
    if kind == "field" and path.suffix in (".json", ".jsonl", ".toml"):
        value = changed(_plain(path), draw, NESTED if path.suffix == ".toml" else JUNK)
        value = value if isinstance(value, dict) or path.suffix != ".toml" else {"a": value}
        return _written(path, value).encode("utf-8", "backslashreplace")
    if kind == "gone":
        return None
    if kind == "cut":
        return whole[: draw(st.integers(0, len(whole)))]
    found = bytearray(whole)
    for _ in range(draw(st.integers(1, 3))):  # the head of a file of tensors says where they are
        found[draw(st.integers(0, min(len(found), 2000) - 1))] = draw(st.integers(0, 255))
    return bytes(found)


READ = (".json", ".jsonl", ".toml", ".safetensors")


@given(st.data())
@examples(150)
def test_damaged_folders(place: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["run", "amp", "compare", "compare", "tune"]))
    before = files(place / name)
    path = place / name / data.draw(st.sampled_from([p for p in sorted(before) if p.endswith(READ)]))
    content = _damaged(data.draw, path)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    damaged = files(place / name)
    try:
        use(place, name)
        after = files(place / name)
        lost = {p for p in damaged if p not in after}
        assert not lost, lost
    finally:
        for p, content in before.items():
            (place / name / p).write_bytes(content)
        for p in set(files(place / name)) - set(before):
            (place / name / p).unlink()
