"""Weights in the order in which matrix products read them.

A method sees a vector of all parameters in the order of the module. A recorded gradient reads the
same numbers in two blocks, in which every parameter begins at a multiple of ``ALIGNED``::

    given     | conv.weight | conv.bias | fc.weight | fc.bias |               [..., d]

    arranged  | conv.weight' ~| fc.weight' ~| conv.bias ~| fc.bias ~| ~~~~~ | [..., dim]
              |<------- matrices ---------->|<----------- rest ------------>|
                            front

``'`` marks axes in another order: a matrix lies as the product reads it, ``[inputs, outputs]``, so
that no kernel transposes it. ``~`` marks gaps, which are zero and stay zero: sums, norms and steps
may run over the whole block. The two blocks are apart since products may read the matrices in a
lower precision than the rest.

``BlockView`` is a parameter within its block, ``Span`` one end of a copy between the two orders.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from undrift.models.client_convolutions import ConvOfClients
from undrift.models.convolutions import ConvAsMatmul, FirstConvAsMatmul
from undrift.models.layout import Layout

PRODUCTS = {nn.Linear, ConvAsMatmul, FirstConvAsMatmul, ConvOfClients}
"""Layers that multiply by one matrix."""
ALIGNED = 16
"""Parameters begin at multiples of this many numbers: wide loads and matrix units ask for it."""
SHORT = 4096
"""Parameters of at most so many numbers that are no matrices are copied all together."""
BLOCK = 4096
"""Long vectors are multiples of this: Inductor's sums over blocks are several times faster than
over a row of any length.
"""


class Span(NamedTuple):
    """Where a parameter begins in a vector, and how it lies there."""

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of(self, v: Tensor) -> Tensor:
        """The parameter, a view; the last axis of ``v`` must be contiguous."""
        shape, strides = (*v.shape[:-1], *self.shape), (*v.stride()[:-1], *self.strides)
        return v.as_strided(shape, strides, v.storage_offset() + self.start)


class BlockView(NamedTuple):
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
        lying = part.view((*lead, *(self.shape[axis] for axis in self.axes)))
        back = (len(lead) + self.axes.index(axis) for axis in range(len(self.axes)))
        return lying.permute((*range(len(lead)), *back))

    def span(self, start: int) -> Span:
        """The parameter in a vector as it was given, its axes as they lie within the block."""
        shape, strides = self.kept(start).shape, _strides(self.shape)
        return Span(start, shape, tuple(strides[axis] for axis in self.axes))

    def kept(self, start: int) -> Span:
        """The same within its block."""
        shape = tuple(self.shape[axis] for axis in self.axes)
        return Span(start, shape, _strides(shape))


class Arrangement:
    """Vectors ``[..., d]`` of a layout as ``[..., dim]``: matrices in front, then all the rest.

    ``matrices`` names the weights that only products read, each with the order of its axes in
    memory. Between parameters and at the end may be gaps, which are zero.
    """

    def __init__(self, layout: Layout, matrices: Mapping[str, tuple[int, ...]]):
        self.layout = layout
        places = [
            BlockView(name, shape, matrices.get(name, tuple(range(len(shape)))))
            for name, shape in zip(layout.names, layout.shapes, strict=True)
        ]
        self._matrices = [place for place in places if place.name in matrices]
        self._rest = [place for place in places if place.name not in matrices]
        self.front = sum(place.room for place in self._matrices)
        """Numbers of all matrices."""
        full = self.front + sum(place.room for place in self._rest)
        self.block = BLOCK if full > 100 * BLOCK else ALIGNED
        self.dim = -(-full // self.block) * self.block
        given = dict(zip(layout.names, _starts(layout.sizes), strict=True))
        self._moves: list[tuple[Span, int, Span]] = []
        """Long parameters in a given vector, the block that each goes to, and where in that."""
        short: list[tuple[int, int, int]] = []
        # A copy per parameter costs a kernel each. So only matrices, whose axes change order, and
        # long vectors are copied one by one; the many short ones (biases, norms) in one gather.
        for block, some in enumerate([self._matrices, self._rest]):
            for place, start in zip(some, _starts(p.room for p in some), strict=True):
                if block == 1 and place.size <= SHORT:
                    short.append((given[place.name], start, place.size))
                else:
                    self._moves.append((place.span(given[place.name]), block, place.kept(start)))
        self._given = _runs([(first, size) for first, _, size in short])
        self._kept = _runs([(first, size) for _, first, size in short])

    def blocks(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """The matrices and the rest of an arranged vector, as views."""
        return v[..., : self.front], v[..., self.front :]

    def named(self, matrices: Tensor, rest: Tensor) -> dict[str, Tensor]:
        """Views of the parameters by name."""
        return dict([*_views(self._matrices, matrices), *_views(self._rest, rest)])

    def room(self, blocks: Sequence[Tensor]) -> list[Tensor]:
        """Blocks like these to be filled by name; their gaps are zero."""
        matrices, rest = blocks
        # Every number of a block without gaps is written later, so that zeros would be wasted.
        whole = self.front == sum(place.size for place in self._matrices)
        front = matrices.new_empty if whole else matrices.new_zeros
        return [front(matrices.shape), rest.new_zeros(rest.shape)]

    def place(self, v: Tensor, matrices: Tensor, rest: Tensor) -> None:
        """Write ``v [..., d]`` into two blocks, rounded as they are."""
        if v.shape[-1] != self.layout.dim:
            raise ValueError(f"a vector has {self.layout.dim} numbers, not {v.shape[-1]}")
        # Spans are offsets into memory: they hold where the last axis is contiguous alone.
        v, blocks = v if v.stride(-1) == 1 else v.contiguous(), (matrices, rest)
        for source, block, target in self._moves:
            target.of(blocks[block]).copy_(source.of(v))
        given, kept = self._indices(v.device)
        rest.index_copy_(-1, kept, v.index_select(-1, given))

    def arranged(self, v: Tensor, out: Tensor | None = None) -> Tensor:
        """``v [..., d]`` as ``[..., dim]``, written over an arranged ``out`` where one is given."""
        found = v.new_zeros(*v.shape[:-1], self.dim) if out is None else out
        self.place(v, *self.blocks(found))
        return found

    def restored(self, matrices: Tensor, rest: Tensor) -> Tensor:
        """Two blocks as a vector ``[..., d]``, in the precision of the second."""
        found, blocks = rest.new_empty(*rest.shape[:-1], self.layout.dim), (matrices, rest)
        for source, block, target in self._moves:
            source.of(found).copy_(target.of(blocks[block]))
        given, kept = self._indices(found.device)
        return found.index_copy_(-1, given, rest.index_select(-1, kept))

    def _indices(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Where the numbers of short parameters are in a given vector, and in the rest."""
        if self._given.device != device:
            self._given, self._kept = self._given.to(device), self._kept.to(device)
        return self._given, self._kept

    def norms(self, v: Tensor) -> Tensor:
        """``v.norm(dim=-1, keepdim=True)``, of arranged vectors block by block."""
        squares = v.square()
        if v.shape[-1] == self.dim:
            squares = squares.view(*v.shape[:-1], -1, self.block).sum(-1)
        return squares.sum(-1, keepdim=True).sqrt()


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _starts(sizes: Iterable[int]) -> list[int]:
    """Where parameters of these sizes begin, one behind the other."""
    return [0, *itertools.accumulate(sizes)][:-1]


def _runs(runs: Iterable[tuple[int, int]]) -> Tensor:
    """All numbers of runs ``(first, how many)``."""
    return torch.cat([torch.arange(0), *(torch.arange(k, k + n) for k, n in runs)])


def _views(places: list[BlockView], block: Tensor) -> Iterator[tuple[str, Tensor]]:
    if places:
        rooms = [place.room for place in places]
        gap = block.shape[-1] - sum(rooms)
        parts = block.split_with_sizes([*rooms, gap], dim=-1)
        for place, part in zip(places, parts, strict=False):
            yield place.name, place.view(part)


def arrangement(net: nn.Module, layout: Layout, channels_last: bool = False) -> Arrangement:
    """For the weights of ``net``.

    Its matrices are the weights that only linear and convolutional layers read. Those that are read
    as one matrix, ``[inputs, outputs]``, lie so in memory; those of torch's convolutions as they
    were given, or with ``channels_last``.
    """
    # A weight may have several readers (tied weights): it is a matrix only if all of them are
    # products, since any other layer expects its axes as they were given.
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
            matrices[name] = (0, *axes[2:], 1) if channels_last else axes
    return Arrangement(layout, matrices)
