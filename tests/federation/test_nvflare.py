"""A real federation: mutual TLS, a process per site, killed and restarted; the bytes of the simulation all the same."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty import noise
from sites import NAMES, tables

pytest.importorskip("nvflare")

from processes import Processes, run, same_as_simulated

from sartor.storage import read_json

RECIPE = 'method = "flame"\nmodel = "mlp(6)"\nseed = 3\nrounds = {}\nevaluate_every = 10\n'


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def processes(tmp_path: Path, data: dict[str, Path]) -> Iterator[Processes]:
    found = Processes.make(tmp_path, RECIPE.format(40), data)
    try:
        yield found
    finally:
        found.end()


KILLS = {
    "a site's job process": ((), ("b",)),
    "a whole site": (("b",), ()),
    "the server's job process": ((), ("server",)),
    "the whole server": (("server",), ()),
    "all at once": (("server", *NAMES), ()),
}


def killed(what: str, processes: Processes) -> float:
    """Play, kill in the middle, restart as an operator would; the seconds from the kill to the next new round."""
    whole, workers = KILLS[what]
    processes.start()
    processes.until(lambda: processes.round() >= 5)
    for name in workers:
        processes.kill_worker(name)
    processes.kill(*whole)
    began, reached = time.monotonic(), processes.round()
    assert reached < 38
    processes.start(*whole) if whole else None
    processes.until(lambda: processes.round() > reached + 1)
    lost = time.monotonic() - began
    processes.finish()
    return lost


@pytest.mark.long
def test_a_run_whose_site_loses_its_process_goes_on_to_the_same_bytes(
    processes: Processes, data: dict[str, Path], tmp_path: Path
) -> None:
    killed("a site's job process", processes)
    assert "the job was lost" in processes.said("server")
    same_as_simulated(processes, data, tmp_path / "simulated")
    table = processes.said("server")
    assert "personal models are at the sites" in table and "chosen" in table
    assert ", round 40 of 40" in run("federation", "status", processes.kits / "server").stdout
    assert "site b of trial" in run("federation", "status", processes.kits / "b").stdout
    done = run("federation", "export", processes.kits / "b", "--out", tmp_path / "b")
    assert done.returncode == 0 and (tmp_path / "b" / "personal-0.safetensors").exists()
    again = run("server", processes.kits / "server", "--recipe", processes.recipe)  # finished: only shown again
    assert again.returncode == 0 and "flame after 40 rounds" in again.stdout


@pytest.mark.federation
@pytest.mark.parametrize("what", KILLS)
def test_killed_anywhere_to_the_same_bytes(
    what: str, processes: Processes, data: dict[str, Path], tmp_path: Path
) -> None:
    lost = killed(what, processes)
    same_as_simulated(processes, data, tmp_path / "simulated")
    print(f"\nkilled {what}: {lost:.0f} s until the next round")


MASKED = "secure_aggregation = true\n"
PATIENTS = MASKED + 'dp_epsilon = 6.0\ndp_unit = "sample"\nlocal_steps = 4\ncompress = "projection(k=0.5)"\n'
CLIENTS = MASKED + 'dp_noise = 1.0\ndp_clip = 0.5\ncompress_down = "int8"\n'
GRID = MASKED + 'compress = "grid"\n'
CODED = 'method = "ditto"\ndp_noise = 1.0\ndp_where = "client"\ncompress = "top-k(k=0.3)"\ncompress_down = "int8"\n'
KILLED = ["", "a whole site", "the whole server", "all at once"]


@pytest.mark.federation
@pytest.mark.parametrize(
    ("private", "what"),
    [*((PATIENTS, what) for what in KILLED), *((text, KILLED[-1]) for text in (CLIENTS, GRID, CODED))],
)
def test_private_masked_and_compressed_rounds_over_tls_give_the_bytes_of_the_simulation(
    private: str, what: str, data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the kits' own certificates and the simulation's noise; also when killed in the middle."""
    for name, value in noise.environment(3).items():
        monkeypatch.setenv(name, value)
    common = RECIPE.format(20) if "method" not in private else RECIPE.format(20).partition("\n")[2]
    found = Processes.make(tmp_path, common + private, data)
    try:
        if what:
            killed(what, found)
        else:
            found.start()
            found.finish()
        same_as_simulated(found, data, tmp_path / "simulated")
        assert bool(list((found.kits / "a" / "play").rglob("mask.key"))) == (MASKED in private)
    finally:
        found.end()


@pytest.mark.federation
def test_private_rounds_over_tls_are_accounted_for_at_each_site(data: dict[str, Path], tmp_path: Path) -> None:
    private = 'dp_noise = 2.0\ndp_where = "client"\ncompress = "qsgd(s=16)"\n'
    found = Processes.make(tmp_path, RECIPE.format(10) + private, data)
    try:
        found.start()
        found.finish()
        for name in NAMES:
            (line,) = read_json(found.kits / name / "play" / "privacy.json")["0"].values()
            assert line["messages"] == 10 and line["noise"] == 2.0
            said = run("federation", "status", found.kits / name).stdout
            assert "client 0: epsilon" in said and "spent in all runs" in said
    finally:
        found.end()


@pytest.mark.federation
def test_a_second_client_with_one_identity_is_not_taken(
    processes: Processes, data: dict[str, Path], tmp_path: Path
) -> None:
    """A copy of site b's kit is started elsewhere in the middle of a run, with the same data. NVFlare lets it push b
    out (to the transport they are one), but it has not b's seat: it is not taken, and the server says so. When it is
    ended and b started again, the run goes on to the same bytes."""
    processes.recipe.write_text(RECIPE.format(400))  # long enough for the copy to come in time
    processes.start()
    processes.until(lambda: processes.round() >= 5)
    shutil.copytree(processes.kits / "b", processes.kits / "copy", ignore=shutil.ignore_patterns("play"))
    processes.data["copy"] = data["b"]
    processes.start("copy")
    processes.until(lambda: "in the name of site b: not taken" in processes.said("server"))
    assert processes.round() < 390
    processes.kill("copy")
    processes.kill("b")
    processes.start("b")
    processes.finish()
    same_as_simulated(processes, data, tmp_path / "simulated")
