"""One table: every method passes every property. A new method earns these tests by its row in methods.NAMES."""

from __future__ import annotations

import copy
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import ragged, two_sided
from torch import nn

import sartor as st
from sartor.core import Method, Server, State
from sartor.engines import LocalEngine, SerialEngine
from sartor.engines.local import problem_of
from sartor.fit import natural_loss
from sartor.methods import NAMES
from sartor.models import layers
from sartor.rounds import Run
from sartor.rows import Rows
from sartor.tasks import ModelTask

SOLVER = st.SGD(lr=0.1, epochs=2, batch=7, momentum=0.3, weight_decay=0.01)
PRESETS: dict[str, dict[str, Any]] = {  # what the small task needs; the rest is the method's own default
    "flame-lp-proj": {"d_sub": 5},
    "lp-proj-1": {"d_sub": 5},
    "lp-proj-2": {"d_sub": 5},
}
EXTRA = {  # other ways through the same code
    "flame-global-anchor": lambda: st.FLAME(anchor="global", weighting="size", solver=SOLVER),
    "flame-inexact": lambda: st.FLAME(solver=st.Inexact(lr=0.2, eps=1e-2, max_steps=20)),
    "pfedme-train-all": lambda: st.PFedMe(
        train_all=True, start="w", weighting="size", solver=st.SGD(lr=0.05, steps=3, reuse=True, batch=7)
    ),
    "ditto-finetuned": lambda: st.Ditto(joint=False, global_solver=st.Adam(lr=0.01, batch=7), solver=SOLVER),
    "lp-proj-1.5-adam": lambda: st.LpProj(
        p=1.5, d_sub=4, R=2, first="zero", train_all=True, solver=st.Adam(lr=0.01, steps=3, batch=7)
    ),
    "ditto-scaffold": lambda: st.Ditto(global_method=st.SCAFFOLD(solver=SOLVER), solver=SOLVER),
    "ditto-flame": lambda: st.Ditto(global_method=st.FLAME(solver=SOLVER), solver=SOLVER),
    "scaffold-ii": lambda: st.SCAFFOLD(option="II", server_lr=0.8, solver=st.SGD(lr=0.1, epochs=2, batch=7)),
    "rsa-2": lambda: st.RSA(p=2, lam=0.1, decay=0.01, solver=SOLVER),
    "fedadmm-size": lambda: st.FedADMM(weighting="size", solver=st.Inexact(lr=0.2, eps=1e-2, max_steps=20)),
    "mapper-inexact": lambda: st.Mapper(solver=st.Inexact(lr=0.2, eps=1e-2, max_steps=20)),
    "fedamp-cohort": lambda: st.FedAMP(among="cohort", sigma=5.0, solver=SOLVER),
    "fedamp-alpha": lambda: st.FedAMP(alpha=0.3, sigma=5.0, beta_decay=0.5, beta_every=2, solver=SOLVER),
}
METHODS = [*NAMES, *EXTRA]
BODY, HEAD = 5 * 6 + 6, 6 * 3 + 3
D = BODY + HEAD
WIDTHS = {  # numbers down and up, of methods that do not send one model each way
    "flame-lp-proj": (5, 5),
    "lp-proj-1": (5, 5),
    "lp-proj-2": (5, 5),
    "local": (0, 0),
    "lp-proj-1.5-adam": (4, 4),
    "lg-fedavg": (HEAD, HEAD),
    "fedper": (BODY, BODY),
    "fedrep": (BODY, BODY),
    "mocha": (6 + 1, 6),
    "scaffold": (2 * D, 2 * D),
    "scaffold-ii": (2 * D, 2 * D),
    "ditto-scaffold": (2 * D, 2 * D),
    "term": (D, D + 1),
    "qffl": (D, D + 1),
    "ifca": (5 * D, D + 5),
}


def make(name: str) -> Method:
    if name in EXTRA:
        return EXTRA[name]()
    own = [f.name for f in fields(NAMES[name].make)]  # type: ignore[arg-type]
    settings = PRESETS.get(name, {}) | ({"solver": SOLVER} if "solver" in own else {})
    return NAMES[name].make(**NAMES[name].preset | settings)


