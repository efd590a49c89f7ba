"""One round of a tiny federation, looked at: which vectors a method sends and keeps, and how long they are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch

import sartor as st
from sartor.client_table import Rows
from sartor.run.assemble import prepare
from sartor.run.named_parts import method_from

AGAINST = {"down": "what it was sent", "last": "its own last message", "sum": "nothing: it is a difference already"}
REMEMBERED = {"N": "the number of clients", "products": "the inner products of all pairs of models"}
DERIVED = ("sum",)  # what a server keeps only to be quick


@cache
def played(name: str) -> dict[str, str]:
    """One round of a tiny federation, looked at: which vectors there are, and how long they are."""
    method = method_from(name, {})
    linear = method.models == "one output"
    model = st.models.layers(*{"any": (3, 7, 4), "one layer": (3, 4), "one output": (3, 1)}[method.models])
    draw = np.random.default_rng(0)
    parts = []
    for n in (9, 11):
        x, y = draw.normal(size=(n, 3)), draw.normal(size=n) if linear else draw.integers(0, 4, n)
        parts.append({"train": (x, y)})
    clients = st.Clients.from_parts(parts, None if linear else 4)
    run = prepare(
        method,
        model,
        clients,
        loss="squared" if linear else None,
        execution=st.Execution(engine="serial"),
    ).run
    d = sum(p.numel() for p in model.parameters())
    lengths = {1: "1 number", 28: "the body", 32: "the head", 20: "d_sub numbers", 11: "n numbers"}
    lengths |= {d: "d numbers", d * d: "d² numbers"}
    ids = torch.arange(len(parts))
    server, state = run.method.init(run.problem)
    down = run.method.downlink(server, ids, 0)
    _, up = run.engine.map("train", 0, ids, down)

    def said(tensors: Mapping[str, Any], axis: int) -> str:
        return ", ".join(f"`{k}`: {_long(v.shape[axis:], lengths)}" for k, v in tensors.items()) or "nothing"

    common = {k: v for k, v in server.items() if not isinstance(v, Rows) and k not in (*REMEMBERED, *DERIVED)}
    kept = [said(common, 0)] if common else []
    kept += [f"a `{k}` for every client" for k, v in server.items() if isinstance(v, Rows)]
    kept += [words for k, words in REMEMBERED.items() if k in server]
    against = [f"`{s.name}` against {AGAINST[s.against]}" for s in run.method.sends]
    uncompressed = "nothing: messages go as they are" if up else "nothing is sent"
    return {
        "the server sends each client": said(down, 1),
        "a client sends": said(up, 1),
        "a client keeps": said(state, 0),
        "the server remembers": ", ".join(kept) or "nothing",
        "there is a global model": "yes" if run.method.shared(server) is not None else "no",
        "there are personal models": "yes" if "personal" in run.query_clients("personal") else "no",
        "compressed": ", ".join(against) or uncompressed,
    }


def _long(shape: tuple[int, ...], lengths: Mapping[int, str]) -> str:
    if not shape:
        return "1 number"
    last = lengths.get(shape[-1], f"{shape[-1]} numbers")
    if len(shape) == 2 and shape[0] == shape[1]:
        return "a number for each pair of clients"
    return last if len(shape) == 1 else f"{shape[0]} × {last}"
