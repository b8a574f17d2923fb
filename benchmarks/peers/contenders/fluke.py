"""fluke: its FedAVG with its FastDataLoader; clients forget model and optimizer after a round,
messages in memory.
"""

from __future__ import annotations

import warnings

import torch

from benchmarks.peers.protocol import Clock, answer
from benchmarks.peers.torch_parts import network, tensors, weights_of
from benchmarks.peers.torchvision_parts import import_torchvision
from benchmarks.peers.workloads import CLASSES, Arrays, Workload

import_torchvision()

from fluke import DDict, FlukeENV  # noqa: E402
from fluke.algorithms.fedavg import FedAVG  # noqa: E402
from fluke.client import Client  # noqa: E402
from fluke.config import OptimizerConfigurator  # noqa: E402
from fluke.data import FastDataLoader  # noqa: E402
from fluke.server import Server  # noqa: E402
from fluke.utils import FederationObserver  # noqa: E402


class Ticks(FederationObserver):
    def __init__(self) -> None:
        self.clock = Clock()

    def end_round(self, round: int) -> None:
        self.clock.tick()


def contender(workload: Workload, rounds: int, cores: int) -> tuple[list[float], Arrays]:
    torch.set_num_threads(cores)
    FlukeENV().set_seed(2)
    FlukeENV().set_inmemory(True)
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    x, y = workload.data()
    optimizer = OptimizerConfigurator(
        DDict(name="SGD", lr=workload.lr), DDict(name="StepLR", step_size=1, gamma=1.0)
    )

    def client(k: int) -> Client:
        held = FastDataLoader(
            *tensors(x[k], y[k]),
            num_labels=CLASSES,
            batch_size=workload.batch,
            shuffle=not workload.full,
        )
        return Client(
            k,
            held,
            None,
            optimizer,
            torch.nn.CrossEntropyLoss(),
            workload.epochs,
            persistency=False,
        )

    clients = [client(k) for k in range(workload.clients)]
    server = Server(network(workload), None, clients)
    algorithm = FedAVG(workload.clients, None, {}, clients, server)
    ticks = Ticks()
    algorithm.set_callbacks([ticks])
    ticks.clock.start()
    algorithm.run(rounds, workload.cohort / workload.clients)
    return ticks.clock.seconds, weights_of(server.model)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    answer(contender, "fluke-fl", "torch", "numpy")
