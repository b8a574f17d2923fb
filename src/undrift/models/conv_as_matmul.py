"""Convolutions as products of matrices, so that the networks of many clients run as one batch of
products.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class Taps(nn.Conv2d):
    """A convolution as shifted copies of its input times its weights; taps that only ever meet
    padding are left out.

    Stacked by ``vmap`` it is one batched product. ``nn.Conv2d`` becomes a grouped convolution
    there, which is slow.
    """

    def forward(self, x: Tensor) -> Tensor:
        rows, i = _shifts(x.shape[2], self, 0)
        cols, j = _shifts(x.shape[3], self, 1)
        padding = self._reversed_padding_repeated_twice
        if len(rows) * len(cols) > 1 and not any(padding):
            # Inductor (torch 2.11, CUDA) copies many slices of a bare input wrongly: half of every
            # block of 1024. Slices of a padded one are right; no tap reads these zeros.
            padding = [0, 1, 0, 1]
        x = nn.functional.pad(x, padding).permute(0, 2, 3, 1)
        copies = torch.stack([x[:, row, col] for row in rows for col in cols], 3)
        weight = self.weight[:, :, i, j].flatten(2).transpose(1, 2).flatten(1)
        out = copies.flatten(3).flatten(0, 2) @ weight.t()
        out = out if self.bias is None else out + self.bias
        return out.unflatten(0, copies.shape[:3]).permute(0, 3, 1, 2)


def _shifts(size: int, layer: nn.Conv2d, axis: int) -> tuple[list[slice], slice]:
    """What each tap of one axis sees of the padded input, and which taps these are."""
    kernel, stride, padding = layer.kernel_size[axis], layer.stride[axis], int(layer.padding[axis])
    reach = stride * ((size + 2 * padding - kernel) // stride) + 1
    live = [
        k
        for k in range(kernel)
        if any(0 <= k + at - padding < size for at in range(0, reach, stride))
    ] or [0]
    taps = range(live[0], live[-1] + 1)
    return [slice(k, k + reach, stride) for k in taps], slice(taps.start, taps.stop)


def with_taps(net: nn.Module) -> nn.Module:
    """A copy of ``net`` whose convolutions are :class:`Taps`, but for grouped, dilated or oddly
    padded ones.
    """
    net = copy.deepcopy(net)
    for layer in net.modules():
        if type(layer) is nn.Conv2d and _plain(layer):
            layer.__class__ = Taps
    return net


def _plain(layer: nn.Conv2d) -> bool:
    numbers = not isinstance(layer.padding, str) and layer.padding_mode == "zeros"
    return numbers and layer.groups == 1 and layer.dilation == (1, 1)
