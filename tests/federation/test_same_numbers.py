"""Sites give the numbers of the simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sites import NAMES, SMALL, Federation, personal

from sartor.run.assemble import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.run.result import Result
from sartor.storage import load_tensors

METHODS = ["scaffold", "local"]  # besides those of conformance.py


def simulated(recipe: Recipe, paths: dict[str, Path], folder: Path) -> Result:
    """The same rows in one process."""
    own = {"data": str(paths["all"]), "target": "outcome", "client_key": "hospital", "diagnostics": False}
    recipe = recipe.replace(**own)
    *_, result = play_recipe(recipe, clients_of(recipe), folder)
    return result


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cohort", [None, 2])
def test_sites_give_the_bits_of_the_serial_engine(
    method: str, cohort: int | None, tmp_path: Path, paths: dict[str, Path]
) -> None:
    """One client a site. Also what is sent, how many steps were taken, every score, and the global model."""
    values = SMALL | {"rounds": 5, "method": method, "cohort": cohort}
    recipe = Recipe(**values)
    found = Federation(tmp_path, recipe, paths).play()
    there = simulated(recipe.replace(engine="serial"), paths, tmp_path / "local")
    names = {"data", "seconds"}
    assert {k: v for k, v in found.summary.items() if k not in names} == {
        k: v for k, v in there.summary.items() if k not in names
    }
    place = tmp_path / "local" / "models" / "personal.safetensors"
    expected = load_tensors(place)[0] if place.exists() else {}
    assert place.exists() == (there.summary["personal"] is not None)
    for i, name in enumerate(NAMES if expected else ()):
        wanted = np.concatenate([expected[k][i].numpy().ravel() for k in sorted(expected)])
        assert np.array_equal(personal(tmp_path, name), wanted)
    common = [f / "models" / "global.safetensors" for f in (tmp_path / "server", tmp_path / "local")]
    assert common[0].exists() == common[1].exists() == (there.summary["global"] is not None)
    assert not common[0].exists() or common[0].read_bytes() == common[1].read_bytes()


@pytest.mark.parametrize(("engine", "tolerance"), [("serial", 0.0), ("local", 1e-6)])
def test_a_site_may_have_many_clients(engine: str, tolerance: float, tmp_path: Path, paths: dict[str, Path]) -> None:
    """All rows at one site, by hospital: bit for bit one at a time, and stacked up to the order of sums."""
    recipe = Recipe(**SMALL, method="flame", engine=engine)
    fed = Federation(tmp_path, recipe, {"a": paths["all"]}, key="hospital")
    found = fed.play(fed.calls(["a"]))
    there = simulated(recipe.replace(workers=1), paths, tmp_path / "local")
    expected, _ = load_tensors(tmp_path / "local" / "models" / "personal.safetensors")
    for i in range(3):
        wanted = np.concatenate([expected[k][i].numpy().ravel() for k in sorted(expected)])
        np.testing.assert_allclose(personal(tmp_path, "a", i), wanted, atol=tolerance, rtol=tolerance)
    assert found.summary["clients"] == 3 and found.data.names == ["a/0", "a/1", "a/2"]  # keys stay at the site
    assert found.summary["chosen"] == there.summary["chosen"] or tolerance > 0
