"""Convolutions as matrix products, so that the networks of many clients run as batched products."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from undrift.models.layers import leaves

ALIGNED = 8
"""Numbers in bf16 of the widest loads."""


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
        # The copies are made in the precision of the product.
        x = nn.functional.pad(x.to(self.weight.dtype), padding).permute(0, 2, 3, 1)
        copies = self.copies(x, rows, cols)
        weight = self.weight.permute(2, 3, 1, 0)[i, j].reshape(-1, self.out_channels)
        out = _product(copies.flatten(3).flatten(0, 2), weight)
        out = out if self.bias is None else out + self.bias
        return torch.unflatten(out, 0, copies.shape[:3]).permute(0, 3, 1, 2)

    def copies(self, x: Tensor, rows: list[slice], cols: list[slice]) -> Tensor:
        """What the kernel meets at every place of the output, ``[n, H, W, rows, cols, inputs]``."""
        # Columns, then rows: of a few slices at a time, Inductor copies all with one kernel.
        x = torch.stack([x[:, :, col] for col in cols], 3)
        return torch.stack([x[:, row] for row in rows], 3)


class FirstConvAsMatmul(ConvAsMatmul):
    """The same for a convolution of images, in which nobody differentiates.

    All copies are made at once, where the gradient would be slow.
    """

    def copies(self, x: Tensor, rows: list[slice], cols: list[slice]) -> Tensor:
        x = x[:, rows[0].start : rows[-1].stop, cols[0].start : cols[-1].stop]
        windows = x.unfold(1, len(rows), self.stride[0]).unfold(2, len(cols), self.stride[1])
        return windows.permute(0, 1, 2, 4, 5, 3)


def _product(copies: Tensor, weight: Tensor) -> Tensor:
    """The inner axis filled up with zeros to what matrix units take without further copies."""
    if gap := -len(weight) % ALIGNED:
        copies, weight = (
            nn.functional.pad(copies, (0, gap)),
            nn.functional.pad(weight, (0, 0, 0, gap)),
        )
    return copies @ weight


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
    _, first = next(leaves(net))
    for layer in net.modules():
        if type(layer) is nn.Conv2d and plain(layer):
            layer.__class__ = FirstConvAsMatmul if layer is first else ConvAsMatmul
    return net


def plain(layer: nn.Conv2d) -> bool:
    """Whether it is neither grouped nor dilated, and padded with so many zeros."""
    numbers = not isinstance(layer.padding, str) and layer.padding_mode == "zeros"
    return numbers and layer.groups == 1 and layer.dilation == (1, 1)
