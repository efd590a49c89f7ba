"""Methods with compressed messages: what is sent, what it costs, what is lost and what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commandline import QUICK, good, refused
from every_method import METHODS, make
from federations import Quadratics, quadratics, ragged
from groups import grouped
from subsets import diagonal, one_in

import sartor as st
from sartor.compressors import DGC, LBGM, NAMES, QSGD, Compressor, Int8, RandomProjection, Sketch, TopK, decode, frames
from sartor.core import ClientStack, Method, Sent, Server, State
from sartor.engines import LocalEngine
from sartor.models import layers
from sartor.run.rounds import Run
from sartor.testing import close, finish, plain, same, start
from sartor.wrappers import Compressed
from sartor.wrappers.compression import message

WHOLE = TopK(k=1.0)  # nothing is left out
LOSSY = [made() for name, made in NAMES.items() if name != "dgc"]


def compressed(name: str, up: Compressor | None, down: Compressor | None = None) -> Method:
    return Compressed(make(name), up, down, 3)


# --- every method -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in METHODS if n != "mocha" and not make(n).uncompressed])
def test_a_lossless_code_changes_nothing(name: str) -> None:
    """Both ways, up to the rounding of adding a difference."""
    wanted, found = finish(start(make(name))), finish(start(compressed(name, WHOLE, WHOLE)))
    server, other = plain(wanted.server), plain(found.server)
    for k, v in server.items():
        torch.testing.assert_close(other[k], v, atol=1e-9, rtol=1e-9)
    states, others = wanted.engine.save(), found.engine.save()
    for k, v in states.items():
        torch.testing.assert_close(others[k], v, atol=1e-9, rtol=1e-9)
    for k, scores in wanted.scores.items():
        np.testing.assert_allclose(found.scores[k], scores, atol=1e-8)


def test_curvatures_are_not_compressed() -> None:
    with pytest.raises(st.SartorError, match=r"MixedEffects cannot be compressed: it sends curvatures"):
        compressed("mixed-effects", WHOLE)


def test_mocha_with_a_lossless_code() -> None:
    q = quadratics()
    wanted = q.fit(st.MOCHA(lam1=0.5), 5)
    found = q.fit(st.MOCHA(lam1=0.5), 5, compress=WHOLE, compress_down=WHOLE)
    torch.testing.assert_close(plain(found.run.server), plain(wanted.run.server), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", one_in(3, [n for n in METHODS if n != "mocha" and not make(n).uncompressed]))
def test_every_method_goes_with_lossy_codes(name: str) -> None:
    """Numbers stay finite, clients that sat out keep their memory, and every part is cheaper than before."""
    raw = finish(start(make(name)), rounds=2)
    for up, down in ((TopK(k=0.2), Int8()), (QSGD(), TopK(k=0.3)), (Sketch(k=0.5, rows=3), RandomProjection(k=0.5))):
        run = finish(start(compressed(name, up, down)), rounds=2)
        assert all(bool(torch.isfinite(v).all()) for v in run.engine.save().values())
        assert run.bytes_up < raw.bytes_up + 4 * 2 * 16 * 3 or name == "local"  # headers weigh in messages of 4 numbers
        assert (run.bytes_up == 0) == (name == "local")


@pytest.mark.filterwarnings("ignore:3 workers")
@pytest.mark.parametrize(
    ("name", "up"),
    diagonal(["ditto", "flame", "ditto-scaffold"], [DGC(k=0.1, warmup=2), *LOSSY]),
    ids=lambda c: c if isinstance(c, str) else type(c).__name__,
)
def test_engine_chunks_workers_and_disk_change_nothing(name: str, up: Compressor, tmp_path: Path) -> None:
    if isinstance(up, DGC) and name != "ditto":
        pytest.skip("refused")
    down = QSGD(s=8) if name == "flame" else None
    one = finish(start(compressed(name, up, down), chunk=2, workers=1), 4)
    two = finish(start(compressed(name, up, down), chunk=2, workers=2), 4)
    same(plain(one.server), plain(two.server), "states")
    same(one.engine.save(), two.engine.save(), "states")
    assert (one.bytes_up, one.bytes_down) == (two.bytes_up, two.bytes_down)
    for other in (
        start(compressed(name, up, down), "serial"),
        start(compressed(name, up, down), chunk=3, workers=3),
    ):
        close(one, finish(other, 4), "another engine")
        assert (one.bytes_up, one.bytes_down) == (other.bytes_up, other.bytes_down)
    disk = finish(start(compressed(name, up, down), chunk=2, store=tmp_path / "rows"), 4)
    same(plain(one.server), plain(disk.server), "states")


@pytest.mark.parametrize("up", [TopK(k=0.2), LBGM(), DGC(k=0.1), QSGD()], ids=lambda c: type(c).__name__)
def test_a_run_goes_on_from_its_checkpoint(up: Compressor, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint.safetensors"
    whole, first, again = (start(compressed("ditto", up, Int8())) for _ in range(3))
    finish(whole, 4)
    finish(first, 2).save(place, "")
    again.restore(place, "")
    finish(again, 2)
    same(plain(whole.server), plain(again.server), "states")
    same(whole.engine.save(), again.engine.save(), "states")
    assert (whole.bytes_up, whole.bytes_down, whole.next_round_bytes) == (
        again.bytes_up,
        again.bytes_down,
        again.next_round_bytes,
    )


def test_clients_that_sat_out_keep_what_they_remember() -> None:
    run = finish(start(compressed("flame", TopK(k=0.2), TopK(k=0.2))), rounds=1)
    before = {k: v.clone() for k, v in run.engine.save().items()}
    ids = torch.tensor([0, 5])
    run.engine.map("train", 1, ids, run.method.downlink(run.server, ids, 1))
    run.engine.map("evaluate", 1, torch.arange(7), run.method.downlink(run.server, torch.arange(7), 1))
    after, others = run.engine.save(), torch.tensor([1, 2, 3, 4, 6])
    assert {"state/compress.last.u", "state/compress.held.w"} <= {k.split("/rows")[0] for k in after} | set(after)
    for k, v in before.items():
        assert torch.equal(v[others], after[k][others]), k
        if "compress" in k:
            assert not torch.equal(v[ids], after[k][ids]), k


# --- bytes ------------------------------------------------------------------------------------------------------------


class Wired(Compressed):
    """Puts every message and downlink on a wire and reads it back: what arrives must be what the simulation uses."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.bytes = {"up": 0, "down": 0}
        self.look_back: dict[str, State] = {"up": {}, "down": {}}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        done = self.exchange(state, down, local)
        for way, codes in (("up", done.up), ("down", done.down)):
            for row in range(len(local.ids)):
                data = message(codes, row)
                self.bytes[way] += len(data)
                for key, part in zip(sorted(codes), frames(data), strict=True):
                    value = codes[key].value()
                    last = state.get(f"compress.{way}.{key}.l")  # the server's copy of the look-back gradient
                    found = decode(part, value.shape[1], None if last is None else last[row])
                    torch.testing.assert_close(found, value[row], rtol=1e-12, atol=1e-14)
        return super().client(state, down, local)


