"""Networks whose layers are known: nested :class:`Net` and ``nn.Sequential`` alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn

from undrift.models.net import Net


def leaves(net: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers in the order they run, each with the prefix of its parameters' names."""
    inside = _inside(net)
    if not inside:
        yield name, net
    for part, module in inside.items():
        yield from leaves(module, f"{name}{part}.")


def pool_first(net: nn.Module) -> nn.Module:
    """Move ReLU behind max-pooling in ``net``: the same numbers and gradients for less work."""
    inside = {} if hooked(net) else _inside(net)
    for module in inside.values():
        pool_first(module)
    if type(net) is nn.Sequential:
        for k, (one, next) in enumerate(pairwise(inside.values())):
            if type(one) is nn.ReLU and type(next) is nn.MaxPool2d and not next.return_indices:
                net[k], net[k + 1] = next, one
    return net


def channels_last(x: Tensor) -> Tensor:
    """Images with the channels of a pixel side by side, marked so even for a single channel."""
    _, channels, height, width = x.shape
    strides = (height * width * channels, 1, width * channels, channels)
    return x.contiguous(memory_format=torch.channels_last).as_strided(x.shape, strides)


def hooked(net: nn.Module) -> bool:
    """Whether calling it may do more than its layers do."""
    return any(
        m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks
        for m in net.modules()
    )


def _inside(net: nn.Module) -> dict[str, nn.Module]:
    if type(net) is Net:
        trunk = {f"trunk.{k}": block for k, block in enumerate(net.trunk)}
        return {**trunk, "pool": net.pool, "dropout": net.dropout, "head": net.head}
    return dict(net._modules) if type(net) is nn.Sequential else {}
