"""Predictions of a finished run's models, for a client that took part or for one that joins now."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .compare import CHECKPOINT
from .data import Dataset
from .data.later import read_like
from .errors import SartorError, need, one_of, unknown
from .recipe import TYPES, Recipe
from .result import Result
from .storage import read_json

MODELS = ("chosen", "personal", "global")
_AT_ONCE = 4096


class Served:
    """A run from its folder, with the data that it was made of."""

    def __init__(self, folder: Path) -> None:
        need((folder / "recipe.toml").is_file(), f"{folder} is not the folder of a run: it has no recipe.toml.")
        need((folder / "summary.json").is_file(), f"the run in {folder} is not complete; go on with --resume {folder}.")
        self.folder, self.recipe = folder, Recipe.load(folder / "recipe.toml")
        self.data: Dataset = self.recipe.dataset()
        clients = self.recipe.split(self.data)
        self.result: Result = self.recipe.start(clients, folder)
        self.result.run.restore(folder / CHECKPOINT, self.recipe.fingerprint(clients))

    def read(self, path: Path) -> tuple[Tensor, np.ndarray | None]:
        """The samples of a file as the models want them, and its targets if it has any."""
        x, y = read_like(path, self.data, self.recipe.target)
        return self.data.scaled(x, TYPES[self.recipe.dtype]), y

    def known(self, client: str, model: str) -> nn.Module:
        """A model of a client that took part; `client` is its name or its number."""
        one_of("predict", "model", model, MODELS)
        names = self.result.data.names
        if client in names:
            place = names.index(client)
        elif client.isdigit() and int(client) < len(names):
            place = int(client)
        else:
            raise unknown(f"client of {self.folder}", client, names, "Clients that joined later: see --newcomer.")
        if model == "chosen":
            model = read_json(self.folder / "clients.json")[place]["chosen"]
        return self.result.shared() if model == "global" else self.result.personal(place)

    def newcomer(self, path: Path, steps: int, model: str) -> nn.Module:
        """The model of a client that joins with the labelled samples of a file."""
        one_of("predict", "model", model, MODELS)
        x, y = self.read(path)
        if y is None:
            wanted = self.recipe.target or "y"
            raise SartorError(f"a newcomer learns from samples with targets; {path.name} has no {wanted}.")
        return self.result.shared() if model == "global" else self.result.newcomer((x.numpy(), y), steps)

    @torch.no_grad()
    def predict(self, model: nn.Module, x: Tensor) -> list[dict[str, Any]]:
        """A row per sample: what the model says and, where it gives probabilities, how sure it is."""
        output = torch.cat([model(part) for part in torch.split(x, _AT_ONCE)])
        if self.data.classes is None:
            return [{"row": i, "prediction": v} for i, v in enumerate(output.reshape(len(x)).tolist())]
        if self.data.y.dtype.kind == "f":
            low, high = np.unique(self.data.y).tolist()
            said = output.reshape(len(x)).tolist()
            return [{"row": i, "prediction": high if v >= 0 else low, "margin": v} for i, v in enumerate(said)]
        best = output.softmax(1).max(1)
        names = self.data.class_names or tuple(map(str, range(self.data.classes)))
        found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [{"row": i, "prediction": names[k], "probability": p} for i, (k, p) in enumerate(found)]


def written(rows: list[dict[str, Any]], as_json: bool) -> str:
    """The rows as CSV or JSON."""
    if as_json:
        return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()
