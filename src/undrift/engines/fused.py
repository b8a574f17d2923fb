"""A local step as one compiled function: what lies between two gradients becomes one or two passes through memory."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_now = threading.local()
"""``grad`` of the step under way: the compiled function knows it as an operation that it cannot look into."""


@torch.library.custom_op("undrift::gradient", mutates_args=(), schema="(Tensor y) -> Tensor")
def _gradient(y: Tensor) -> Tensor:
    return _now.grad(y)


@_gradient.register_fake
def _shape(y: Tensor) -> Tensor:
    return torch.empty_like(y)


def _opaque(y: Tensor) -> Tensor:
    return torch.ops.undrift.gradient(y)


_refused: set[Any] = set()
MANY = 256
"""Versions of one step that torch keeps: one for each method, and more for other shapes."""


def fused(step: Callable, **options: Any) -> Callable:
    """``step(y, grad)`` compiled; one line of warning where it cannot be, and then as it is.

    Steps of the same code share what was compiled, whatever they close over; numbers that change from round to round
    are best tensors there.
    """
    if (codes := _codes(step)) in _refused:
        return step
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MANY)
    quick = torch.compile(step, **options)

    def run(y: Any, grad: Callable) -> Any:
        if codes in _refused:
            return step(y, grad)
        _now.grad = grad
        try:
            return quick(y.contiguous(), _opaque)
        except Exception as error:
            result = step(y, grad)  # fails as well where it is the method that is wrong
            _refused.add(codes)
            first = str(error).strip().partition("\n")[0]
            warnings.warn(f"local steps are not compiled: {first}", stacklevel=2)
            return result
        finally:
            _now.grad = None

    return run


def _codes(step: Callable) -> tuple[Any, ...]:
    """What tells steps apart: their own code, and that of the functions they close over."""
    held = [cell.cell_contents for cell in step.__closure__ or ()]
    return step.__code__, *(f.__code__ for f in held if inspect.isfunction(f))