@pytest.mark.parametrize(
    ("name", "both"),
    diagonal(
        ["fedavg", "term", "ditto-scaffold", "flame", "pfedme-train-all", "lp-proj-2", "ifca"],
        [(DGC(k=0.1), Int8()), (Int8(), None), (None, QSGD()), *LOSSY],
    ),
    ids=str,
)
def test_bytes_are_those_of_the_encoded_messages(name: str, both: Any) -> None:
    """Per client and round, both ways; a way that is not compressed counts as ever."""
    up, down = both if isinstance(both, tuple) else (both, both)
    if isinstance(up, DGC) and name in ("ditto-scaffold", "flame", "ifca"):
        pytest.skip("refused")
    wired = Wired(make(name), up, down, 3)
    run = start(wired, workers=1)
    for _ in range(3):
        run.step()
    raw = finish(start(make(name)))
    if not wired.train_all:  # there everybody trains, and only the cohort's messages are heard
        assert run.bytes_up == (raw.bytes_up if up is None else wired.bytes["up"])
    else:
        assert up is None or 0 < run.bytes_up < wired.bytes["up"]
    assert run.bytes_down == (raw.bytes_down if down is None else wired.bytes["down"])


@pytest.mark.parametrize("up", [*LOSSY, DGC(k=0.01, warmup=3)], ids=lambda c: type(c).__name__)
def test_no_round_takes_more_than_was_foretold(up: Compressor) -> None:
    run = start(compressed("fedavg", up, None if isinstance(up, DGC) else up))
    run.step()
    for _ in range(6):
        spent, next_round_bytes = run.bytes_up + run.bytes_down, run.next_round_bytes
        run.step()
        assert run.bytes_up + run.bytes_down - spent <= next_round_bytes


