"""Shared by the tests of reproductions: a small experiment that is finished."""

from __future__ import annotations

from pathlib import Path

import pytest
from commandline import good
from small_experiment import write


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("recipes")
    path = write(folder)
    good("reproduce", path, "--out", folder / "out")
    return path, folder / "out"
