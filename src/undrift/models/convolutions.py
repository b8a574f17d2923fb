"""Convolutions as matrix products.

On a GPU, so that the networks of many clients run as batched products; on CPUs where torch's own
convolutions are slow, as one large product for each row of the kernel.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from undrift.models.net import leaves

ALIGNED = 8
"""Numbers in bf16 of the widest loads."""
LARGE = 6_000_000
"""Multiplications of a convolution that outweigh the calls it is made of."""


class ConvAsMatmul(nn.Conv2d):
    """A convolution as shifted copies of its input times its weights.

    Kernel positions that only ever meet padding are left out. Stacked by ``vmap`` it is one batched
    product, while ``nn.Conv2d`` becomes a grouped convolution, which is slow.
    """

    def forward(self, x: Tensor) -> Tensor:
        rows, i = shifts(x.shape[2], self, 0)
        cols, j = shifts(x.shape[3], self, 1)
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


def shifts(size: int, layer: nn.Conv2d, axis: int) -> tuple[list[slice], slice]:
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