# --- what is lost, and what is not ------------------------------------------------------------------------------------


def one_step(lr: float) -> st.FedAvg:
    """FedAvg with one full gradient step: gradient descent on the mean of all losses."""
    return st.FedAvg(weighting="uniform", solver=st.SGD(lr=lr, steps=1, batch=1000))


def optimum(q: Quadratics) -> np.ndarray:
    found: np.ndarray = np.linalg.solve(q.A.mean(0), q.b.mean(0))
    return found


def settled(q: Quadratics, up: Compressor, rounds: int) -> float:
    """How far from the optimum the mean of the models of all rounds but the first 100 is."""
    run = q.fit(one_step(0.1), 100, compress=up, workers=1).run
    total = np.zeros(q.d)
    for _ in range(rounds):
        run.step()
        total += run.server["w"].numpy()
    return float(np.linalg.norm(total / rounds - optimum(q)))


def test_error_feedback_loses_nothing() -> None:
    """w_T = w_0 − η Σ_t mean_i ∇f_i(w_t) − mean_i e_i, exactly: what was not sent is in the errors."""
    q, lr = quadratics(d=6), 0.05
    for up in (TopK(k=1 / 6), Sketch(k=3, rows=1), RandomProjection(k=2), QSGD(s=1, feedback=True)):
        result = q.fit(one_step(lr), 1, compress=up)
        run, w = result.run, result.run.problem.start.numpy().copy()
        total = np.zeros(6)
        for t in range(40):
            total += (q.A @ w - q.b).mean(0)
            if t:
                run.step()
            w = run.server["w"].numpy().copy()
        errors = run.engine.save()["state/compress.error.w"].numpy()
        np.testing.assert_allclose(w, run.problem.start.numpy() - lr * total - errors.mean(0), atol=1e-12)
        assert np.abs(errors).max() > 1e-3


def test_error_feedback_makes_top_k_reach_the_uncompressed_optimum() -> None:
    """One coordinate of six is sent, by clients whose optima differ. With feedback models circle around the optimum of
    all, the nearer their mean the longer; without it they settle elsewhere, as what is never largest is never sent."""
    q = quadratics(d=6)
    size = float(np.linalg.norm(optimum(q)))
    short, long = (settled(q, TopK(k=1 / 6), rounds) for rounds in (100, 800))
    assert long < short / 2 and long < 0.01 * size
    assert settled(q, TopK(k=1 / 6, feedback=False), 100) > 0.5 * size


@pytest.mark.parametrize(
    "up", [TopK(k=0.25), QSGD(s=1), Sketch(k=2, rows=1), RandomProjection(k=2), LBGM(delta=0.5)], ids=str
)
def test_flame_reaches_its_optimum_exactly_through_any_code(up: Compressor) -> None:
    """The difference to the client's last message goes to 0, so no error is left at any step size, both ways."""
    q = quadratics()
    w, theta = q.moreau(1.0)
    method = st.FLAME(lam=1.0, rho=0.2, solver=st.Exact())
    result = q.fit(method, 400, compress=up, compress_down=up, workers=1)
    np.testing.assert_allclose(result.run.server["w"].numpy(), w, atol=1e-10)
    np.testing.assert_allclose(result.run.engine.save()["state/theta"].numpy(), theta, atol=1e-10)


