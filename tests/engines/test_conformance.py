"""Every engine plays the same table of runs to the same numbers (conformance.py); Ray's part is in test_ray.py."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import (
    CASES,
    DEPLOYED,
    PARTIAL,
    PLAIN,
    RAISES,
    SLOW,
    agrees,
    data,
    disturbed,
    disturbed_processes,
    expected,
    of_run,
    of_sites,
)
from faulty.noise import simulated
from identities import identities
from sites import NAMES, Federation
from subsets import diagonal, first

from sartor.federation.rounds import Waiting
from sartor.run.complete import clients_of
from sartor.run.play import play_recipe

ENGINES: dict[str, dict[str, Any]] = {
    "serial": {"engine": "serial"},
    "chunks of two, two workers": {"chunk": 2, "workers": 2},
}


@pytest.mark.parametrize(("name", "engine"), diagonal([*PLAIN, *PARTIAL[::2], SLOW[0]], ENGINES))
def test_simulated(name: str, engine: str, tmp_path: Path) -> None:
    case, own = CASES[name], ENGINES[engine]
    recipe = case.whole(**own)
    with disturbed(case):
        list(play_recipe(recipe, clients_of(recipe), tmp_path))
    agrees(case, of_run(tmp_path), 1 if own.get("engine") == "serial" else own.get("chunk"))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", RAISES[:1])
def test_a_simulation_stops_where_a_client_raises_and_goes_on_from_its_checkpoint(
    name: str, engine: str, tmp_path: Path
) -> None:
    """With the error mended it ends as if there had been none."""
    case, own = CASES[name], ENGINES[engine]
    recipe = case.whole(**own, checkpoint_every=1)
    clients = clients_of(recipe)
    with disturbed(case), pytest.raises(RuntimeError, match="the fault of client 1"):
        list(play_recipe(recipe, clients, tmp_path))
    list(play_recipe(recipe, clients, tmp_path))
    whole = CASES[str(case.values["method"])]
    agrees(whole, of_run(tmp_path), 1 if own.get("engine") == "serial" else own.get("chunk"))


@pytest.mark.parametrize("name", first(CASES, *PLAIN, PARTIAL[0], RAISES[0], SLOW[0]))
def test_sites_of_a_federation(name: str, tmp_path: Path) -> None:
    """Three sites, a client each, by function calls."""
    case = CASES[name]
    fed = Federation(tmp_path, case.recipe(), data(), waiting=Waiting(seconds=5.0, clients=1, timeouts=2, again=1.0))
    with disturbed(case):
        fed.play()
    agrees(case, of_sites(tmp_path / "server", [tmp_path / n for n in NAMES]))


@pytest.mark.parametrize("name", [*PLAIN, PARTIAL[0]])
def test_one_site_with_all_clients(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    fed = Federation(tmp_path, case.recipe(), {"a": data()["all"]}, key="hospital")
    fed.play(fed.calls(["a"]))
    agrees(case, of_sites(tmp_path / "server", [tmp_path / "a"]), chunk=None)


@pytest.mark.parametrize("name", first(DEPLOYED, "ditto, patient privacy", "mr-mtl, everything"))
def test_private_and_masked_sites(name: str, tmp_path: Path) -> None:
    """The same with the kits' certificates, and the simulation's noise in place of the sites' own."""
    case = DEPLOYED[name]
    noise = functools.partial(simulated, case.recipe().seed)
    fed = Federation(tmp_path, case.recipe(), data(), noise=noise, identities=identities(NAMES))
    fed.play()
    agrees(case, of_sites(tmp_path / "server", [tmp_path / n for n in NAMES]))


@pytest.mark.federation
@pytest.mark.parametrize("name", [*CASES, *DEPLOYED])
def test_sites_over_nvflare(name: str, tmp_path: Path) -> None:
    """Real processes, a client each, mutual TLS."""
    pytest.importorskip("nvflare")
    from processes import Processes

    case = (CASES | DEPLOYED)[name]
    found = Processes.make(tmp_path, case.recipe().toml(), data())
    try:
        with disturbed_processes(case):
            found.start()
        found.finish()
    finally:
        found.end()
    agrees(case, of_sites(found.kits / "server" / "play" / "run", [found.kits / n / "play" for n in NAMES]))


def test_a_last_bit_is_seen() -> None:
    case = CASES["flame"]
    right = expected(case)
    agrees(case, right)
    for other in ("personal", "common"):
        wrong = getattr(right, other).copy()
        wrong.flat[-1] = np.nextafter(wrong.flat[-1], np.float32(9))
        with pytest.raises(AssertionError):
            agrees(case, replace(right, **{other: wrong}))
    with pytest.raises(AssertionError):
        agrees(case, replace(right, history=right.history[:-1]))
