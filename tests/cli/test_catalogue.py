"""`sartor list` and the tab key: what is read from the source files is what the imported package has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import sartor as st
from sartor import aggregators, compressors, data, methods, models, solvers
from sartor.cli import catalogue
from sartor.papers import reproduce, theory
from sartor.tasks import task
from sartor.wrappers import attacks


def line(thing: object) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0].rstrip(".")


IMPORTED = {
    "methods": [{"name": n, "paper": e.paper, "line": e.line} for n, e in methods.NAMES.items()],
    "attacks": [{"name": n, "paper": a.paper, "site": a.site, "line": line(a)} for n, a in attacks.NAMES.items()],
    "aggregators": [{"name": n, "paper": a.paper, "line": line(a)} for n, a in aggregators.NAMES.items()],
    "compressors": [{"name": n, "paper": c.paper, "line": line(c)} for n, c in compressors.NAMES.items()],
    "partitions": [{"name": n, "paper": "-", "line": line(p)} for n, p in data.NAMES.items()],
    "datasets": [{"name": n, "paper": "-", "line": said} for n, said in data.DATASETS.items()],
    "models": [{"name": n, "paper": "-", "line": said} for n, (said, _) in models.NAMES.items()],
    "losses": [{"name": n, "paper": "-", "line": line(f)} for n, f in task.LOSSES.items()],
    "recipes": [{"name": n, "paper": p, "line": t} for n, p, t in reproduce.titles()],
    "solvers": [{"name": n, "paper": "-", "line": line(s)} for n, s in solvers.NAMES.items()],
}


@pytest.mark.parametrize("kind", catalogue.KINDS)
def test_what_is_read_is_what_is_imported(kind: str) -> None:
    assert catalogue.rows(kind) == IMPORTED[kind]
    assert all(all(row.values()) for row in IMPORTED[kind])


def test_theorems_are_read_as_they_are_imported() -> None:
    assert catalogue.theorems() == [{"name": n, "paper": c.paper, "line": line(c)} for n, c in theory.NAMES.items()]


def test_nothing_else_is_imported_to_list_and_to_complete() -> None:
    """In a process whose `sartor` and `sartor.cli` are only folders: with them PyTorch and Typer would come."""
    code = """
import json, sys, types
for name, folder in (("sartor", sys.argv[1]), ("sartor.cli", sys.argv[1] + "/cli")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from sartor.cli import catalogue, completion
offered = [completion.names(kind)("") for kind in catalogue.KINDS] + [completion.theorems("")]
third = {name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"__main__"}
own = {name for name in sys.modules if name.startswith("sartor.")}
print(json.dumps([len(offered), sorted(third), sorted(own)]))
"""
    place = str(Path(st.__file__).parent)
    found = subprocess.run([sys.executable, "-S", "-c", code, place], capture_output=True, text=True, check=True)
    offered, third, own = json.loads(found.stdout)
    assert offered == len(catalogue.KINDS) + 1 and third == ["sartor"]
    names = ("cli", "cli.catalogue", "cli.completion", "errors", "methods", "methods.entries", "spelling")
    assert set(own) <= {f"sartor.{name}" for name in names}
