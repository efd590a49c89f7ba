"""docs/write-a-method.md, walked: with its three files, and nothing else, the method is everywhere."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from commandline import good
from sites import NAMES as SITES
from sites import SMALL, Federation, tables
from snippets import ROOT, blocks

import sartor as st
from sartor import methods
from sartor.cli import completion
from sartor.methods import entries
from sartor.report import citations
from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.run.result import Result

METHOD, TEST, USE, MODEL = blocks("docs/write-a-method.md")
(COMMANDS,) = blocks("docs/write-a-method.md", "")
(PAGE,) = blocks("docs/write-a-method.md", "markdown")
QUICK = ("--model", "softmax", "--rounds", "2", "--clients", "4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the method's file, in which methods are looked for."""
    made = tmp_path_factory.mktemp("methods")
    (made / "halfway.py").write_text(METHOD, encoding="utf-8")
    with pytest.MonkeyPatch.context() as here:
        here.setattr(methods, "__path__", [*methods.__path__, str(made)])
        citations.papers.cache_clear()
        yield made
    citations.papers.cache_clear()
    sys.modules.pop("sartor.methods.halfway", None)
    vars(methods).pop("halfway", None)


def test_the_algorithm_is_short(folder: Path) -> None:
    code = METHOD[METHOD.index("@dataclass") : METHOD.index("ABOUT")]
    assert len([line for line in code.splitlines() if line.strip()]) <= 25


def test_its_own_test_passes_and_the_folder_is_named_by_an_environment_variable(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "test_halfway.py").write_text(TEST, encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path)]
    env = os.environ | {"SARTOR_METHODS": str(folder), "PYTHONPATH": str(ROOT)}
    answer = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 0 and "3 passed" in answer.stdout, answer.stdout


def test_its_commands_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they stand on the page, made small."""
    monkeypatch.chdir(tmp_path)
    small = {"list": (), "run": QUICK, "compare": (*QUICK, "--seeds", "0"), "tune": (*QUICK, "--budget", "2")}
    said = []
    for line in COMMANDS.splitlines():
        program, command, *words = shlex.split(line, comments=True)
        assert program == "sartor"
        said.append(good(command, *words, *small.pop(command, QUICK)).out)
    assert not small
    listed = [line for line in said[0].splitlines() if line.startswith(("halfway", "a-quarter"))]
    assert [line.split()[0] for line in listed] == ["halfway", "a-quarter"] and "Author 2026" in listed[0]
    assert Recipe.load(tmp_path / "runs" / "halfway" / "recipe.toml").settings["a"] == 0.3
    assert "@misc{author2026halfway" in (tmp_path / "runs" / "halfway" / "report.html").read_text()
    trials = json.loads((tmp_path / "runs" / "tuned" / "tune.json").read_text())["methods"]["halfway"]
    assert list(trials["space"]) == ["solver.lr", "a"] and set(trials["trials"][1]["settings"]) == {"solver.lr", "a"}
    assert completion.names("methods")("half") == [("halfway", methods.NAMES["halfway"].line)]


def test_it_has_a_page_and_stands_in_every_table(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    fill: ModuleType = importlib.import_module("fill")
    copied = shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.png", "reproductions*"))
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    stub = Path(shutil.copy(ROOT / "sartor" / "methods" / "__init__.pyi", tmp_path))
    public = Path(shutil.copy(ROOT / "sartor" / "__init__.pyi", tmp_path / "public.pyi"))
    for name, place in (("DOCS", copied), ("ROOT", tmp_path), ("STUB", stub), ("PUBLIC", public)):
        monkeypatch.setattr(fill, name, place)
    assert fill.complaints() == ["halfway.md is missing: halfway, a-quarter has no page."]
    page = copied / "methods" / "halfway.md"
    page.write_text(PAGE, encoding="utf-8")
    assert fill.complaints() == []
    changed = ["halfway.md", "index.md", "cold-start.md", "comparing.md", "privacy.md", "mkdocs.yml"]
    changed += ["__init__.pyi", "public.pyi"]
    assert fill.out_of_date(write=True) == changed and fill.out_of_date() == []
    text = page.read_text(encoding="utf-8")
    assert "| `a-quarter` | Author 2026 | the same, nearer to the own model | `a = 0.25` |" in text
    assert "```python\nresult = st.fit(st.Halfway(a=0.3), model, clients, rounds=2)\n```" in text
    assert "client:   θ_i ≈ argmin f_i(θ)" in text and "| `a` | `0.5` | where a round begins" in text
    assert "| a client keeps | `theta`: d numbers |" in text
    assert "| [`halfway`](halfway.md) | Author 2026 |" in (copied / "methods" / "index.md").read_text(encoding="utf-8")
    assert "| `halfway`, `a-quarter` | θ from w;" in (copied / "cold-start.md").read_text(encoding="utf-8")
    assert "| `halfway`, `a-quarter` | θ_i, its" in (copied / "privacy.md").read_text(encoding="utf-8")
    assert "      - Halfway: methods/halfway.md\n" in (tmp_path / "mkdocs.yml").read_text(encoding="utf-8")
    assert "from .halfway import Halfway\n" in stub.read_text(encoding="utf-8")


def test_it_runs_in_a_federation_with_the_same_numbers(folder: Path, tmp_path: Path) -> None:
    recipe = Recipe(method="halfway", settings={"a": 0.3}, **SMALL)
    paths = tables(tmp_path / "data")
    result = Federation(tmp_path, recipe, paths).play()
    own = {"data": str(paths["all"]), "target": "outcome", "client_key": "hospital", "engine": "serial"}
    simulated = recipe.replace(**own)
    *_, wanted = play_recipe(simulated, clients_of(simulated), None)
    assert isinstance(wanted, Result) and wanted.data.names == list(SITES)
    for a, b in zip(result.shared().parameters(), wanted.shared().parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_its_python_runs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    for code in (USE, MODEL):
        exec(compile(code, "write-a-method.md", "exec", dont_inherit=True), space)
    assert isinstance(space["result"].run.method, entries.entry("halfway").make)
    assert space["own"].summary["chosen"]["accuracy_mean"] > 0.5
    x = space["clients"].x[:4]
    torch.testing.assert_close(space["again"](x), torch.softmax(space["own"].chosen(3)(x), -1))
    assert st.methods is methods
