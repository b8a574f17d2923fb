"""Convolutions and their gradients as large products, for CPUs where torch's own are slow."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from undrift.models.conv_as_matmul import plain

LARGE = 6_000_000
"""Multiplications of a convolution that outweigh the calls it is made of."""


class ConvByRows(nn.Conv2d):
    """A convolution of stride 1 as one product for each row of its kernel.

    Small ones, and those of images whose channels are not last, are left to torch.
    """

    def forward(self, x: Tensor) -> Tensor:
        last = x.dim() == 4 and x.stride(1) == 1
        last = last and x.is_contiguous(memory_format=torch.channels_last)
        if not last or x.numel() // x.shape[1] * self.weight.numel() < LARGE:
            return super().forward(x)
        found: Tensor = _Product.apply(x, self.weight, self.bias, *self.padding)  # type: ignore[no-untyped-call]
        return found


class _Kept(FunctionCtx):
    """What the gradient needs of a convolution."""

    saved_tensors: tuple[Tensor, Tensor]
    needs_input_grad: tuple[bool, ...]
    columns: int
    padding: tuple[int, int]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        kept: _Kept, x: Tensor, weight: Tensor, bias: Tensor | None, above: int, beside: int
    ) -> Tensor:
        outer, inner, rows, columns = weight.shape
        pixels = _side_by_side(x, columns, beside)
        w = weight.permute(2, 0, 3, 1).reshape(rows, outer, columns * inner)
        shape = (x.shape[2] + 2 * above - rows + 1, *pixels.shape[1:3], outer)
        z = x.new_zeros(shape) if bias is None else bias.expand(shape).contiguous()
        for k, (out, seen) in enumerate(_meetings(rows, above, len(z), len(pixels))):
            _matrix(z[out]).addmm_(_matrix(pixels[seen]), w[k].T)
        kept.save_for_backward(x, w)
        kept.columns, kept.padding = columns, (above, beside)
        return z.permute(1, 3, 0, 2).contiguous(memory_format=torch.channels_last)

    @staticmethod
    @once_differentiable
    def backward(kept: _Kept, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, w = kept.saved_tensors
        (rows, outer, _), columns, (above, beside) = w.shape, kept.columns, kept.padding
        slope = slope.permute(2, 0, 3, 1).contiguous()
        pixels = _side_by_side(x, columns, beside)
        meetings = _meetings(rows, above, len(slope), len(pixels))
        of_x = of_weight = of_bias = None
        if kept.needs_input_grad[1]:
            products = torch.stack(
                [_matrix(pixels[seen]).T @ _matrix(slope[out]) for out, seen in meetings]
            )
            of_weight = products.view(rows, columns, -1, outer).permute(3, 2, 0, 1)
        if kept.needs_input_grad[2]:
            of_bias = slope.sum((0, 1, 2))
        if kept.needs_input_grad[0]:
            pixels.zero_()
            for k, (out, seen) in enumerate(meetings):
                _matrix(pixels[seen]).addmm_(_matrix(slope[out]), w[k])
            of_x = _summed(pixels, x, columns, beside)
        return of_x, of_weight, of_bias, None, None


def _side_by_side(x: Tensor, columns: int, beside: int) -> Tensor:
    """What each row of a kernel meets at every place, ``[H, n, W', columns * inputs]``.

    Rows of pixels are the outermost axis: all that one row of the kernel meets is one block of
    memory, and the next row of the kernel meets the block that begins one row later.
    """
    n, channels, height, width = x.shape
    padded = nn.functional.pad(x.permute(0, 2, 3, 1), (0, 0, beside, beside))
    shape = (height, n, width + 2 * beside - columns + 1, columns * channels)
    strides = (padded.stride(1), padded.stride(0), channels, 1)
    return padded.as_strided(shape, strides).contiguous()


def _summed(pixels: Tensor, x: Tensor, columns: int, beside: int) -> Tensor:
    """The transpose of :func:`_side_by_side`, like ``x``."""
    n, channels, height, width = x.shape
    padded = x.new_zeros(n, height, width + 2 * beside, channels)
    for k, met in enumerate(pixels.transpose(0, 1).split_with_sizes([channels] * columns, 3)):
        padded[:, :, k : k + met.shape[2]] += met
    return padded[:, :, beside : beside + width].permute(0, 3, 1, 2)


def _meetings(rows: int, above: int, outputs: int, inputs: int) -> list[tuple[slice, slice]]:
    """For each row of a kernel, the rows of outputs where it meets pixels, and those pixels."""
    found = []
    for k in range(rows):
        first = max(0, above - k)
        last = max(first, min(outputs, above + inputs - k))
        found.append((slice(first, last), slice(first + k - above, last + k - above)))
    return found


def _matrix(rows: Tensor) -> Tensor:
    return rows.view(-1, rows.shape[3])


def convolutions_by_rows(net: nn.Module) -> nn.Module:
    """Make all convolutions of ``net`` that it can compute a :class:`ConvByRows`."""
    for layer in net.modules():
        if type(layer) is nn.Conv2d and plain(layer) and layer.stride == (1, 1):
            layer.__class__ = ConvByRows
    return net