def start(
    method: Method,
    engine: str = "local",
    chunk: int | None = None,
    workers: int | None = None,
    store: Path | None = None,
    cohort: int = 4,
    dtype: torch.dtype = torch.float64,
    seed: int = 3,
    model: nn.Module | None = None,
) -> Run:
    convex = isinstance(method, st.MOCHA)
    clients = (two_sided() if convex else ragged()).to(dtype=dtype)
    task = ModelTask((model or (layers(5, 1) if convex else layers(5, 6, 3))).to(dtype), natural_loss(clients))
    problem = problem_of(task, clients, seed)
    server, first = method.init(problem)
    made = (
        LocalEngine(method, task, clients, first, seed, chunk, workers, store)
        if engine == "local"
        else SerialEngine(method, task, clients, first, seed)
    )
    return Run(method, made, problem, server, cohort, store=store)


def finish(run: Run, rounds: int = 3) -> Run:
    for _ in range(rounds):
        run.step()
    run.look(diagnose=True)
    return run


def plain(server: Server) -> State:
    """The server's state with its tables written out."""
    return {k: v.whole() if isinstance(v, Rows) else v for k, v in server.items()}


def close(a: Run, b: Run, tolerance: float) -> None:
    for x, y in ((plain(a.server), plain(b.server)), (a.engine.save(), b.engine.save())):
        assert x.keys() == y.keys()
        for k in x:
            torch.testing.assert_close(x[k], y[k], atol=tolerance, rtol=tolerance)
    for k, v in a.scores.items():
        torch.testing.assert_close(
            torch.as_tensor(v), torch.as_tensor(b.scores[k]), atol=tolerance, rtol=tolerance, equal_nan=True
        )


@pytest.mark.parametrize("name", METHODS)
def test_functions_are_pure(name: str) -> None:
    """Inputs are left as they are, and the same inputs give the same outputs."""
    run = finish(start(make(name)), rounds=1)
    ids = torch.tensor([1, 4, 6])
    before = copy.deepcopy(plain(run.server))
    down = run.method.downlink(run.server, ids, 1)
    engine = run.engine
    assert isinstance(engine, LocalEngine)
    kept = {k: v.clone() for k, v in engine.save().items()}
    down_kept = {k: v.clone() for k, v in down.items()}
    _, first = engine.map("train", 1, ids, down)
    engine.restore(kept)
    _, second = engine.map("train", 1, ids, down)
    same(first, second)
    same(down, down_kept)
    messages = {k: v.clone() for k, v in first.items()}
    one = run.method.server(run.server, ids, first, 1)
    two = run.method.server(run.server, ids, first, 1)
    same(plain(one), plain(two))
    same(first, messages)
    same(plain(run.server), before)


def same(a: State, b: State) -> None:
    assert a.keys() == b.keys()
    for k in a:
        assert torch.equal(a[k], b[k]), k


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", METHODS)
def test_types_and_shapes_are_kept(name: str, dtype: torch.dtype) -> None:
    run = start(make(name), dtype=dtype)
    server, states = plain(run.server), run.engine.save()
    finish(run, 2)
    for before, after in ((server, plain(run.server)), (states, run.engine.save())):
        assert before.keys() == after.keys()
        for k in before:
            assert before[k].shape == after[k].shape and before[k].dtype == after[k].dtype, k


@pytest.mark.parametrize("name", METHODS)
def test_clients_that_sat_out_do_not_change(name: str) -> None:
    run = finish(start(make(name)), rounds=1)
    if run.method.train_all:
        pytest.skip("every client trains in every round of this method")
    engine = run.engine
    before = engine.save()
    before = {k: v.clone() for k, v in before.items()}
    ids = torch.tensor([0, 5])
    engine.map("train", 1, ids, run.method.downlink(run.server, ids, 1))
    engine.map("evaluate", 1, torch.arange(7), run.method.downlink(run.server, torch.arange(7), 1))
    after = engine.save()
    others = torch.tensor([1, 2, 3, 4, 6])
    for k in before:
        assert torch.equal(before[k][others], after[k][others]), k
    assert not before or any(not torch.equal(before[k][ids], after[k][ids]) for k in before)


