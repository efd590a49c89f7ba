"""A run from beginning to end: `fit` plays a method in memory, `play_recipe` a recipe in its folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ..core import Engine, Method
from ..data import Clients, facts
from ..errors import need
from ..storage import write_json
from .assemble import prepare
from .bytes import Goal, parse_bytes
from .recipe import Recipe
from .result import Result, write_history
from .rounds import play
from .trackers import Tracker, Tracking

CHECKPOINT, ROWS = Path("state", "checkpoint.safetensors"), Path("state", "rows")


def fit(
    method: Method,
    model: nn.Module,
    clients: Clients,
    rounds: int = 50,
    *,
    evaluate_every: int = 10,
    diagnose: bool = True,
    budget: str | int | None = None,
    target_accuracy: float | None = None,
    track: Sequence[str | Tracker] = (),
    **options: Any,
) -> Result:
    """Run `method` for `rounds` rounds on `clients`; every client starts from the same weights.

    It ends earlier where the next round could exceed the `budget` ("4MB": bytes up and down together), or where the
    mean validation accuracy reaches `target_accuracy` in an evaluated round. `track` says where scores go as it runs:
    "csv:scores.csv", "tensorboard:logs", "mlflow:URI", or anything with write(round, scores) and close().

    Options: seed; loss ("cross-entropy", "squared", "hinge" or a function of outputs [b, k] and targets [b] that
    gives [b]); metric (a function of the same kind, the higher the better, in place of accuracy or R²); pretrained
    (start from `model`'s own weights, else its layers are drawn anew from the seed); cohort, sampling; attack (of
    sartor.attacks), attackers (their share); failures (drop, stragglers); compress, compress_down (of
    sartor.compressors); report ("best": scores and models of the round with the best mean validation accuracy, in
    place of the "last"); oracle (also score the choice between personal and global made on test data, as some papers
    do); privacy (Privacy(noise=1.0, clip=0.5): what leaves a client is clipped and noisy); unseen (clients that take
    no part and are served when training is over), unseen_steps (with how many visits); engine, chunk, workers; address
    (of a Ray cluster), folder (for it: one that all its machines share); store (a folder for states larger than
    memory); compile (torch.compile for an own model of other than plain layers: 10 to 30 seconds first, then a little
    faster); dtype, device.
    """
    goal = Goal(None if budget is None else parse_bytes(budget), target_accuracy)
    result = prepare(method, model, clients, rounds=rounds, goal=goal, **options)
    with Tracking(track, f"{result.settings['method']}-{result.settings['seed']}") as tracking:
        for _ in play(result.run, rounds, evaluate_every=evaluate_every, diagnose=diagnose):
            tracking.look(result.history)
    return result


def play_recipe(
    recipe: Recipe, clients: Clients, folder: Path | None, engine: Engine | None = None
) -> Iterator[Result]:
    """Play one recipe on its clients, going on from a checkpoint in `folder` if there is one; everything is kept there.

    Yields the result as it stands, before the first round and after each one. `engine`: where the clients are, in place
    of the recipe's own.
    """
    if folder is not None and not (folder / CHECKPOINT).exists():
        shutil.rmtree(folder / ROWS, ignore_errors=True)  # of a run that was killed before its first checkpoint
    result = recipe.start(clients, folder)
    result.run.engine = engine or result.run.engine
    checkpoint, mark = None, ""
    if folder is not None:
        checkpoint, mark = folder / CHECKPOINT, recipe.fingerprint(clients)
        if checkpoint.exists():
            result.run.restore(checkpoint, mark)
            played = result.run.round
            need(played <= recipe.rounds, f"{folder} has played {played} rounds; it cannot go back to {recipe.rounds}.")
        recipe.complete(clients).save(folder)  # not before it is sure that the folder's checkpoint is this run's
        write_json(folder / "data.json", facts(clients))
    yield result
    for line in play(
        result.run,
        recipe.rounds,
        evaluate_every=recipe.evaluate_every,
        diagnose=recipe.diagnostics,
        checkpoint=checkpoint,
        checkpoint_every=recipe.checkpoint_every,
        settings=mark,
    ):
        if folder is not None and line is not None:
            write_history(folder, result.history)
        yield result
    if folder is not None:
        result.save(folder)
