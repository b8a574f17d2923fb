"""How good a model is on labelled samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

PASS = 512
"""Samples per forward pass on a CPU; ten times as many on a GPU."""


@torch.no_grad()
def measure(
    model: Callable[[Tensor], Tensor],
    prepare: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    *,
    samples: np.ndarray,
    weights: np.ndarray,
) -> Tensor:
    """Judge ``model`` on the ``samples`` of the inputs ``x``, with labels ``y``.

    Weighted sums ``[3]``: of the cross-entropy, of right answers, and of labels that are among the
    five largest logits.
    """
    total = torch.zeros(3, dtype=torch.float64, device=x.device)
    size = PASS if x.device.type == "cpu" else 10 * PASS
    passes = (torch.split(torch.from_numpy(a).to(x.device), size) for a in (samples, weights))
    for chosen, weight in zip(*passes, strict=True):
        labels = y[chosen]
        logits = model(prepare(x[chosen])).double()
        loss = nn.functional.cross_entropy(logits, labels, reduction="none")
        best = logits.topk(min(5, logits.shape[-1])).indices == labels.unsqueeze(-1)
        shares = [loss, best[:, 0].double(), best.any(-1).double()]
        total += weight @ torch.stack(shares, dim=-1)
    return total
