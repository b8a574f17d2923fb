"""How an engine treats gradients and uploads."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from undrift.core.options import Treatment, Weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Treatment):
    """How local gradients are treated (:class:`undrift.core.options.Treatment`) and uploads are
    weighed.

    weights  uniform, or samples: clients count by their number of samples
    """

    weights: Weights = "uniform"

    @property
    def plain(self) -> bool:
        """Whether gradients are used as they come."""
        return not self.weight_decay and self.clip is None

    def clipped(self, v: Tensor) -> Tensor:
        if self.clip is None:
            return v
        return v * self.scale(v)

    def treated(self, y: Tensor, g: Tensor) -> Tensor:
        """The gradient a method sees: clipped, then with weight decay."""
        if not self.weight_decay:
            return self.clipped(g)
        if self.clip is None:
            return torch.add(g, y, alpha=self.weight_decay)
        return self.clipped(g).add_(y, alpha=self.weight_decay)

    def scale(self, v: Tensor) -> Tensor:
        """What clipping multiplies each row by."""
        assert self.clip is not None
        return self.clip / v.norm(dim=-1, keepdim=True).clamp(min=self.clip)
