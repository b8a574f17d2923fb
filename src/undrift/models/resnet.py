"""ResNet-18 with GroupNorm."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from undrift.core.params import unknown
from undrift.models.net import Net

STEMS = {"7x7": (7, 2), "3x3": (3, 1)}
"""Kernel and stride of the first convolution."""
INITS = ("torchvision", "torch")


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
    if stem not in STEMS:
        raise ValueError(unknown("stem", stem, STEMS))
    if init not in INITS:
        raise ValueError(unknown("init", init, INITS))
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
