"""A server that does not keep to the rules, against one site: what it asks for beyond them is refused, by name.

The hospital's file holds numbers that a thief would know at once (age, dose, glucose, a ward, an outcome), and the
attacks are those that read a row to its last digit where a site lets its server decide.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sartor.federation import table_schema
from sartor.federation.audit_log import AUDIT, verified
from sartor.federation.limits import SiteLimits
from sartor.federation.rounds import Message, decode, encode
from sartor.federation.rounds.messages import JOINING
from sartor.federation.site import Participant
from sartor.federation.site_config import SiteConfig
from sartor.federation.site_runs import agreed
from sartor.federation.terms import shared, terms
from sartor.run.complete import TYPES, complete
from sartor.run.recipe import Recipe

ROWS = 60
PLAIN: dict[str, Any] = {"method": "fedavg", "model": "softmax", "rounds": 4, "evaluate_every": 2, "seed": 3}
# What the thief would like to play: raw numbers in full length, and parts that leave one row to look at.
THIEF = PLAIN | {"columns": "raw", "dtype": "float64"}
ONE_TEST_ROW, ONE_TRAINING_ROW = [0.85, 0.13, 0.02], [0.02, 0.0, 0.98]


@pytest.fixture
def hospital(tmp_path: Path) -> Path:
    draw = np.random.default_rng(5)
    lines = ["age,dose,glucose,ward,outcome"]
    for i in range(ROWS):
        ward, outcome = ("east", "west")[i % 2], ("ill", "well")[int(draw.random() < 0.5)]
        lines.append(f"{draw.uniform(20, 90):.2f},{draw.uniform(0, 9):.3f},{draw.uniform(4, 12):.4f},{ward},{outcome}")
    path = tmp_path / "hospital.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


class Server:
    """Says to a site whatever it likes."""

    def __init__(self, site: Participant) -> None:
        self.site, self.run = site, secrets.token_hex(16)
        self.note: dict[str, Any] = {}

    def ask(self, kind: str, round: int = 0, arrays: dict[str, Any] | None = None, **other: Any) -> Message:
        values: dict[str, Any] = {"clients": (0,), "since": (-1,)} | other
        agreement = agreed(self.note) if self.note else ""
        sent = Message(kind, self.run, agreement, round, **values, arrays=arrays or {})
        return decode(self.site.answer(encode(sent)))

    def hello(self, recipe: dict[str, Any]) -> Message:
        note = {"recipe": Recipe(**recipe).values()}
        return decode(self.site.answer(encode(Message("hello", self.run, note=note))))

    def terms(self, **values: Any) -> dict[str, Any]:
        """An invitation that is right in all that a site computes for itself: the thief knows the rules."""
        recipe = shared(Recipe(**values))
        table = self.site.own.read()
        parts, dtype = tuple(recipe.parts), TYPES[str(recipe.dtype)]
        own = table.split("natural", None, recipe.seed, parts, recipe.minimum, dtype, 0, recipe.columns)
        count = int(own.counts("train").sum())
        at = [0, 1, 2]  # age, dose, glucose
        _, mean, spread = own.inputs.statistics.of(0)  # type: ignore[union-attr]
        pooled = recipe.columns == "pooled"
        return {
            "scale": {"mean": mean[at].tolist(), "spread": spread[at].tolist(), "target": [0.0, 1.0]}
            if pooled
            else None,
            "recipe": complete(recipe, own).values(),
            "terms": terms(recipe, own),
            "schema": table_schema.of(table),
            "clients": 1,
            "total": count,
            "largest": count,
            "first": 0,
        }

    def welcome(self, **values: Any) -> Message:
        return self.send(self.terms(**values))

    def send(self, note: dict[str, Any]) -> Message:
        self.note = note
        return decode(self.site.answer(encode(Message("welcome", self.run, note=note))))

    def model(self, value: float = 0.0, size: int = 12) -> dict[str, np.ndarray]:
        return {"w": np.full((1, size), value, dtype=np.float32)}

    def train(self, round: int = 0, value: float = 0.0, **other: Any) -> Message:
        return self.ask("train", round, self.model(value), **other)

    def evaluate(self, round: int, value: float = 0.0, shown: float | None = None, **other: Any) -> Message:
        both = self.model(value) | {"global": self.model(value if shown is None else shown)["w"]}
        return self.ask("evaluate", round, both, **other)


Site = Callable[..., Server]


@pytest.fixture
def site(tmp_path: Path, hospital: Path) -> Site:
    said: list[str] = []

    def made(limits: SiteLimits | None = None, **own: Any) -> Server:
        config = SiteConfig(str(hospital), "outcome", limits=limits or SiteLimits(), **own)
        server = Server(Participant("a", tmp_path / "site", config, log=said.append))
        server.said = said  # type: ignore[attr-defined]
        return server

    return made


def refused(reply: Message, why: str, limit: str | None = None) -> bool:
    return reply.kind == "refused" and reply.note["why"] == why and reply.note.get("limit") == limit


# --- reading a row ----------------------------------------------------------------------------------------------------


def test_an_honest_run_notices_nothing(site: Site) -> None:
    server = site()
    assert server.hello(PLAIN).kind == "joined" and server.welcome(**PLAIN).kind == "ready"
    assert server.train(0, 0.0).kind == server.train(1, 0.1, since=(0,)).kind == "answer"
    scores = server.evaluate(2, 0.2, since=(1,))
    assert scores.kind == "answer" and np.isfinite(scores.arrays["global/test/loss"]).all()
    assert np.isfinite(scores.arrays["global/validation/loss"]).all()
    assert server.train(2, 0.2, since=(1,)).kind == server.train(3, 0.3, since=(2,)).kind == "answer"
    assert server.evaluate(4, 0.4, since=(3,)).kind == "answer"


@pytest.mark.parametrize("share", ["each", "mean"])
def test_a_row_cannot_be_read_by_scoring_made_up_models(share: str, site: Site) -> None:
    """Parts that leave one test row, and models that single out one column each."""
    server = site(share=share)
    assert refused(server.welcome(**THIEF, parts=ONE_TEST_ROW), "limit", "columns")
    server = site(share=share)
    assert server.welcome(**PLAIN, parts=ONE_TEST_ROW).kind == "ready"
    reply = server.evaluate(2, 1.0)
    assert reply.kind == "answer" and all(np.isnan(v).all() for k, v in reply.arrays.items() if "/test/" in k)
    assert len({float(v[0]) for k, v in reply.arrays.items() if "/validation/" in k}) > 0  # 7 rows are enough


def test_a_row_cannot_be_read_by_one_step_of_training(site: Site) -> None:
    assert refused(site(share="none").hello(PLAIN | {"parts": ONE_TRAINING_ROW}), "limit", "least_rows")
    assert refused(site(share="none").welcome(**PLAIN, parts=ONE_TRAINING_ROW), "limit", "least_rows")


def test_a_row_cannot_be_read_from_statistics_of_two_sets_of_rows(site: Site, tmp_path: Path) -> None:
    """Which rows are for training depends on a client's number, the seed and the parts: sums over two sets of them
    would tell the rows in which they differ. A site tells them once in a run, and of enough rows."""
    server = site()
    note = {"recipe": Recipe(**PLAIN).values(), "schema": server.terms(**PLAIN)["schema"], "first": 0}

    def measure(server: Server, **change: Any) -> Message:
        return decode(server.site.answer(encode(Message("measure", server.run, note=note | change))))

    first = measure(server)
    values = server.site.table.x[:, :3].astype(np.float64)
    assert first.kind == "measured" and first.arrays["counts"].tolist() == [[43.0] * 3]
    assert (abs(first.arrays["means"][0] - values.mean(0)) < values.std(0) / 3).all()
    assert np.array_equal(measure(server).arrays["squares"], first.arrays["squares"])  # asked again: it was lost
    assert refused(measure(server, first=1), "limit", "measured")
    for change in ({"seed": 4}, {"parts": [0.7, 0.1, 0.2]}, {"minimum": 9}):
        assert refused(measure(server, recipe=Recipe(**PLAIN | change).values()), "limit", "measured")
    assert refused(server.send(server.terms(**PLAIN) | {"first": 1, "clients": 2, "total": 60}), "failed")
    assert refused(measure(Server(server.site)), "limit", "one_run")  # nor in another run, until it is started again
    assert server.welcome(**PLAIN).kind == "ready"
    few = site(SiteLimits(least_rows=44), start="again")
    assert refused(measure(few), "limit", "least_rows")


@pytest.mark.parametrize("solver", [{"batch": 1}, {"batch": 1, "steps": 1}, {"batch": 9, "steps": 1}])
def test_a_row_cannot_be_read_by_a_step_on_a_small_batch(solver: dict[str, Any], site: Site) -> None:
    """Many rows, but the message is a step on one of them."""
    assert refused(site().welcome(**PLAIN, solver=solver), "limit", "least_rows")
    ditto = PLAIN | {"method": "ditto", "settings": {"global_solver": {"kind": "sgd", "batch": 1, "steps": 1}}}
    assert refused(site().welcome(**ditto), "limit", "least_rows")


def test_a_site_plays_its_own_recipe_and_no_other(site: Site, tmp_path: Path) -> None:
    """Also in a welcome: to say the right thing in the hello is not enough."""
    mine = tmp_path / "mine.toml"
    mine.write_text(Recipe(**PLAIN).toml())
    server = site(recipe=str(mine))
    assert server.hello(PLAIN).kind == "joined"
    reply = server.welcome(**PLAIN | {"columns": "raw"})
    assert refused(reply, "agreement") and 'columns is "raw" there and "pooled" here' in reply.note["text"]
    assert "parts" in server.welcome(**PLAIN, parts=[0.5, 0.3, 0.2]).note["text"]
    assert "model" in server.welcome(**PLAIN | {"model": "mlp(9)"}).note["text"]
    assert refused(server.welcome(**PLAIN | {"rounds": 5}), "limit", "most_rounds")
    assert refused(server.welcome(**PLAIN | {"evaluate_every": 1}), "limit", "recipe")
    assert server.welcome(**PLAIN).kind == "ready"


def test_raw_columns_and_long_numbers_only_by_the_sites_own_recipe(site: Site, tmp_path: Path) -> None:
    assert refused(site().welcome(**PLAIN, columns="raw"), "limit", "columns")
    assert refused(site().welcome(**PLAIN, dtype="float64"), "limit", "dtype")
    mine = tmp_path / "mine.toml"
    mine.write_text(Recipe(**THIEF).toml())
    assert site(recipe=str(mine)).welcome(**THIEF).kind == "ready"


def test_few_rows_are_trained_on_where_the_site_says_so(site: Site) -> None:
    own = {"parts": [0.1, 0.45, 0.45], "minimum": 1}
    assert refused(site().welcome(**PLAIN, **own), "limit", "least_rows")
    loose = site(SiteLimits(least_rows=5))
    assert loose.welcome(**PLAIN, **own).kind == "ready"


# --- more than was agreed on ------------------------------------------------------------------------------------------


def test_one_evaluation_in_each_round_that_was_agreed_on(site: Site) -> None:
    """Seven scores of seven models in one round gave the means of y and of x·y."""
    server = site()
    server.welcome(**PLAIN)
    first = server.evaluate(2, 0.0)
    assert first.kind == "answer"
    assert server.evaluate(2, 0.0).arrays.keys() == first.arrays.keys()  # the same again: it was lost
    for value in (0.1, 1.0, 1e9):
        assert refused(server.evaluate(2, value), "changed")
        assert refused(server.evaluate(2, 0.0, shown=value), "changed")
        assert refused(server.train(2, value), "changed")  # and the model that was scored is the one to train on
    assert refused(server.evaluate(1), "unscheduled") and refused(server.evaluate(3), "unscheduled")
    assert refused(server.evaluate(0), "unscheduled") and refused(server.evaluate(6), "early")
    again = site()  # the site was started again: its memory is on its disk
    again.run, again.note = server.run, server.note
    assert refused(again.evaluate(2, 0.1), "changed") and again.evaluate(2, 0.0).kind == "answer"
    assert again.evaluate(4, 0.0).kind == "answer" and refused(again.evaluate(2, 0.0), "stale")


def test_one_model_to_train_on_in_each_round(site: Site) -> None:
    server = site()
    server.welcome(**PLAIN)
    first = server.train(0, 0.0)
    again = server.train(0, 0.0)
    assert np.array_equal(first.arrays["message/w"], again.arrays["message/w"])
    for value in (0.1, 1.0, -5.0):
        assert refused(server.train(0, value), "changed")
    assert refused(server.evaluate(0, 0.1), "unscheduled")
    assert server.train(1, 0.1, since=(0,)).kind == "answer"
    assert refused(
        server.train(1, 0.1, since=(-1,)), "changed"
    )  # the same model from an older state is another question
    assert refused(server.train(0, 0.0), "stale")


def test_no_more_rounds_than_agreed(site: Site) -> None:
    server = site()
    server.welcome(**PLAIN)
    assert refused(server.train(4), "early") and refused(server.train(60), "early")
    for rounds in (5, 60, 2_000_000_000):
        assert refused(server.welcome(**PLAIN | {"rounds": rounds}), "limit", "most_rounds")
        assert refused(server.train(4), "early")
    assert refused(server.welcome(**PLAIN | {"evaluate_every": 1}), "limit", "evaluations")
    assert refused(server.evaluate(1), "unscheduled")
    assert server.welcome(**PLAIN).kind == "ready"
    assert refused(site().welcome(**PLAIN | {"rounds": 10_001}), "limit", "one_run")


def test_more_rounds_where_the_site_says_so(site: Site) -> None:
    server = site(SiteLimits(most_rounds=6))
    assert server.welcome(**PLAIN).kind == server.welcome(**PLAIN | {"rounds": 6}).kind == "ready"
    assert refused(server.welcome(**PLAIN | {"rounds": 7}), "limit", "most_rounds")


def test_one_run_at_a_time(site: Site, tmp_path: Path) -> None:
    server = site()
    server.welcome(**PLAIN)
    before = sorted(str(p) for p in (tmp_path / "site").rglob("*"))
    for _ in range(20):
        other = Server(server.site)
        assert refused(other.hello(PLAIN), "limit", "one_run") and refused(other.welcome(**PLAIN), "limit", "one_run")
        assert refused(other.train(), "foreign")
    assert sorted(str(p) for p in (tmp_path / "site").rglob("*")) == before
    assert refused(Server(server.site).ask("done"), "foreign") and not server.site.finished
    assert server.train().kind == "answer"
    later = site(start="by hand, once more")  # its owner starts the site again: one new run, and the old one is over
    assert later.welcome(**PLAIN).kind == "ready"
    later.run, keep = server.run, later.run
    assert refused(later.train(), "foreign")
    later.run = keep
    assert later.train().kind == "answer" and refused(Server(later.site).welcome(**PLAIN), "limit", "one_run")


def test_a_run_cannot_change_its_clients_or_columns(site: Site) -> None:
    server = site()
    note = server.terms(**PLAIN)
    assert server.send(note).kind == "ready"
    wider = note["schema"] | {"classes": [*note["schema"]["classes"], "gone"]}
    for change in ({"clients": 2}, {"total": note["total"] + 5, "clients": 2}, {"schema": wider}):
        assert server.send(note | change).kind == "refused"
    server.note = note
    assert server.train().kind == "answer"


# --- too large, or nonsense -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why", "limit"),
    [
        ({"clients": 300_000_000}, "limit", "most_clients"),
        ({"first": -1}, "failed", None),
        ({"first": 1 << 40}, "failed", None),
        ({"first": 3}, "failed", None),
        ({"first": "0"}, "failed", None),
        ({"total": -5}, "failed", None),
        ({"largest": None}, "failed", None),
        ({"schema": {}}, "failed", None),
        ({"schema": {"columns": [{}], "shape": [1], "classes": None}}, "failed", None),
        ({"schema": None}, "failed", None),
        ({"terms": {}}, "agreement", None),
        ({"terms": []}, "failed", None),
        ({"recipe": {"method": ["flame"]}}, "agreement", None),
        ({"recipe": 7}, "failed", None),
        ({"scale": None}, "failed", None),
        ({"scale": {"mean": [0.0] * 3, "spread": [1.0] * 3}}, "failed", None),
        ({"scale": {"mean": [0.0] * 2, "spread": [1.0] * 2, "target": [0.0, 1.0]}}, "failed", None),
        ({"scale": {"mean": [0.0] * 3, "spread": [1.0, 0.0, 1.0], "target": [0.0, 1.0]}}, "failed", None),
        ({"scale": {"mean": [0.0] * 3, "spread": [1.0, "1", 1.0], "target": [0.0, 1.0]}}, "failed", None),
        ({"scale": {"mean": [1e200] * 3, "spread": [1.0] * 3, "target": [0.0, 1.0]}}, "failed", None),
        ({"scale": {"mean": [0.0] * 3, "spread": [1e-80] * 3, "target": [0.0, 1.0]}}, "failed", None),
    ],
)
def test_an_absurd_welcome_is_refused(change: dict[str, Any], why: str, limit: str | None, site: Site) -> None:
    server = site()
    assert refused(server.send(server.terms(**PLAIN) | change), why, limit)
    assert refused(server.train(), "foreign") and server.welcome(**PLAIN).kind == "ready"


def test_a_welcome_with_missing_fields_is_refused(site: Site) -> None:
    server = site()
    whole = server.terms(**PLAIN)
    for name in whole:
        assert server.send({k: v for k, v in whole.items() if k != name}).kind == "refused"


def _absurd(site: Site, limits: SiteLimits | None = None, **values: Any) -> Message:
    """A welcome whose recipe is absurd: the thief need not compute it."""
    server = site(limits)
    note = server.terms(**PLAIN)
    return server.send(note | {"recipe": note["recipe"] | values})


@pytest.mark.parametrize("model", ["mlp(60000,60000)", "mlp(99999999999999999999)", "mlp(2147483648)"])
def test_a_model_too_large_is_refused_before_memory_is_taken(model: str, site: Site) -> None:
    assert refused(_absurd(site, model=model), "limit", "most_parameters")


def test_a_table_too_wide_is_refused_before_memory_is_taken(site: Site) -> None:
    server = site(SiteLimits(most_bytes=1 << 20))
    note = server.terms(**PLAIN)
    columns = [c | {"texts": [f"ward {i}" for i in range(90_000)]} if c["kind"] == "text" else c
               for c in note["schema"]["columns"]]  # fmt: skip
    assert refused(server.send(note | {"schema": note["schema"] | {"columns": columns}}), "limit", "most_bytes")


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": {"steps": 1_000_000_000}},
        {"solver": {"epochs": 1_000_000_000}},
        {"method": "pfedme", "settings": {"R": 1_000_000_000}},
        {"method": "pfedme", "settings": {"R": 5_000}, "solver": {"steps": 5_000}},
        {"method": "fedavg-ft", "settings": {"finetune": {"kind": "sgd", "epochs": 1_000_000_000}}},
    ],
    ids=["steps", "epochs", "pFedMe's R", "a product", "fine-tuning"],
)
def test_steps_without_end_are_refused(settings: dict[str, Any], site: Site) -> None:
    server = site()
    assert server.welcome(**PLAIN | settings).kind == "ready"
    if settings.get("method") == "fedavg-ft":
        assert refused(server.evaluate(2), "failed")
    else:
        assert refused(server.train(), "failed")
    assert any("more than 10000 local steps" in line for line in server.said)  # type: ignore[attr-defined]


def test_a_request_larger_than_agreed_is_refused_undecoded(site: Site) -> None:
    server = site()
    server.welcome(**PLAIN)
    assert server.site.site is not None and server.site.site.most < 1 << 20
    reply = server.ask("train", 0, {"w": np.zeros((1, 1 << 20), dtype=np.float32)})
    assert refused(reply, "damaged")
    assert refused(decode(server.site.answer(b"SARTOR1\n" + bytes(JOINING))), "damaged")


def test_a_replay_a_foreign_client_and_a_flood_change_nothing(site: Site, tmp_path: Path) -> None:
    server = site()
    server.welcome(**PLAIN)
    first = server.train()

    def files() -> list[tuple[str, int]]:
        found = [p for p in (tmp_path / "site").rglob("*") if p.name != AUDIT]  # which says what was asked
        return sorted((str(p), p.stat().st_mtime_ns) for p in found)

    before, lines = files(), len(verified(tmp_path / "site"))
    for _ in range(200):
        assert np.array_equal(server.train().arrays["message/w"], first.arrays["message/w"])
    for clients in ((1,), (0, 1), (2**31 - 1,)):
        assert refused(server.train(clients=clients, since=(-1,) * len(clients)), "foreign")
    assert files() == before and len(verified(tmp_path / "site")) == lines + 3  # what is said again stands there once


def test_a_refusal_says_the_limit_in_full_at_the_site_and_in_a_word_to_the_server(site: Site) -> None:
    server = site()
    reply = server.welcome(**PLAIN, parts=ONE_TRAINING_ROW)
    assert set(reply.note) == {"why", "limit", "instance_id"}
    assert any("at least 10 are needed (least-rows)" in s for s in server.said)  # type: ignore[attr-defined]
