"""pfl: its FederatedAveraging on SimulatedBackend; on two cores two processes of one thread under
torchrun.
"""

from __future__ import annotations

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.peers.protocol import Clock, answer
from benchmarks.peers.torch_parts import network, tensors, weights_of
from benchmarks.peers.workloads import Arrays, Workload


class Net(nn.Module):
    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.net = network(workload)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(self.net(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        """Asked for in the first round only."""
        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


class Ticks(TrainingProcessCallback):
    def __init__(self) -> None:
        self.clock = Clock()

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.clock.start()
        return Metrics()

    def after_central_iteration(self, *given: object, **named: object) -> tuple[bool, Metrics]:
        self.clock.tick()
        return False, Metrics()


def contender(workload: Workload, rounds: int, cores: int) -> tuple[list[float], Arrays]:
    torch.set_num_threads(1)
    np.random.seed(2)
    x, y = workload.data()

    def dataset(user: int) -> Dataset:
        order = slice(None) if workload.full else torch.randperm(workload.samples)
        samples, labels = tensors(x[user], y[user])
        return Dataset((samples[order], labels[order]), user_id=user)

    federation = FederatedDataset(
        dataset, get_user_sampler("minimize_reuse", list(range(workload.clients)))
    )
    net = Net(workload)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    ticks = Ticks()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds,
            train_cohort_size=workload.cohort,
            val_cohort_size=None,
        ),
        SimulatedBackend(federation, None),
        model,
        NNTrainHyperParams(
            local_num_epochs=workload.epochs,
            local_learning_rate=workload.lr,
            local_batch_size=workload.batch,
        ),
        callbacks=[ticks],
        send_metrics_to_platform=False,
    )
    return ticks.clock.seconds, weights_of(net)


if __name__ == "__main__":
    answer(contender, "pfl", "torch", "numpy")