@pytest.mark.filterwarnings("ignore:3 workers")
@pytest.mark.parametrize("name", METHODS)
def test_engine_and_chunk_size_change_nothing(name: str) -> None:
    reference = finish(start(make(name)))
    for other in (start(make(name), chunk=1), start(make(name), "serial")):
        close(reference, finish(other), 1e-9)
    close(reference, finish(start(make(name), chunk=3, workers=3)), 1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_the_number_of_workers_changes_no_bit(name: str) -> None:
    one, two = (finish(start(make(name), chunk=2, workers=w)) for w in (1, 2))
    same(plain(one.server), plain(two.server))
    same(one.engine.save(), two.engine.save())


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(name: str) -> None:
    a, b, c = (finish(start(make(name), seed=s)) for s in (3, 3, 4))
    for x, y in ((plain(a.server), plain(b.server)), (a.engine.save(), b.engine.save())):
        same(x, y)
    tensors = [*plain(a.server).items(), *a.engine.save().items()]
    others = plain(c.server) | c.engine.save()
    assert any(not torch.equal(v, others[k]) for k, v in tensors)


@pytest.mark.parametrize("name", METHODS)
def test_states_on_disk_change_no_bit(name: str, tmp_path: Path) -> None:
    """Also when rows wait for a checkpoint, and when some are settled and others not."""
    memory, disk = start(make(name)), start(make(name), store=tmp_path / "rows")
    for r in range(4):
        memory.step()
        disk.step()
        if r == 1:
            disk.save(tmp_path / "checkpoint.safetensors", "")
    same(plain(memory.server), plain(disk.server))
    ids = torch.arange(7)
    engines = memory.engine, disk.engine
    assert isinstance(engines[0], LocalEngine) and isinstance(engines[1], LocalEngine)
    for k, rows in engines[0].states.items():
        assert torch.equal(rows[ids], engines[1].states[k][ids]), k


@pytest.mark.parametrize("name", METHODS)
def test_a_run_on_disk_goes_on_from_its_checkpoint_whatever_came_after(name: str, tmp_path: Path) -> None:
    """Rounds after the checkpoint, and a crash while rows were being settled, leave nothing behind."""
    place, unbroken = tmp_path / "checkpoint.safetensors", start(make(name), store=tmp_path / "a")
    for _ in range(4):
        unbroken.step()
    killed = start(make(name), store=tmp_path / "b")
    for r in range(3):
        killed.step()
        if r == 1:
            killed.save(place, "")
    for known in (tmp_path / "b").glob("*.known.npy"):  # tear the rows that the checkpoint brings
        rows = np.lib.format.open_memmap(str(known).replace(".known.npy", ".npy"), mode="r+")
        rows[np.load(known)] = 7.0
    again = start(make(name), store=tmp_path / "b")
    again.restore(place, "")
    again.step()
    again.step()
    same(plain(unbroken.server), plain(again.server))


@pytest.mark.parametrize("name", METHODS)
def test_bytes_count_what_is_sent(name: str) -> None:
    """Float64 here: 8 bytes a number; FedAvg sends d numbers each way to the cohort, Lp-Proj d_sub."""
    run = finish(start(make(name)), rounds=3)
    d = run.problem.start.numel()
    down, up = WIDTHS.get(name, (d, d))
    asked = 7 if run.method.train_all else 4
    assert run.bytes_down == 3 * asked * down * 8
    assert run.bytes_up == 3 * 4 * up * 8


@pytest.mark.parametrize("name", METHODS)
def test_one_client_and_a_full_cohort_work(name: str) -> None:
    method, data = make(name), two_sided() if name == "mocha" else ragged()
    clients = st.Clients.from_parts([{"train": (data.x[:20].numpy(), data.y[:20].numpy())}], data.classes)
    model = layers(5, 1) if name == "mocha" else layers(5, 6, 3)
    result = st.fit(method, model, clients, rounds=2, evaluate_every=2)
    assert result.summary["chosen"] is None  # no test data: said so, not invented


@pytest.mark.parametrize("name", METHODS)
def test_training_lowers_the_loss(name: str) -> None:
    """After 15 rounds the personal or global models fit their own training data better than the start does."""
    run = start(make(name), cohort=7)
    engine = run.engine
    assert isinstance(engine, LocalEngine)

    def losses() -> float:
        everyone = torch.arange(7)
        down = run.method.downlink(run.server, everyone, run.round)
        found = engine.map("personal", run.round, everyone, down)[1]
        theta = found.get("personal")
        if theta is None:
            shared = run.method.shared(run.server)
            assert shared is not None
            theta = shared.expand(7, -1)
        total = 0.0
        for i in range(7):
            rows = engine.data.rows(i, "train")
            output = engine.task.predict(theta[i : i + 1], engine.data.x[rows][None])
            total += float(engine.task.errors(output, engine.data.y[rows][None]).sum())
        return total

    before = losses()
    for _ in range(15):
        run.step()
    assert losses() < 0.95 * before
