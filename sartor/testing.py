"""`check_method`: what every method must be, the library's own and yours.

Each property is a function of `make`, which gives the method anew, and raises an AssertionError that says what is
wrong. `check_method(MyMethod())` runs them all, on seven small clients of very unequal size, in about two seconds.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .client_table import Rows
from .core import Method, Server, State
from .data.clients import Clients
from .engines import LocalEngine, SerialEngine
from .engines.local import problem_of
from .errors import unknown
from .models import layers
from .run.complete import natural_loss
from .run.play import fit
from .run.recipe import Attacked, Evaluation, Execution
from .run.rounds import Run
from .tasks.task import ModelTask
from .wrappers import attacks

Make = Callable[[], Method]
SIZES = [1, 3, 9, 17, 24, 40, 57, 20, 33]  # of clients: one sample, fewer than a batch, ...
EVERYONE = torch.arange(7)
_STEPS = 12  # goes into twos, threes and fours


# --- the bench --------------------------------------------------------------------------------------------------------


def ragged(m: int = 7, seed: int = 0, classes: int = 3, features: int = 5) -> Clients:
    """Clients of very unequal size: one sample, fewer than a batch, one class only, no test part."""
    rng = np.random.default_rng(seed)
    parts = []
    for i, n in enumerate(SIZES[:m]):
        centre = rng.normal(size=(classes, features))

        def draw(k: int, centre: np.ndarray = centre, i: int = i) -> tuple[np.ndarray, np.ndarray]:
            y = rng.integers(classes, size=k) if i != 2 else np.zeros(k, dtype=np.int64)
            return centre[y] + 0.5 * rng.normal(size=(k, features)), y

        part = {"train": draw(n), "validation": draw(4), "test": draw(6)}
        if i == 3:
            del part["test"]
        parts.append(part)
    return Clients.from_parts(parts, classes)


def two_sided(m: int = 7, seed: int = 0, features: int = 5) -> Clients:
    """The sizes of `ragged` with targets −1/+1, as a linear support vector machine takes them."""
    rng = np.random.default_rng(seed)
    parts, common = [], rng.normal(size=features)
    for n in SIZES[:m]:
        own = common + 0.5 * rng.normal(size=features)

        def draw(k: int, own: np.ndarray = own) -> tuple[np.ndarray, np.ndarray]:
            x = rng.normal(size=(k, features))
            return x, np.sign(x @ own + 0.3 * rng.normal(size=k))

        parts.append({"train": draw(n), "validation": draw(4), "test": draw(6)})
    return Clients.from_parts(parts, 2)


def data_for(method: Method) -> Clients:
    """Seven clients that the method can learn from."""
    return two_sided() if method.models == "one output" else ragged()


def model_for(method: Method) -> nn.Sequential:
    """A small model of the kind that the method is for."""
    return layers(*{"one output": (5, 1), "one layer": (5, 3)}.get(method.models, (5, 6, 3)))


def start(
    method: Method,
    engine: str = "local",
    chunk: int | None = None,
    workers: int | None = None,
    store: Path | None = None,
    cohort: int = 4,
    dtype: torch.dtype = torch.float64,
    seed: int = 3,
) -> Run:
    """A run of the method on the seven clients."""
    clients = data_for(method).to(dtype=dtype)
    task = ModelTask(model_for(method).to(dtype), natural_loss(clients), neighbours=method.neighbours)
    problem = problem_of(task, clients, seed)
    server, first = method.init(problem)
    made = (
        LocalEngine(method, task, clients, first, seed, chunk, workers, store)
        if engine == "local"
        else SerialEngine(method, task, clients, first, seed)
    )
    return Run(method, made, problem, server, cohort, store=store)


def finish(run: Run, rounds: int = 3) -> Run:
    """Play some rounds and look at the scores."""
    for _ in range(rounds):
        run.step()
    run.evaluate(diagnose=True)
    return run


def plain(server: Server) -> State:
    """The server's state with its tables written out."""
    return {k: v.whole() if isinstance(v, Rows) else v for k, v in server.items()}


