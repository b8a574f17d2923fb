"""How good a model is on labelled samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

PASS = 512
"""Samples per forward pass on a CPU; ten times as many on a GPU."""


class Judged(NamedTuple):
    """Inputs with their labels, of which some ``samples`` are judged, with ``weights``."""

    x: Tensor
    y: Tensor
    samples: np.ndarray
    weights: np.ndarray

    @property
    def size(self) -> int:
        """Samples of a forward pass."""
        return PASS if self.x.device.type == "cpu" else 10 * PASS

    @property
    def passes(self) -> int:
        """Forward passes, one if there are no samples."""
        return max(-(-len(self.samples) // self.size), 1)


@torch.no_grad()
def judged(
    model: Callable[[Tensor], Tensor],
    prepare: Callable[[Tensor], Tensor],
    given: Judged,
    which: slice = slice(None),
) -> Tensor:
    """Weighted sums ``[P, 3]`` of every forward pass, or of some: of the cross-entropy, of right
    answers, and of labels that are among the five largest logits.
    """
    x, y, samples, weights = given
    passes = (
        torch.split(torch.from_numpy(a).to(x.device), given.size)[which] for a in (samples, weights)
    )
    found = [torch.zeros(0, 3, dtype=torch.float64, device=x.device)]
    for chosen, weight in zip(*passes, strict=True):
        labels = y[chosen]
        logits = model(prepare(x[chosen])).double()
        loss = nn.functional.cross_entropy(logits, labels, reduction="none")
        best = logits.topk(min(5, logits.shape[-1])).indices == labels.unsqueeze(-1)
        shares = [loss, best[:, 0].double(), best.any(-1).double()]
        found.append((weight @ torch.stack(shares, dim=-1)).unsqueeze(0))
    return torch.cat(found)


def added(pieces: Tensor) -> Tensor:
    """The sums ``[3]`` of all passes, one after another."""
    total = torch.zeros(3, dtype=torch.float64, device=pieces.device)
    for piece in pieces:
        total += piece
    return total
