"""A server that remembers every client's last message, as in FLAME: those that sit out still count."""

from __future__ import annotations

import torch
from torch import Tensor

from ...aggregators import Aggregator, mean, regram
from ...client_table import Rows
from ...core import Server, State


def remembering(m: int, w: Tensor, aggregate: Aggregator) -> Server:
    """A server that knows every client's last message: u, its sum and, where the aggregate needs them, the losses or
    the inner products."""
    server = {"w": w, "u": Rows(m, w), "sum": m * w.double()}
    server |= {"loss": Rows(m, w.new_full((), -torch.inf))} if aggregate.needs_losses else {}
    return server | ({"products": w.double().square().sum().expand(m, m)} if aggregate.by_products else {})


def mean_of_last(server: Server, ids: Tensor, messages: State, aggregate: Aggregator) -> Server:
    """FLAME's equation (14): w is the aggregate of every client's last u, those that sat out included.

    The mean of a partial cohort's round comes from a running sum in double precision, so that it costs as much as the
    cohort, not the federation; a round in which everyone answers sums anew. Any other aggregate needs all rows, but
    inner products are taken anew only with those that changed. A client that was never heard counts with the first
    model and the least of losses.
    """
    rows, u = server["u"], messages["u"]
    new, m = rows.replaced(ids, u), len(rows)
    if len(ids) < m and aggregate == mean:
        total = server["sum"] + (u - rows[ids]).sum(0).double()
        return {"w": (total / m).to(u.dtype), "u": new, "sum": total}
    last = {"loss": server["loss"].replaced(ids, messages["loss"])} if aggregate.needs_losses else {}
    everyone = u if len(ids) == m else new.whole()
    if aggregate.by_products:
        G = regram(server["products"], everyone, ids)
        w = aggregate.of_products(G, everyone, everyone.new_ones(m))
        return {"w": w, "u": new, "sum": m * w.double(), "products": G}
    losses = messages.get("loss") if len(ids) == m or not last else last["loss"].whole()
    w = aggregate(everyone, everyone.new_ones(m), server["w"], losses)
    return {"w": w, "u": new, "sum": m * w.double()} | last
