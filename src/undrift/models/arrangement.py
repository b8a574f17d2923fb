"""Weights in the order in which matrix products read them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from torch import Tensor, nn

from undrift.models.conv_as_matmul import ConvAsMatmul, FirstConvAsMatmul
from undrift.models.layout import Layout, unflatten

PRODUCTS = {nn.Linear, ConvAsMatmul, FirstConvAsMatmul}
"""Layers that multiply by one matrix."""
ALIGNED = 16
"""Parameters begin at multiples of this many numbers: wide loads and matrix units ask for it."""
BLOCK = 4096
"""Long vectors are multiples of this: Inductor's sums over blocks are several times faster than
over a row of any length.
"""


class Place(NamedTuple):
    """A parameter within its block."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    """Its axes as they lie in memory, the outermost first."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def room(self) -> int:
        """Its size with the gap behind it."""
        return -(-self.size // ALIGNED) * ALIGNED

    def view(self, part: Tensor) -> Tensor:
        """The parameter within its room, behind any leading axes."""
        lead = part.shape[:-1]
        if self.room > self.size:
            part = part[..., : self.size]
        lying = part.view(*lead, *(self.shape[axis] for axis in self.axes))
        back = (len(lead) + self.axes.index(axis) for axis in range(len(self.axes)))
        return lying.permute(*range(len(lead)), *back)


class Arrangement:
    """Vectors ``[..., d]`` of a layout as ``[..., dim]``: matrices in front, then all the rest.

    ``matrices`` names the weights that only products read, each with the order of its axes in
    memory. Between parameters and at the end may be gaps, which are zero.
    """

    def __init__(self, layout: Layout, matrices: Mapping[str, tuple[int, ...]]):
        self.layout = layout
        places = [
            Place(name, shape, matrices.get(name, tuple(range(len(shape)))))
            for name, shape in zip(layout.names, layout.shapes, strict=True)
        ]
        self._matrices = [place for place in places if place.name in matrices]
        self._rest = [place for place in places if place.name not in matrices]
        self.front = sum(place.room for place in self._matrices)
        """Numbers of all matrices."""
        full = self.front + sum(place.room for place in self._rest)
        self.block = BLOCK if full > 100 * BLOCK else ALIGNED
        self.dim = -(-full // self.block) * self.block

    def blocks(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """The matrices and the rest of an arranged vector, as views."""
        return v[..., : self.front], v[..., self.front :]

    def named(self, matrices: Tensor, rest: Tensor) -> dict[str, Tensor]:
        """Views of the parameters by name."""
        return dict([*_views(self._matrices, matrices), *_views(self._rest, rest)])

    def place(self, v: Tensor, matrices: Tensor, rest: Tensor) -> None:
        """Write ``v [..., d]`` into two blocks, rounded as they are."""
        views = self.named(matrices, rest)
        for name, part in unflatten(v, self.layout).items():
            views[name].copy_(part)

    def arranged(self, v: Tensor) -> Tensor:
        """``v [..., d]`` as ``[..., dim]``."""
        found = v.new_zeros(*v.shape[:-1], self.dim)
        self.place(v, *self.blocks(found))
        return found

    def restored(self, matrices: Tensor, rest: Tensor) -> Tensor:
        """Two blocks as a vector ``[..., d]``, in the precision of the second."""
        found = rest.new_empty(*rest.shape[:-1], self.layout.dim)
        parts = unflatten(found, self.layout)
        for name, view in self.named(matrices, rest).items():
            parts[name].copy_(view)
        return found

    def norms(self, v: Tensor) -> Tensor:
        """``v.norm(dim=-1, keepdim=True)``, of arranged vectors block by block."""
        squares = v.square()
        if v.shape[-1] == self.dim:
            squares = squares.view(*v.shape[:-1], -1, self.block).sum(-1)
        return squares.sum(-1, keepdim=True).sqrt()


def _views(places: list[Place], block: Tensor) -> Iterator[tuple[str, Tensor]]:
    if places:
        rooms = [place.room for place in places]
        gap = block.shape[-1] - sum(rooms)
        parts = block.split_with_sizes([*rooms, gap], dim=-1)
        for place, part in zip(places, parts, strict=False):
            yield place.name, place.view(part)


def arrangement(net: nn.Module, layout: Layout) -> Arrangement:
    """For the weights of ``net``.

    Its matrices are the weights that only linear and convolutional layers read. Those that are read
    as one matrix, ``[inputs, outputs]``, lie so in memory.
    """
    readers: dict[nn.Parameter, set[type]] = {}
    for module in net.modules():
        for label, parameter in module.named_parameters(recurse=False):
            kind = type(module) if label == "weight" else nn.Module
            readers.setdefault(parameter, set()).add(kind)
    matrices: dict[str, tuple[int, ...]] = {}
    for name, parameter in net.named_parameters():
        kinds, axes = readers[parameter], tuple(range(parameter.dim()))
        if kinds <= PRODUCTS:
            matrices[name] = (*axes[2:], 1, 0)
        elif kinds <= PRODUCTS | {nn.Conv2d}:
            matrices[name] = axes
    return Arrangement(layout, matrices)