def same(a: State, b: State, what: str) -> None:
    """Refuse two states that differ in a bit."""
    assert a.keys() == b.keys(), f"{what}: it holds {sorted(a)} once and {sorted(b)} another time"
    for k in a:
        assert torch.equal(a[k], b[k]), f"{what}: {k!r} differs"


def close(a: Run, b: Run, what: str, tolerance: float = 1e-9) -> None:
    """Refuse two runs whose states or scores differ."""
    pairs = [(plain(a.server), plain(b.server)), (a.engine.save(), b.engine.save())]
    scores: list[State] = [{k: torch.as_tensor(v) for k, v in run.scores.items()} for run in (a, b)]
    for x, y in [*pairs, (scores[0], scores[1])]:
        assert x.keys() == y.keys(), f"{what}: it holds {sorted(x)} once and {sorted(y)} another time"
        for k in x:
            near = torch.allclose(x[k].double(), y[k].double(), atol=tolerance, rtol=tolerance, equal_nan=True)
            assert near, f"{what}: {k!r} differs by {_apart(x[k], y[k]):.1e}"


def _apart(x: Tensor, y: Tensor) -> float:
    return float((x.double() - y.double()).abs().nan_to_num().max())


def _engine(run: Run) -> LocalEngine:
    assert isinstance(run.engine, LocalEngine)
    return run.engine


# --- the properties ---------------------------------------------------------------------------------------------------


def is_settings_and_functions(make: Make) -> None:
    """A method is a frozen dataclass: it cannot remember anything in itself."""
    method = make()
    assert is_dataclass(method), f"{type(method).__name__} is not a dataclass: write @dataclass(frozen=True) above it"
    frozen = getattr(type(method), "__dataclass_params__").frozen  # noqa: B009 (mypy does not know it)
    assert frozen, f"{type(method).__name__} is not frozen: write @dataclass(frozen=True), and keep state in State"


def functions_are_pure(make: Make) -> None:
    """Inputs are left as they are, and the same inputs give the same outputs."""
    run = finish(start(make()), rounds=1)
    ids = torch.tensor([1, 4, 6])
    before = copy.deepcopy(plain(run.server))
    down = run.method.downlink(run.server, ids, 1)
    engine = _engine(run)
    kept = {k: v.clone() for k, v in engine.save().items()}
    down_kept = {k: v.clone() for k, v in down.items()}
    _, first = engine.map("train", 1, ids, down)
    first = {k: v.clone() for k, v in first.items()}
    engine.restore(kept)
    _, second = engine.map("train", 1, ids, down)
    same(first, second, "client() called twice with the same inputs gives different messages")
    same(down, down_kept, "client() changes its downlink")
    messages, weights = {k: v.clone() for k, v in second.items()}, run.method.client_weights(run.problem.share[ids])
    one = run.method.server(run.server, ids, second, weights, 1)
    two = run.method.server(run.server, ids, second, weights, 1)
    same(plain(one), plain(two), "server() called twice with the same inputs gives different states")
    same(second, messages, "server() changes the messages")
    same(plain(run.server), before, "server() changes the state that it is given; return a new one")


def types_and_shapes_are_kept(make: Make) -> None:
    """States have the same names, shapes and types in every round."""
    for dtype in (torch.float32, torch.float64):
        run = start(make(), dtype=dtype)
        server, states = plain(run.server), run.engine.save()
        finish(run, 2)
        after = [("server", server, plain(run.server)), ("client", states, run.engine.save())]
        for whose, old, new in after:
            assert old.keys() == new.keys(), f"a {whose}'s state held {sorted(old)}, then {sorted(new)}"
            for k in old:
                kept = old[k].shape == new[k].shape and old[k].dtype == new[k].dtype
                text = f"{list(old[k].shape)} {old[k].dtype}, then {list(new[k].shape)} {new[k].dtype}"
                assert kept, f"a {whose}'s {k!r} was {text}"


def sends_what_it_says(make: Make) -> None:
    """`sends` names the vectors in the messages, and the downlinks that have their size."""
    run = start(make())
    down = run.method.downlink(run.server, EVERYONE, 0)
    _, messages = run.engine.map("train", 0, EVERYONE, down)
    for sent in run.method.sends:
        name = sent.name
        assert name in messages, f"sends names {name!r}, which is not in the messages ({', '.join(messages) or 'none'})"
        assert sent.down in down, f"sends says that {name!r} answers {sent.down!r}; sent are {', '.join(down)}"


