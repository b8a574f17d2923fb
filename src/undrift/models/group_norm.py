"""Group norms fused with what follows them, for networks on a GPU."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from undrift.models.architectures import BasicBlock
from undrift.models.net import hooked

TRITON = importlib.util.find_spec("triton") is not None
"""Whether the kernels can be compiled here."""
WIDEST = 8192
"""Channels of a group that one program takes."""


@torch.library.custom_op(
    "undrift::group_norm",
    mutates_args=(),
    schema="(Tensor x, Tensor? residual, Tensor weight, Tensor bias, int groups, float eps, "
    "bool relu) -> (Tensor, Tensor)",
)
def _norm(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    groups: int,
    eps: float,
    relu: bool,
) -> tuple[Tensor, Tensor]:
    from undrift.models import group_norm_kernels as kernels

    x, out, stats = last(x), *_like(x, groups)
    residual = None if residual is None else last(residual)
    kernels.forward(x, residual, *_alike(weight, bias), out, stats, eps, relu)
    return out, stats


_norm.register_fake(lambda x, residual, weight, bias, groups, eps, relu: _like(x, groups))


@torch.library.custom_op(
    "undrift::group_norm_backward",
    mutates_args=(),
    schema="(Tensor slope, Tensor x, Tensor? out, Tensor weight, Tensor bias, Tensor stats, "
    "bool relu) -> (Tensor, Tensor, Tensor)",
)
def _slopes(
    slope: Tensor,
    x: Tensor,
    out: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    stats: Tensor,
    relu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    from undrift.models import group_norm_kernels as kernels

    x, out, slope = last(x), None if out is None else last(out), last(slope)
    of_x, of_residual, of_parameters = _slopes_like(x, out, stats)
    kernels.backward(
        slope, x, out, *_alike(weight, bias), stats,
        of_x, None if out is None else of_residual, of_parameters, relu,
    )  # fmt: skip
    return of_x, of_residual, of_parameters


_slopes.register_fake(lambda slope, x, out, weight, bias, stats, relu: _slopes_like(x, out, stats))


def last(x: Tensor) -> Tensor:
    """With channels last."""
    return x.contiguous(memory_format=torch.channels_last)


def clients_first(v: Tensor, dim: int | None, clients: int) -> Tensor:
    """With an axis of clients in front; without ``dim`` they share it."""
    return v.expand(clients, *v.shape) if dim is None else v.movedim(dim, 0)


def _alike(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Both in one layout, without a copy where they are parts of the clients' vectors."""
    if weight.stride() == bias.stride() and weight.stride(-1) == 1:
        return weight, bias
    return weight.contiguous(), bias.contiguous()


