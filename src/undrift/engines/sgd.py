"""Steps of local SGD, ``step(y, grad) -> y``: one maker for each way in which they are taken.

All of them follow ``direction(y, grad) + prox * (y - x)``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from undrift.core.local import Direction, Grad, Step
from undrift.core.optimisers import Optimiser
from undrift.core.options import Training


def along_the_gradient(y: Tensor, grad: Grad) -> Tensor:
    """The direction of plain SGD."""
    return grad(y)


def plain_step(
    x: Tensor, lr: float | Tensor, direction: Direction, prox: float, options: Training
) -> Step[Tensor]:
    """Clips gradients and adds weight decay itself, and writes nothing in place: for compiling."""

    def step(y: Tensor, grad: Grad) -> Tensor:
        v = direction(y, grad if options.plain else lambda z: options.treated(z, grad(z)))
        return y - lr * (v + prox * (y - x) if prox else v)

    return step


def clipped_step(
    x: Tensor, lr: float | Tensor, direction: Direction, prox: float, options: Training
) -> Step[Tensor]:
    """Clips the whole direction; of the reference's proximal term the part in y stays outside."""
    whole = options.clip_scope == "whole"
    outside = options.weight_decay + (0.0 if whole else prox)

    def step(y: Tensor, grad: Grad) -> Tensor:
        v = direction(y, grad)
        if prox:
            v = torch.add(v, y - x, alpha=prox) if whole else torch.sub(v, x, alpha=prox)
        kept = (1 - lr * outside) * y
        return kept.addcmul_(v, -lr * options.scale(v))

    return step


def optimised_step(
    x: Tensor, lr: float, direction: Direction, prox: float, options: Training, local: Optimiser
) -> Step[Tensor]:
    """Hands what a step of SGD would follow to another optimiser, from its beginning on."""
    scope = "task" if options.clip is None else options.clip_scope
    outside = options.weight_decay + (prox if scope == "reference" else 0.0)
    move = local.begin(lr)

    def step(y: Tensor, grad: Grad) -> Tensor:
        v = direction(y, grad)
        if prox:
            v = torch.sub(v, x, alpha=prox) if scope == "reference" else v + prox * (y - x)
        if scope != "task":
            v = (v * options.scale(v)).add_(y, alpha=outside)
        return move(y, v)

    return step


def overwriting_step(
    x: Tensor,
    lr: float,
    direction: Direction,
    prox: float,
    fast: Callable[[Tensor, float, Grad], Tensor] | None,
) -> Step[Tensor]:
    """Writes over what it made itself, which nobody else holds: that saves passes through memory.

    ``fast(y, lr, grad)`` writes ``y - lr * grad(y)`` over ``y``, where a step is no more than that.
    """
    own: Tensor | None = None

    def step(y: Tensor, grad: Grad) -> Tensor:
        nonlocal own
        if fast is not None:
            own = fast(y if y is own else y.clone(), lr, grad)
            return own
        v = direction(y, grad)
        v = torch.add(v, y - x, alpha=prox) if prox else v
        own = y.sub_(v, alpha=lr) if y is own else torch.sub(y, v, alpha=lr)
        return own

    return step
