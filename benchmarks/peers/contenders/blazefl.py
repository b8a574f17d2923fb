"""BlazeFL: its FedAvg on its thread pool, one thread per core, under a Python without the GIL; the
data loaders index whole batches.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence

import torch
from blazefl.contrib import FedAvgBaseServerHandler, FedAvgThreadPoolClientTrainer
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset

from benchmarks.peers.protocol import answer, timed
from benchmarks.peers.torch_parts import network, tensors, weights_of
from benchmarks.peers.workloads import Arrays, Workload

SEED = 2


class Models:
    """Copies of one network: each client trains its own."""

    def __init__(self, workload: Workload) -> None:
        self.net = network(workload)

    def select_model(self, name: str) -> nn.Module:
        return copy.deepcopy(self.net)


class Federation:
    """All clients' samples, in memory."""

    def __init__(self, workload: Workload) -> None:
        self.full = workload.full
        self.x, self.y = workload.data()

    def get_dataset(self, type_: str, cid: int) -> Dataset:
        return TensorDataset(*tensors(self.x[cid], self.y[cid]))

    def get_dataloader(
        self, type_: str, cid: int, batch_size: int, generator: torch.Generator
    ) -> DataLoader:
        dataset = self.get_dataset(type_, cid)
        batches: Sequence[slice] | BatchSampler = [slice(None)]
        if not self.full:
            order = RandomSampler(dataset, generator=generator)
            batches = BatchSampler(order, batch_size, drop_last=False)
        return DataLoader(dataset, None, sampler=batches, generator=generator)


def contender(workload: Workload, rounds: int, cores: int) -> tuple[list[float], Arrays]:
    torch.set_num_threads(1)
    models, federation = Models(workload), Federation(workload)
    shared = {
        "model_selector": models,
        "model_name": "",
        "dataset": federation,
        "device": "cpu",
        "num_clients": workload.clients,
        "batch_size": workload.batch,
        "seed": SEED,
    }
    server = FedAvgBaseServerHandler(
        global_round=rounds, sample_ratio=workload.cohort / workload.clients, **shared
    )
    trainer = FedAvgThreadPoolClientTrainer(
        epochs=workload.epochs, lr=workload.lr, num_parallels=cores, **shared
    )

    def one(_: int) -> None:
        members = server.sample_clients()
        trainer.local_process(server.downlink_package(), members)
        for upload in trainer.uplink_package():
            server.load(upload)

    seconds = timed(one, rounds)
    if sys._is_gil_enabled():  # a module that is loaded late can turn it on
        raise SystemExit("BlazeFL's threads need a Python without the GIL, and this one has it on")
    return seconds, weights_of(server.model)


if __name__ == "__main__":
    answer(contender, "blazefl", "torch", "numpy")
