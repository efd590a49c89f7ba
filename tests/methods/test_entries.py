"""What a method's file says about it: read without importing it, refused in one line where it is wrong."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from sartor import methods
from sartor.core import Method
from sartor.errors import SartorError
from sartor.methods import entries
from sartor.methods.entries import NAMES, Entry, public

FOLDER = Path(methods.__file__).parent
SMALL = 'ABOUT = {"class": "Mine", "names": {"mine": {"line": "a method"}}}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which methods are looked for, too."""
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    return tmp_path


def test_every_file_describes_itself() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "entries"}
    assert {e.file for e in NAMES.values()} == files
    for file in files:
        assert entries._about(FOLDER / f"{file}.py") == importlib.import_module(f"sartor.methods.{file}").ABOUT


def test_every_entry_makes_its_method() -> None:
    for name, e in NAMES.items():
        assert issubclass(e.make, Method) and e.make.__module__ == f"sartor.methods.{e.file}", name


def test_the_names_stand_in_the_order_that_the_files_give() -> None:
    names = list(NAMES)
    assert names[:4] == ["flame", "flame-lp-proj", "pfedme", "ditto"] and names[-2:] == ["ifca", "local"]
    assert names.index("fedavg") + 1 == names.index("fedprox")  # a file's names stay together, as it has them


def test_classes_and_factories_are_names_of_the_package() -> None:
    assert public()["FLAME"] == "flame" and public()["FedProx"] == "fedavg"
    for name in public():
        assert getattr(methods, name).__name__ == name and name in dir(methods) and name in methods.__all__
    with pytest.raises(AttributeError, match="no attribute 'FLAMES'"):
        _ = methods.FLAMES  # type: ignore[attr-defined]


def test_names_are_read_without_pytorch() -> None:
    """In a process whose `sartor` is only a folder, as it is when its public names are imported on demand."""
    code = f"""
import sys, types
sartor = types.ModuleType("sartor")
sartor.__path__ = [{str(FOLDER.parent)!r}]
sys.modules["sartor"] = sartor
from sartor.methods import NAMES
assert NAMES["flame"].paper == "FLAME"
print(*sorted({{"torch", "numpy", "scipy", "sklearn", "pydantic", "sartor.core"}} & set(sys.modules)))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_a_file_in_another_folder_is_a_method_like_the_others(folder: Path) -> None:
    before = list(NAMES)
    (folder / "mine.py").write_text("from .local import LocalOnly\n\n\nclass Mine(LocalOnly):\n    pass\n\n\n" + SMALL)
    (folder / "notes.py").write_text('"""No method."""\n')
    entries._entries.cache_clear()  # what a new process has
    assert list(NAMES) == [*before[:-1], "mine", before[-1]]
    assert NAMES["mine"] == Entry("mine", "Mine", "a method", title="Mine")
    assert issubclass(NAMES["mine"].make, methods.LocalOnly) and methods.Mine is NAMES["mine"].make  # type: ignore[attr-defined]
    del sys.modules["sartor.methods.mine"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ABOUT = {'class': Mine}\n", "ABOUT must be a table of plain literals, and the last thing in the file"),
        (SMALL + "x = 1\n", "ABOUT must be a table of plain literals, and the last thing in the file"),
        ("ABOUT = ['mine']\n", "ABOUT must be a table"),
        ("ABOUT = {'names': {}}\n", "ABOUT lacks 'class'"),
        ("ABOUT = {'class': 'Mine', 'naems': {}}\n", "did you mean names"),
        (SMALL.replace("line", "lien"), "did you mean line"),
        (SMALL.replace('"line": "a method"', ""), "ABOUT says no 'line' for mine"),
        (SMALL.replace('"mine"', '"flame"'), "there is a method 'flame' already"),
    ],
)
def test_a_mistake_is_refused_with_the_file_s_name(folder: Path, text: str, said: str) -> None:
    (folder / "mine.py").write_text(f"\n{text}")
    entries._entries.cache_clear()
    with pytest.raises(SartorError, match=r"mine\.py") as e:
        _ = NAMES["flame"]
    assert said in str(e.value) and "\n" not in str(e.value)


def test_a_file_cannot_have_another_s_name(folder: Path) -> None:
    (folder / "flame.py").write_text(f"\n{SMALL}")
    entries._entries.cache_clear()
    with pytest.raises(SartorError, match=r"there is a method file flame\.py already"):
        _ = NAMES["flame"]
