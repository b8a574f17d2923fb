"""Multi-layer perceptrons; without a hidden layer, logistic regression on the pixels."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from undrift.models.net import Net


def mlp(channels: int, size: int, classes: int, *, hidden: Sequence[int] = (200, 200)) -> Net:
    """Linear layers with ReLU between; on 28x28 images FedDyn's and FedSpeed's 784-200-200-10."""
    widths = [channels * size**2, *hidden]
    layers = [nn.Linear(inner, outer) for inner, outer in pairwise(widths)]
    trunk = [nn.Sequential(nn.Flatten(), layer, nn.ReLU()) for layer in layers]
    return Net(trunk, nn.Flatten(), nn.Linear(widths[-1], classes))
