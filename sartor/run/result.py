"""What a run leaves: every client's models and scores, to look at, to use, to keep."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import models
from ..core import State
from ..data.clients import PARTS, Clients
from ..data.inputs import Inputs
from ..errors import SartorError, need, one_of, unknown
from ..judge.choice import SHARES, Scores, choose
from ..judge.decisions import Decision
from ..judge.metrics import judge, means_alone, with_chosen
from ..methods.parts.own_parts import OwnParts
from ..storage import save_tensors, write_json, write_text
from ..tasks.frozen_outputs import FrozenOutputs
from ..tasks.task import ModelTask
from ..wrappers.base import Wrapper
from ..wrappers.privacy import Privacy
from . import export, metrics_file, newcomers, privacy_account
from .rounds import BestRound, Run
from .separated import separated
from .undertrained import undertrained


@dataclass
class Result:
    """A finished run.

    Models are nn.Modules, scores are numbers; `clients` and `model` are those of `st.fit`'s example.

        >>> result = st.fit(st.Ditto(), model, clients, rounds=3, seed=0)
        >>> alone = st.fit(st.LocalOnly(), model, clients, rounds=3, seed=0)
        >>> print(result.table(local=alone).splitlines()[0].split())
        ['client', 'train', 'test', 'local', 'global', 'personal', 'chosen', 'takes']
        >>> 0 <= result.summary["chosen"]["accuracy_worst10"] <= result.summary["chosen"]["accuracy_mean"]
        True
        >>> client_0, everybody = result.chosen(0), result.shared()
        >>> result
        <Result of ditto: 6 clients, 3 rounds; see .table(), .summary, .history>
    """

    run: Run
    task: ModelTask
    data: Clients
    settings: dict[str, Any]
    private: Privacy | None = None
    held_out: Clients | None = None  # clients that took no part
    visits: int = 10  # of each of them, when training is over
    frozen: FrozenOutputs | None = None  # what a frozen part gives is kept: the task takes that, not samples
    samples: privacy_account.Samples | None = None  # where those are what is private
    _asked: State | None = field(default=None, init=False, repr=False, compare=False)  # what `_personal` found

    def __repr__(self) -> str:  # in a notebook or at a prompt the fields would be pages of numbers
        size = f"{len(self.data)} clients, {self.run.round} rounds"
        return f"<Result of {self.settings['method']}: {size}; see .table(), .summary, .history>"

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per evaluated round."""
        return self.run.history

    @property
    def _kept(self) -> BestRound | None:
        """The round that is reported, where it is not the last."""
        return self.run.best if self.run.report == "best" else None

    @cached_property
    def scores(self) -> dict[str, np.ndarray]:
        """Per-client scores [m] in the reported round, for example scores["chosen/test/accuracy"]."""
        return with_chosen(self._kept.scores if self._kept else self.run.scores, self.settings.get("oracle", False))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What summary.json holds."""
        s, run = self.settings, self.run
        judged = judge(self.scores, self.data.counts("test"), ~run.hostile)
        if run.means_only:
            judged = {name: means_alone(block) for name, block in judged.items()}
        return {
            "method": s["method"],
            "data": s["data"],
            "partition": s["partition"],
            "model": s["model"],
            "clients": len(self.data),
            "cohort": run.cohort,
            "attack": s["attack"],
            "attackers": s["attackers"],
            "hostile": int(run.hostile.sum()),
            "aggregator": s["aggregator"],
            **({"personal_parts": parts} if (parts := s.get("personal")) is not None else {}),
            "compress": s["compress"],
            "compress_down": s["compress_down"],
            "drop": run.federation.drop,
            "stragglers": run.federation.stragglers,
            **run.counts,
            "local_steps": s["local_steps"],
            "own_work": s["own_work"],
            "gradients_per_client": run.gradients_per_client,
            "rounds": run.round,
            "report": run.report,
            "reported_round": self._kept.round if self._kept else run.round,
            "seed": s["seed"],
            "seconds": round(run.seconds, 3),
            "bytes_up": run.bytes_up,
            "bytes_down": run.bytes_down,
            **self._spent(judged),
            "parameters": self.task.size,
            **self._frozen(),
            **judged,
            "personal_model": s["personal_model"] if judged["personal"] else None,
            "choice": self._choice(),
            "unseen": self.unseen,
            "privacy": self.privacy,
            **({"metric": named} if (named := s.get("metric")) is not None else {}),
            "warnings": [
                *self._adapters(),
                *self.history[-1]["warnings"],
                *undertrained(self.history, run.problem.clients, run.cohort, run.method.train_all),
                *self._separated(),
            ],
        }

    def _separated(self) -> list[str]:
        """Of linear models that were solved to the end, with one for each client."""
        solver = self.settings["settings"].get("solver")
        to_the_end = self.run.method.models == "one layer" or (solver or {}).get("kind") in ("newton", "lbfgs")
        here = to_the_end and self.data.classes is not None and metrics_file.samples_are_here(self.data)
        if not here or not self.run.problem.convex or "personal" not in self._personal:
            return []
        return separated(self.task, self._seen_data, self._personal["personal"])

    def _spent(self, judged: dict[str, Any]) -> dict[str, Any]:
        """What was to be had for the bytes: accuracy per megabyte up and down, and what it took to reach the target."""
        run, spent = self.run, self.run.bytes_up + self.run.bytes_down
        chosen, there = judged["chosen"], run.goal.reached(run.history)
        return {
            "accuracy_per_megabyte": None if not (chosen and spent) else chosen["accuracy_mean"] / (spent / 1e6),
            "budget": run.goal.budget,
            "target_accuracy": run.goal.target,
            "rounds_to_target": None if there is None else there["round"],
            "bytes_to_target": None if there is None else there["bytes_up"] + there["bytes_down"],
            "stopped": run.stopped or "rounds",
        }

    def _frozen(self) -> dict[str, Any]:
        """How many parameters are not trained, and whether what they make of samples is kept; nothing where all are."""
        count = sum(p.numel() for p in self.task.original.parameters() if not p.requires_grad)
        kept = None if self.frozen is None else list(self.frozen.of_all.shape)
        return {"frozen": {"parameters": count, "kept": kept}} if count else {}

    def _adapters(self) -> list[str]:
        """What a mean of adapters is not, where both factors of LoRA are averaged."""
        method = self.run.method
        while isinstance(method, Wrapper) and not isinstance(method, OwnParts):
            method = method.method
        own = method.own_names(self.task.blocks) if isinstance(method, OwnParts) else []
        shared = [name for name in self.task.names if name not in own]
        A, B = ({n.partition(f".lora_{k}.")[0] for n in shared if f".lora_{k}." in n} for k in "AB")
        if not A & B or self.run.bytes_up == 0:
            return []
        return [
            "A and B of LoRA are both averaged, and mean(B)·mean(A) is not mean(BA): freeze A (FFA-LoRA), or keep B at "
            "the clients with personal='*.lora_B' (FedSA-LoRA)."
        ]

    def _choice(self) -> dict[str, int] | None:
        """How many benign clients take which model; None where there is one model for each."""
        if not all(f"{m}/test/loss" in self.scores for m in ("personal", "global")):
            return None
        taken = choose(self.scores)[~self.run.hostile]
        return {model: int((taken == model).sum()) for model in SHARES}

    @cached_property
    def _unseen_scores(self) -> dict[str, np.ndarray]:
        """As `scores`, of the clients that took no part, after their cold start."""
        assert self.held_out is not None
        engine = newcomers.serve(self.run, self.task, self.data, self._seen(self.held_out), self.visits)
        found = newcomers.query_clients(self.run, engine, "evaluate")
        return with_chosen({k: v.double().cpu().numpy() for k, v in found.items()})

    @cached_property
    def unseen(self) -> dict[str, Any] | None:
        """What clients that took no part get, as `summary` has it for the others; None where all did."""
        if self.held_out is None:
            return None
        models = judge(self._unseen_scores, self.held_out.counts("test"))
        return {"clients": len(self.held_out), "steps": self.visits, **models}

    @property
    def privacy(self) -> dict[str, Any] | None:
        """(ε, δ) spent up to now, and how they are meant; None where nothing was made private."""
        run = self.run
        if self.private is None:
            return None
        draws = privacy_account.CohortDraws(run.problem.clients, run.cohort, run.federation.sampling, run.problem.seed)
        if self.samples is not None:
            return privacy_account.sample_statement(self.private, draws, self.samples, run.round)
        if run.bytes_up == 0:
            return privacy_account.nothing_sent(self.private, run.round)
        return privacy_account.statement(self.private, draws, run.round)

    @cached_property
    def clients(self) -> list[dict[str, Any]]:
        """What clients.json holds: a row per client; those that took no part come last and are marked `unseen`."""
        rows = client_rows(self.data, self.scores, self.run.hostile)
        if self.run.means_only:  # nobody's own scores are known here
            rows = [row | {k: None for k in row if k.endswith(("_loss", "_accuracy"))} for row in rows]
        for row in rows if self.task.kind == "next-token" else []:
            losses = {k: v for k, v in row.items() if k.endswith("test_loss")}
            row |= {k.replace("loss", "perplexity"): None if v is None else math.exp(v) for k, v in losses.items()}
        if self.held_out is not None:
            nobody = np.zeros(len(self.held_out), dtype=bool)
            rows += [r | {"unseen": True} for r in client_rows(self.held_out, self._unseen_scores, nobody)]
        return rows

    def metrics(self) -> dict[str, Any]:
        """What metrics.json holds: AUROC, log loss, calibration and so on of the chosen, personal and global models on
        test data: of each client, averaged over clients and pooled over samples, with bootstrap intervals
        (docs/metrics.md)."""
        here = metrics_file.samples_are_here(self.data)
        need(here, "the samples of a real federation stay at its sites, so its server has no metrics of predictions.")
        need(
            self.measured is not None, "there are no test samples, or the model's outputs are not those of its targets."
        )
        assert self.measured is not None
        return self.measured

    @cached_property
    def measured(self) -> dict[str, Any] | None:
        """What `metrics` gives; None where there is nothing to measure."""
        if not metrics_file.samples_are_here(self.data):
            return None
        picked, benign, seed = choose(self.scores), ~self.run.hostile, self.settings["seed"]
        return metrics_file.metrics_of(self.task, self._seen_data, self._thetas, picked, benign, seed, self.decisions)

    @property
    def _thetas(self) -> dict[str, torch.Tensor]:
        both = {"personal": self._personal.get("personal"), "global": self._common("global")}
        return {name: theta for name, theta in both.items() if theta is not None}

    @cached_property
    def decisions(self) -> list[Decision] | None:
        """What each client's chosen model is followed by (Evaluation's calibrate and threshold); None: by nothing, the
        most probable class is its answer."""
        asked = {"calibrate": "none", "threshold": "none", "metric": None} | self.settings
        if asked["calibrate"] == asked["threshold"] == "none" or not metrics_file.samples_are_here(self.data):
            return None
        return metrics_file.decisions_of(self.task, self._seen_data, self._thetas, choose(self.scores), asked)

    @property
    def _seen_data(self) -> Clients:
        """The clients as the task takes them."""
        return self.data if self.frozen is None else replace(self.data, x=self.frozen.of_all)

    def _seen(self, clients: Clients) -> Clients:
        """The same of other clients."""
        return clients if self.frozen is None else replace(clients, x=self.frozen.of(clients.x))

    def perplexity(self, model: str = "chosen", part: str = "test") -> np.ndarray:
        """[m] exp of each client's mean loss per token, of sequences; NaN where a client has none."""
        need(self.task.kind == "next-token", f"perplexity is of the next-token loss; this run has {self.task.kind}.")
        found: np.ndarray = np.exp(self.scores[f"{model}/{part}/loss"])
        return found

    def table(self, local: Result | None = None) -> str:
        """A text table: each client's samples, accuracy of its models, and which one it chose.

        With the result of local training on the same clients, its accuracy stands beside.
        """
        columns, clients = ["global", "personal", "chosen"], [c for c in self.clients if not c["unseen"]]
        rows = [[row.get(f"{m}_test_accuracy") for m in columns] for row in clients]
        if local is not None:
            need(local.data.names == self.data.names, "both results must be of the same clients.")
            columns = ["local", *columns]
            alone = [own["personal_test_accuracy"] for own in local.clients if not own["unseen"]]
            rows = [[own, *row] for own, row in zip(alone, rows, strict=True)]
        lines = [f"{'client':>10} {'train':>7} {'test':>6}" + "".join(f"{c:>9}" for c in columns) + "  takes"]
        for client, row in zip(clients, rows, strict=True):
            scores = "".join(f"{'-' if v is None else format(v, '.3f'):>9}" for v in row)
            name = f"{client['name'][:10]:>10} {client['train']:>7} {client['test']:>6}"
            lines.append(f"{name}{scores}  {'(hostile)' if client['hostile'] else client['chosen']}")
        return "\n".join(lines)

    # --- models -------------------------------------------------------------------------------------------------------

    # Of the reported round, as the scores are.

    @property
    def _personal(self) -> State:
        """All personal models, and the clients' statistics where the model has any; asked for once.

        Not a cached_property: Python 3.11 has a lock for those of all results, and of runs in lockstep one waits here
        for the others.
        """
        if self._asked is None:
            self._asked = self._ask_personal()
        return self._asked

    def _ask_personal(self) -> State:
        if self._kept is None:
            return self.run.query_clients("personal")
        return {k.removeprefix("client/"): v for k, v in self._kept.models.items() if k.startswith("client/")}

    def _common(self, name: str) -> torch.Tensor | None:
        """The global model or the collaboration."""
        if self._kept is not None:
            return self._kept.models.get(name)
        method = self.run.method
        return (method.shared if name == "global" else method.collaboration)(self.run.server)

    def personal(self, client: int) -> nn.Module:
        """The client's own model, ready to predict."""
        need(0 <= client < len(self.data), f"clients are 0 to {len(self.data) - 1}; got {client}.")
        if "personal" not in self._personal:
            raise SartorError(f"{self.settings['method']} has no personal models; use shared().")
        own = {k: v[client] for k, v in self._personal.items() if k != "personal"}
        return self.task.module(self._personal["personal"][client], own)

    def shared(self) -> nn.Module:
        """The global model, ready to predict. Batch normalisation has its first statistics: others are private."""
        theta = self._common("global")
        if theta is None:
            raise SartorError(f"{self.settings['method']} has no global model; use personal(client).")
        return self.task.module(theta)

    def chosen(self, client: int) -> nn.Module:
        """The personal model, the global one or a mixture of the two: what validation data speak for (judge.choose)."""
        return self._served(client, str(choose(self.scores)[client]))

    def _served(self, client: int, model: str) -> nn.Module:
        """A model by its name in judge.SHARES."""
        if model in ("personal", "global"):
            return self.personal(client) if model == "personal" else self.shared()
        theta, w = self._personal["personal"][client], self._common("global")
        assert w is not None
        return self.task.module(torch.lerp(w, theta, SHARES[model]))

    def newcomer(self, data: Clients | tuple[Any, Any], steps: int = 10) -> nn.Module:
        """The model of a client that joins now with `data`: features and targets (x, y), or Clients with one client.

        It visits the server `steps` times, as its method says (docs/cold-start.md). Nothing of the run changes.
        """
        one = data if isinstance(data, Clients) else _one_client(data, self.data)
        need(len(one) == 1, f"a newcomer is one client; got {len(one)}. Take one with clients.take([i]).")
        same = one.x.shape[1:] == self.data.x.shape[1:]
        need(same, f"the run's samples have shape {list(self.data.x.shape[1:])}; got {list(one.x.shape[1:])}.")
        one = self._seen(one.to(self.data.x.device, self.data.x.dtype))
        engine = newcomers.serve(self.run, self.task, self.data, one, steps)
        found = newcomers.query_clients(self.run, engine, "personal")
        if "personal" not in found:
            return self.shared()
        return self.task.module(found["personal"][0], {k: v[0] for k, v in found.items() if k != "personal"})

    def export(self, client: int | str, path: str | Path, model: str = "chosen") -> Path:
        """Write a client's model to a .safetensors, .onnx, .pt2 or .pt (TorchScript) file, with what its samples go
        through before it; `client` is a number or a name, `model` chosen, personal or global. See sartor.run.export."""
        one_of("export", "model", model, ("chosen", "personal", "global"))
        if isinstance(client, str) and client not in self.data.names:
            raise unknown("client", client, self.data.names)
        at = self.data.names.index(client) if isinstance(client, str) else client
        need(0 <= at < len(self.data), f"clients are 0 to {len(self.data) - 1}; got {client}.")
        which = str(choose(self.scores)[at]) if model == "chosen" else model
        module = self._served(at, which)
        inputs = self.data.inputs or Inputs(
            tuple(self.data.x.shape[1:]), self.data.classes, names=tuple(self.data.names)
        )
        about = {"model": self.settings["model"], "named": self.settings["model"] in models.NAMES}
        about |= {"method": self.settings["method"], "which": which, "client": self.data.names[at]}
        decided = self.decisions[at] if self.decisions is not None and model == "chosen" else None
        return export.write(Path(path), module.cpu(), inputs, at, about, decided)

    # --- files --------------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write clients.json, history.jsonl, models/ (each file with a checksum), inputs.json (how samples are read),
        FedAMP's collaboration.json, metrics.json (`metrics`), decisions.json where answers are more than the most
        probable class (`decisions`) and, last, summary.json."""
        folder = Path(folder)
        write_json(folder / "clients.json", self.clients)
        write_history(folder, self.history)
        theta = self._common("global")
        if theta is not None:
            save_tensors(folder / "models" / "global.safetensors", self._named(theta), {"names": []}, sealed=True)
        if "personal" in self._personal:
            own = {k: v for k, v in self._personal.items() if k != "personal"}
            save_tensors(
                folder / "models" / "personal.safetensors",
                self._named(self._personal["personal"]) | own,
                {"names": self.data.names},
                sealed=True,
            )
        if self.data.inputs is not None:
            write_json(folder / "inputs.json", self.data.inputs.plain())
        if (xi := self._common("collaboration")) is not None:
            write_json(folder / "collaboration.json", {"names": self.data.names, "weights": xi.double().tolist()})
        if self.measured is not None:
            write_json(folder / "metrics.json", self.measured, indent=None)
        if self.decisions is not None:
            rows = [{"name": n, **d.plain()} for n, d in zip(self.data.names, self.decisions, strict=True)]
            asked = {k: self.settings[k] for k in ("calibrate", "threshold")}
            write_json(folder / "decisions.json", {**asked, "clients": rows})
        write_json(folder / "summary.json", self.summary)  # last: its presence says that the run is complete
        return folder

    def _named(self, theta: torch.Tensor) -> State:
        return dict(zip(self.task.names, self.task.unflatten(theta), strict=True))


def client_rows(data: Clients, scores: Scores, hostile: np.ndarray, chosen: str | None = None) -> list[dict[str, Any]]:
    """A row per client: its samples and its scores; `chosen`: the model that all take, where there is no choice."""
    counts, rows = {part: data.counts(part) for part in PARTS}, []
    picked = choose(scores) if chosen is None else np.full(len(data), chosen)
    shown = {k: v for k, v in scores.items() if k.endswith(("/loss", "/accuracy"))}
    for i, name in enumerate(data.names):
        row: dict[str, Any] = {"client": i, "name": name, **{part: int(counts[part][i]) for part in PARTS}}
        row |= {"hostile": bool(hostile[i]), "unseen": False, "chosen": str(picked[i])}
        for key, values in shown.items():
            row[key.replace("/", "_")] = None if np.isnan(values[i]) else float(values[i])
        rows.append(row)
    return rows


def _one_client(data: tuple[Any, Any], like: Clients) -> Clients:
    """One client with these samples, whose targets are of the kind that the run's clients have."""
    x, y = (np.asarray(part) for part in data)
    need(x.ndim >= 1 and len(x) > 0, "a newcomer needs at least one sample to learn from; got none.")
    y = y.astype(np.float64) if like.y.is_floating_point() else y
    whole = like.y.is_floating_point() or np.issubdtype(y.dtype, np.integer)
    need(whole, f"the run's targets are classes 0..{(like.classes or 1) - 1}; got {y.dtype}.")
    return Clients.from_parts([{"train": (x.astype(np.float64), y)}], like.classes)


def write_history(folder: Path, history: list[dict[str, Any]], durable: bool = True) -> None:
    """history.jsonl: a line per evaluated round."""
    text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in history)
    write_text(folder / "history.jsonl", text, durable)
