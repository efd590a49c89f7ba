"""Deep gradient compression (Lin, Han, Mao, Wang, Dally, ICLR 2018), Algorithm 4.

    g clipped to length `clip`                                                   local gradient clipping
    u = m u + g;   v = v + u                                                     momentum correction
    send v ⊙ M with M the largest coordinates of v
    v = v ⊙ ¬M;   u = u ⊙ ¬M                                                    momentum factor masking
    density in round t <= T of the warm-up: k^{(t+1)/(T+1)}, then k              25%, 6.3%, 1.6%, 0.4%, 0.1%

g is the client's update (message − downlink). The paper clips at N^{−1/2} of the global threshold; `clip` is that
length itself. It finds the largest coordinates from a sample, here they are exact. Momentum factor masking sets u to 0
wherever v was sent, so with k = 1 nothing of the momentum is left: with `masking=False` k = 1 is momentum SGD. What is
sent adds up to 1/(1 − m) times what was given, so DGC is for updates of a model only, not for messages that are a point
(FLAME's u).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..core import State
from ..errors import need, positive
from .base import Code, Compressor, Draws, check_k, count
from .top_k import largest, sparse_length


@dataclass(frozen=True)
class DGC(Compressor):
    """The largest coordinates of updates with momentum, after a warm-up in which more are sent.

    For example:

        >>> less = st.Traffic(compress=st.compressors.DGC(k=0.05, warmup=1))
        >>> result = st.fit(st.FedAvg(), model, clients, rounds=2, traffic=less)
        >>> result.summary["bytes_up"] < 2 * 6 * 4 * 650  # 650 numbers of 4 bytes from 6 clients in 2 rounds
        True
    """

    k: float = 0.001  # the share of coordinates that is sent after the warm-up
    momentum: float = 0.9
    warmup: int = 4  # rounds
    clip: float | None = None  # the longest that an update may be; none: any length
    masking: bool = True
    paper: ClassVar[str] = "Lin et al. 2018"
    only_updates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_k("dgc", self.k)
        need(0 <= self.momentum < 1, f"dgc needs momentum in [0, 1); got {self.momentum}.")
        need(self.warmup >= 0, f"dgc needs warmup >= 0 rounds; got {self.warmup}.")
        if self.clip is not None:
            positive("dgc", clip=self.clip)

    def sent(self, size: int, round: int) -> int:
        """How many coordinates are sent in this round."""
        n = count(self.k, size)
        return n if round >= self.warmup else count((n / size) ** ((round + 1) / (self.warmup + 1)), size)

    def memory(self, like: Tensor) -> State:
        return {"u": like, "v": like}

    def encode(self, x: Tensor, memory: State, draws: Draws) -> tuple[Code, State]:
        g = x if self.clip is None else x * (self.clip / x.norm(dim=1, keepdim=True).clamp(min=self.clip))
        u = self.momentum * memory["u"] + g
        v = memory["v"] + u
        code = largest(v, self.sent(x.shape[1], draws.round))
        v = v.scatter(1, code.at, 0.0)
        return code, {"u": u.scatter(1, code.at, 0.0) if self.masking else u, "v": v}

    def most(self, size: int, element: int, round: int) -> int:
        return sparse_length(self.sent(size, round), size, element)
