"""LoRA adapters by role: a small transformer that has read Shakespeare's other roles is frozen and adapted to 30.

    pip install 'sartor[adapters]'
    python examples/adapters.py            # about five minutes on two cores
    python examples/adapters.py --small    # a minute: fewer roles, rounds and steps

The text is looked for in $SARTOR_DATA. A is frozen (FFA-LoRA): then every adapted weight is linear in what is trained,
and a mean, or ‖θ − w‖², means what the papers say. FedSA-LoRA trains A as well, shares it, and keeps B at each role.
"""

from __future__ import annotations

import argparse
import copy
import time

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

import sartor as st
from sartor.tasks.task import next_token

BATCH = 8


def roles(count: int) -> tuple[st.Clients, st.Clients]:
    """The `count` roles with the most lines, and all others."""
    clients = st.data.load("shakespeare").split("natural", seed=0, minimum=12)
    order = np.argsort(-clients.counts("train"), kind="stable")
    return clients.take(np.sort(order[:count])), clients.take(np.sort(order[count:]))


def pretrained(others: st.Clients, steps: int) -> nn.Module:
    """A transformer that has read the other roles."""
    torch.manual_seed(0)
    model = st.models.build("transformer", tuple(others.x.shape[1:]), others.classes or 0, tokens=True)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rows = np.concatenate([np.r_[others.rows(i, "train")] for i in range(len(others))])
    draw = np.random.default_rng(0)
    for _ in range(steps):
        some = torch.from_numpy(draw.choice(rows, 32))
        optimiser.zero_grad()
        next_token(model(others.x[some]), others.y[some]).mean().backward()
        optimiser.step()
    return model


def adapted(body: nn.Module, train_A: bool) -> nn.Module:
    """The body, frozen, with LoRA in its attention and its small networks."""
    torch.manual_seed(1)
    lora = LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value", "wide", "narrow"])
    model: nn.Module = get_peft_model(copy.deepcopy(body), lora)  # type: ignore[arg-type]
    for name, parameter in model.named_parameters():
        if "lora_A" in name:
            parameter.requires_grad_(train_A)
    return model


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--small", action="store_true")
    small = ask.parse_args().small
    count, steps, rounds, local = (5, 30, 2, 4) if small else (30, 300, 8, 8)
    clients, others = roles(count)
    body = pretrained(others, steps)
    sgd = st.SGD(lr=2.0, batch=BATCH)
    tuned = st.SGD(lr=2.0, batch=BATCH, steps=local)
    methods: dict[str, st.core.Method] = {
        "local": st.LocalOnly(solver=sgd),
        "fedavg": st.FedAvg(solver=sgd),
        "fedavg-ft": st.FedAvg(solver=sgd, finetune=tuned),
        "ditto": st.Ditto(solver=sgd, lam=0.01),
        "flame": st.FLAME(solver=sgd, lam=0.01),
        "pfedme": st.PFedMe(solver=st.SGD(lr=2.0, batch=BATCH, steps=2, reuse=True), lam=0.2, R=local // 2),
        "fedsa-lora": st.FedAvg(solver=sgd),
    }
    found: dict[str, np.ndarray] = {}
    for name, method in methods.items():
        began = time.monotonic()
        share_A = name == "fedsa-lora"
        result = st.fit(
            method,
            adapted(body, train_A=share_A),
            clients,
            rounds,
            local_steps=local,
            personal="*.lora_B" if share_A else None,
            evaluation=st.Evaluation(evaluate_every=rounds, diagnostics=False),
        )
        which = "global" if name == "fedavg" else "personal"
        found[name] = result.perplexity(which)
        sent = result.run.bytes_up / (4 * rounds * len(clients))
        print(
            f"{name:11} {which:8} perplexity {found[name].mean():6.3f}  worst role {found[name].max():6.3f}  "
            f"{result.task.size:6,} trained, {sent:6,.0f} sent per round  {time.monotonic() - began:4.0f} s",
            flush=True,
        )
    best = min(found, key=lambda name: float(found[name].mean()))
    gain = found["local"] - found[best]
    print(f"\nagainst training alone, {best} is better for {int((gain > 0).sum())} of {len(gain)} roles")
    for word, order in (("gain most", np.argsort(-gain)), ("gain least", np.argsort(gain))):
        some = ", ".join(f"{clients.names[i]} {gain[i]:+.2f}" for i in order[:4])
        print(f"{word}: {some}")


if __name__ == "__main__":
    main()
