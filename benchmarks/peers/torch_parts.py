"""What the contenders in PyTorch share: the network, and plain local training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.peers.workloads import CLASSES, KERNEL, PADDING, Arrays, Workload


def network(workload: Workload) -> nn.Sequential:
    """With the weights of the start."""
    layers: list[nn.Module] = []
    for inner, outer in pairwise([workload.shape[0], *workload.convolutions]):
        layers += [nn.Conv2d(inner, outer, KERNEL, padding=PADDING), nn.ReLU(), nn.MaxPool2d(2)]
    layers.append(nn.Flatten())
    first = workload.shapes[2 * len(workload.convolutions)][1]
    for inner, outer in pairwise([first, *workload.hidden]):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    layers.append(nn.Linear(workload.hidden[-1] if workload.hidden else first, CLASSES))
    net = nn.Sequential(*layers)
    load(net, workload.start())
    return net


@torch.no_grad()
def load(net: nn.Module, weights: Arrays) -> None:
    for parameter, values in zip(net.parameters(), weights, strict=True):
        parameter.copy_(torch.from_numpy(values))


def weights_of(net: nn.Module) -> Arrays:
    return [parameter.detach().numpy().copy() for parameter in net.parameters()]


def tensors(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
    """A client's samples as the network takes them."""
    images = torch.from_numpy(x)
    return images.float().div_(255) if images.dtype == torch.uint8 else images, torch.from_numpy(y)


def shuffles(workload: Workload, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """A new order of a client's samples for each epoch."""
    return (rng.permutation(workload.samples) for _ in range(workload.epochs))


def train(
    net: nn.Module, x: Tensor, y: Tensor, workload: Workload, orders: Iterable[np.ndarray]
) -> None:
    """Plain mini-batch SGD, one epoch for each order; whole batches are indexed, which no
    DataLoader is faster than.
    """
    optimizer = torch.optim.SGD(net.parameters(), lr=workload.lr)
    for order in orders:
        batches = [slice(None)] if workload.full else torch.from_numpy(order).split(workload.batch)
        for batch in batches:
            optimizer.zero_grad()
            cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
