"""Worker processes: the same bits as one process, nothing half kept, nothing left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from federations import ragged
from groups import grouped
from waiting import until

import sartor as st
from sartor.engines import LocalEngine, forked
from sartor.models import layers
from sartor.run.assemble import prepare
from sartor.run.rounds import Run

pytestmark = pytest.mark.skipif(not forked.available(), reason="needs Linux")


def start(method: st.core.Method | None = None, workers: int = 2, **options: object) -> Run:
    solver = st.SGD(lr=0.1, batch=7)
    made = method or st.FLAME(lam=1.0, rho=0.5, solver=solver)
    return prepare(made, layers(5, 4, 3), ragged(), **grouped(chunk=2, workers=workers, **options)).run


def engine(run: Run) -> LocalEngine:
    assert isinstance(run.engine, LocalEngine)
    return run.engine


@pytest.mark.parametrize("cohort", [7, 5])
@pytest.mark.parametrize(
    "method",
    [st.FLAME(), st.PFedMe(train_all=True), st.FedAMP(), st.LpProj(d_sub=3), st.LocalOnly()],
    ids=lambda m: type(m).__name__,
)
def test_same_bits_as_one_worker(method: st.core.Method, cohort: int) -> None:
    one, two = start(method, workers=1, cohort=cohort), start(method, workers=2, cohort=cohort)
    for _ in range(4):
        one.step()
        two.step()
    assert engine(one)._team is None and engine(two)._team is not None
    a, b = one.engine.save(), two.engine.save()
    assert all(torch.equal(a[k], b[k]) for k in a)
    if (w := one.method.shared(one.server)) is not None:
        other = two.method.shared(two.server)
        assert other is not None and torch.equal(w, other)


def test_a_client_that_diverges_in_a_worker_changes_no_state() -> None:
    run = start()
    run.step()
    run.step()
    before = {k: v.clone() for k, v in run.engine.save().items()}
    down = {"w": run.server["w"].expand(7, -1).clone()}  # a row for each client, so with a team of its own
    local = engine(run)
    assert local._team is not None
    local._team = local._make_team([np.arange(4), np.arange(4, 7)], down, local._team.messages)
    assert local._team is not None
    down["w"][3] = torch.nan
    with pytest.raises(st.errors.Diverged, match="client 3"):
        local.map("train", 2, torch.arange(7), down)
    after = run.engine.save()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert local._team.workers.alive
    run.step()  # and the run can go on


def test_an_error_in_a_worker_comes_with_its_place() -> None:
    run = start()
    run.step()
    team = engine(run)._team
    assert team is not None
    with pytest.raises(RuntimeError, match="KeyError"):
        team.workers.share([{"nonsense": 1}])


def test_a_killed_worker_is_said_and_the_next_round_has_new_ones() -> None:
    run, other = start(), start(workers=1)
    for _ in range(2):
        run.step()
        other.step()
    for child in multiprocessing.active_children():
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    with pytest.raises(st.SartorError, match="a worker process has ended"):
        run.step()
    run.step()
    other.step()
    assert all(torch.equal(v, other.engine.save()[k]) for k, v in run.engine.save().items())


def test_messages_that_a_server_keeps_are_its_own() -> None:
    class Keeper(st.FedAvg):
        def init(self, problem: st.core.Problem) -> tuple[st.core.Server, st.core.State]:
            server, state = super().init(problem)
            return server | {"last": problem.start.expand(problem.clients, -1)}, state

        def server(
            self,
            server: st.core.Server,
            ids: torch.Tensor,
            messages: st.core.State,
            weights: torch.Tensor,
            round: int,
        ) -> st.core.Server:
            return super().server(server, ids, messages, weights, round) | {"last": messages["w"]}

    run = start(Keeper())
    run.step()
    run.step()
    held, copy = run.server["last"], run.server["last"].clone()
    run.step()
    assert torch.equal(held, copy)


def test_workers_end_with_their_engine_and_with_a_killed_parent() -> None:
    run = start()
    run.step()
    children = multiprocessing.active_children()
    assert len(children) >= 2
    gc.collect()
    gc.disable()  # Python looks for cycles seldom: what one holds would pile up, run after run
    try:
        del run
        assert not multiprocessing.active_children()
    finally:
        gc.enable()
    program = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}\n"
        "import multiprocessing, time, test_forked as t\n"
        "run = t.start(); run.step(); run.step()\n"
        "print(*(c.pid for c in multiprocessing.active_children()), flush=True); time.sleep(3600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        orphans = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(orphans) == 2
    until(lambda: not any(map(_runs, orphans)), lambda: orphans, lambda: "workers outlive their parent")


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
