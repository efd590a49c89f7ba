"""Memory, disk and cores: what a run will need is said before it starts; a full disk costs nothing that was saved."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from commandline import good, refused
from federations import ragged
from groups import grouped

import sartor as st
from sartor.core import Problem
from sartor.models import layers
from sartor.run import memory
from sartor.run.assemble import prepare


def problem(clients: int, parameters: int) -> Problem:
    return Problem(torch.zeros(parameters), torch.full((clients,), 1 / clients), 0)


@pytest.mark.parametrize(
    ("method", "per_client"),
    [(st.FLAME(), 3), (st.Ditto(), 1), (st.PFedMe(), 2), (st.FedAMP(), 2), (st.FedAvg(), 0)],
    ids=lambda v: type(v).__name__ if isinstance(v, st.core.Method) else "",
)
def test_tables_are_counted_by_what_a_method_keeps(method: st.core.Method, per_client: int) -> None:
    """FLAME: θ and w at the client, u at the server; FedAMP: w at both; four bytes a number."""
    p = problem(50, 1000)
    server, start = method.init(p)
    wanted = memory.Wanted.of(method, p.start, p.clients, server, start, cohort=5)
    assert wanted.tables == per_client * 50 * 1000 * 4
    assert wanted.memory(on_disk=True) == wanted.memory(on_disk=False) - 2 * wanted.tables


def test_what_everyone_must_hold_counts_everyone() -> None:
    p = problem(50, 1000)
    few, all_ = (
        memory.Wanted.of(m, p.start, 50, *m.init(p), cohort=5) for m in (st.PFedMe(), st.PFedMe(train_all=True))
    )
    assert all_.cohort == 10 * few.cohort


def test_too_little_memory_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 700 << 20)
    prepare(st.FLAME(), layers(5, 3), ragged())  # small enough
    with pytest.raises(st.SartorError, match=r"about .* GiB of memory for 7 clients .* 0\.7 GiB are free.*--store"):
        prepare(st.FLAME(), layers(5, 700_000, 3), ragged())
    monkeypatch.setattr(memory, "available", lambda: None)  # a system that does not say is trusted
    prepare(st.FLAME(), layers(5, 3), ragged())


def test_available_memory_is_a_number_here() -> None:
    found = memory.available()
    assert found is None or 1 << 20 < found < 1 << 50


def test_states_take_no_memory_before_the_first_round() -> None:
    run = prepare(st.FLAME(), layers(5, 3), ragged(), execution=st.Execution(workers=1)).run
    assert all(rows.memory.fresh for rows in run.engine.states.values())  # type: ignore[attr-defined]
    run.step()
    assert not any(rows.memory.fresh for rows in run.engine.states.values())  # type: ignore[attr-defined]


def test_a_full_disk_under_the_states_keeps_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store fills up at the third checkpoint; with space again the run goes on as if nothing had happened."""
    start = ("run", "--rounds", 8, "--checkpoint-every", 2, "--model", "softmax", "--store", "disk", "--quiet")
    good(*start, "--out", tmp_path / "whole")
    write, calls = os.pwrite, []

    def full(file: int, data: bytes, at: int) -> int:
        calls.append(at)
        if len(calls) > 100:  # ten clients, three tables, a mark for each row: in the second settling
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    said = refused(*start, "--out", tmp_path / "broken")
    assert "cannot keep the clients' states" in said and "No space left" in said and "--resume" in said
    monkeypatch.setattr(os, "pwrite", write)
    good("run", "--resume", tmp_path / "broken", "--quiet")
    for file in ("models/personal.safetensors", "models/global.safetensors"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "broken" / file).read_bytes()


def test_a_disk_that_takes_half_a_row_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepare(st.FLAME(), layers(5, 3), ragged(), **grouped(store=tmp_path)).run
    run.step()
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: len(data) // 2)
    with pytest.raises(st.SartorError, match="No space left"):
        run.save(tmp_path / "checkpoint", "")


def test_more_workers_than_cores_are_allowed_with_a_warning() -> None:
    cores = len(os.sched_getaffinity(0))
    with pytest.warns(UserWarning, match=f"{cores + 1} workers on {cores} cores"):
        result = prepare(st.FLAME(), layers(5, 3), ragged(), execution=st.Execution(workers=cores + 1))
    result.run.step()


def test_the_doctor_estimates_a_recipe(tmp_path: Path) -> None:
    good("run", "--rounds", 3, "--model", "softmax", "--out", tmp_path, "--quiet")
    found = json.loads(good("doctor", "--recipe", tmp_path / "recipe.toml", "--json").out)["estimate"]
    parts = found["rounds"] * found["seconds_per_round"] + found["seconds_to_start"] + found["seconds_per_evaluation"]
    assert found["rounds"] == 3 and 0 < parts <= found["seconds"] * (1 + 1e-9)
    assert 0.5 < found["memory_gib"] < 1 and found["disk_gib"] == 0  # softmax on digits: nearly all is Python's
    text = good("doctor", "--recipe", tmp_path / "recipe.toml").out
    assert "about " in text and "3 rounds of " in text and "GiB of memory" in text


def test_a_run_prints_how_fast_it_was() -> None:
    text = good("run", "--rounds", 2, "--model", "softmax").out
    assert " clients/s, " in text and " steps/s)" in text


def test_steps_are_counted_the_same_by_every_worker_and_engine() -> None:
    """Seven clients of 1 to 57 samples in batches of 7: ⌈n/7⌉ steps each."""
    counts = []
    for options in ({"workers": 1}, {"workers": 2, "chunk": 2}, {"engine": "serial"}):
        run = prepare(st.FLAME(solver=st.SGD(batch=7)), layers(5, 4, 3), ragged(), **grouped(**options)).run
        for _ in range(3):
            run.step()
        counts.append((run.counts["trained"], run.counts["steps"]))
    sizes = ragged().counts("train")
    assert counts == [(21, 3 * int((-(-sizes // 7)).sum()))] * 3
