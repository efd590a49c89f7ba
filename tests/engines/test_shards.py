"""The engine ray without Ray: its shards are objects of this process, to which everything is sent as Ray would."""

from __future__ import annotations

import io
import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commandline import good, same_run
from conformance import CASES, PARTIAL, PLAIN, agrees, of_run
from federations import ragged
from sites import Calls
from subsets import one_in

import sartor as st
from sartor.core import State
from sartor.data.clients import PARTS
from sartor.engines.ray import engine as engine_ray
from sartor.engines.ray.shard import Part, Shard, dealt
from sartor.errors import Diverged, SartorError
from sartor.federation.rounds.client_store import Begun, Played
from sartor.federation.rounds.round_store import RoundStore
from sartor.models import layers
from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.storage import load_tensors

cloudpickle = pytest.importorskip("ray.cloudpickle")


class Here(Calls):
    """In place of actors. Tests may kill one: then another takes its place, with the same folder."""

    def __init__(self, parts: dict[str, Part], mark: Path, everywhere: bool, say: Callable[[str], None]) -> None:
        self.sent = {site: _sent(part) for site, part in parts.items()}
        self.shards = {site: self._new(site) for site in parts}
        super().__init__({site: lambda data, site=site: self._answer(site, data) for site in parts})
        made.append(self)

    def _new(self, site: str) -> Shard:
        shard = Shard()
        shard.begin(pickle.loads(self.sent[site]))
        return shard

    def _answer(self, site: str, data: bytes) -> bytes:
        return self.shards[site].answer(data)

    def kill(self, site: str) -> None:
        self.shards[site] = self._new(site)

    def end(self) -> None:
        self.shards.clear()


made: list[Here] = []


def _sent(part: Part) -> bytes:
    data = io.BytesIO()
    cloudpickle.dump(part, data)
    return data.getvalue()


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(engine_ray, "Actors", Here)
    monkeypatch.setattr(engine_ray, "connect", lambda address, actors: 3)
    made.clear()
    yield
    made.clear()


@pytest.mark.parametrize(("name", "chunk"), [*((name, 2) for name in PLAIN), ("flame", 1), ("flame", None)])
def test_conformance(name: str, chunk: int | None, tmp_path: Path) -> None:
    """Whole chunks go to shards, so the bits are the local engine's, however many shards there are."""
    recipe = CASES[name].whole(engine="ray", chunk=chunk)
    list(play_recipe(recipe, clients_of(recipe), tmp_path))
    assert len(made[0].sent) == {1: 3, 2: 2, None: 1}[chunk]
    agrees(CASES[name], of_run(tmp_path), chunk)


@pytest.mark.parametrize("name", PARTIAL[::2])
def test_conformance_of_partial_participation(name: str, tmp_path: Path) -> None:
    """One at a time to the bit. Together, a shard stacks those of its own clients that are asked: to 1e-6."""
    for chunk, tolerance in ((1, 0.0), (2, 1e-6)):
        recipe = CASES[name].whole(engine="ray", chunk=chunk)
        list(play_recipe(recipe, clients_of(recipe), tmp_path / str(chunk)))
        agrees(CASES[name], of_run(tmp_path / str(chunk)), chunk, tolerance)


# --- everything that the local engine can -----------------------------------------------------------------------------

SMALL: dict[str, Any] = {"model": "softmax", "clients": 12, "rounds": 4, "evaluate_every": 2, "checkpoint_every": 2}
OPTIONS: dict[str, dict[str, Any]] = {
    "mlp, unequal chunks": {"model": "mlp(8)", "chunk": 5},
    "many alike": {"partition": "iid", "clients": 100, "minimum": 2, "model": "mlp(16)", "chunk": 25},
    "an attack, krum": {"method": "fedavg", "attack": "gaussian", "aggregator": "krum"},
    "an attack on data": {"attack": "label-poison"},
    "an attack on gradients": {"attack": "gradient-flip"},
    "compression both ways": {"compress": "top-k(k=0.2)", "compress_down": "int8"},
    "privacy at the clients": {"method": "fedavg", "dp_noise": 0.3, "dp_where": "client"},
    "lam chosen by each": {"settings": {"lam": [0.1, 1.0]}},
    "some are dropped and late": {"drop": 0.2, "stragglers": 0.3, "chunk": 1},
    "a cohort": {"cohort": 5, "chunk": 1},
    "a cohort, all train": {"method": "pfedme", "cohort": 5, "chunk": 3},
    "unseen clients": {"unseen": 0.25, "unseen_steps": 2},
    "the best round": {"report": "best", "method": "ditto"},
    "states on disk": {"store": "disk", "chunk": 3},
    "no state at all": {"method": "fedavg"},
    "nothing sent": {"method": "local"},
    "double precision": {"dtype": "float64", "method": "scaffold"},
}


