"""Ray: the table of conformance in one cluster; killed actors, nodes and drivers; the bytes of the local engine.

Everything here runs in a network namespace of its own, with `lo` and nothing else, and ends with it.
"""

from __future__ import annotations

from pathlib import Path

import namespaces
import pytest
from commandline import good, refused, same_run
from conformance import CASES, PLAIN, agrees, of_run

pytest.importorskip("ray")

HERE = Path(__file__).parents[1] / "support"
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """What one cluster left of all cases, and what was said."""
    folder = tmp_path_factory.mktemp("ray")
    said = namespaces.run(HERE / "ray_table.py", folder)
    return folder, said


@pytest.mark.long
@pytest.mark.parametrize("name", [*PLAIN, "flame, two of three", "fedamp, two of three", "flame, one is slow"])
def test_conformance(name: str, table: tuple[Path, str]) -> None:
    agrees(CASES[name], of_run(table[0] / name))


@pytest.mark.long
def test_a_killed_actor_is_replaced_in_mid_round(table: tuple[Path, str]) -> None:
    assert (table[0] / "once").exists()
    agrees(CASES["flame"], of_run(table[0] / "killed"))


@pytest.mark.long
def test_an_interrupted_run_goes_on(table: tuple[Path, str]) -> None:
    agrees(CASES["ditto"], of_run(table[0] / "again"))


@pytest.mark.long
def test_nothing_listens_but_on_loopback(table: tuple[Path, str]) -> None:
    """Although there is an address that Ray would rather have."""
    found = {line.split()[1] for line in table[1].splitlines() if line.startswith("listens:")}
    assert found and found <= LOOPBACK


@pytest.mark.long
def test_what_goes_wrong_is_said_in_a_line(table: tuple[Path, str]) -> None:
    raised, version, folder = (line for line in table[1].splitlines() if line.startswith("refused:"))
    assert raised == "refused: RuntimeError: the fault of client 1"
    assert "disagree: sartor is " in version and '"0.0.9 (0badf00d)" here' in version
    assert "--out must be a folder that all machines of the cluster share" in folder


# --- 200 clients on two nodes -----------------------------------------------------------------------------------------

MANY = ("run", "--method", "flame", "--partition", "iid", "--clients", 200, "--minimum", 2, "--model", "mlp(16)")
MANY = (*MANY, "--rounds", 4, "--evaluate-every", 2, "--checkpoint-every", 3, "--quiet")


@pytest.mark.federation
def test_a_node_killed_in_mid_round_changes_no_byte(tmp_path: Path) -> None:
    own = ("--engine", "ray", "--address", "127.0.0.1:6390", "--workers", 2, "--out", tmp_path / "ray")
    said = namespaces.run(HERE / "ray_nodes.py", tmp_path, *MANY, *own)
    print(said)
    assert "another actor goes on where it was" in said
    assert "refused: 2 sartor: 9 actors need a CPU each; the cluster has 2. Take fewer --workers." in said
    good(*MANY, "--out", tmp_path / "local")
    same_run(tmp_path / "local", tmp_path / "ray")


# --- the driver -------------------------------------------------------------------------------------------------------

KILL_IN_ROUND = """
import os, signal
from sartor.run.rounds import Run
step = Run.step
def dying(run):
    if run.round == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    step(run)
Run.step = dying
"""


@pytest.mark.federation
def test_a_killed_driver_goes_on_with_either_engine(tmp_path: Path) -> None:
    """kill -9 in round 4, after a checkpoint in round 2; its cluster ends with it."""
    short = ("run", "--clients", 12, "--model", "softmax", "--chunk", 4, "--rounds", 6, "--evaluate-every", 3)
    short = (*short, "--checkpoint-every", 2, "--quiet")
    good(*short, "--out", tmp_path / "whole")
    said = namespaces.run(HERE / "ray_driver.py", tmp_path, KILL_IN_ROUND, *short, "--engine", "ray", "--workers", 2)
    assert "left: []" in said
    for engine in ("ray", "local"):
        same_run(tmp_path / "whole", tmp_path / engine)


# --- bad input --------------------------------------------------------------------------------------------------------


def test_bad_input_is_refused_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ("run", "--model", "softmax", "--rounds", 1)
    assert "--address is auto or HOST:PORT; got 'here'" in refused(*run, "--engine", "ray", "--address", "here")
    assert "no Ray cluster answers at 127.0.0.1:1 (" in refused(*run, "--engine", "ray", "--address", "127.0.0.1:1")
    assert "works only with --engine ray; got 'auto'" in refused(*run, "--address", "auto")
    assert "'local', 'serial', 'ray'; got 'dask'" in refused(*run, "--engine", "dask")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # where no cluster has left its address
    assert "cannot join a Ray cluster with --address auto: " in refused(*run, "--engine", "ray", "--address", "auto")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'sartor[ray]'" in refused(*run, "--engine", "ray")
    assert "pip install 'sartor[ray]'" in refused("compare", "--rounds", 1, "--engine", "ray")