def clients_that_sat_out_do_not_change(make: Make) -> None:
    """Neither training others nor scoring touches a client's state."""
    run = finish(start(make()), rounds=1)
    if run.method.train_all:  # every client trains in every round of such a method
        return
    before = {k: v.clone() for k, v in run.engine.save().items()}
    ids = torch.tensor([0, 5])
    run.engine.map("train", 1, ids, run.method.downlink(run.server, ids, 1))
    run.engine.map("evaluate", 1, EVERYONE, run.method.downlink(run.server, EVERYONE, 1))
    after, others = run.engine.save(), torch.tensor([1, 2, 3, 4, 6])
    for k in before:
        assert torch.equal(before[k][others], after[k][others]), f"{k!r} of a client that sat out has changed"
    moved = not before or any(not torch.equal(before[k][ids], after[k][ids]) for k in before)
    assert moved, "a client that trained has the state that it had before"


def engine_and_chunk_size_change_nothing(make: Make) -> None:
    """One client at a time, or many at once: client axis first, and nothing summed over it."""
    reference = finish(start(make()))
    close(reference, finish(start(make(), chunk=1)), "clients computed one by one")
    close(reference, finish(start(make(), "serial")), "the serial engine")
    close(reference, finish(start(make(), chunk=3, workers=2)), "clients computed three by three")


def the_number_of_workers_changes_no_bit(make: Make) -> None:
    """Workers only share the work."""
    one, two = (finish(start(make(), chunk=2, workers=w)) for w in (1, 2))
    same(plain(one.server), plain(two.server), "two workers: the server's state")
    same(one.engine.save(), two.engine.save(), "two workers: the clients' states")


def the_seed_decides(make: Make) -> None:
    """The same seed gives the same bits, another one others: randomness comes from sartor.seeds alone."""
    a, b, c = (finish(start(make(), seed=s)) for s in (3, 3, 4))
    same(plain(a.server), plain(b.server), "the same seed twice: the server's state")
    same(a.engine.save(), b.engine.save(), "the same seed twice: the clients' states")
    tensors, others = [*plain(a.server).items(), *a.engine.save().items()], plain(c.server) | c.engine.save()
    assert any(not torch.equal(v, others[k]) for k, v in tensors), "another seed gives the same bits"


def states_on_disk_change_no_bit(make: Make) -> None:
    """Also when rows wait for a checkpoint, and when some are settled and others not."""
    with tempfile.TemporaryDirectory() as folder:
        memory, disk = start(make()), start(make(), store=Path(folder) / "rows")
        for r in range(4):
            memory.step()
            disk.step()
            if r == 1:
                disk.save(Path(folder) / "checkpoint.safetensors", "")
        same(plain(memory.server), plain(disk.server), "states on disk: the server's state")
        engines = _engine(memory), _engine(disk)
        for k, rows in engines[0].states.items():
            assert torch.equal(rows[EVERYONE], engines[1].states[k][EVERYONE]), f"states on disk: {k!r} differs"


def goes_on_from_a_checkpoint(make: Make) -> None:
    """Rounds after the checkpoint, and a crash while rows were being settled, leave nothing behind."""
    with tempfile.TemporaryDirectory() as folder:
        place, unbroken = Path(folder) / "checkpoint.safetensors", start(make(), store=Path(folder) / "a")
        for _ in range(4):
            unbroken.step()
        killed = start(make(), store=Path(folder) / "b")
        for r in range(3):
            killed.step()
            if r == 1:
                killed.save(place, "")
        for known in (Path(folder) / "b").glob("*.known.npy"):  # tear the rows that the checkpoint brings
            rows = np.lib.format.open_memmap(str(known).replace(".known.npy", ".npy"), mode="r+")
            rows[np.load(known)] = 7.0
        again = start(make(), store=Path(folder) / "b")
        again.restore(place, "")
        again.step()
        again.step()
        same(plain(unbroken.server), plain(again.server), "a resumed run")


