"""Predictions of a finished run's models: for a client that took part, one that joins now, one that is not known."""

from __future__ import annotations

import csv
import difflib
import io
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from .. import models
from ..core import State
from ..data.inputs import Inputs
from ..data.tables.client_keys import plainly
from ..data.tables.columns import learn
from ..data.tables.new_samples import NewSamples, read_like
from ..errors import SartorError, need, one_of, unknown
from ..judge.choice import SHARES
from ..judge.decisions import Decision
from ..judge.metrics import BEST_FIRST
from ..run.play import CHECKPOINT
from ..storage import load_sealed, read_json
from ..tasks.task import ModelTask
from .assemble import assembled
from .complete import TYPES, clients_of, fingerprint, neighbours_of
from .export import outputs_of, said, write
from .folder_schema import CLIENTS, DECISIONS, INPUTS
from .recipe import Recipe
from .result import Result

_AT_ONCE = 4096


class Chosen(NamedTuple):
    """The model that serves some samples, and whose statistics they are put to scale with."""

    modules: list[tuple[nn.Module, Inputs, int | None]]  # of several, what they say is averaged
    name: str
    decision: Decision = Decision()


class Served:
    """A run from its folder. The data that it was made of are only needed where somebody joins."""

    def __init__(self, folder: Path) -> None:
        need((folder / "recipe.toml").is_file(), f"{folder} is not the folder of a run: it has no recipe.toml.")
        need((folder / "summary.json").is_file(), f"the run in {folder} is not complete; go on with --resume {folder}.")
        need((folder / "inputs.json").is_file(), f"{folder} has no inputs.json, which says how samples are read.")
        self.folder, self.recipe = folder, Recipe.load(folder / "recipe.toml")
        self.inputs = Inputs.of(read_json(folder / "inputs.json", INPUTS), str(folder / "inputs.json"))
        self.names = list(self.inputs.names)

    def read(self, path: Path) -> NewSamples:
        """The samples of a file, with its targets and clients if it has any."""
        return read_like(path, self.inputs, self.recipe.target, self.recipe.client_key)

    # --- models -------------------------------------------------------------------------------------------------------

    @cached_property
    def _task(self) -> ModelTask:
        model = models.build(self.recipe.model, self.inputs.shape, outputs_of(self.inputs))
        loss, neighbours = self.recipe.loss or "cross-entropy", neighbours_of(self.recipe)
        return ModelTask(model.to(TYPES[str(self.recipe.dtype)]), loss, neighbours=neighbours)

    @cached_property
    def _files(self) -> dict[str, State]:
        """The run's models by kind, as far as it has any; each file's checksum is looked at."""
        found = {}
        for kind in ("personal", "global"):
            path = self.folder / "models" / f"{kind}.safetensors"
            if path.exists():
                found[kind] = load_sealed(path)[0]
        need(len(found) > 0, f"{self.folder} holds no models; run it again.")
        return found

    def _module(self, kind: str, place: int | None) -> nn.Module:
        if kind not in ("personal", "global"):  # a mixture of the two
            own, common = (self._vector(k, p)[0] for k, p in (("personal", place), ("global", None)))
            return self._task.module(torch.lerp(common, own, SHARES[kind]))
        return self._task.module(*self._vector(kind, place))

    def _vector(self, kind: str, place: int | None) -> tuple[torch.Tensor, State | None]:
        """A model of the run as a vector, and its statistics, if it has any."""
        if kind not in self._files:
            raise SartorError(f"{self.recipe.method} has no {kind} model; see --model.")
        held, names = self._files[kind], self._task.names
        fits = place is None or all(len(v) == len(self.names) for v in held.values())
        fits = fits and held.keys() >= set(names)
        tensors = {k: v if place is None else v[place] for k, v in held.items()} if fits else {}
        fits = fits and sum(tensors[name].numel() for name in names) == self._task.size
        need(fits, f"the models in {self.folder} do not fit its recipe.toml and inputs.json; one of them was changed.")
        theta = torch.cat([tensors[name].reshape(-1) for name in self._task.names])
        return theta, {k: v for k, v in tensors.items() if k not in self._task.names} or None

    @cached_property
    def _clients(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = read_json(self.folder / "clients.json", CLIENTS)
        need(len(rows) >= len(self.names), f"{self.folder / 'clients.json'} lacks clients; run it again.")
        return rows

    def place(self, client: str) -> int:
        """Which client a name or a number means."""
        if client in self.names:
            return self.names.index(client)
        if client.isdigit() and int(client) < len(self.names):
            return int(client)
        key = self.recipe.client_key or "client"
        do = f"One that took no part: leave --client away (the column {key} says whose rows are), or see --newcomer."
        raise unknown(f"client of {self.folder}", client, self.names, do)

    def known(self, client: str, model: str) -> Chosen:
        """A model of a client that took part; `client` is its name or its number."""
        one_of("predict", "model", model, BEST_FIRST)
        place, decision = self.place(client), Decision()
        if model == "chosen":
            model, decision = self._clients[place]["chosen"], self._decisions.get(self.names[place], Decision())
        module = self._module(model, None if model == "global" else place)
        return Chosen([(module, self.inputs, place)], model, decision)

    @cached_property
    def _decisions(self) -> dict[str, Decision]:
        """What the clients' chosen models are followed by, as far as by anything."""
        path = self.folder / "decisions.json"
        if not path.exists():
            return {}
        rows = read_json(path, DECISIONS)["clients"]
        return {row.pop("name"): Decision(**row) for row in rows}

    def stranger(self) -> Chosen:
        """What serves a client that took no part and has no labelled samples: the global model; where a method has
        none, all clients' models, whose answers are averaged."""
        if "global" in self._files:
            return Chosen([(self._module("global", None), self.inputs, None)], "global (unknown client)")
        each = [(self._module("personal", i), self.inputs, i) for i in range(len(self.names))]
        return Chosen(list(each), "average of all (unknown client)")

    def export(self, client: str | None, path: Path, model: str) -> str:
        """Write a model to a file; None: the global one, for clients that took no part."""
        chosen = self.known(client, model) if client is not None else self.stranger()
        need(len(chosen.modules) == 1, f"{self.recipe.method} has no global model to export; say whose: --client NAME.")
        module, inputs, place = chosen.modules[0]
        about = {"model": self.recipe.model, "named": True, "method": self.recipe.method, "which": chosen.name}
        about |= {"client": None if place is None else self.names[place]}
        write(path, module, inputs, place, about, None if chosen.decision == Decision() else chosen.decision)
        return f"{path}: the {chosen.name} model" + ("" if place is None else f" of {self.names[place]}")

    # --- who joins ----------------------------------------------------------------------------------------------------

    @cached_property
    def result(self) -> Result:
        """The run as it was when it ended, with its data."""
        clients = clients_of(self.recipe)
        result, full = assembled(self.recipe, clients, self.folder)
        result.run.restore(self.folder / CHECKPOINT, fingerprint(full, clients))
        return result

    def newcomer(self, path: Path, steps: int, model: str) -> Chosen:
        """The model of a client that joins with the labelled samples of a file. From `minimum` samples on its numbers
        are put to scale by its own statistics, with fewer by the average of the known clients'."""
        one_of("predict", "model", model, BEST_FIRST)
        own = self.read(path)
        if own.y is None:
            wanted = self.recipe.target or "y"
            raise SartorError(f"a newcomer learns from samples with targets; {path.name} has no {wanted}.")
        inputs, client = self.inputs, None
        if inputs.how == "own" and len(own.x) >= self.recipe.minimum:
            inputs, client = inputs.with_own(learn(own.x, [slice(0, len(own.x))], inputs.columns, "own")), 0
        x = inputs.ready(own.x, client, TYPES[str(self.recipe.dtype)])
        if model == "global":
            module = self._module("global", None)
        else:
            module = self.result.newcomer((x.numpy(), inputs.scaled_target(own.y)), steps)
        return Chosen([(module, inputs, client)], "global" if model == "global" else "newcomer")

    # --- predictions --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def scores(self, chosen: Chosen, x: np.ndarray) -> np.ndarray:
        """[n, classes] probabilities, or [n, 1] numbers."""
        total: np.ndarray | float = 0.0
        for module, inputs, client in chosen.modules:
            ready = inputs.ready(x, client, TYPES[str(self.recipe.dtype)])
            output = torch.cat([module(part) for part in torch.split(ready, _AT_ONCE)])
            total = total + said(output, inputs) / len(chosen.modules)
        assert isinstance(total, np.ndarray)
        return chosen.decision.probabilities(total)

    def predict(self, chosen: Chosen, x: np.ndarray, every: bool = False) -> list[dict[str, Any]]:
        """A row per sample: what the model says and, where it gives probabilities, how sure it is."""
        return [{"row": i, **row} for i, row in enumerate(self._rows(chosen, x, every))]

    def each(self, later: NewSamples, model: str, every: bool = False) -> tuple[list[dict[str, Any]], list[str]]:
        """The same for samples of several clients, each by its own client's model, and notes on those not known."""
        key = self.recipe.client_key
        need(
            key is not None,
            "choose a model with --client NAME or --newcomer FILE: the run's data have no client column.",
        )
        if later.keys is None:
            raise SartorError(
                f"say whose model it is: the file has no column {key}; or --client NAME, --newcomer FILE."
            )
        rows: list[dict[str, Any]] = [{} for _ in later.keys]
        notes = []
        for client in dict.fromkeys(later.keys):
            places = [i for i, k in enumerate(later.keys) if k == client]
            chosen = self.known(client, model) if client in self.names else self.stranger()
            if client not in self.names:
                notes.append(self._strange(client, chosen.name))
            found = self._rows(chosen, later.x[places], every)
            for i, row in zip(places, found, strict=True):
                rows[i] = {"row": i, str(key): client, "model": chosen.name, **row}
        return rows, notes

    def _strange(self, client: str, served: str) -> str:
        alike = [n for n in self.names if plainly(n) == plainly(client)]
        near = alike or difflib.get_close_matches(client, self.names, n=1, cutoff=0.8)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"{self.recipe.client_key} {client!r} took no part and is served by: {served.partition(' (')[0]}{hint}"

    def _rows(self, chosen: Chosen, x: np.ndarray, every: bool) -> list[dict[str, Any]]:
        inputs, scores = self.inputs, self.scores(chosen, x)
        if inputs.classes is None:
            return [{"prediction": float(v)} for v in scores[:, 0]]
        if inputs.ends is not None:
            low, high = inputs.ends
            return [{"prediction": high if v >= 0 else low, "margin": float(v)} for v in scores[:, 0]]
        labels = inputs.labels()
        rows = []
        for p, best in zip(scores, chosen.decision.classes(scores).tolist(), strict=True):
            row: dict[str, Any] = {"prediction": labels[best], "probability": float(p[best])}
            rows.append(row | ({f"p({c})": float(v) for c, v in zip(labels, p, strict=True)} if every else {}))
        return rows


def written(rows: Sequence[dict[str, Any]], as_json: bool) -> str:
    """The rows as CSV or JSON."""
    if as_json:
        return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()