def test_against_the_downlink_flame_would_not_reach_it() -> None:
    """FLAME's u does not settle at w: why `sends` says "last". The same code against the downlink stays away."""
    q = quadratics()
    w, _ = q.moreau(1.0)

    class Wrong(st.FLAME):
        sends = (Sent("u", against="down"),)

    method = Wrong(lam=1.0, rho=0.2, solver=st.Exact())
    found = q.fit(method, 400, workers=1, compress=TopK(k=0.25, feedback=False)).run.server["w"].numpy()
    assert np.abs(found - w).max() > 1e-2


def test_scaffolds_control_variates_add_up() -> None:
    """Δc is summed by the server: c stays the mean of the c_i but for what waits in the errors."""
    q = quadratics(d=6)
    method = st.SCAFFOLD(solver=st.SGD(lr=0.05, steps=3, batch=1000))
    for up in (TopK(k=0.2, feedback=False), QSGD(s=1)):
        run = q.fit(method, 30, compress=up).run
        states = {k: v.numpy() for k, v in run.engine.save().items()}
        waiting = states["state/compress.error.c"]
        np.testing.assert_allclose(run.server["c"].numpy(), (states["state/c"] - waiting).mean(0), atol=1e-12)


def test_a_client_holds_what_it_was_sent_however_long_it_sat_out() -> None:
    """Downlinks are differences to what this client has: through a lossless code it has the newest model at once."""
    run = start(compressed("fedavg", None, WHOLE), cohort=2)
    for _ in range(6):
        before = run.method.shared(run.server)
        assert before is not None
        run.step()
        held = run.engine.save()["state/compress.held.w"]
        who = torch.nonzero((held - before).abs().amax(1) < 1e-12)[:, 0]
        assert len(who) >= 2


def test_lbgm_sends_scalars_for_what_repeats() -> None:
    """A client whose update keeps its direction: the first message is whole, the others are one number."""
    q = quadratics(m=3)

    class Steady(st.FedAvg):
        def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
            along = torch.arange(1, 5, dtype=torch.float64) * (1 + torch.from_numpy(local.ids)[:, None])
            return {}, {"w": down["w"] + along / (1 + local.round)}

    run = q.fit(Steady(), 10, compress=LBGM(delta=0.01)).run
    assert run.bytes_up == 3 * (16 + 4 * 8) + 9 * 3 * (16 + 8)
    total = sum(1 / (1 + r) for r in range(10)) * 2  # the mean of 1, 2, 3, by number of samples
    share = (q.share * [1, 2, 3]).sum() / 2
    expected = run.problem.start.numpy() + total * share * np.arange(1, 5)
    np.testing.assert_allclose(run.server["w"].numpy(), expected, rtol=1e-9)


def test_dgc_at_full_density_is_momentum_sgd_of_the_whole_federation() -> None:
    """Against heavy-ball gradient descent in NumPy."""
    q, lr, m = quadratics(), 0.05, 0.8
    run = q.fit(one_step(lr), 25, compress=DGC(k=1.0, momentum=m, masking=False)).run
    w, u = run.problem.start.numpy().copy(), np.zeros(4)
    for _ in range(25):
        u = m * u - lr * (q.A @ w - q.b).mean(0)
        w = w + u
    np.testing.assert_allclose(run.server["w"].numpy(), w, atol=1e-10)


# --- with everything else ---------------------------------------------------------------------------------------------


def test_attackers_and_stragglers_go_through_the_code_too() -> None:
    options: dict[str, Any] = {
        "attack": st.attacks.Gaussian(),
        "attackers": 0.3,
        "drop": 0.2,
        "stragglers": 0.3,
        "compress": TopK(k=0.3),
        "compress_down": Int8(),
        "evaluate_every": 6,
    }
    method = st.Ditto(aggregate=st.aggregators.NAMES["k-loss"](), solver=st.SGD(lr=0.1, batch=7))
    result = st.fit(method, layers(5, 4, 3), ragged(), 6, **grouped(cohort=5, **options))
    assert result.summary["hostile"] == 2 and result.summary["bytes_up"] > 0
    chosen = result.summary["chosen"]
    assert chosen is not None and 0 <= chosen["accuracy_mean"] <= 1