@pytest.mark.parametrize("name", one_in(2, OPTIONS))
def test_everything_is_as_with_the_local_engine(name: str, tmp_path: Path) -> None:
    recipe = Recipe.of({"chunk": 4} | SMALL | OPTIONS[name])
    clients = clients_of(recipe)
    for engine in ("local", "ray"):
        own = recipe.replace(engine=engine)
        list(play_recipe(own, clients, tmp_path / engine))
    same_run(tmp_path / "local", tmp_path / "ray")
    assert len(made[0].sent) == min(3, -(-len(clients) // recipe.chunk)) or recipe.unseen
    a, b = (load_tensors(tmp_path / e / "state" / "checkpoint.safetensors")[0] for e in ("local", "ray"))
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    assert not list((tmp_path / "ray" / "state").glob("ray/*"))


@pytest.mark.parametrize("store", ["memory", "disk"])
@pytest.mark.parametrize("engines", [("local", "ray"), ("ray", "local")], ids="-".join)
def test_a_run_goes_on_with_any_engine(engines: tuple[str, str], store: str, tmp_path: Path) -> None:
    """Interrupted after round 3, of which the last checkpoint does not know."""
    recipe = Recipe.of({**SMALL, "chunk": 4, "cohort": 7, "method": "pfedme", "store": store})
    clients = clients_of(recipe)
    list(play_recipe(recipe, clients, tmp_path / "whole"))
    first, second = (recipe.replace(engine=engine) for engine in engines)
    for result in play_recipe(first, clients, tmp_path / "parts"):
        if result.run.round == 3:
            break
    del result
    list(play_recipe(second, clients, tmp_path / "parts"))
    same_run(tmp_path / "whole", tmp_path / "parts")


def test_own_models_and_methods_are_sent() -> None:
    clients = ragged()
    results = [
        st.fit(
            st.Ditto(),
            layers(5, 3),
            clients,
            3,
            execution=st.Execution(engine=engine, chunk=2),
            evaluation=st.Evaluation(evaluate_every=3),
        )
        for engine in ("local", "ray")
    ]
    assert torch.equal(results[0]._personal["personal"], results[1]._personal["personal"])
    assert len(made[0].sent) == 3
    seen = [pickle.loads(data).data["x"] for data in made[0].sent.values()]
    assert sum(map(len, seen)) == len(clients.x)  # every sample goes to one shard


# --- exactly once -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("when", "store"), [("before", "memory"), ("after", "disk"), ("both", "memory")])
def test_a_killed_shard_goes_on_where_it_was(when: str, store: str, tmp_path: Path) -> None:
    """Killed before it computes, or after its states are on the disk and before its answer arrives."""
    recipe = Recipe.of({**SMALL, "chunk": 4, "cohort": 7, "method": "pfedme", "store": store})
    clients = clients_of(recipe)
    list(play_recipe(recipe, clients, tmp_path / "local"))
    steps = play_recipe(recipe.replace(engine="ray"), clients, tmp_path / "ray")
    next(steps)
    result = next(steps)
    calls, kills, asked = made[0], [], {}

    def before(site: str, data: bytes) -> list[bytes]:
        asked[site] = data
        if when != "after":
            calls.kill(site)
        return [data, data] if when == "both" else [data]

    def after(site: str, data: bytes) -> list[bytes]:
        if when == "before":
            return [data]
        kills.append(site)
        calls.kill(site)
        return [calls._answer(site, asked[site])]  # the first answer was lost: asked again

    calls.before, calls.after = before, after
    *_, result = steps
    same_run(tmp_path / "local", tmp_path / "ray")
    assert when == "before" or kills
    assert result.run.engine.hub is not None


def test_a_repeated_round_is_answered_from_the_disk(tmp_path: Path) -> None:
    recipe = Recipe.of({**SMALL, "chunk": 4, "engine": "ray"})
    steps = play_recipe(recipe, clients_of(recipe), tmp_path)
    next(steps), next(steps)
    site, (_, _, request) = "actor 0", next(s for s in made[0].seen if s[:2] == ("down", "actor 0"))
    made[0].kill(site)
    first = made[0].shards[site].answer(request)
    assert made[0].shards[site]._site.counts["repeated"] == 1
    assert first == next(s[2] for s in made[0].seen if s[:2] == ("up", "actor 0"))


def test_states_that_are_gone_are_missed(tmp_path: Path) -> None:
    """A new actor on a machine that does not see the folder does not begin anew."""
    recipe = Recipe.of({**SMALL, "chunk": 4, "engine": "ray"})
    steps = play_recipe(recipe, clients_of(recipe), None)
    next(steps), next(steps)
    part = made[0].shards["actor 0"].part
    shutil.rmtree(part.folder)
    made[0].kill("actor 0")
    with pytest.raises(SartorError, match=r"state after round 1.* is not here"):
        next(steps)


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_client_that_diverges_or_raises_ends_the_run_in_its_own_words() -> None:
    values = {**SMALL, "method": "fedavg", "model": "mlp(8)", "solver": {"lr": 1e30}}
    said = []
    for engine in ("local", "ray"):
        recipe = Recipe.of({**values, "engine": engine, "chunk": 4})
        with pytest.raises(Diverged) as caught:
            list(play_recipe(recipe, clients_of(recipe), None))
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_an_error_of_a_users_own_code_comes_with_its_traceback() -> None:
    class Broken(st.FedAvg):
        def client(self, state: Any, down: Any, local: Any) -> Any:
            raise ZeroDivisionError("of my own")

    with pytest.raises(RuntimeError, match=r"(?s)in client.*ZeroDivisionError: of my own"):
        st.fit(Broken(), layers(5, 3), ragged(), 2, execution=st.Execution(engine="ray"))


# --- shelves and shares -----------------------------------------------------------------------------------------------


def played(round: int, since: dict[int, int]) -> Played:
    """A round of these clients, whose states, replies and counts tell who and when they are."""
    value, ones = torch.tensor([10.0 * round + c for c in since]), torch.ones(len(since), dtype=torch.int64)
    marks = [f"mark {round} {c}" for c in since]
    state, reply = {"x": value[:, None].expand(-1, 2)}, {"w": -value}
    return Played(round, list(since), list(since.values()), marks, (round + 1) * ones, ones, state, reply)


def before_any(clients: Sequence[int]) -> tuple[State, torch.Tensor]:
    return {"x": torch.zeros(len(clients), 2)}, torch.zeros(len(clients), dtype=torch.int64)


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_shelf_keeps_two_rounds_of_each_client_and_no_more(in_memory: bool, tmp_path: Path) -> None:
    draw, last = np.random.default_rng(0), dict.fromkeys(range(6), (-1, -1))
    shelf = RoundStore(tmp_path, "run", before_any, in_memory)
    for round in range(30):
        ids = sorted(draw.choice(6, 2, replace=False).tolist())
        shelf.put(played(round, {c: last[c][1] for c in ids}))
        before = {c: last[c][1] for c in ids}
        last |= {c: (last[c][1], round) for c in ids}
        if round % 7 == 0:
            shelf = RoundStore(tmp_path, "run", before_any, in_memory)
        assert shelf.newest(range(6)) == [rounds[1] for rounds in last.values()]
        for r in range(-1, round + 1):
            assert shelf.known(range(6), [r] * 6) == [r in rounds or r == -1 for rounds in last.values()]
        begun = {c: Begun(before[c], f"mark {round} {c}") for c in ids}
        assert shelf.begun(range(6), round) == [begun.get(c) for c in last]
        for newest in (0, 1):  # clients of different rounds, in any order
            who = draw.permutation(6).tolist()
            rounds = [last[c][newest] for c in who]
            state, visits = shelf.states(who, rounds)
            wanted = [10.0 * r + c if r >= 0 else 0.0 for c, r in zip(who, rounds, strict=True)]
            assert state["x"].tolist() == [[value] * 2 for value in wanted]
            assert visits.tolist() == [r + 1 for r in rounds]
            state["x"] += 1.0  # what is given away is a copy
        reply, steps = shelf.replies(ids[::-1], round)
        assert reply["w"].tolist() == [-10.0 * round - c for c in ids[::-1]] and steps.tolist() == [1, 1]
    files = list(tmp_path.glob("round-*"))
    assert {int(f.stem.split("-")[1]) for f in files} == {r for pair in last.values() for r in pair if r >= 0}
    with pytest.raises(SartorError, match="another run"):
        RoundStore(tmp_path, "other", before_any)


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_round_that_is_asked_again_for_others_keeps_those_that_are_there(in_memory: bool, tmp_path: Path) -> None:
    shelf = RoundStore(tmp_path, "run", before_any, in_memory)
    shelf.put(played(4, {1: -1, 5: -1}))
    shelf.put(played(4, {0: 2, 5: 3}))
    for found in (shelf, RoundStore(tmp_path, "run", before_any, in_memory)):
        assert found.begun([0, 1, 5], 4) == [Begun(s, f"mark 4 {c}") for c, s in ((0, 2), (1, -1), (5, 3))]
        assert found.states([0, 1, 5], [4, 4, 4])[0]["x"][:, 0].tolist() == [40.0, 41.0, 45.0]
        assert found.replies([5, 0], 4)[0]["w"].tolist() == [-45.0, -40.0]


def test_a_file_of_a_round_that_was_cut_is_one_line(tmp_path: Path) -> None:
    shelf = RoundStore(tmp_path, "run", before_any, in_memory=False)
    for round in range(4):
        shelf.put(played(round, {round: -1}))
    place = tmp_path / "round-0000000000.safetensors"
    place.write_bytes(place.read_bytes()[:-4])
    with pytest.raises(SartorError, match=r"cannot read .*round-0000000000") as e:
        shelf.states([0], [0])
    assert "\n" not in str(e.value)


def test_whole_chunks_are_dealt_fairly_and_stay_in_order() -> None:
    samples = np.array([50, 40, 30, 20, 10, 5])
    chunks = [np.array([0]), np.array([1, 2]), np.array([3]), np.array([4, 5])]
    hands = dealt(chunks, samples, 2)
    assert [[c.tolist() for c in hand] for hand in hands] == [[[1, 2], [4, 5]], [[0], [3]]]
    assert [[c.tolist() for c in hand] for hand in dealt(chunks, samples, 9)] == [[[1, 2]], [[0]], [[3]], [[4, 5]]]


def test_only_a_shards_own_samples_are_held() -> None:
    clients = ragged()
    own = clients.holding([4, 1])
    assert len(own) == len(clients) and all((own.counts(p) == clients.counts(p)).all() for p in PARTS)
    for i in (1, 4):
        for part in PARTS:
            assert torch.equal(own.x[own.rows(i, part)], clients.x[clients.rows(i, part)])
            assert torch.equal(own.y[own.rows(i, part)], clients.y[clients.rows(i, part)])
    assert len(own.x) == sum(int(clients.counts(p)[i]) for i in (1, 4) for p in PARTS)
    assert len(own.x[own.rows(0, "train")]) == 0


def test_a_comparison_over_actors(tmp_path: Path) -> None:
    """Cell by cell; those of an earlier call are not played again."""
    words = ("compare", "--methods", "flame,ditto", "--seeds", "0,1", "--rounds", 2, "--model", "softmax", "--quiet")
    for engine in ("local", "ray"):
        good(*words, "--engine", engine, "--out", tmp_path / engine)
    for cell in ("flame-0", "ditto-0", "flame-1", "ditto-1"):
        same_run(tmp_path / "local" / cell, tmp_path / "ray" / cell)
    assert len(made) == 4
    good(*words, "--engine", "ray", "--out", tmp_path / "ray")
    assert len(made) == 4
