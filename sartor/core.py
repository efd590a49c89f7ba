"""The contracts: what a task, a method, an engine and a stack of clients are. No algorithm lives here.

A model is one flat vector `[d]`; a stack of clients is a matrix `[c, d]`, client axis first. Everything that travels or
is remembered is a `State`: named tensors. In a client's state, a downlink and a message the first axis runs over
clients. What FedAvg's server sends to three clients, of a model with 650 parameters:

    >>> import torch
    >>> down = st.FedAvg().downlink({"w": torch.zeros(650)}, ids=torch.tensor([0, 2, 5]), round=1)
    >>> {name: tuple(rows.shape) for name, rows in down.items()}
    {'w': (3, 650)}
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from .errors import need, one_of

State = dict[str, Tensor]
Server = dict[str, Any]  # tensors, and Rows where the server remembers something of every client
Number = float | Tensor  # a setting: one number, or a column [c, 1] with each client's own
Pull = Callable[[Tensor, Number], None]  # a coupling's own step, in place
Back = Callable[[Tensor], Tensor]  # ∂/∂outputs → ∂/∂θ
WHOLE = slice(None)  # all coordinates of a model
Stage = Literal["train", "evaluate", "training", "diagnose", "personal", "states"]  # what clients can be asked to do


class Batch(NamedTuple):
    """One minibatch of each of `a` clients. Short batches are padded; a padded sample has weight 0.

    Four samples of one client and three of another:

        >>> import torch
        >>> from sartor.core import Batch
        >>> weight = torch.tensor([[1 / 4, 1 / 4, 1 / 4, 1 / 4], [1 / 3, 1 / 3, 1 / 3, 0]])
        >>> batch = Batch(clients.x[:8].view(2, 4, 64), clients.y[:8].view(2, 4), weight, key=torch.zeros(2).long())
        >>> batch.weight.sum(1)
        tensor([1., 1.])
    """

    x: Tensor  # [a, b, ...]
    y: Tensor  # [a, b, ...]
    # [a, b], each row sums to 1 (in the mean, where classes have weights): a client's loss is the weighted sum of its
    # samples' losses
    weight: Tensor
    key: Tensor  # [a] int64: what random layers (dropout) draw from; a function of seed, round, client and step


class Blocks(dict[str, slice]):
    """The model's trained parameters by name: their coordinates in θ; and which of them normalisation layers have."""

    norms: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Problem:
    """What a method knows before the first round.

    Of two clients, of which the second has three times as many samples as the first:

        >>> import torch
        >>> from sartor.core import Problem
        >>> problem = Problem(start=torch.zeros(650), share=torch.tensor([0.25, 0.75]), seed=0)
        >>> problem.clients
        2
        >>> server, state = st.Ditto().init(problem)
        >>> list(server), list(state)  # what the server knows, what each client remembers
        (['w'], ['v'])
    """

    start: Tensor  # [d] the common first model
    share: Tensor  # [m] n_i / Σ_j n_j, every client's share of the training samples
    seed: int
    blocks: Blocks = field(default_factory=Blocks)
    loss: str = ""  # the task's loss by name; "custom" for a user's own
    linear: bool = False  # the model is one linear layer with one output: ClientStack.design works
    largest: int = 0  # the most training samples that one client has
    convex: bool = False  # one linear layer under a smooth convex loss: ClientStack.objective has a curvature

    @property
    def clients(self) -> int:
        """m, the number of clients in the federation."""
        return self.share.shape[0]  # len() of a tensor takes ten times as long, and every round asks


@dataclass(frozen=True)
class Neighbours:
    """What a personal model remembers beside θ (kNN-Per): some of the client's own training samples, by what its last
    layer is given for them, and their classes. The nearest ones to a new sample vote on its class."""

    k: int  # how many vote
    share: float | None  # λ, what votes count against the model; none: each client's validation data say
    scale: float  # of squared distances, in numbers that the last layer is given
    capacity: int | None = None  # samples that a client remembers; none: all

    def among(self, samples: np.ndarray) -> Neighbours:
        """The same with as many places as the largest of these clients fills: memories are one tensor."""
        largest = int(samples.max())
        return replace(self, capacity=min(self.capacity or largest, largest))


