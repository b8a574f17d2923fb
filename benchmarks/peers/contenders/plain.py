"""A plain PyTorch loop: per client a copy of the model, nn.Module and torch.optim.SGD; then the
average.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import numpy as np
import torch
from torch import nn

from benchmarks.peers.protocol import answer, timed
from benchmarks.peers.torch_parts import network, shuffles, tensors, train, weights_of
from benchmarks.peers.workloads import Arrays, Workload

Orders = Iterable[np.ndarray]


def play(
    net: nn.Module,
    workload: Workload,
    data: tuple[np.ndarray, np.ndarray],
    cohort: Iterable[tuple[int, Orders]],
) -> None:
    """One round of the clients in ``cohort``, each with the orders in which it goes through its
    samples.
    """
    x, y = data
    trained = []
    for client, orders in cohort:
        local = copy.deepcopy(net)
        train(local, *tensors(x[client], y[client]), workload, orders)
        trained.append(local)
    with torch.no_grad():
        for parameter, *theirs in zip(
            net.parameters(), *(m.parameters() for m in trained), strict=True
        ):
            parameter.copy_(sum(theirs) / len(theirs))


def contender(workload: Workload, rounds: int, cores: int) -> tuple[list[float], Arrays]:
    torch.set_num_threads(cores)
    rng = np.random.default_rng(2)
    data, net = workload.data(), network(workload)

    def one(_: int) -> None:
        members = rng.choice(workload.clients, workload.cohort, replace=False)
        play(net, workload, data, [(client, shuffles(workload, rng)) for client in members])

    return timed(one, rounds), weights_of(net)


if __name__ == "__main__":
    answer(contender, "torch", "numpy")
