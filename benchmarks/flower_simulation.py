"""Ours against Flower's simulation: FedAvg and Ditto, 100 clients, softmax regression, same batches.

Flower runs one Ray actor with one thread on each core. Its clients do the plain loop's steps, so the difference is
what the simulation adds. After every one of its rounds ours plays one; the first round of both is a warm-up. Nothing
leaves this machine: telemetry, update check and Ray's usage report are off, Ray listens on the loopback address.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_HOME": tempfile.mkdtemp(prefix="flower-"),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else Ray exchanges 127.0.0.1 for the network card's address
    "PYTHONPATH": str(Path(__file__).parent),  # so that Ray's actors find these modules
}

import torch
from flower_clients import app as client_app
from flower_clients import loop, record
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from measure import emit_pair, seconds
from work import WORKS, federation, start

METHODS = ("fedavg", "ditto")
TARGET = 20.0
TOLERANCE = 1e-4  # Flower's mean of the models is taken in float32, in the order of arrival


def simulate(method: str, rounds: int) -> tuple[list[float], list[float], float]:
    """Seconds of each of our and Flower's rounds after the first, and how far apart the numbers are at the end."""
    work = WORKS["softmax"]
    ours = start(work, method, federation(work))
    here = loop(method)
    sizes = [p.numel() for p in here.parameters]
    first = [v.view_as(p) for v, p in zip(ours.problem.start.split(sizes), here.parameters, strict=True)]
    our_times: list[float] = []
    their_times: list[float] = []
    far = [float("nan")]
    clock = [0.0]

    def after_round(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        if number:
            their_times.append(time.perf_counter() - clock[0])
            our_times.append(seconds(ours.step))
            theirs = torch.cat([v.reshape(-1) for v in arrays.to_torch_state_dict().values()])
            far[0] = float((theirs - ours.server["w"]).abs().max())
        clock[0] = time.perf_counter()
        return None

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        everyone = work.clients  # a fraction would be of those that have registered by then, which need not be all
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=everyone, min_available_nodes=everyone)
        config = ConfigRecord({"method": method})
        done = strategy.start(grid, record(here, first), rounds, train_config=config, evaluate_fn=after_round)
        if method == "ditto":
            theirs = float(done.train_metrics_clientapp[rounds]["norm of v"])
            norm = float(ours.engine.save()["state/v"].double().norm(dim=1).mean())
            far[0] = max(far[0], abs(norm - theirs))

    run_simulation(
        server,
        client_app,
        work.clients,
        backend_config={
            "init_args": {"include_dashboard": False, "num_cpus": 2, "object_store_memory": 1 << 28},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    return our_times[1:], their_times[1:], far[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=METHODS)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    if given.only is None:  # a process for each, as Ray's actors outlive a simulation
        for method in METHODS:
            subprocess.run([sys.executable, __file__, "--only", method, "--repeats", str(given.repeats)], check=True)
        return
    ours, theirs, far = simulate(given.only, given.repeats + 1)
    emit_pair(
        "Flower's simulation",
        f"softmax {given.only}",
        statistics.median(ours),
        statistics.median(theirs),
        target=TARGET,
        difference=far,
        tolerance=TOLERANCE,
    )


if __name__ == "__main__":
    main()
