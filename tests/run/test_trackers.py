"""Trackers: every evaluated round once, the same numbers as in the history, read back from where they were written."""

from __future__ import annotations

import csv
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commandline import QUICK, good, history, refused, sartor, stop_in_round

import sartor as st
from sartor.run.trackers import CSV, numbers

RUN = ("run", *QUICK, "--rounds", 4, "--evaluate-every", 1, "--quiet")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_csv_file_has_a_row_for_each_evaluated_round(tmp_path: Path) -> None:
    good(*RUN, "--track", f"csv:{tmp_path}/s.csv", "--out", tmp_path / "a")
    found, lines = rows(tmp_path / "s.csv"), history(tmp_path / "a")
    assert [(r["run"], int(r["round"])) for r in found] == [("flame-0", i) for i in (1, 2, 3, 4)]
    for row, line in zip(found, lines, strict=True):
        for model in ("personal", "global", "chosen"):
            assert float(row[f"{model}/accuracy_mean"]) == line[model]["accuracy_mean"]
        assert float(row["bytes_up"]) == line["bytes_up"]
        assert float(row["diagnostics/lagrangian_mean"]) == line["diagnostics"]["lagrangian_mean"]


def test_a_run_that_goes_on_writes_no_round_twice(tmp_path: Path) -> None:
    """Rounds after the last checkpoint are played again; their rows are replaced."""
    track = ("--track", f"csv:{tmp_path}/s.csv")
    with stop_in_round(3):
        sartor(*RUN, *track, "--checkpoint-every", 2, "--out", tmp_path / "a")
    assert [r["round"] for r in rows(tmp_path / "s.csv")] == ["1", "2", "3"]
    good("run", "--resume", tmp_path / "a", *track, "--quiet")
    good(*RUN, "--track", f"csv:{tmp_path}/t.csv")
    here, there = (
        [{k: v for k, v in r.items() if k != "seconds"} for r in rows(tmp_path / f"{k}.csv")] for k in ("s", "t")
    )
    assert here == there


def test_a_comparison_tracks_every_cell(tmp_path: Path) -> None:
    asked = ("--methods", "fedavg,local", "--seeds", "0,1", "--evaluate-every", 1, "--quiet")
    good("compare", *QUICK, *asked, "--track", f"csv:{tmp_path}/s.csv")
    runs = [(r["run"], r["round"]) for r in rows(tmp_path / "s.csv")]
    assert runs == [(f"{m}-{s}", r) for s in (0, 1) for m in ("fedavg", "local") for r in ("1", "2")]


def test_tensorboard_reads_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    good(*RUN, "--track", f"tensorboard:{tmp_path}/logs", "--out", tmp_path / "a")
    (file,) = (tmp_path / "logs" / "flame-0").iterdir()
    found = scalars(file)
    for model in ("personal", "global", "chosen"):
        wanted = [(line["round"], line[model]["loss_mean"]) for line in history(tmp_path / "a")]
        assert found[f"{model}/loss_mean"] == pytest.approx(dict(wanted), rel=1e-6)  # floats of 32 bits


def scalars(path: Path) -> dict[str, dict[int, float]]:
    """What an event file holds: records of a length, its checksum, the event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    data, at, found = path.read_bytes(), 0, dict[str, dict[int, float]]()
    while at < len(data):
        (length,) = struct.unpack("<Q", data[at : at + 8])
        event: Any = Event.FromString(data[at + 12 : at + 12 + length])
        for value in event.summary.value:
            found.setdefault(value.tag, {})[event.step] = value.simple_value
        at += 16 + length
    return found


@pytest.mark.filterwarnings("default")
def test_mlflow_reads_the_same_numbers(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    where = f"sqlite:///{tmp_path}/m.db"
    assert sartor(*RUN, "--track", f"mlflow:{where}", "--out", tmp_path / "a").code == 0
    client = mlflow.MlflowClient(tracking_uri=where)
    (run,) = client.search_runs([client.get_experiment_by_name("sartor").experiment_id])
    assert run.info.run_name == "flame-0" and run.info.status == "FINISHED"
    found = client.get_metric_history(run.info.run_id, "chosen/accuracy_mean")
    wanted = [(line["round"], line["chosen"]["accuracy_mean"]) for line in history(tmp_path / "a")]
    assert [(m.step, m.value) for m in found] == wanted


class Mine:
    """A tracker of one's own."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, dict[str, float]]] = []
        self.closed = 0

    def write(self, round: int, scores: Mapping[str, float]) -> None:
        assert not self.closed
        self.seen.append((round, dict(scores)))

    def close(self) -> None:
        self.closed += 1


def test_a_tracker_of_one_s_own(tmp_path: Path) -> None:
    clients = st.data.load("digits").split("iid", clients=3, seed=0)
    mine, model = Mine(), st.models.layers(64, 10)
    track = [mine, f"csv:{tmp_path}/s.csv"]
    result = st.fit(st.FedAvg(), model, clients, rounds=5, track=track, evaluation=st.Evaluation(evaluate_every=2))
    assert [round for round, _ in mine.seen] == [2, 4, 5] and mine.closed == 1
    assert mine.seen[-1][1] == numbers(result.history[-1]) and len(rows(tmp_path / "s.csv")) == 3
    other, broken = Mine(), Mine()
    broken.closed = 1  # so that it cannot be written to
    with pytest.raises(AssertionError):
        st.fit(st.FedAvg(), model, clients, rounds=5, track=[other, broken])
    assert other.closed == 1  # also where a run does not end well


def test_what_cannot_be_tracked_is_refused(tmp_path: Path) -> None:
    for call in (RUN, ("compare", *QUICK)):
        assert "did you mean csv" in refused(*call, "--track", "cvs:x")
        assert "needs to know where" in refused(*call, "--track", "csv")
    assert "is a folder" in refused(*RUN, "--track", f"csv:{tmp_path}")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert "choose another file" in refused(*RUN, "--track", f"csv:{tmp_path}/other.csv")
    assert (tmp_path / "other.csv").read_text() == "a,b\n1,2\n"


def test_what_is_missing_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in (("tensorboardX", "tensorboard"), ("mlflow", "mlflow")):
        monkeypatch.setitem(__import__("sys").modules, name, None)
        assert f"pip install 'sartor[{kind}]'" in refused(*RUN, "--track", f"{kind}:{tmp_path}/x")


def test_nothing_is_tracked_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    good(*RUN)
    assert list(tmp_path.iterdir()) == []
    assert CSV(str(tmp_path / "x.csv"), "a").close() is None and list(tmp_path.iterdir()) == []
