"""Flower: its simulation engine on Ray, a ServerApp with its FedAvg strategy, one worker of one
thread per core.

`run_simulation` is deprecated in favour of the command `flwr run`, which runs the same engine in
another process.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.contenders.flower_client import app
from benchmarks.peers.protocol import Clock, answer
from benchmarks.peers.torch_parts import network, weights_of
from benchmarks.peers.workloads import Arrays, Workload


class Timed(FedAvg):
    """With a clock that ticks at the end of each round."""

    def configure_train(self, server_round: int, *given: object) -> Iterable[Message]:
        if server_round == 1:
            self.clock = Clock()
        return super().configure_train(server_round, *given)

    def aggregate_train(self, *given: object) -> tuple[ArrayRecord | None, MetricRecord | None]:
        merged = super().aggregate_train(*given)
        self.clock.tick()
        return merged


def contender(workload: Workload, rounds: int, cores: int) -> tuple[list[float], Arrays]:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    found: list[tuple[list[float], Arrays]] = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        net = network(workload)
        strategy = Timed(
            fraction_train=workload.cohort / workload.clients,
            fraction_evaluate=0.0,
            min_train_nodes=workload.cohort,
            min_available_nodes=workload.clients,
        )
        config = ConfigRecord({"workload": sys.argv[1]})
        done = strategy.start(
            grid, ArrayRecord(net.state_dict()), num_rounds=rounds, train_config=config
        )
        net.load_state_dict(done.arrays.to_torch_state_dict())
        found.append((strategy.clock.seconds, weights_of(net)))

    resources = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": cores},
    }
    run_simulation(server, app, workload.clients, backend_config=resources)
    return found[0]


if __name__ == "__main__":
    answer(contender, "flwr", "ray", "torch", "numpy")
