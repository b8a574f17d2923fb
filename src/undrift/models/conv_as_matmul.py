"""Convolutions as matrix products, so that the networks of many clients run as batched products."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class ConvAsMatmul(nn.Conv2d):
    """A convolution as shifted copies of its input times its weights.

    Kernel positions that only ever meet padding are left out. Stacked by ``vmap`` it is one batched
    product, while ``nn.Conv2d`` becomes a grouped convolution, which is slow.
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
        return torch.unflatten(out, 0, copies.shape[:3]).permute(0, 3, 1, 2)


def _shifts(size: int, layer: nn.Conv2d, axis: int) -> tuple[list[slice], slice]:
    """What the used kernel positions of an axis see of the padded input, and which these are."""
    kernel, stride, padding = layer.kernel_size[axis], layer.stride[axis], int(layer.padding[axis])
    reach = stride * ((size + 2 * padding - kernel) // stride) + 1

    def meets(k: int) -> bool:
        return any(0 <= k + at - padding < size for at in range(0, reach, stride))

    live = [k for k in range(kernel) if meets(k)] or [0]
    used = range(live[0], live[-1] + 1)
    return [slice(k, k + reach, stride) for k in used], slice(used.start, used.stop)


def convolutions_as_products(net: nn.Module) -> nn.Module:
    """A copy of ``net`` with :class:`ConvAsMatmul` for all convolutions it can compute.

    Grouped and dilated ones, and those with unusual padding, stay.
    """
    net = copy.deepcopy(net)
    for layer in net.modules():
        if type(layer) is nn.Conv2d and _plain(layer):
            layer.__class__ = ConvAsMatmul
    return net


def _plain(layer: nn.Conv2d) -> bool:
    numbers = not isinstance(layer.padding, str) and layer.padding_mode == "zeros"
    return numbers and layer.groups == 1 and layer.dilation == (1, 1)