def weights_of(blocks: Mapping[str, slice], like: Tensor) -> Tensor:
    """[d] as `like`: 1 for weights, 0 for intercepts, which layers call bias."""
    found = torch.ones_like(like)
    for name, block in blocks.items():
        found[block] = float(not name.endswith("bias"))
    return found


class Coupling(Protocol):
    """λ·g(θ, anchor) for a stack of clients.

    One of your own that holds θ near zero, λ/2 ‖θ‖²:

        >>> import torch
        >>> class NearZero:
        ...     def __init__(self, lam):
        ...         self.lam = lam
        ...     def value(self, theta):
        ...         return self.lam / 2 * theta.square().sum(1)
        ...     def add_grad_(self, grad, theta):
        ...         grad[:len(theta)] += self.lam * theta
        ...     def pull_(self, theta, step):
        ...         theta -= step * self.lam * theta
        ...     def normal_terms(self, theta):
        ...         return self.lam * torch.eye(theta.shape[1]), torch.zeros_like(theta)
        >>> theta = torch.tensor([[1.0, 2.0], [0.0, 4.0]])
        >>> NearZero(0.5).value(theta)
        tensor([1.2500, 4.0000])
        >>> NearZero(0.5).pull_(theta, 1.0)
        >>> theta
        tensor([[0.5000, 1.0000],
                [0.0000, 2.0000]])
    """

    def value(self, theta: Tensor) -> Tensor:
        """[c, d] → [c]."""
        ...

    def add_grad_(self, grad: Tensor, theta: Tensor) -> None:
        """grad[:a] += λ ∂g/∂θ for the first a = len(theta) clients."""
        ...

    def pull_(self, theta: Tensor, step: Number) -> None:
        """theta −= step · λ ∂g/∂θ, in place, for the first a = len(theta) clients."""
        ...

    def normal_terms(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """(A, b) with λ ∂g/∂θ = A θ − b, where g is quadratic."""
        ...


class ClientLoss(Protocol):
    """f_i over all training data of each client of a stack, as functions of θ [c, d] that are evaluated many times."""

    penalised: Tensor  # [d] 1 for weights, 0 for intercepts: what a ridge penalty holds small

    def loss(self, theta: Tensor) -> Tensor:
        """[c, d] → [c]."""
        ...

    def grad(self, theta: Tensor, at_work: Tensor | None = None) -> Tensor:
        """[c, d] → [c, d]; `at_work` [c]: of whom it is counted as work, none: of all."""
        ...

    def hessian(self, theta: Tensor, part: slice = WHOLE) -> Tensor:
        """[c, d] → [c, k, k], of the coordinates in `part`; refused where the model is not one linear layer."""
        ...


class Plan(NamedTuple):
    """Plain gradient steps: which batches (as in ClientStack.batches), how often each, and how long a step is.

    What a solver hands to `ClientStack.descend_`: ten steps of length 0.1 on batches of 20.

        >>> from sartor.core import Plan
        >>> plan = Plan(size=20, epochs=1, steps=10, start=0, stream=0, repeats=1, lr=0.1)
        >>> plan.steps * plan.repeats
        10
    """

    size: int
    epochs: int
    steps: int | None
    start: int
    stream: int
    repeats: int
    lr: Number


class ClientStack(Protocol):
    """A stack of c clients as a method sees them in one round: their own training data, behind a few functions.

    Clients are ordered by falling number of samples, so that those still at work are always the first `a` rows.
    A method is given one as `local`. Here are the two largest clients, and three gradient steps of both at once:

        >>> import numpy as np, torch
        >>> from sartor.engines.stack import Stack
        >>> from sartor.tasks.task import ModelTask
        >>> ids = np.argsort(-clients.counts("train"), kind="stable")[:2]
        >>> local = Stack(ModelTask(model), clients, ids, visits=torch.ones(2), round=1, seed=0)
        >>> theta = torch.zeros(2, 650)
        >>> for a, batch in local.batches(20, steps=3):
        ...     theta[:a] -= 0.1 * local.grad(theta[:a], batch)
        >>> bool((local.full_loss(theta) < local.full_loss(torch.zeros(2, 650))).all())
        True
    """

    round: int
    clients: int  # m: all clients of the federation, not only this stack
    ids: np.ndarray  # [c] which clients: what is drawn at random for a client is drawn for its id
    share: Tensor  # [c, 1] n_i / Σ_j n_j
    visits: Tensor  # [c] in how many rounds each client has trained, this one included
    samples: Tensor  # [c] n_i
    kind: str  # the task's loss by name
    blocks: Blocks

    def batches(
        self, size: int, *, epochs: int = 1, steps: int | None = None, start: int = 0, stream: int = 0
    ) -> Iterator[tuple[int, Batch]]:
        """Yield (a, batch of the first a clients): `epochs` passes over each client's own data, or `steps` batches of
        each.

        `start` skips that many batches of the same order; another `stream` is another order.
        """
        ...

    def grad(self, theta: Tensor, batch: Batch) -> Tensor:
        """[a, d] → [a, d], the gradient of each client's mean loss on its batch. The caller may overwrite it."""
        ...

    def clipped_grad(self, theta: Tensor, batch: Batch, clip: float) -> Tensor:
        """[a, d] → [a, d], the sum of the samples' gradients, each times its weight and then at most `clip` long."""
        ...

    def descend_(self, theta: Tensor, plan: Plan, coupling: Coupling) -> None:
        """All steps of the plan, theta −= lr (∇loss + λ ∂g/∂θ), in place; both slopes are at the old theta."""
        ...

    def full_loss(self, theta: Tensor) -> Tensor:
        """[c, d] → [c], f_i: the mean loss over all training data of each client (random layers off)."""
        ...

    def full_grad(self, theta: Tensor) -> Tensor:
        """[c, d] → [c, d], ∇f_i over all training data of each client (random layers off)."""
        ...

    def quadratic(self) -> tuple[Tensor, Tensor]:
        """(A [c, d, d], b [c, d]) with ∇f_i(θ) = A_i θ − b_i, for tasks that are quadratic; refuses others."""
        ...

    def objective(self) -> ClientLoss:
        """f_i, to be minimised to the end: in double precision and with its curvature for one linear layer."""
        ...

    def validation(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """[c, d] → ([c] validation samples of each client, [c] mean loss on them; NaN where there are none)."""
        ...

    def class_shares(self) -> Tensor:
        """[c, k] the share of each class among each client's training samples; refused where targets are no classes."""
        ...

    def take(self, places: Tensor) -> ClientStack:
        """The stack of the clients at these places, in rising order; one that comes again has the same batches."""
        ...

    def counting(self, rows: Tensor) -> ClientStack:
        """The same stack; of what is computed there only the gradients of these rows ([c] bool) are counted as work."""
        ...

    def vjp(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Back]:
        """The outputs [a, b, k] of each client's model for its batch, and the function that makes of a slope [a, b, k]
        the gradient [a, d] of Σ slope · outputs(θ): a loss of the outputs by the chain rule.
        """
        ...

    def design(self) -> tuple[Tensor, Tensor, Tensor]:
        """(X [c, n, d], y [c, n], there [c, n] bool) with outputs Xθ, for linear tasks (Problem.linear); all training
        samples, in an order that never changes, padded where `there` is False.
        """
        ...

    def order(self, epochs: int = 1, stream: int = 0) -> Iterator[tuple[int, Tensor]]:
        """Yield (a, places [a] in `design`): `epochs` passes over each client's samples, one at a time, in random
        order.
        """
        ...


@dataclass(frozen=True)
class Dense:
    """A fully connected model: linear layers with ReLU between them, under a loss by name.

    For example:

        >>> from sartor.tasks.task import ModelTask
        >>> dense = ModelTask(st.models.layers(64, 32, 10)).dense
        >>> dense.sizes, dense.biases, dense.linear
        ((64, 32, 10), (True, True), False)
    """

    biases: tuple[bool, ...]  # whether each layer has one
    sizes: tuple[int, ...]  # inputs, hidden units, outputs
    loss: str

    @property
    def outputs(self) -> int:
        """Of the last layer."""
        return self.sizes[-1]

    @property
    def linear(self) -> bool:
        """One layer with one output."""
        return len(self.biases) == self.outputs == 1


class Task(Protocol):
    """A model and a loss as functions of flat vectors, for a stack of a clients; tasks.ModelTask is one.

    Two clients with the same first model, and four samples of each:

        >>> import torch
        >>> from sartor.core import Batch
        >>> from sartor.tasks.task import ModelTask
        >>> task = ModelTask(model)
        >>> theta = task.init(seed=0).expand(2, -1)
        >>> x, y = clients.x[:8].view(2, 4, 64), clients.y[:8].view(2, 4)
        >>> batch = Batch(x, y, torch.full((2, 4), 1 / 4), key=torch.zeros(2).long())
        >>> task.loss(theta, batch).shape, task.grad(theta, batch).shape, task.predict(theta, x).shape
        (torch.Size([2]), torch.Size([2, 650]), torch.Size([2, 4, 10]))
    """

    size: int  # d
    random: bool  # draws from Batch.key
    has_statistics: bool  # needs `statistics` of a client's own data to predict (batch normalisation)
    kind: str  # the loss by name
    metric: Callable[[Tensor, Tensor], Tensor] | None  # a user's own, in place of accuracy or R²
    named_metric: str | None  # one of judge/prediction_metrics.py in their place
    class_weights: Tensor | None  # [k] what a sample of each class counts in training; none: all alike
    neighbours: Neighbours | None  # personal models remember samples; none: they do not
    blocks: Blocks

    @property
    def dense(self) -> Dense | None:
        """Its layers, where it is a plain fully connected model."""
        ...

    def init(self, seed: int | None) -> Tensor:
        """The first model [d], drawn from `seed`; None: as the user gave it."""
        ...

    def loss(self, theta: Tensor, batch: Batch, train: bool = True) -> Tensor:
        """[a, d] → [a], the weighted loss of the batch."""
        ...

    def grad(self, theta: Tensor, batch: Batch, train: bool = True) -> Tensor:
        """[a, d] → [a, d], the gradient of `loss`."""
        ...

    def descend_(self, theta: Tensor, batch: Batch, lr: float, pull: Pull) -> None:
        """theta −= lr ∇loss(theta), in place, together with `pull(theta, lr)`; both slopes are at the old theta."""
        ...

    def quadratic(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(A [a, d, d], b [a, d]) with gradient Aθ − b; refused by tasks that are not quadratic."""
        ...

    def vjp(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Back]:
        """As ClientStack.vjp, as in training."""
        ...

    def design(self, x: Tensor) -> Tensor:
        """[a, b, ...] → X [a, b, d] with outputs Xθ; refused by tasks that are not linear."""
        ...

    def statistics(self, theta: Tensor, batch: Batch) -> State:
        """What must be known of a client's own data before its model can predict; empty for most models."""
        ...

    def predict(self, theta: Tensor, x: Tensor, statistics: State | None = None) -> Tensor:
        """[a, d], [a, b, ...] → outputs [a, b, k]."""
        ...

    def features(self, theta: Tensor, x: Tensor, statistics: State | None = None) -> Tensor:
        """[a, d], [a, b, ...] → [a, b, p], what the last layer is given; only where models remember samples."""
        ...

    def remembered(self, features: Tensor, labels: Tensor, share: Tensor) -> State:
        """Samples [a, n, p] with classes [a, n] (−1: none is there) and λ [a] as `statistics` for `predict`."""
        ...

    def errors(self, output: Tensor, y: Tensor) -> Tensor:
        """The loss of every sample, [a, b]."""
        ...

    def correct(self, output: Tensor, y: Tensor) -> Tensor:
        """1 where a predicted class is right, else 0, [a, b]; or what the user's own metric says."""
        ...


class Sent(NamedTuple):
    """A vector in a message by name: which downlink has its size, and what it may be compressed against.

    "down": that downlink, as the message is it, trained on. "last": the client's own last message (the first: that
    downlink), as the message does not settle at what was received. "sum": nothing, as it is a difference already.

        >>> from sartor.core import Sent
        >>> st.FedAvg().sends == (Sent("w", down="w", against="down"),)
        True
        >>> [sent.name for sent in st.SCAFFOLD().sends]
        ['w', 'c']
    """

    name: str
    down: str = "w"
    against: str = "down"


class Aggregator(ABC):
    """Many messages become one: a frozen dataclass of settings that is called like a function.

    It is a field of the methods that take a mean, and no neutral one: docs/aggregators.md says per method what it does
    to clean data. One of your own, the middle between the smallest and the largest number of each coordinate:

        >>> from dataclasses import dataclass
        >>> from sartor.core import Aggregator
        >>> @dataclass(frozen=True)
        ... class Middle(Aggregator):
        ...     def __call__(self, messages, weights, reference=None, losses=None):
        ...         return (messages.amin(0) + messages.amax(0)) / 2
        >>> result = st.fit(st.FedAvg(aggregate=Middle()), model, clients, rounds=2)
    """

    paper: ClassVar[str] = "-"
    needs_losses: ClassVar[bool] = False  # of the received model at each client; see wrappers/losses.py
    by_products: ClassVar[bool] = False  # sees messages only through their inner products: has `of_products`

    @abstractmethod
    def __call__(
        self, messages: Tensor, weights: Tensor, reference: Tensor | None = None, losses: Tensor | None = None
    ) -> Tensor:
        """[n, k], weights [n] → [k].

        `reference` [k] is the point from which messages are updates: the server's value before (none: zero). `losses`
        [n] are those of `needs_losses`. The order of the messages does not matter; all of them are finite.
        """

    def of_products(self, G: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        """As the call, from inner products [n, n] about any origin that a server has kept up to date (`regram`)."""
        raise NotImplementedError(f"{type(self).__name__} needs the messages themselves")

    def check(self, n: int) -> None:
        """Refuse n messages a round where the rule has no meaning for so many; `n` is 1 or more.

        A round may still bring fewer, as clients fail: then the rule takes the largest setting that fits.
        """
        return


class Method(ABC):
    """A federated method: a frozen dataclass of settings with a few pure functions. It owns no loop, data or random
    state. What a paper writes is `init`, `downlink`, `client`, `server`, `shared` and `personal`; the rest is optional.

    `train_all` says that every client trains in every round although only the cohort's messages are used (pFedMe,
    Lp-Proj); `keeps_last` that the server aggregates every client's last message, not only the cohort's (FLAME). In a
    message, tensors [c, k] are what the method sends and attacks change; numbers [c] are reported beside it.

    One of your own: every client keeps its own model, and begins each round between it and the mean of all.

        >>> from dataclasses import dataclass
        >>> from sartor.aggregators import Aggregator, mean
        >>> from sartor.core import Method
        >>> from sartor.couplings import Free
        >>> @dataclass(frozen=True)
        ... class Halfway(Method):
        ...     solver: st.SGD = st.SGD()
        ...     aggregate: Aggregator = mean
        ...     def init(self, problem):
        ...         return {"w": problem.start}, {"theta": problem.start}
        ...     def client(self, state, down, local):
        ...         theta = self.solver.minimise(local, (state["theta"] + down["w"]) / 2, Free())
        ...         return {"theta": theta}, {"w": theta}
        ...     def personal(self, state, down, local):
        ...         return state["theta"]
        >>> result = st.fit(Halfway(), model, clients, rounds=2)
        >>> mine, everybody = result.personal(0), result.shared()
    """

    train_all: bool = False
    models: ClassVar[str] = "any"  # which models it is for: any, "one layer", or "one output" of one layer
    uncompressed: ClassVar[str] = ""  # why its messages cannot be compressed; empty: they can
    unsummed: ClassVar[str] = ""  # why the mean of all messages is not enough for its server; empty: it is
    keeps_last: ClassVar[bool] = False
    sends: tuple[Sent, ...] = (Sent("w"),)  # the vectors in its messages
    weighting: str = "uniform"  # clients count alike, or by "size": their number of samples
    aggregate: Aggregator | None = None  # what turns the messages into one; none: the server takes no mean
    hostile: frozenset[int] = frozenset()  # clients that attack, in a simulation: NaN at them stops nobody
    # Numbers that runs of a stack may differ in (engines/joint.py): to `client` and `personal` they are a number, or a
    # column [c, 1]; the server has its own run's. Solvers have such a list, too.
    columns: ClassVar[tuple[str, ...]] = ("lam",)

    def __post_init__(self) -> None:
        one_of(type(self).__name__, "weighting", self.weighting, ["uniform", "size"])

    # --- the algorithm ------------------------------------------------------------------------------------------------

    def init(self, problem: Problem) -> tuple[Server, State]:
        """The server's state, and the state of one client that has not yet taken part (no client axis); where a method
        does not say otherwise, the server has the first model w and clients remember nothing."""
        return {"w": problem.start}, {}

    def downlink(self, server: Server, ids: Tensor, round: int) -> State:
        """What the server sends to the clients `ids`: tensors [c, ...] (`expand` one that is common to all)."""
        return {"w": server["w"].expand(len(ids), -1)}

    @abstractmethod
    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        """One round at c clients: their new states and their messages."""

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        """The server's next state from the messages of the clients `ids` that answered and their weights [n]; where a
        method does not say otherwise, w is their mean."""
        return server | {"w": self.average(server, messages, weights)}

    def shared(self, server: Server) -> Tensor | None:
        """The global model [d]; None where a method has none."""
        w: Tensor = server["w"]
        return w

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor | None:
        """Each client's own model [c, d]; None where a method has none."""
        return None

    @property
    def neighbours(self) -> Neighbours | None:
        """Which training samples personal models remember beside θ; none: they are θ alone."""
        return None

    # --- the mean -----------------------------------------------------------------------------------------------------

    def average(self, server: Server, messages: State, weights: Tensor) -> Tensor:
        """[k] the messages' "w" as one by `aggregate`, seen as updates of the server's."""
        need(self.aggregate is not None, f"{self.name} has no `aggregate`, so it must say what its server does.")
        assert self.aggregate is not None
        return self.aggregate(messages["w"], weights, server["w"], messages.get("loss"))

    def client_weights(self, share: Tensor) -> Tensor:
        """[n] what clients count, from their shares of all samples."""
        return share if self.weighting == "size" else torch.ones_like(share)

    def averaging(self) -> Method | None:
        """The method whose server takes the mean, by its `aggregate`: this one, one inside of it, or none."""
        return None if self.aggregate is None else self

    def with_lam(self, lam: Any) -> Method:
        """The same with another λ: a number, or [c, 1] where each client has its own."""
        made = copy.copy(self)
        object.__setattr__(made, "lam", lam)
        return made

    # --- how much a client computes in a round ------------------------------------------------------------------------

    lengths: ClassVar[tuple[str, ...]] = ()  # its own fields, beside its solvers', that say how much that is

    def spending(self, steps: int) -> Method:
        """The same method, whose client evaluates exactly so many minibatch gradients in a round; for a model that is
        made when it is asked for, as many again. Too few are refused with the least."""
        why = self.unsplit()
        need(not why, f"{self.name} cannot take a given number of local steps: {why}. Leave local_steps out.")
        need(steps >= 1, f"{self.name} needs local_steps >= 1; got {steps}.")
        return self.split(steps)

    def split(self, steps: int) -> Method:
        """So many gradients split among its loops, in the proportions that they have; splitting again changes nothing.
        Where a method does not say otherwise, all are its solver's."""
        solvers: dict[str, Any] = {k: getattr(self, k, None) for k in ("solver", "finetune")}
        spent = {k: s.lasting(steps) for k, s in solvers.items() if hasattr(s, "lasting")}
        return replace(self, **spent)  # type: ignore[type-var]

    def unsplit(self) -> str:
        """Why the number of its gradients cannot be chosen; empty: it can."""
        return uncounted(getattr(self, "solver", None))

    # --- joining, when training is over: a state, then some visits of `welcome` and `join`, then `personal` -----------

    def fresh(self, problem: Problem, server: Server) -> State:
        """The state of one client that joins now (no client axis): as at the start, with the global model in place of
        the first one."""
        shared = self.shared(server)
        return self.init(problem if shared is None else replace(problem, start=shared))[1]

    def welcome(self, server: Server, state: State, local: ClientStack) -> State:
        """What the server sends to c clients that join now, of which it knows nothing but what they tell: `state`."""
        return self.downlink(server, torch.zeros(len(local.ids), dtype=torch.int64), local.round)

    def join(self, state: State, down: State, local: ClientStack) -> State:
        """One visit of c clients that join now: what they remember of it. They change nothing at the server."""
        return self.client(state, down, local)[0]

    # --- explaining ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What messages call it; of a wrapped method what is inside."""
        return type(self).__name__

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        """Numbers [c] that say how far each client is from where it should be; the loop reports mean and maximum."""
        return {}

    def warnings(self, server: Server, round: int, facts: Mapping[str, float]) -> list[str]:
        """What is going wrong, in plain words with the reason; `facts` holds the mean and maximum of `diagnose`'s."""
        return []

    def collaboration(self, server: Server) -> Tensor | None:
        """ξ [m, m]: how much of client j's model client i is sent; None where a method mixes all alike."""
        return None

    def exposes(self) -> str:
        """What of a client's data leaves it besides one vector [k], in words; empty: nothing. Clipping and noise do not
        cover it, so such a method cannot be made private."""
        return ""


def uncounted(solver: object) -> str:
    """Why a solver's gradients are not a number that can be chosen; empty: they are."""
    if hasattr(solver, "lasting"):
        return ""
    return (
        "it has no solver" if solver is None else f"the {type(solver).__name__.lower()} solver has no number of steps"
    )


class Engine(Protocol):
    """Where clients live. Owns their data and states, and has one verb.

    One round of two clients, as the loop plays it:

        >>> import torch
        >>> from sartor.engines import LocalEngine
        >>> from sartor.engines.local import problem_of
        >>> from sartor.tasks.task import ModelTask
        >>> method, task, ids = st.FedAvg(), ModelTask(model), torch.tensor([0, 3])
        >>> server, state = method.init(problem_of(task, clients, seed=0))
        >>> engine = LocalEngine(method, task, clients, state, seed=0)
        >>> answered, messages = engine.map("train", 1, ids, method.downlink(server, ids, 1))
        >>> answered.tolist(), messages["w"].shape
        ([0, 3], torch.Size([2, 650]))
    """

    clients: int

    @property
    def steps(self) -> int:
        """How many minibatch gradients all clients have evaluated in training, since this engine was made."""
        ...

    def map(
        self, stage: Stage, round: int, ids: Tensor, down: State, shared: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Run a stage at the clients `ids`: train, score the personal models and the global one (`shared` [n, d], a row
        for each client), say how far they are, give their personal models, or their states (of engines elsewhere).

        Returns the ids that answered and their messages, one row each, to be used before the next call. Only "train"
        changes a client's state.
        """
        ...

    def save(self) -> State:
        """All client states, to be stored in a checkpoint at once: they may be views of what the next round changes."""
        ...

    def restore(self, states: State) -> None:
        """Take back what `save` gave."""
        ...

    def settle(self) -> None:
        """A checkpoint holds all that `save` gave: states kept on disk may be written there now."""
        ...
