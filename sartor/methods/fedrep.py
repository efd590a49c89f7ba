"""FedRep (Collins et al., "Exploiting shared representations for personalized federated learning", ICML 2021), Alg. 1.

    min_φ (1/n) Σ_i min_{h_i} f_i(h_i ∘ φ):  a representation φ that all share, a head h_i of each client's own
    client:   h_i = steps on f_i(· ∘ φ^t) from its last h_i, φ^t fixed  (`head_solver`)
              φ_i = steps on f_i(h_i ∘ ·) from φ^t, h_i fixed           (`solver`);   send φ_i
    server:   φ^{t+1} = the mean of the cohort's φ_i

The head is the last `head` layers of the model. As in the paper the two are trained one after the other, where FedPer
trains them together. The personal model is h_i ∘ φ with the latest φ; there is no global model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..aggregators import Aggregator, mean
from ..core import Blocks, ClientStack, Method, State, uncounted
from ..couplings import Free
from ..solvers import SGD, Solver
from .fedavg import FedAvg
from .parts.other_losses import ModelPart
from .parts.own_parts import OwnParts, last_layers
from .parts.split_steps import lasting, two_parts


@dataclass(frozen=True)
class FedRep(OwnParts):
    """A shared representation, a head of each client's own, trained in turn.

    For example:

        >>> deep = st.models.layers(64, 16, 10)
        >>> result = st.fit(st.FedRep(head_solver=st.SGD(epochs=5)), deep, clients, rounds=2)
    """

    head: int = 1
    weighting: str = "uniform"
    solver: Solver = SGD()
    head_solver: Solver | None = None  # none: the same as `solver`
    aggregate: Aggregator = mean

    @property
    def inner(self) -> FedAvg:
        return FedAvg(weighting=self.weighting, solver=self.solver, aggregate=self.aggregate)

    def own_names(self, blocks: Blocks) -> list[str]:
        return last_layers("FedRep", blocks, self.head)

    def unsplit(self) -> str:
        return uncounted(self.solver) or uncounted(self.head_solver or self.solver)

    def split(self, steps: int) -> Method:
        head = self.head_solver or self.solver
        h, b = two_parts("FedRep", head, self.solver, steps)
        return replace(self, head_solver=lasting(head, h), solver=lasting(self.solver, b))

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        new = self.join(state, down, local)
        common, _ = self.places(local.blocks)
        phi = self.solver.minimise(ModelPart(local, self.whole(new, down, local), common), down["w"], Free())
        return new, {"w": phi}

    def join(self, state: State, down: State, local: ClientStack) -> State:
        return {"own part": self.own_part(state, down, local, self.head_solver or self.solver, stream=1)}


ABOUT = {
    "class": "FedRep",
    "order": 160,
    "paper": "Collins et al. 2021",
    "personal": "the latest shared representation under the client's own head",
    "names": {"fedrep": {"line": "shared representation, own head, trained in turn"}},
    "settings": {"head_solver": "the solver of the head; none: the same as `solver`"},
    "cite": ["collins2021fedrep"],
    "local_steps": "head + body = N: in the proportion of their own steps, or halves",
    "cold_start": (
        "the shared representation as it is, under a head of its own, trained alone from the first head (heads "
        "are never sent, so there is none to begin with)"
    ),
    "privacy": {"sends": "the shared layers; its own stay", "server": "yes", "client": "yes"},
}