def _like(x: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Room for the result, and for each group's mean and scale."""
    out = torch.empty_like(x, memory_format=torch.channels_last)
    return out, x.new_empty(len(x), groups, 2, dtype=torch.float32)


def _slopes_like(x: Tensor, out: Tensor | None, stats: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Room for slopes in the input, in what was added if anything was, and in weight and bias,
    which are sums over rows.
    """
    from undrift.models import group_norm_kernels as kernels

    of_x = torch.empty_like(x, memory_format=torch.channels_last)
    of_residual = x.new_empty(0) if out is None else torch.empty_like(of_x)
    rows = len(x) * kernels.rows_apart(x, stats.shape[1])
    return of_x, of_residual, x.new_empty(2, rows, x.shape[1], dtype=torch.float32)


class _Kept(Protocol):
    """What the gradient needs of a norm."""

    saved_tensors: tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]
    relu: bool

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep these."""


def _keep(
    ctx: _Kept,
    inputs: tuple[Tensor, Tensor | None, Tensor, Tensor, int, float, bool],
    output: tuple[Tensor, Tensor],
) -> None:
    x, residual, weight, bias, _, _, ctx.relu = inputs
    out, stats = output
    ctx.save_for_backward(x, weight, bias, stats, None if residual is None else out)


def _differentiated(kept: _Kept, slope: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    x, weight, bias, stats, out = kept.saved_tensors
    of_x, of_residual, of_parameters = _slopes(slope, x, out, weight, bias, stats, kept.relu)
    of_clients = of_parameters.view(2, weight.numel() // x.shape[1], -1, x.shape[1])
    of_weight, of_bias = of_clients.sum(2).view(2, *weight.shape).to(weight.dtype).unbind()
    return of_x, None if out is None else of_residual, of_weight, of_bias, None, None, None


_norm.register_autograd(_differentiated, setup_context=_keep)


class Mapped(Protocol):
    """What ``vmap`` tells of itself."""

    batch_size: int


@_norm.register_vmap
def _of_clients(
    info: Mapped,
    dims: tuple[int | None, ...],
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    groups: int,
    eps: float,
    relu: bool,
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    """Clients' images one behind the other, each client's with weights of its own."""
    of_x, of_residual, *of_parameters = dims[:4]
    x = clients_first(x, of_x, info.batch_size)
    if residual is not None:
        residual = clients_first(residual, of_residual, info.batch_size).flatten(0, 1)
    weight, bias = (
        clients_first(v, dim, info.batch_size)
        for v, dim in zip((weight, bias), of_parameters, strict=True)
    )
    out, stats = _norm(x.flatten(0, 1), residual, weight, bias, groups, eps, relu)
    return (out.view(x.shape), stats.view(*x.shape[:2], groups, 2)), (0, 0)


class FusedGroupNorm(nn.GroupNorm):
    """A group norm of images, and on demand what is added to it and a ReLU, as one kernel.

    They are in half precision or float32, and so is the result, channels last; all else is left to
    torch.
    """

    def forward(self, x: Tensor, residual: Tensor | None = None, relu: bool = False) -> Tensor:
        if x.dim() == 4 and x.dtype in (torch.bfloat16, torch.float16, torch.float32):
            if residual is not None:
                residual = residual.to(x.dtype)
            out: Tensor = _norm(
                x, residual, self.weight, self.bias, self.num_groups, self.eps, relu
            )[0]
            return out
        out = super().forward(x)
        out = out if residual is None else out + residual
        return out.relu() if relu else out


class FusedSequential(nn.Sequential):
    """Layers of which group norms do the ReLU that follows them."""

    def forward(self, input: Tensor) -> Tensor:
        return _through(list(self), input)


class FusedBasicBlock(BasicBlock):
    """A block whose last norm adds the shortcut."""

    def forward(self, x: Tensor) -> Tensor:
        *layers, norm = self.residual
        out: Tensor = norm(_through(layers, x), self.shortcut(x), relu=True)
        return out


def _through(layers: Sequence[nn.Module], x: Tensor) -> Tensor:
    done = False
    for layer, following in zip(layers, [*layers[1:], None], strict=True):
        if done:
            done = False
        elif isinstance(layer, FusedGroupNorm) and type(following) is nn.ReLU:
            x, done = layer(x, relu=True), True
        else:
            x = layer(x)
    return x


def group_norms_fused(net: nn.Module) -> nn.Module | None:
    """A copy of ``net`` in which group norms do what follows them.

    ``None`` where nothing is gained, or where hooks would miss what they are for. Every layer that
    is called by itself gives what it gave before.
    """
    if hooked(net):
        return None
    net = copy.deepcopy(net)
    for layer in net.modules():
        if (
            type(layer) is nn.GroupNorm
            and layer.affine
            and layer.num_channels // layer.num_groups <= WIDEST
        ):
            layer.__class__ = FusedGroupNorm
        elif type(layer) is nn.Sequential:
            layer.__class__ = FusedSequential
    for layer in net.modules():
        if type(layer) is BasicBlock and isinstance(layer.residual[-1], FusedGroupNorm):
            layer.__class__ = FusedBasicBlock
    return net if any(isinstance(layer, FusedGroupNorm) for layer in net.modules()) else None
