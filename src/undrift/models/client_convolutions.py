"""Convolutions of many clients, stacked by ``vmap``, as one kernel each."""

from __future__ import annotations

import copy
from typing import Protocol

import torch
from torch import Tensor, nn

from undrift.models.convolutions import ConvAsMatmul, shifts
from undrift.models.group_norm import Mapped, clients_first, last

SHORT = (torch.bfloat16, torch.float16)
"""Precisions that the kernels are for."""
WHOLE = 16
"""Channels come in multiples of this: wide loads ask for it."""
LONGEST = 2**31
"""Numbers of a client that a kernel can count."""


@torch.library.custom_op(
    "undrift::convolution",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, int[] meeting) -> Tensor",
)
def _convolved(x: Tensor, weight: Tensor, meeting: list[int]) -> Tensor:
    from undrift.models import convolution_kernels as kernels

    out: Tensor = _convolved_like(x, weight, meeting)
    kernels.forward(last(x), _of_clients(weight), out, kernels.Meeting(*meeting))
    return out


@_convolved.register_fake
def _convolved_like(x: Tensor, weight: Tensor, meeting: list[int]) -> Tensor:
    tall, wide = meeting[:2]
    return _images(x, len(x), weight.shape[-1], tall, wide)


@torch.library.custom_op(
    "undrift::convolution_backward",
    mutates_args=(),
    schema="(Tensor slope, Tensor x, Tensor weight, int[] meeting) -> (Tensor, Tensor)",
)
def _slopes(slope: Tensor, x: Tensor, weight: Tensor, meeting: list[int]) -> tuple[Tensor, Tensor]:
    from undrift.models import convolution_kernels as kernels

    slope, x, where = last(slope), last(x), kernels.Meeting(*meeting)
    weights, of_x = _of_clients(weight), torch.empty_like(x)
    kernels.slope_of_images(slope, weights, of_x, where)
    return of_x, kernels.slope_of_weights(slope, x, weights, where).view(weight.shape)


@_slopes.register_fake
def _slopes_like(
    slope: Tensor, x: Tensor, weight: Tensor, meeting: list[int]
) -> tuple[Tensor, Tensor]:
    return _images(x, *x.shape), weight.new_empty(weight.shape)


def _images(like: Tensor, *shape: int) -> Tensor:
    """Room for images with channels last."""
    return torch.empty(
        shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last
    )


def _of_clients(weight: Tensor) -> Tensor:
    """Weights with an axis of clients, also where there is one; each client's are contiguous."""
    weight = weight if weight.dim() == 5 else weight.unsqueeze(0)
    # Not all clients': those are parts of vectors, and a copy would take longer than the product.
    return weight if weight[0].is_contiguous() else weight.contiguous()


class _Kept(Protocol):
    """What the gradient needs of a convolution."""

    saved_tensors: tuple[Tensor, Tensor]
    meeting: list[int]

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep these."""


def _keep(ctx: _Kept, inputs: tuple[Tensor, Tensor, list[int]], output: Tensor) -> None:
    x, weight, ctx.meeting = inputs
    ctx.save_for_backward(x, weight)


def _differentiated(kept: _Kept, slope: Tensor) -> tuple[Tensor, Tensor, None]:
    return *_slopes(slope, *kept.saved_tensors, kept.meeting), None


_convolved.register_autograd(_differentiated, setup_context=_keep)


@_convolved.register_vmap
def _of_many(
    info: Mapped, dims: tuple[int | None, ...], x: Tensor, weight: Tensor, meeting: list[int]
) -> tuple[Tensor, int]:
    """Clients' images one behind the other."""
    images = clients_first(x, dims[0], info.batch_size).flatten(0, 1)
    weight = weight if dims[1] is None else weight.movedim(dims[1], 0)
    found: Tensor = _convolved(images, weight, meeting)
    return found.view(info.batch_size, -1, *found.shape[1:]), 0


class ConvOfClients(ConvAsMatmul):
    """The same in a precision of matrix units as one kernel, which gathers what it multiplies."""

    def forward(self, x: Tensor) -> Tensor:
        rows, i = shifts(x.shape[2], self, 0)
        columns, j = shifts(x.shape[3], self, 1)
        tall, wide = (len(range(k.start, k.stop, k.step)) for k in (rows[0], columns[0]))
        longest = max(x.numel(), len(x) * self.out_channels * tall * wide)
        if self.weight.dtype not in SHORT or longest >= LONGEST:
            return super().forward(x)
        above, beside = int(self.padding[0]) - i.start, int(self.padding[1]) - j.start
        weight = self.weight.permute(2, 3, 1, 0)[i, j]
        meeting = [tall, wide, self.stride[0], above, beside]
        out: Tensor = _convolved(x.to(weight.dtype), weight, meeting)
        return out if self.bias is None else out + self.bias[:, None, None]


def convolutions_of_clients(net: nn.Module) -> nn.Module | None:
    """A copy of ``net``, whose convolutions are products, with kernels that gather what these take.

    Those of images stay, and those of few or odd channels; ``None`` where all do.
    """
    net = copy.deepcopy(net)
    taken = [layer for layer in net.modules() if type(layer) is ConvAsMatmul and _takes(layer)]
    for layer in taken:
        layer.__class__ = ConvOfClients
    return net if taken else None


def _takes(layer: nn.Conv2d) -> bool:
    whole = layer.in_channels % WHOLE == 0 == layer.out_channels % WHOLE
    return whole and layer.stride[0] == layer.stride[1]
