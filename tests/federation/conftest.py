"""Shared by the tests of a federation in this process: three hospitals, and a run that nothing disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest
from sites import QUICK, Federation, tables, vectors

from sartor.run.recipe import Recipe


@pytest.fixture(scope="session")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def flame(tmp_path: Path, paths: dict[str, Path]) -> Federation:
    return Federation(tmp_path / "fed", Recipe(method="flame", **QUICK), paths)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, paths: dict[str, Path]) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    Federation(folder, Recipe(method="flame", **QUICK), paths).play()
    return vectors(folder)
