"""A model's parameter vector cut in two: the representation (body) and the last layers (head)."""

from __future__ import annotations

from ...core import Problem
from ...errors import need


def body_and_head(owner: str, problem: Problem, head: int) -> tuple[slice, slice]:
    """The coordinates of the body and of the head, the last `head` layers; a model without both is refused."""
    need(head >= 1, f"{owner} needs a head of at least 1 layer; got {head}.")
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in problem.blocks))
    need(
        len(layers) > head,
        f"{owner} splits a model into representation and head; this one has {len(layers)} layer"
        f"{'s' * (len(layers) != 1)} and its head takes {head}. Use a deeper model (mlp, 2nn, cnn) or a smaller head.",
    )
    first = next(at.start for name, at in problem.blocks.items() if name.rpartition(".")[0] == layers[-head])
    return slice(0, first), slice(first, len(problem.start))
