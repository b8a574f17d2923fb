"""Gradients of mini-batches that are taken part by part, so that memory is that of one part."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undrift.core.problem import SLICE, Draws, Oracle


class InParts(Oracle):
    """The gradients of ``oracle`` on ``size`` samples at a time.

    Their mean is over samples, not over parts: it is the gradient on all of them, where the loss is
    a mean over samples.
    """

    def __init__(self, oracle: Oracle, size: int):
        self._oracle, self._size = oracle, size

    def begin(self, start: Tensor, previous: Tensor | None) -> None:
        self._oracle.begin(start, previous)

    def solve(self, v: Tensor, lam: float) -> Tensor:
        return self._oracle.solve(v, lam)

    def grad(
        self,
        y: Tensor,
        batch: Tensor | None = None,
        draws: Draws | None = None,
        key: Tensor | None = None,
    ) -> Tensor:
        if batch is None:
            return self._given(y, None, draws, key)
        held = (batch >= 0).sum(1, keepdim=True)
        total = torch.zeros_like(y)
        for k, part in enumerate(torch.split(batch, self._size, dim=1)):
            here = (part >= 0).sum(1, keepdim=True)
            # a client without samples in this part is shown one that counts nothing, whatever its
            # gradient: some losses have none on a single sample
            shown = torch.where(here > 0, part, 0)
            which = slice(k * self._size, k * self._size + part.shape[1])
            drawn = None if draws is None else draws.columns(len(batch), which)
            part_key = None if key is None else key + k * SLICE
            found = self._given(y, shown, drawn, part_key)
            total += torch.where(here > 0, found * (here.to(y.dtype) / held), 0.0)
        return total

    def _given(
        self, y: Tensor, batch: Tensor | None, draws: Draws | None, key: Tensor | None
    ) -> Tensor:
        """The oracle's own gradient; only some take more than a mini-batch."""
        given: list[Any] = [batch, draws, key]
        while given and given[-1] is None:
            given.pop()
        return self._oracle.grad(y, *given)
