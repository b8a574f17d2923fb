"""Steps of local SGD, ``step(y, grad) -> y``: one maker for each way in which they are taken.

All of them follow ``direction(y, grad) + prox * (y - x)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from undrift.engines.options import Options

Step = Callable[[Tensor, Any], Tensor]


def along_the_gradient(y: Tensor, grad: Callable) -> Tensor:
    """The direction of plain SGD."""
    return grad(y)


def plain_step(
    x: Tensor, lr: float | Tensor, direction: Callable, prox: float, options: Options
) -> Step:
    """Clips gradients and adds weight decay itself, and writes nothing in place: to be compiled."""

    def step(y: Tensor, grad: Callable) -> Tensor:
        v = direction(y, grad if options.plain else lambda z: options.treated(z, grad(z)))
        return y - lr * (v + prox * (y - x) if prox else v)

    return step


def clipped_step(
    x: Tensor, lr: float | Tensor, direction: Callable, prox: float, options: Options
) -> Step:
    """Clips what it follows as a whole; of the reference's proximal term the part in y stays
    outside.
    """
    whole = options.clip_scope == "whole"
    outside = options.weight_decay + (0.0 if whole else prox)

    def step(y: Tensor, grad: Callable) -> Tensor:
        v = direction(y, grad)
        if prox:
            v = torch.add(v, y - x, alpha=prox) if whole else torch.sub(v, x, alpha=prox)
        kept = (1 - lr * outside) * y
        return kept.addcmul_(v, -lr * options.scale(v))

    return step


def overwriting_step(
    x: Tensor,
    lr: float,
    direction: Callable,
    prox: float,
    fast: Callable[[Tensor, float, Any], Tensor] | None,
) -> Step:
    """Writes over what it made itself, which is nobody else's: that spares passes through memory.

    ``fast(y, lr, grad)`` writes ``y - lr * grad(y)`` over ``y``, where that is all there is to do.
    """
    own: Tensor | None = None

    def step(y: Tensor, grad: Any) -> Tensor:
        nonlocal own
        if fast is not None:
            own = fast(y if y is own else y.clone(), lr, grad)
            return own
        v = direction(y, grad)
        v = torch.add(v, y - x, alpha=prox) if prox else v
        own = y.sub_(v, alpha=lr) if y is own else torch.sub(y, v, alpha=lr)
        return own

    return step
