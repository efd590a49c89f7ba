"""Ours against pfl-research: FedAvg and FedProx with softmax regression, FedAvg with the CNN, same batches.

pfl is used as its authors do: one process, one model in place, users' data made as they are needed (here an epoch in
our order, which costs one gather), no evaluation, PyTorch's default number of threads or one, whichever is faster.
After each of its rounds ours plays one; the first round of both is a warm-up.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from loops import Loop
from measure import Threads, emit_pair, seconds
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.algorithm.fedprox import FedProx, FedProxParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from work import MU, WORKS, epoch, federation, start

from sartor.run.rounds import Run

CASES = [("softmax", "fedavg", 3.0), ("softmax", "fedprox", None), ("cnn", "fedavg", 1.0)]
TOLERANCE = 1e-4  # both compute in float32


class Trainable(nn.Module):
    """A model with the two methods that pfl asks for."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.model(x)
        return output

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, object]:
        return {}


class Turns(TrainingProcessCallback):
    """Times pfl's rounds; after each of them ours plays one."""

    def __init__(self, ours: Run) -> None:
        self.ours = ours
        self.our_times: list[float] = []
        self.their_times: list[float] = []
        self.clock = time.perf_counter()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.their_times.append(time.perf_counter() - self.clock)
        self.our_times.append(seconds(self.ours.step))
        self.clock = time.perf_counter()
        return False, Metrics()


def play(name: str, method: str, repeats: int) -> tuple[float, float, float]:
    """Seconds of our and of pfl's rounds, and how far apart their numbers are at the end."""
    work, rounds = WORKS[name], repeats + 1
    data = federation(work)
    ours = start(work, method, data)
    held = Loop(work, data, ours.problem.start)
    held.load(held.w)
    trainable = Trainable(held.model)
    turns = Turns(ours)

    def user(i: int) -> PyTorchTensorDataset:
        order = epoch(ours.round, work.clients, work.samples)[i]
        return PyTorchTensorDataset((held.x[i][order], held.y[i][order]), user_id=str(i))

    central = torch.optim.SGD(trainable.parameters(), lr=1.0)  # the mean of the differences is added as it is
    model = PyTorchModel(trainable, torch.optim.SGD, central)
    users = FederatedDataset(user, MinimizeReuseUserSampler(list(range(work.clients))))
    common = {
        "central_num_iterations": rounds,
        "evaluation_frequency": rounds + 1,
        "train_cohort_size": work.clients,
        "val_cohort_size": 0,
    }
    algorithm = FedProx() if method == "fedprox" else FederatedAveraging()
    parameters = FedProxParams(mu=MU, **common) if method == "fedprox" else NNAlgorithmParams(**common)
    training = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=work.lr, local_batch_size=work.batch)
    backend = SimulatedBackend(users, users)
    algorithm.run(parameters, backend, model, training, callbacks=[turns], send_metrics_to_platform=False)
    final = torch.cat([p.detach().reshape(-1) for p in trainable.parameters()])
    far = float((final - ours.server["w"]).abs().max())
    return statistics.median(turns.our_times[1:]), statistics.median(turns.their_times[1:]), far


def compare(name: str, method: str, target: float | None, repeats: int) -> None:
    """One result: the run in which pfl was faster."""
    default, runs = torch.get_num_threads(), {}
    for threads in sorted({1, default}):
        with Threads(threads):
            runs[threads] = play(name, method, repeats)
    best = min(runs, key=lambda k: runs[k][1])
    ours, theirs, far = runs[best]
    note = ", ".join(f"{their / our:.1f}x with {k} thread{'s' * (k > 1)}" for k, (our, their, _) in runs.items())
    emit_pair(
        "pfl-research",
        f"{name} {method}",
        ours,
        theirs,
        target=target,
        difference=far,
        tolerance=TOLERANCE,
        note=note,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="one case, as in 'softmax fedavg'")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    for name, method, target in CASES:
        if given.only in (None, f"{name} {method}"):
            compare(name, method, target, given.repeats)


if __name__ == "__main__":
    main()
