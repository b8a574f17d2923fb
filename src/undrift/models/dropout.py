"""Dropout by key: a mask is a pure function of an integer, on every engine and every device."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

KINDS: dict[type[nn.Module], int | None] = {
    nn.Dropout: None,
    nn.Dropout1d: 3,
    nn.Dropout2d: 4,
    nn.Dropout3d: 5,
}
"""Layers that become :class:`Dropout`, with the input dimensions of those that drop channels."""
CALL = 1 << 16
"""Distance between the keys of a layer's calls; those of layers are 1 apart, those of a step's
slices of samples core.problem.SLICE.
"""


class Dropout(_DropoutNd):
    """Drops by its key, nothing without one; ``functional_call`` sets it with the weights."""

    key: Tensor | None
    place: int
    """Which dropout of the network it is."""
    dims: int | None

    def forward(self, x: Tensor) -> Tensor:
        if self.key is None:
            return x
        if self.dims not in (None, x.dim()):
            raise ValueError(
                f"dropout of channels takes {self.dims} dimensions here, not {x.dim()}"
            )
        shape = x.shape if self.dims is None else (*x.shape[:2], *[1] * (x.dim() - 2))
        kept = mask(shape, self.p, self.key + self.place, x.dtype)
        self.key = self.key + CALL  # a layer that is called again drops something else
        return x.mul_(kept) if self.inplace else x * kept


def keyed(net: nn.Module) -> tuple[str, ...]:
    """Replace the dropout of ``net`` by keyed layers; the names of their keys."""
    for layer in net.modules():
        if (kind := type(layer)) in KINDS:
            layer.__class__ = Dropout if layer.p else nn.Identity
            layer.dims = KINDS[kind]  # type: ignore[assignment]
    found = {name: layer for name, layer in net.named_modules() if isinstance(layer, Dropout)}
    for place, layer in enumerate(found.values()):
        layer.place = place
        layer.register_buffer("key", None, persistent=False)
    return tuple(f"{name}.key" for name in found)


def mask(shape: Sequence[int], rate: float, key: Tensor, dtype: torch.dtype) -> Tensor:
    """0 with probability ``rate``, else 1 / (1 - rate): what inverted dropout multiplies by."""
    low = _mix(key & _WORD)
    high = _mix(((key >> 32) & _WORD) ^ low)
    places = torch.arange(math.prod(shape), device=key.device).view(shape)
    kept = (_mix(_mix(places ^ low) ^ high) >= int(rate * 2**32)).to(dtype)
    return kept / (1 - rate) if rate < 1 else kept


_WORD = 0xFFFFFFFF


def _mix(word: Tensor) -> Tensor:
    """A bijection of 32-bit words, Wellons' lowbias32.

    In int64: products wrap but keep their low bits.
    """
    word = ((word ^ (word >> 16)) * 0x7FEB352D) & _WORD
    word = ((word ^ (word >> 15)) * 0x846CA68B) & _WORD
    return word ^ (word >> 16)
