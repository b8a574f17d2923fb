"""A local step as one compiled function; around a recorded gradient, as one CUDA graph."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from undrift.core.local import Grad, Step
from undrift.core.problem import OtherNumbers, Recording, apart

Kernels = Callable[..., Any]
"""What Inductor makes of a traced function."""

_now = threading.local()
"""``grad`` of the step under way, which compiled code calls as an opaque operation."""


_library = torch.library.Library("undrift", "DEF")  # type: ignore[no-untyped-call]
_library.define("gradient(Tensor y) -> Tensor")  # type: ignore[no-untyped-call]
_outside = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
"""How torch dispatches outside compiled functions, which switch differentiation off."""


@torch.library.impl(_library, "gradient", "CompositeExplicitAutograd")
def _gradient(y: Tensor) -> Tensor:
    with torch._C._ForceDispatchKeyGuard(*_outside):
        found: Tensor = _now.grad(y)
        return found


@torch.library.register_fake("undrift::gradient", lib=_library)  # type: ignore[untyped-decorator]
def _shape(y: Tensor) -> Tensor:
    return torch.empty_like(y)


def _opaque(y: Tensor) -> Tensor:
    found: Tensor = torch.ops.undrift.gradient(y)
    return found


_refused: set[tuple[CodeType, ...]] = set()
MANY = 256
"""Versions of one step that torch keeps: one for each method, and more for other shapes."""


def fused(step: Step[Tensor], **options: Any) -> Step[Tensor]:
    """``step(y, grad)`` compiled; with one line of warning, ``step`` itself where it cannot be.

    Steps of the same code share what was compiled, whatever they close over; numbers that change
    from round to round are best tensors there. Where ``grad.recorded(y)`` is a recording, the step
    and its gradients are one CUDA graph, which writes over the recording's own ``y``: what it
    returns is valid until the next step.
    """
    if (codes := _codes(step)) in _refused:
        return step
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MANY)

    def over(y: Tensor, grad: Grad) -> None:
        y.copy_(step(y, grad))

    quick = torch.compile(step, **options)
    quick_over = torch.compile(over, backend=_graphed, dynamic=False)

    def run(y: Tensor, grad: Any) -> Tensor:
        if codes in _refused:
            return step(y, grad)
        recording: Recording | None = grad.recorded(y) if hasattr(grad, "recorded") else None
        refused = _refused if recording is None else recording.refused
        if codes in refused:
            return step(y, grad)
        try:
            _now.grad = grad
            if recording is None:
                found: Tensor = quick(y.contiguous(), _opaque)
                return found
            if y is not recording.y:
                recording.y.copy_(y)
            _now.recording, _now.made = recording, None
            quick_over(recording.y, _opaque)
            if _now.made is not None:
                _now.made.compare(step, grad)
            grad.count(_now.calls)
            return recording.y
        except Exception as error:
            result = step(y, grad)  # fails as well where it is the method that is wrong
            (refused if isinstance(error, OtherNumbers) else _refused).add(codes)
            first = str(error).strip().partition("\n")[0]
            warnings.warn(f"local steps are not compiled: {first}", stacklevel=2)
            return result
        finally:
            _now.grad = _now.recording = _now.made = None

    return run


def _graphed(traced: Any, examples: list[Any]) -> Kernels:
    """A backend of torch.compile: kernels, as one CUDA graph for each recorded gradient."""
    work = _kernels(traced, examples)

    def replay(*inputs: Any) -> Any:
        steps = _now.recording.steps
        if work not in steps:
            steps[work] = Recorded(work, inputs, _now.recording)
        return steps[work](inputs)

    return replay


def _kernels(traced: Any, examples: list[Any]) -> Kernels:
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(traced, examples)  # type: ignore[return-value]


class Recorded:
    """A compiled step and its gradients as one CUDA graph, which writes over ``gradient.y``."""

    def __init__(self, work: Kernels, inputs: Sequence[Any], gradient: Recording):
        self._buffers = [Buffer(given, gradient.y) for given in inputs]
        self.calls = 0

        def counted(y: Tensor) -> Tensor:
            self.calls += 1
            return gradient.gradient(y)

        def whole() -> Any:
            self.calls = 0
            return work(*(buffer.value for buffer in self._buffers))

        _now.grad = counted
        self._gradient, self._start = gradient, gradient.y.clone()
        try:
            self.graph, self._out = gradient.record(whole)
        finally:
            gradient.y.copy_(self._start)
        _now.made = self

    def __call__(self, inputs: Sequence[Any]) -> Any:
        for buffer, given in zip(self._buffers, inputs, strict=True):
            buffer.load(given)
        self.graph.replay()
        _now.calls = self.calls
        return self._out

    def compare(self, step: Step[Tensor], grad: Any) -> None:
        """Raise :class:`OtherNumbers` unless the graph leads where ``step`` does, rows apart."""
        y, end, start = self._gradient.y, self._gradient.y.clone(), apart(self._start)
        y.copy_(start)
        self.graph.replay()
        found = y - start
        expected = step(start, grad) - start  # this may write over y
        grad.count(-self.calls)
        y.copy_(self._start)
        self._gradient.check(found, expected)
        y.copy_(end)
        del self._start


class Buffer:
    """Where a graph finds one of its inputs: a place of its own, or ``y`` itself."""

    def __init__(self, given: Any, y: Tensor):
        self.value, self._place = given, None
        self._last: Any = given
        if isinstance(given, Tensor) and given.data_ptr() != y.data_ptr():
            self._place = _distinct(given).clone()
            self.value = self._place.expand(given.shape)

    def load(self, given: Any) -> None:
        """Copy it in; a vector that is there already has not changed within the round."""
        if self._place is not None and given is not self._last:
            self._place.copy_(_distinct(given), non_blocking=True)
            self._last = given


def _distinct(v: Tensor) -> Tensor:
    """``v`` without the axes along which it only repeats."""
    return v[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in v.stride())]


def _codes(step: Any) -> tuple[CodeType, ...]:
    """What tells steps apart: their own code, and that of the functions they close over."""
    held = [cell.cell_contents for cell in step.__closure__ or ()]
    return step.__code__, *(f.__code__ for f in held if inspect.isfunction(f))
