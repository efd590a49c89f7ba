"""Writing a run's scores elsewhere as it goes: a CSV file, TensorBoard, MLflow. Off unless asked for.

A tracker is anything with `write(round, scores)` and `close()`. On the command line: --track csv:scores.csv,
--track tensorboard:logs, --track mlflow:sqlite:///mlflow.db; in Python fit(..., track=["csv:scores.csv", my_own]).
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..errors import SartorError, need, unknown
from ..judge.metrics import MODELS
from ..storage import write_text


class Tracker(Protocol):
    """Where scores go."""

    def write(self, round: int, scores: Mapping[str, float]) -> None:
        """Take the scores of an evaluated round."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


class CSV:
    """A row per run and evaluated round; several runs may share a file. What a run is played again from is replaced."""

    def __init__(self, where: str, run: str) -> None:
        self.path, self.run, self._rows = Path(where), run, list[dict[str, str]]()
        need(not self.path.is_dir(), f"--track csv:PATH takes a file; {self.path} is a folder.")
        if self.path.exists():
            with open(self.path, encoding="utf-8", newline="") as file:
                self._rows = list(csv.DictReader(file))
            ours = all({"run", "round"} <= set(row) for row in self._rows)
            need(ours, f"{self.path} has no columns run and round: it was not written by --track; choose another file.")

    def write(self, round: int, scores: Mapping[str, float]) -> None:
        kept = [r for r in self._rows if r["run"] != self.run or int(r["round"]) < round]
        mine = {"run": self.run, "round": str(round)} | {k: repr(v) for k, v in scores.items()}
        self._rows = [*kept, mine]
        text, names = io.StringIO(), list(dict.fromkeys(k for row in self._rows for k in row))
        table = csv.DictWriter(text, names, lineterminator="\n")
        table.writeheader()
        table.writerows(self._rows)
        write_text(self.path, text.getvalue())

    def close(self) -> None:
        pass


class TensorBoard:
    """Event files in a folder of the run's own, for `tensorboard --logdir`."""

    def __init__(self, where: str, run: str) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as e:
            raise SartorError("--track tensorboard:DIR needs tensorboardX: pip install 'sartor[tensorboard]'.") from e
        self._make, self._folder = SummaryWriter, Path(where) / run
        self._writer: Any = None

    def write(self, round: int, scores: Mapping[str, float]) -> None:
        if self._writer is None:  # what an earlier, unfinished run wrote from here on is not shown
            self._writer = self._make(str(self._folder), purge_step=round)
        for name, value in scores.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class MLflow:
    """A run of the experiment "sartor" at a tracking server or in a store (sqlite:///mlflow.db)."""

    def __init__(self, where: str, run: str) -> None:
        try:
            from mlflow import MlflowClient
            from mlflow.entities import Metric
        except ImportError as e:
            raise SartorError("--track mlflow:URI needs MLflow: pip install 'sartor[mlflow]'.") from e
        self._metric = Metric
        try:
            self._client = MlflowClient(tracking_uri=where)
            found = self._client.get_experiment_by_name("sartor")
            place = found.experiment_id if found is not None else self._client.create_experiment("sartor")
            self._run = self._client.create_run(place, run_name=run).info.run_id
        except Exception as e:  # whatever a store or a server says
            said = str(e).splitlines()[0] if str(e) else type(e).__name__
            raise SartorError(f"--track mlflow: no run could be begun at {where}: {said}") from e

    def write(self, round: int, scores: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        self._client.log_batch(self._run, [self._metric(name, value, now, round) for name, value in scores.items()])

    def close(self) -> None:
        self._client.set_terminated(self._run)


KINDS: dict[str, type[CSV] | type[TensorBoard] | type[MLflow]] = {
    "csv": CSV,
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
}


def check(track: Iterable[str | Tracker]) -> None:
    """Refuse what is not written kind:where, before any work."""
    for text in track:
        kind, colon, where = text.partition(":") if isinstance(text, str) else ("csv", ":", ".")
        if kind not in KINDS:
            raise unknown("tracker", kind, KINDS, "It is written kind:where, as in csv:scores.csv.")
        need(bool(colon and where), f"--track {kind} needs to know where, as in {kind}:PATH; got {text!r}.")


def opened(text: str, run: str) -> Tracker:
    """The tracker that is written "csv:scores.csv", for the run of this name."""
    check([text])
    kind, _, where = text.partition(":")
    return KINDS[kind](where, run)


def numbers(line: Mapping[str, Any]) -> dict[str, float]:
    """A line of the history as names and numbers: "chosen/accuracy_mean", "bytes_up", "diagnostics/..."."""
    found: dict[str, float] = {}
    for model in MODELS:
        found |= {f"{model}/{k}": float(v) for k, v in (line.get(model) or {}).items()}
    if line.get("validation") is not None:
        found["chosen/validation_accuracy"] = float(line["validation"])
    found |= {k: float(line[k]) for k in ("seconds", "bytes_up", "bytes_down") if k in line}
    return found | {f"diagnostics/{k}": float(v) for k, v in line.get("diagnostics", {}).items()}


class Tracking:
    """Some trackers of one run: each gets every evaluated round once."""

    def __init__(self, track: Iterable[str | Tracker], run: str) -> None:
        track = list(track)
        check(track)
        self._trackers = [opened(t, run) if isinstance(t, str) else t for t in track]
        self._seen = -1

    def look(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Write the lines that are new."""
        for line in history:
            if line["round"] > self._seen:
                self._seen = line["round"]
                for tracker in self._trackers:
                    tracker.write(line["round"], numbers(line))

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, *_: object) -> None:
        for tracker in self._trackers:
            tracker.close()
