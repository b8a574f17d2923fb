"""FedLab: its StandalonePipeline with FedAvg's serial trainer; the data loaders index whole
batches.
"""

from __future__ import annotations

import logging

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from benchmarks.peers.protocol import Clock, answer
from benchmarks.peers.torch_parts import network, tensors, weights_of
from benchmarks.peers.torchvision_parts import import_torchvision
from benchmarks.peers.workloads import Arrays, Workload

import_torchvision()

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer  # noqa: E402
from fedlab.contrib.algorithm.basic_server import SyncServerHandler  # noqa: E402
from fedlab.contrib.dataset.basic_dataset import FedDataset  # noqa: E402
from fedlab.core.standalone import StandalonePipeline  # noqa: E402


class Federation(FedDataset):
    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.x, self.y = workload.data()

    def get_dataloader(self, id: int, batch_size: int) -> DataLoader:
        dataset = TensorDataset(*tensors(self.x[id], self.y[id]))
        return DataLoader(
            dataset, None, sampler=BatchSampler(RandomSampler(dataset), batch_size, drop_last=False)
        )


class Pipeline(StandalonePipeline):
    """The evaluation after each round is only a tick of the clock."""

    def main(self) -> None:
        self.clock = Clock()
        super().main()

    def evaluate(self) -> None:
        self.clock.tick()


def contender(workload: Workload, rounds: int, cores: int) -> tuple[list[float], Arrays]:
    torch.set_num_threads(cores)
    net = network(workload)
    trainer = SGDSerialClientTrainer(net, workload.clients)
    trainer.setup_dataset(Federation(workload))
    trainer.setup_optim(workload.epochs, workload.batch, workload.lr)
    handler = SyncServerHandler(net, rounds, workload.cohort / workload.clients)
    pipeline = Pipeline(handler, trainer)
    pipeline.main()
    return pipeline.clock.seconds, weights_of(handler.model)


if __name__ == "__main__":
    logging.disable()
    answer(contender, "fedlab", "torch", "numpy")
