"""The networks: perceptrons, plain convolutional networks, and ResNet-18 with GroupNorm."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

from undrift.models.net import Net

STEMS = {"7x7": (7, 2), "3x3": (3, 1)}
"""Kernel and stride of the first convolution."""


def mlp(channels: int, size: int, classes: int, *, hidden: Sequence[int] = (200, 200)) -> Net:
    """Linear layers with ReLU between; on 28x28 images FedDyn's and FedSpeed's 784-200-200-10.

    Without a hidden layer it is logistic regression on the pixels.
    """
    widths = [channels * size**2, *hidden]
    layers = [nn.Linear(inner, outer) for inner, outer in pairwise(widths)]
    trunk = [nn.Sequential(nn.Flatten(), layer, nn.ReLU()) for layer in layers]
    return Net(trunk, nn.Flatten(), nn.Linear(widths[-1], classes))


def cnn_small(
    channels: int, size: int, classes: int, *, widths: Sequence[int] = (8, 16), hidden: int = 32
) -> Net:
    """Small enough for a CPU: 5x5 convolutions, or padded 3x3 ones for the smallest images."""
    kernel, padding = (5, 0) if _side(size, len(widths), 5, 0) > 0 else (3, 1)
    return cnn(
        channels, size, classes, widths=widths, kernel=kernel, padding=padding, hidden=hidden
    )


def cnn(
    channels: int,
    size: int,
    classes: int,
    *,
    kernel: int,
    hidden: int,
    widths: Sequence[int] = (32, 64, 128),
    padding: int = 1,
    dropout: float = 0.0,
) -> Net:
    """Convolutions with ReLU and pooling, then a hidden layer."""
    side = _side(size, len(widths), kernel, padding)
    if side < 1:
        raise ValueError(
            f"{size}x{size} images are too small for {len(widths)} convolutions "
            f"of {kernel}x{kernel}"
        )
    trunk = [
        nn.Sequential(nn.Conv2d(inner, outer, kernel, padding=padding), nn.ReLU(), nn.MaxPool2d(2))
        for inner, outer in pairwise([channels, *widths])
    ]
    trunk.append(nn.Sequential(nn.Flatten(), nn.Linear(widths[-1] * side**2, hidden), nn.ReLU()))
    return Net(trunk, nn.Identity(), nn.Linear(hidden, classes), dropout)


def _side(size: int, layers: int, kernel: int, padding: int) -> int:
    """The side of an image after so many convolutions and poolings; not positive if too small."""
    for _ in range(layers):
        size = (size + 2 * padding - kernel + 1) // 2
    return size


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, inner: int, outer: int, stride: int, groups: int):
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False),
            nn.GroupNorm(groups, outer),
            nn.ReLU(),
            nn.Conv2d(outer, outer, 3, padding=1, bias=False),
            nn.GroupNorm(groups, outer),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inner != outer:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.GroupNorm(groups, outer)
            )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.residual(x) + self.shortcut(x)
        return out.relu()


def resnet18(
    channels: int,
    size: int,
    classes: int,
    *,
    stem: Literal["7x7", "3x3"] = "7x7",
    groups: int = 2,
    init: Literal["torchvision", "torch"] = "torchvision",
) -> Net:
    """FedSpeed's network (stem ``7x7``, torchvision's) or FedACG's (``3x3``).

    FedACG's is for CIFAR: no stride, no max-pooling. ``init``: ``torchvision`` draws convolutions
    from Kaiming's normal over the fan-out; ``torch`` keeps the default of ``nn.Conv2d``, as
    FedACG's code does.
    """
    kernel, stride = STEMS[stem]
    first = nn.Sequential(
        nn.Conv2d(channels, 64, kernel, stride, padding=kernel // 2, bias=False),
        nn.GroupNorm(groups, 64),
        nn.ReLU(),
    )
    if stem == "7x7":
        first.append(nn.MaxPool2d(3, stride=2, padding=1))
    stages = [
        nn.Sequential(BasicBlock(inner, outer, stride, groups), BasicBlock(outer, outer, 1, groups))
        for inner, outer, stride in [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
    ]
    net = Net(
        [first, *stages],
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Linear(512, classes),
    )
    if init == "torchvision":
        for layer in net.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return net
