"""A Flower ClientApp that does FedAvg's and Ditto's client work with the plain loop's steps.

It lies in a module of its own so that Ray's actors import it and load the data once each. As Flower intends, the model
travels as an ArrayRecord, and Ditto's personal model stays in the client's Context.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from loops import LOOPS, Ditto, Loop, Model
from work import WORKS, federation

app = ClientApp()


@lru_cache
def loop(method: str) -> Loop:
    """The loop that does this method's work, with all clients' data."""
    work = WORKS["softmax"]
    return LOOPS[method](work, federation(work), torch.zeros(sum(p.numel() for p in work.build().parameters())))


def record(loop: Loop, values: Model) -> ArrayRecord:
    """A model as Flower sends it."""
    return ArrayRecord(dict(zip(loop.model.state_dict(), values, strict=True)))


@app.train()
def train(message: Message, context: Context) -> Message:
    """One client's round."""
    config = message.content["config"]
    at = loop(str(config["method"]))
    client, at.round = int(context.node_config["partition-id"]), int(config["server-round"]) - 1
    at.w = list(message.content["arrays"].to_torch_state_dict().values())
    metrics: dict[str, int | float] = {"num-examples": len(at.y[client])}
    if isinstance(at, Ditto):
        kept = context.state.get("v")
        at.v[client] = at.w if kept is None else list(kept.to_torch_state_dict().values())
    sent = record(at, at.client(client))
    if isinstance(at, Ditto):
        context.state["v"] = record(at, at.v[client])
        metrics["norm of v"] = float(torch.cat([v.reshape(-1) for v in at.v[client]]).double().norm())
    return Message(content=RecordDict({"arrays": sent, "metrics": MetricRecord(metrics)}), reply_to=message)
