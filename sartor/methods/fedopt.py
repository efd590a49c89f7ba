"""Server optimisers: FedAdam, FedYogi, FedAdagrad (Reddi et al., "Adaptive federated optimization", ICLR 2021, Alg. 2)
and FedAvgM (Hsu et al., "Measuring the effects of non-identical data distribution", 2019).

    client:   as FedAvg;   the server takes its mean for a step:   Δ = Σ_k (n_k / Σ n) w_k − w
    FedAvgM      m = β₁ m + Δ                 w = w + η m
    others       m = β₁ m + (1 − β₁) Δ        w = w + η m / (√v + τ)
      adagrad    v = v + Δ²
      adam       v = β₂ v + (1 − β₂) Δ²
      yogi       v = v − (1 − β₂) Δ² sign(v − Δ²)

v begins at τ². Δ is taken by `aggregate`, so every robust rule can stand in for the mean. FedAvgM with β₁ = 0 and η = 1
is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Problem, Server, State
from ..errors import need, one_of, positive
from .fedavg import FedAvg


@dataclass(frozen=True)
class FedOpt(FedAvg):
    """FedAvg whose server takes the clients' mean as the gradient of an optimiser of its own.

    For example:

        >>> result = st.fit(st.FedOpt(rule="yogi", server_lr=0.1), model, clients, rounds=2)
    """

    rule: str = "adam"
    server_lr: float = 0.03
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("FedOpt", "rule", self.rule, ["adam", "yogi", "adagrad", "momentum"])
        positive("FedOpt", server_lr=self.server_lr, tau=self.tau)
        for name in ("beta1", "beta2"):
            need(0 <= getattr(self, name) < 1, f"FedOpt needs {name} in [0, 1); got {getattr(self, name)}.")

    def init(self, problem: Problem) -> tuple[Server, State]:
        w = problem.start
        return {"w": w, "m": torch.zeros_like(w), "v": torch.full_like(w, self.tau**2)}, {}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        w, m, v = server["w"], server["m"], server["v"]
        delta = self.average(server, messages, weights) - w
        if self.rule == "momentum":
            m = self.beta1 * m + delta
            return {"w": w + self.server_lr * m, "m": m, "v": v}
        m, square = torch.lerp(delta, m, self.beta1), delta**2
        if self.rule == "adagrad":
            v = v + square
        elif self.rule == "adam":
            v = torch.lerp(square, v, self.beta2)
        else:
            v = v - (1 - self.beta2) * square * torch.sign(v - square)
        return {"w": w + self.server_lr * m / (v.sqrt() + self.tau), "m": m, "v": v}


ABOUT = {
    "class": "FedOpt",
    "title": "FedAdam, FedYogi, FedAdagrad, FedAvgM",
    "order": 75,
    "paper": "Reddi et al. 2021",
    "personal": "the latest w, fine-tuned by `finetune` when it is asked for",
    "names": {
        "fedadam": {"line": "FedAvg whose server steps by Adam"},
        "fedyogi": {"line": "FedAvg whose server steps by Yogi", "preset": {"rule": "yogi"}},
        "fedadagrad": {
            "line": "FedAvg whose server steps by Adagrad",
            "preset": {"rule": "adagrad", "server_lr": 0.1, "beta1": 0.0},
        },
        "fedavgm": {
            "line": "FedAvg whose server has momentum",
            "preset": {"rule": "momentum", "server_lr": 0.5, "beta1": 0.5},
            "paper": "Hsu et al. 2019",
            "cite": ["hsu2019fedavgm"],
        },
    },
    "settings": {
        "mu": "μ, a proximal term at clients as FedProx has it; 0: none",
        "finetune": "the solver that makes personal models out of the global one; none: there are no personal models",
        "rule": "the server's optimiser: `adam`, `yogi`, `adagrad` or `momentum`",
        "server_lr": "η, the server's step size",
        "beta1": "β₁, how much of its last step the server keeps",
        "beta2": "β₂, how long Adam and Yogi remember squares",
        "tau": "τ, how adaptive it is: coordinates that move less than this are not magnified",
    },
    "tune": {"server_lr": "log(0.001, 1)"},
    "cite": ["reddi2021fedopt"],
    "cold_start": "the global model",
    "privacy": {"sends": "its model", "server": "yes", "client": "yes"},
}