def one_client_is_enough(make: Make) -> None:
    """A federation of one; without test data nothing is scored, and nothing invented."""
    method = make()
    data = data_for(method)
    clients = Clients.from_parts([{"train": (data.x[:20].numpy(), data.y[:20].numpy())}], data.classes)
    result = fit(method, model_for(method), clients, rounds=2)
    assert result.summary["chosen"] is None, "scores were reported although nobody has test data"


def training_lowers_the_loss(make: Make) -> None:
    """After 15 rounds the personal or global models fit their own training data better than the start does."""
    run = start(make(), cohort=7)
    before = _losses(run)
    for _ in range(15):
        run.step()
    after = _losses(run)
    assert after < 0.95 * before, f"the training loss was {before:.3g} and is {after:.3g} after 15 rounds"


def _losses(run: Run) -> float:
    engine, down = _engine(run), run.method.downlink(run.server, EVERYONE, run.round)
    theta = engine.map("personal", run.round, EVERYONE, down)[1].get("personal")
    if theta is None:
        shared = run.method.shared(run.server)
        assert shared is not None, "the method has neither personal models nor a global one"
        theta = shared.expand(7, -1)
    total = 0.0
    for i in range(7):
        rows = engine.data.rows(i, "train")
        output = engine.task.predict(theta[i : i + 1], engine.data.x[rows][None])
        total += float(engine.task.errors(output, engine.data.y[rows][None]).sum())
    return total


def runs_under_attack_and_serves_newcomers(make: Make) -> None:
    """With two hostile clients of seven it stays finite, and a client that joins afterwards changes nothing."""
    method = make()
    data = data_for(method)
    model = model_for(method)
    result = fit(
        method,
        model,
        data,
        rounds=3,
        attack=Attacked(attacks.SignFlip(), 0.3),
        execution=Execution(dtype=torch.float64),
        evaluation=Evaluation(diagnostics=False),
    )
    assert result.run.hostile.sum() == 2, "nobody attacked"
    before = {k: v.clone() for k, v in plain(result.run.server).items()}
    module = result.newcomer((data.x[:9].numpy(), data.y[:9].numpy()), steps=2)
    finite = all(bool(torch.isfinite(p).all()) for p in module.parameters())
    assert finite, "a newcomer's model holds NaN or Inf"
    same(plain(result.run.server), before, "a newcomer changes the server's state")


def takes_the_steps_it_is_given(make: Make) -> None:
    """With `spending(12)` every client evaluates 12 minibatch gradients in a round; one that cannot says why."""
    if make().unsplit():
        return
    method = make().spending(_STEPS)
    run = start(method)
    run.step()
    each = run.counts["steps"] / run.counts["trained"]
    assert each == _STEPS, f"with {_STEPS} local steps a client took {each:g}: `split` says how many each loop takes"
    assert method.spending(_STEPS) == method, "splitting the same number again changes the settings"


PROPERTIES: dict[str, Callable[[Make], None]] = {
    check.__name__.replace("_", " "): check
    for check in (
        is_settings_and_functions,
        functions_are_pure,
        types_and_shapes_are_kept,
        sends_what_it_says,
        clients_that_sat_out_do_not_change,
        engine_and_chunk_size_change_nothing,
        the_number_of_workers_changes_no_bit,
        the_seed_decides,
        states_on_disk_change_no_bit,
        goes_on_from_a_checkpoint,
        one_client_is_enough,
        training_lowers_the_loss,
        runs_under_attack_and_serves_newcomers,
        takes_the_steps_it_is_given,
    )
}


def check_method(method: Method, only: Iterable[str] = PROPERTIES) -> list[str]:
    """Hold a method to the properties that every method has; an AssertionError says which one it lacks, and how."""
    done = []
    for name in only:
        if name not in PROPERTIES:
            raise unknown("property", name, PROPERTIES)
        try:
            PROPERTIES[name](lambda: method)
        except Exception as e:
            e.add_note(f"{type(method).__name__} lacks the property: {name}")
            raise
        done.append(name)
    return done
