"""metrics.json: what each client's models say of its test samples, and what practitioners measure of that.

Nothing is trained or chosen here: models are those of the reported round, and each client is served as in clients.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.clients import Clients
from ..engines.predictions import kind_of, predicted
from ..engines.stack import Stack
from ..engines.threads import one_thread
from ..judge.choice import SHARES
from ..judge.decisions import Decision, decisions
from ..judge.metric_table import metric_table
from ..judge.metrics import SHOWN
from ..judge.prediction_metrics import Predicted
from ..tasks.task import ModelTask

_TOGETHER = 64  # clients whose samples are looked at in one go


def samples_are_here(data: Clients) -> bool:
    """Whether the clients' samples are in this process; the server of a real federation has none."""
    return int(data.bounds.max(initial=0)) <= len(data.x)


def metrics_of(
    task: ModelTask,
    data: Clients,
    thetas: Mapping[str, Tensor],
    picked: np.ndarray,
    benign: np.ndarray,
    seed: int,
    decided: Sequence[Decision] | None = None,
) -> dict[str, Any] | None:
    """What metrics.json holds; None where there is nothing to measure.

    thetas: "personal" [m, d] and "global" [d], those that there are. picked: [m] the names in SHARES of the models that
    clients chose. Hostile clients are left out. decided: what the chosen models' probabilities go through.
    """
    ids = np.flatnonzero(benign)
    if not len(ids) or not data.counts("test")[ids].sum() or not _fits(task, data):
        return None
    models: dict[str, list[Predicted]] = {}
    for model in SHOWN:
        served = picked if model == "chosen" else np.full(len(data), model)
        same = next((other for other in models if (served[ids] == other).all()), None)  # what everybody takes
        if same is not None:
            models[model] = models[same]
        elif model in thetas or model == "chosen":
            models[model] = predictions(task, data, thetas, ids, served, "test")
    if decided is not None:
        models["chosen"] = [decided[int(i)].on(p) for i, p in zip(ids, models["chosen"], strict=True)]
    names = [data.names[i] for i in ids]
    called, wide = class_names(data), models["chosen"][0].said.shape[1:]
    called += [f"output {i}" for i in range(len(called), *wide)] if called else []  # the model has more than are needed
    found = metric_table(models, names, called, seed)
    found["notes"] += _decided(decided or ())
    return found


def _decided(each: Sequence[Decision]) -> list[str]:
    """What was done to the chosen models' probabilities."""
    said = []
    if any(d.scale != 1.0 or d.shift != 0.0 for d in each):
        said.append("the chosen models' probabilities are recalibrated by validation samples (decisions.json)")
    if any(d.threshold is not None for d in each):
        said.append("the chosen models answer by a threshold, not by the more probable class (decisions.json)")
    return said


def decisions_of(
    task: ModelTask, data: Clients, thetas: Mapping[str, Tensor], picked: np.ndarray, asked: Mapping[str, Any]
) -> list[Decision]:
    """What each client's chosen model is followed by, from its validation samples."""
    seen = predictions(task, data, thetas, np.arange(len(data)), picked, "validation")
    return decisions(asked["calibrate"], asked["threshold"], asked["metric"] or "", seen)


def _fits(task: ModelTask, data: Clients) -> bool:
    """Whether outputs say something of the targets: with a loss of one's own they may be anything."""
    if data.y.dim() > 1:  # sequences: their perplexity is in clients.json
        return False
    x = data.x[:1][None]
    output = task.predict(torch.zeros(1, task.size).to(x), x)
    wide = output[0, 0].numel()
    one = data.classes is None or data.y.is_floating_point()
    return wide == 1 if one else wide >= (data.classes or 0)


def class_names(data: Clients) -> list[str]:
    """What the classes are called, in their order; none where targets are numbers."""
    if data.classes is None:
        return []
    inputs = data.inputs
    if data.y.is_floating_point():
        low, high = inputs.ends if inputs is not None and inputs.ends is not None else (-1, 1)
        return [f"{low:g}", f"{high:g}"]
    return inputs.labels() if inputs is not None else [str(i) for i in range(data.classes)]


@torch.no_grad()
def predictions(
    task: ModelTask, data: Clients, thetas: Mapping[str, Tensor], ids: np.ndarray, served: np.ndarray, part: str
) -> list[Predicted]:
    """What is said of a part's samples of the clients `ids` by the models that they are `served` with [m]."""
    found: dict[int, Predicted] = {}
    with one_thread():
        for model in np.unique(served[ids]):
            mine = ids[served[ids] == model]
            for some in np.array_split(mine, -(-len(mine) // _TOGETHER)):
                stack = Stack(task, data, some, torch.zeros(len(some)), 0, 0)
                stack = stack if model == "personal" else stack.forgetful()
                outputs = stack.outputs(_theta(thetas, str(model), some), part)
                found |= {
                    int(i): _predicted(task, data, int(i), output, part)
                    for i, output in zip(some, outputs, strict=True)
                }
    return [found[int(i)] for i in ids]


def _theta(thetas: Mapping[str, Tensor], model: str, ids: np.ndarray) -> Tensor:
    """[c, d] a model of each client, by its name in SHARES."""
    if model == "global":
        return thetas["global"].expand(len(ids), -1)
    own = thetas["personal"][torch.from_numpy(ids)]
    return own if model == "personal" else torch.lerp(thetas["global"].expand(len(ids), -1), own, SHARES[model])


def _predicted(task: ModelTask, data: Clients, client: int, output: Tensor, part: str) -> Predicted:
    y = data.y[data.rows(client, part)].cpu().numpy()
    return predicted(kind_of(task, data), y, output.double().cpu().numpy(), data.inputs)
