"""Personal parts by name: any method that shares a global model, some of whose parameters stay at each client.

FedPer is `fedavg --personal head`, FedBN `fedavg --personal norm`, an intercept of each client's own `--personal bias`,
FedSA-LoRA `--personal "*.lora_B"`. methods/parts/own_parts.py has the algorithm, and what the words mean.
"""

from __future__ import annotations

from ..core import Blocks, ClientStack, Method, State
from ..methods.parts.own_parts import OwnParts, matching
from .base import Wrapper


class PersonalParts(OwnParts, Wrapper):
    """`method`, whose clients keep the parameters that `parts` names to themselves: "bias,norm,head,*.lora_B"."""

    def __init__(self, method: Method, parts: str) -> None:
        super().__init__(method)
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PersonalParts) and (self.method, self.parts) == (other.method, other.parts)

    def __hash__(self) -> int:
        return hash((self.method, self.parts))

    @property
    def inner(self) -> Method:
        return self.method

    def own_names(self, blocks: Blocks) -> list[str]:
        return matching(self.parts, blocks)

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return self.method.diagnose(self._inside(state), {"w": self.whole(state, down, local)}, local)
