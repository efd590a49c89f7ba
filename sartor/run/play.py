"""A run from beginning to end: `fit` plays a method in memory, `play_recipe` a recipe in its folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from ..core import Engine, Method
from ..data import Clients, facts
from ..errors import need
from ..storage import load_tensors, save_tensors, write_json
from ..tasks.task import Loss
from ..wrappers import Privacy
from . import folds
from .assemble import Tasks, assembled, prepare
from .complete import fingerprint
from .complete import privacy as asked_privacy
from .lockstep import at_once
from .recipe import Attacked, Evaluation, Execution, Federation, Learning, Recipe, Traffic
from .result import Result, write_history
from .rounds import play
from .trackers import Tracker, Tracking

CHECKPOINT, ROWS = Path("state", "checkpoint.safetensors"), Path("state", "rows")
FOLDS = Path("state", "folds.safetensors")


def fit(
    method: Method,
    model: nn.Module,
    clients: Clients,
    rounds: int = Learning.rounds,
    *,
    local_steps: int | None = Learning.local_steps,
    seed: int = Learning.seed,
    personal: str | None = Learning.personal,
    loss: str | Loss | None = None,
    metric: Loss | None = None,
    class_weights: str = Learning.class_weights,
    pretrained: bool = False,
    compile: bool = False,
    unseen: Clients | None = None,
    federation: Federation | None = None,
    attack: Attacked | None = None,
    privacy: Privacy | None = None,
    traffic: Traffic | None = None,
    execution: Execution | None = None,
    evaluation: Evaluation | None = None,
    folder: str | Path | None = None,
    track: Sequence[str | Tracker] = (),
) -> Result:
    """Run `method` for `rounds` rounds on `clients`; every client starts from the same weights.

    local_steps: minibatch gradients of each client in a round, which the method splits among its loops; None: its own.
    personal: "bias,norm,head,*.lora_B": parameters that stay at each client, of a method that shares a global model.
    loss: "cross-entropy", "squared", "hinge", or a function of outputs [b, k] and targets [b] that gives [b].
    metric: a function of the same kind, the higher the better, in place of accuracy or R².
    class_weights: "balanced": every class counts the same in training, by its share of all clients' training samples.
    pretrained: start from the weights of `model`; else its layers are drawn anew from the seed.
    compile: torch.compile for a model of other than plain layers: 10 to 30 seconds first, then a little faster.
    unseen: clients that take no part and get their models when training is over.
    federation: st.Federation(cohort=10, drop=0.1): who is asked in each round, who does not answer.
    attack: st.Attacked(st.attacks.SignFlip(), 0.2): what a share of hostile clients does.
    privacy: st.Privacy(noise=1.0, clip=0.5): what leaves a client is clipped and noisy.
    traffic: st.Traffic(compress="top-k(k=0.05)", budget="4MB"): messages in fewer bytes; when to stop early.
    execution: st.Execution(engine="serial", dtype="float64"): where and with what clients are computed.
    evaluation: st.Evaluation(evaluate_every=5, report="best"): when models are scored, which round is reported.
    folder: where client states are kept with Execution(store="disk"), and what the machines of a Ray cluster share.
    track: where scores go as it runs: "csv:scores.csv", "tensorboard:logs", "mlflow:URI", or anything with
    write(round, scores) and close().

        >>> import sartor as st
        >>> clients = st.data.load("digits").split(st.Hybrid(labels=2, beta=0.5), clients=6, seed=0)
        >>> model = st.models.layers(64, 10)  # or any nn.Module
        >>> result = st.fit(st.FLAME(), model, clients, rounds=3, seed=0)
        >>> [line["round"] for line in result.history], len(result.clients)
        ([3], 6)
        >>> result.personal(2)(clients.x[:5]).shape  # client 2's own model, an nn.Module
        torch.Size([5, 10])
    """
    evaluation = evaluation or Evaluation()
    folds.check(evaluation, traffic or Traffic(), privacy is not None)

    def prepared(data: Clients, how: Evaluation) -> Result:
        return prepare(
            method,
            model,
            data,
            rounds,
            local_steps=local_steps,
            seed=seed,
            personal=personal,
            loss=loss,
            metric=metric,
            class_weights=class_weights,
            pretrained=pretrained,
            compile=compile,
            unseen=unseen,
            federation=federation,
            attack=attack,
            privacy=privacy,
            traffic=traffic,
            execution=execution,
            evaluation=how,
            folder=None if folder is None else Path(folder),
        )

    def played(held_back: Clients) -> Iterator[Result]:
        result = prepared(held_back, replace(evaluation, folds=0))
        yield result
        for _ in play(result.run, rounds, evaluate_every=rounds):
            yield result

    result = prepared(folds.whole(clients) if evaluation.folds else clients, evaluation)
    if evaluation.folds:
        folds.hear(result.run, folds.cross_fitted(clients, evaluation.folds, seed, played, at_once(result.run.engine)))
    with Tracking(track, f"{result.settings['method']}-{result.settings['seed']}") as tracking:
        for _ in play(result.run, rounds, evaluate_every=evaluation.evaluate_every, diagnose=evaluation.diagnostics):
            tracking.look(result.history)
    return result


def play_recipe(
    recipe: Recipe,
    clients: Clients,
    folder: Path | None,
    engine: Engine | None = None,
    tasks: Tasks | None = None,
) -> Iterator[Result]:
    """Play one recipe on its clients, going on from a checkpoint in `folder` if there is one; everything is kept there.

    Yields the result as it stands, before the first round and after each one. `engine`: where the clients are, in place
    of the recipe's own. `tasks`: models that other runs of a study have made (see `assembled`).
    """
    if folder is not None and not (folder / CHECKPOINT).exists():
        shutil.rmtree(folder / ROWS, ignore_errors=True)  # of a run that was killed before its first checkpoint
    folds.check(recipe.group(Evaluation), recipe.group(Traffic), asked_privacy(recipe) is not None)
    split, clients = clients, folds.whole(clients) if recipe.folds else clients
    result, full = assembled(recipe, clients, folder, tasks)
    result.run.engine = engine or result.run.engine
    checkpoint, mark = None, ""
    if folder is not None:
        checkpoint, mark = folder / CHECKPOINT, fingerprint(full, clients)
    if recipe.folds:
        folds.hear(result.run, _folds(recipe, split, folder, mark, at_once(result.run.engine)))
    if checkpoint is not None and folder is not None:
        if checkpoint.exists():
            result.run.restore(checkpoint, mark)
            played = result.run.round
            need(
                played <= recipe.rounds,
                f"{folder} has played {played} rounds; it cannot be shortened to {recipe.rounds}.",
            )
        full.save(folder)  # not before it is sure that the folder's checkpoint is this run's
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
            write_history(folder, result.history, durable=False)  # to look at; checkpoints have it, too
        yield result
    if folder is not None:
        result.save(folder)


def _folds(recipe: Recipe, clients: Clients, folder: Path | None, mark: str, together: int) -> folds.FoldsSaid:
    """What folds say of a recipe's models; it is kept in the folder, so that a run that goes on need not ask again."""
    path = None if folder is None else folder / FOLDS
    if path is not None and path.exists():
        tensors, about = load_tensors(path)
        if about.get("settings") == mark:
            return folds.of_tensors(tensors)
    once = recipe.replace(folds=0, evaluate_every=recipe.rounds, diagnostics=False, store="memory")

    tasks: Tasks = {}
    said = folds.cross_fitted(
        clients, recipe.folds, recipe.seed, lambda own: play_recipe(once, own, None, tasks=tasks), together
    )
    if path is not None:
        save_tensors(path, folds.as_tensors(said), {"settings": mark})
    return said