def test_a_hostile_message_of_nan_is_left_out_as_ever() -> None:
    class Broken(st.attacks.Attack):
        def message(self, honest: torch.Tensor, *_: Any) -> torch.Tensor:
            return honest * float("nan")

    for up in LOSSY:
        result = st.fit(
            st.FedAvg(solver=st.SGD(lr=0.1, batch=7)),
            layers(5, 4, 3),
            ragged(),
            3,
            traffic=st.Traffic(compress=up),
            evaluation=st.Evaluation(evaluate_every=3),
            attack=st.Attacked(attack=Broken(), attackers=0.3),
        )
        assert result.summary["excluded"] == 3 * 2, up


@pytest.mark.parametrize("name", ["flame", "scaffold", "fedamp", "l2sgd", "rsa", "ifca", "fedadmm"])
def test_dgc_is_refused_where_what_is_sent_is_no_update(name: str) -> None:
    with pytest.raises(st.SartorError, match=r"dgc carries momentum over updates of a received model.*Use top-k"):
        compressed(name, DGC())


def test_what_cannot_be_compressed_is_refused() -> None:
    with pytest.raises(st.SartorError, match="dgc is for what clients send"):
        compressed("fedavg", None, DGC())

    class Own(st.FedAvg):
        def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
            return {}, {"mine": down["w"]}

        def server(
            self, server: Server, ids: torch.Tensor, messages: State, weights: torch.Tensor, round: int
        ) -> Server:
            return server

    with pytest.raises(st.SartorError, match="Own sends mine, which its `sends` does not name"):
        st.fit(Own(), layers(5, 3), ragged(), 1, traffic=st.Traffic(compress=Int8()))


def test_the_wrapper_is_pure() -> None:
    run = finish(start(compressed("ditto-scaffold", QSGD(), TopK(k=0.3))), rounds=1)
    engine, ids = run.engine, torch.tensor([1, 4, 6])
    assert isinstance(engine, LocalEngine)
    down = run.method.downlink(run.server, ids, 1)
    kept = {k: v.clone() for k, v in engine.save().items()}
    _, first = engine.map("train", 1, ids, down)
    first = {k: v.clone() for k, v in first.items()}
    engine.restore(kept)
    _, second = engine.map("train", 1, ids, down)
    same(first, second, "states")


def test_another_seed_rounds_otherwise() -> None:
    a, b = (finish(start(Compressed(make("fedavg"), QSGD(s=1), None, seed))) for seed in (0, 1))
    assert not torch.equal(a.server["w"], b.server["w"])


# --- on the command line ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_compressor_by_name(name: str, tmp_path: Path) -> None:
    good("run", *QUICK, "--method", "ditto", "--compress", name, "--out", tmp_path / "a", "--quiet")
    text = (tmp_path / "a" / "recipe.toml").read_text()
    assert f'compress = "{name}' in text


def test_settings_of_a_compressor_and_what_is_wrong_with_them() -> None:
    base = ("run", *QUICK, "--method", "fedavg", "--quiet")
    good(*base, "--compress", "top-k(k=0.05, feedback=false)", "--compress-down", "float16")
    assert "did you mean top-k" in refused(*base, "--compress", "topk")
    assert "did you mean feedback" in refused(*base, "--compress", "top-k(feedbak=true)")
    assert "top-k needs k in (0, 1]" in refused(*base, "--compress", "top-k(k=-1)")
    assert "sketch's rows must be a whole number" in refused(*base, "--compress", "sketch(rows=2.5)")
    line = refused("run", *QUICK, "--method", "flame", "--compress", "dgc")
    assert "dgc carries momentum" in line and "top-k" in line


def test_nothing_to_send_is_nothing_to_compress() -> None:
    run: Run = finish(start(compressed("local", TopK(), TopK())))
    assert run.bytes_up == run.bytes_down == 0
