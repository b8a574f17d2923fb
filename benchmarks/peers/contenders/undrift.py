"""undrift: FedAvg on its engine `simulate`, on Softmax or Neural; threads as the command line
chooses them.
"""

from __future__ import annotations

import undrift  # noqa: F401  # before torch, as on the command line

# isort: split
import numpy as np
import torch

from benchmarks.peers.protocol import answer, timed
from benchmarks.peers.torch_parts import network
from benchmarks.peers.workloads import CLASSES, Arrays, Workload
from undrift.data.images import ImageSet
from undrift.engines import Engine
from undrift.methods import FedAvg
from undrift.models.layout import flatten
from undrift.problems import Neural
from undrift.problems.softmax import Softmax
from undrift.runs.api import prepare
from undrift.runs.prepare import threads


def engine(workload: Workload, dtype: str = "float32") -> Engine:
    x, y = workload.data()
    parts = list(np.arange(y.size).reshape(y.shape))
    samples, labels = (
        torch.from_numpy(x.reshape(-1, *workload.shape)),
        torch.from_numpy(y.reshape(-1)),
    )
    cohort = {"cohort": workload.cohort, "dtype": dtype}
    if workload.convolutions or workload.hidden:
        classes = tuple(map(str, range(CLASSES)))
        data = ImageSet(samples, labels, samples[:1], labels[:1], classes, "synthetic")
        problem = Neural(network(workload), data, parts)
        return prepare(
            FedAvg(lr=workload.lr), problem, epochs=workload.epochs, batch=workload.batch, **cohort
        )
    problem = Softmax(samples, labels, parts, l2=0.0, classes=CLASSES)
    weight, bias = workload.start()
    x0 = np.column_stack([weight, bias]).reshape(-1)
    return prepare(FedAvg(lr=workload.lr), problem, steps=workload.epochs, x0=x0, **cohort)


def weights_of(x: torch.Tensor, workload: Workload) -> Arrays:
    """The server's vector, layer by layer."""
    if workload.convolutions or workload.hidden:
        sizes = flatten(network(workload))[1].sizes
        return [v.numpy().reshape(s) for v, s in zip(x.split(sizes), workload.shapes, strict=True)]
    rows = x.numpy().reshape(CLASSES, -1)
    return [rows[:, :-1], rows[:, -1]]


def contender(workload: Workload, rounds: int, cores: int) -> tuple[list[float], Arrays]:
    federation = engine(workload)
    with threads(federation.problem, None if workload.full else workload.batch, federation.cohort):
        seconds = timed(lambda _: federation.run_round(), rounds)
    return seconds, weights_of(federation.x, workload)


if __name__ == "__main__":
    answer(contender, "undrift", "torch", "numpy")
