"""A table without a client key: every command that trains warns that its clients are made up, and says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commandline import QUICK, good, sartor

from sartor.data import hospitals
from sartor.data.loading import load
from sartor.data.tables.first_look import made_up

MADE_UP = (
    "warning: patients.csv: no client key is given, so rows are dealt out artificially to clients that do not exist"
)
NAMED = " (--partition hybrid). The column hospital looks like a client key; to take it: --client-key hospital\n"
COMMANDS = {
    "run": ("run", "--method", "fedavg", *QUICK),
    "compare": ("compare", "--methods", "fedavg,local", "--seeds", "0", *QUICK),
    "tune": ("tune", "--methods", "fedavg", "--budget", "1", "--seeds", "0", *QUICK),
    "advise": ("advise", "--methods", "fedavg", "--trials", "1", "--cuts", "1", "--minutes", "0.05", *QUICK),
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    hospitals.write(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_trains_says_so_once(command: str) -> None:
    asked = (*COMMANDS[command], "--data", "patients.csv", "--target", "outcome")
    answer = sartor(*asked)
    assert answer.code == 0 and answer.err.count(MADE_UP + NAMED) == 1, answer.err
    assert MADE_UP not in sartor(*asked, "--client-key", "hospital").err


def test_numbers_for_a_program_come_with_it_and_only_quiet_hides_it() -> None:
    asked = (*COMMANDS["run"], "--data", "patients.csv", "--target", "outcome")
    answer = sartor(*asked, "--json")
    assert answer.err == MADE_UP + NAMED and json.loads(answer.out)["partition"] == "hybrid"
    assert good(*asked, "--quiet").out == ""


def test_nothing_is_said_where_rows_are_meant_to_be_dealt_out_or_clients_are_there(here: Path) -> None:
    asked = COMMANDS["run"]
    good(*asked, "--data", "patients.csv", "--target", "outcome", "--partition", "iid", "--clients", 4)
    good(*asked, "--data", "digits")
    (here / "sites").mkdir()
    for name in ("north", "south"):
        lines = [f"{i % 7},{'yn'[i % 7 > 3]}" for i in range(40)]
        (here / "sites" / f"{name}.csv").write_text("\n".join(["dose,ill", *lines]) + "\n", encoding="utf-8")
    assert "artificially" not in sartor(*asked, "--data", "sites", "--target", "ill").err  # a client for each file


@pytest.mark.parametrize(
    "header, looks",
    [
        ("site,dose", "The column site looks like a client key; to take it: --client-key site"),
        ("hospital_id,dose", "The column hospital_id looks like a client key; to take it: --client-key hospital_id"),
        ("Site Name,dose", "The column Site Name looks like a client key; to take it: --client-key 'Site Name'"),
        (
            "home_site,workSite",
            "The columns home_site, workSite look like client keys; to take the first: --client-key home_site",
        ),
        ("ward,dose", "If a column says whose each row is, name it: --client-key COLUMN"),
        ("siteless,id", "If a column says whose each row is, name it: --client-key COLUMN"),  # words that contain one
    ],
)
def test_columns_with_names_of_clients_are_named(here: Path, header: str, looks: str) -> None:
    said = told(here, [header + ",y", *(f"{'ab'[i % 2]},{i % 3 + 5},{i % 2}" for i in range(20))])
    assert said.endswith(f"(--partition hybrid). {looks}")


@pytest.mark.parametrize("value", [lambda i: "a", lambda i: f"s{i}", lambda i: 5, lambda i: i])
def test_a_column_that_makes_no_groups_is_no_client_key(here: Path, value: object) -> None:
    assert callable(value)
    assert "COLUMN" in told(here, ["site,dose,y", *(f"{value(i)},{i % 3 + 5},{i % 2}" for i in range(20))])


def told(here: Path, lines: list[str]) -> str:
    path = here / "t.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return made_up(path, load(path, target="y"), "hybrid")


def test_arrays_have_names_too(here: Path) -> None:
    path = here / "t.npz"
    np.savez(path, x=np.arange(40.0).reshape(20, 2), y=np.arange(20) % 2, device_id=np.arange(20) % 4)
    assert "The column device_id looks like a client key" in made_up(path, load(path), "hybrid")


def test_a_column_that_is_left_out_can_still_name_the_clients() -> None:
    answer = sartor(*COMMANDS["run"], "--data", "patients.csv", "--target", "outcome", "--leave-out", "hospital")
    assert MADE_UP + NAMED in answer.err
