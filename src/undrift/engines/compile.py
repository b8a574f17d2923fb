"""A local step as one compiled function; around a recorded gradient, as one CUDA graph."""

from __future__ import annotations

import functools
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

_now = threading.local()
"""``grad`` of the step under way, which compiled code calls as an opaque operation."""


_library = torch.library.Library("undrift", "DEF")  # type: ignore[no-untyped-call]
_library.define("gradient(Tensor y) -> Tensor")  # type: ignore[no-untyped-call]
_library.define("gradients(Tensor[] parts) -> Tensor[]")  # type: ignore[no-untyped-call]
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


@torch.library.impl(_library, "gradients", "CompositeExplicitAutograd")
def _gradients(parts: list[Tensor]) -> list[Tensor]:
    with torch._C._ForceDispatchKeyGuard(*_outside):
        found: list[Tensor] = _now.grad(parts)
        return found


@torch.library.register_fake("undrift::gradients", lib=_library)  # type: ignore[untyped-decorator]
def _shapes(parts: list[Tensor]) -> list[Tensor]:
    return [part.new_empty(part.shape) for part in parts]


def _opaque(y: Tensor) -> Tensor:
    found: Tensor = torch.ops.undrift.gradient.default(y)
    return found


_refused: set[tuple[CodeType, ...]] = set()
MANY = 256
"""Versions of one step that torch keeps: one for each method, and more for other shapes."""


def fused(step: Step[Tensor], **options: Any) -> Step[Tensor]:
    """``step(y, grad)`` compiled; with one line of warning, ``step`` itself where it cannot be.

    Steps of the same code share what was compiled, whatever they close over; numbers that change
    from round to round are best tensors there. Where ``grad.recorded(y)`` is a recording, points
    are arranged as it keeps them. The step and its gradients are one CUDA graph then, which writes
    over the recording's own ``y``: what it returns is valid until the next step.
    """
    # Closures are made anew in every round; their code is what stays the same.
    codes = _codes(step)
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MANY)
    replayed = torch.compile(step, backend=_graphed, dynamic=False)

    @functools.cache
    def quick() -> Step[Tensor]:
        return torch.compile(step, **options)  # a millisecond, which recorded steps do not need

    def run(y: Tensor, grad: Any) -> Tensor:
        recording = _recording(y, grad)
        refused = _refused if recording is None else recording.refused
        if codes in refused or codes in _refused:
            return _as_it_is(step, y, grad, recording)
        # A step is traced once and called with a new ``grad`` each time, which compiled code cannot
        # take as an argument: it is set here, read by the operation ``gradient`` while the step
        # runs, and cleared below. ``recording`` is read by the replay, which sets ``calls`` and,
        # where it made a graph, ``made``. Threads run steps side by side: each has its own.
        try:
            _now.grad = grad
            if recording is None:
                return quick()(y.contiguous(), _opaque)
            # After the first step the points are in place: the graph has written over them.
            if y is not recording.y:
                recording.place(y)
            _now.recording, _now.made = recording, None
            replayed(recording.outline, _opaque)
            # A graph that was made just now is tried against the step itself before it is trusted.
            if _now.made is not None:
                _now.made.compare(step, grad)
            grad.count(_now.calls)
            return recording.y
        except Exception as error:
            # Fails as well where it is the method that is wrong: then its own error is raised.
            result = _as_it_is(step, y, grad, recording)
            (refused if isinstance(error, OtherNumbers) else _refused).add(codes)
            first = str(error).strip().partition("\n")[0]
            warnings.warn(f"local steps are not compiled: {first}", stacklevel=2)
            return result
        finally:
            _now.grad = _now.recording = _now.made = None

    return run


def _recording(y: Tensor, grad: Any) -> Recording | None:
    return grad.recorded(y) if hasattr(grad, "recorded") else None


def _as_it_is(step: Step[Tensor], y: Tensor, grad: Grad, recording: Recording | None) -> Tensor:
    if recording is None:
        return step(y, grad)
    return recording.arranged(step(recording.restored(y), grad))


def _graphed(traced: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
    """A backend of torch.compile: a CUDA graph for each recorded gradient.

    The step was traced with vectors as methods see them. That finds all that it reads; what is
    recorded works with the same vectors as the recording keeps them.
    """

    def replay(*inputs: Any) -> Any:
        recording = _now.recording
        if replay not in recording.steps:
            recording.steps[replay] = RecordedStep(traced, inputs, recording)
        recording.steps[replay](inputs)
        return (recording.outline,)

    return replay


class RecordedStep:
    """A compiled step and its gradients as one CUDA graph, which writes over the points of
    ``recording``.
    """

    def __init__(
        self, traced: torch.fx.GraphModule, inputs: Sequence[Any], recording: Recording
    ) -> None:
        self._recording, self.calls = recording, 0
        self._buffers = [Buffer(given, recording) for given in inputs]
        values = [buffer.value for buffer in self._buffers]
        point = next(k for k, value in enumerate(values) if value is recording.y)
        short = [] if recording.short is None else [recording.short]
        step = _kernels(_overwriting(traced, point, recording), [*values, *short])

        def counted(parts: Sequence[Tensor]) -> list[Tensor]:
            self.calls += 1
            return recording.gradient(parts)

        def whole() -> None:
            self.calls = 0
            step(*values, *short)

        _now.grad = counted
        self._start = recording.y.clone()
        try:
            self.graph, _ = recording.record(whole)
        finally:
            recording.place(self._start)
        _now.made = self

    def __call__(self, inputs: Sequence[Any]) -> None:
        for buffer, given in zip(self._buffers, inputs, strict=True):
            buffer.load(given)
        self.graph.replay()
        _now.calls = self.calls

    def compare(self, step: Step[Tensor], grad: Any) -> None:
        """Raise :class:`OtherNumbers` unless the graph leads where ``step`` does, rows apart."""
        recording, end = self._recording, self._recording.y.clone()
        start = apart(recording.restored(self._start))
        recording.place(recording.arranged(start))
        self.graph.replay()
        found = recording.restored(recording.y) - start
        expected = step(start, grad) - start  # this may write over the points
        grad.count(-self.calls)
        recording.place(self._start)
        recording.check(found, expected)
        recording.place(end)
        del self._start


def _overwriting(
    traced: torch.fx.GraphModule, point: int, recording: Recording
) -> torch.fx.GraphModule:
    """The traced step with the recording's gradient inside, writing its result over the points.

    Its inputs are those of ``traced``, of which number ``point`` are the points, and then the
    points in lower precision, if the recording has them.
    """
    graph = torch.fx.Graph()
    (new,) = graph.graph_copy(traced.graph, {})  # type: ignore[misc]
    places = graph.find_nodes(op="placeholder")
    points = [places[point]]
    if recording.short is not None:
        with graph.inserting_after(places[-1]):
            points.append(graph.placeholder("short"))

    def gradient(*at: Tensor) -> Tensor:
        parts: list[Tensor] = torch.ops.undrift.gradients.default(recording.parts(*at))
        return recording.joined(parts)

    for node in graph.find_nodes(op="call_function", target=torch.ops.undrift.gradient.default):
        node.target = gradient
        if node.args == (places[point],):
            node.args = (*points,)
    for node in graph.find_nodes(op="call_method", target="norm"):
        if node.args[1:] == () and node.kwargs == {"dim": -1, "keepdim": True}:
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.call_function(recording.norms, node.args))
            graph.erase_node(node)
    for place in points:
        graph.call_method("copy_", (place, new))
    graph.output(())
    return torch.fx.GraphModule(traced, graph)


def _kernels(step: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
    """What Inductor makes of a step."""
    found: Callable[..., Any] = torch._inductor.compile(step, examples)
    return found


class Buffer:
    """Where a graph finds one of its inputs: a place of its own, or the points themselves."""

    def __init__(self, given: Any, recording: Recording):
        self.value: Any = given
        self._place: Tensor | None = None
        self._last, self._recording = given, recording
        if not isinstance(given, Tensor):
            return
        if given.data_ptr() == recording.outline.data_ptr():
            self.value = recording.y
            return
        self._vector = given.shape[-1:] == recording.outline.shape[-1:]
        once = _once(given)
        self._place = recording.arranged(once) if self._vector else once.clone()
        self.value = self._place.expand((*given.shape[:-1], *self._place.shape[-1:]))

    def load(self, given: Any) -> None:
        """Copy it in; a vector that is there already has not changed within the round."""
        if self._place is None or given is self._last:
            return
        if self._vector:
            self._recording.arranged(_once(given), self._place)
        else:
            self._place.copy_(_once(given), non_blocking=True)
        self._last = given


def _once(given: Tensor) -> Tensor:
    """Without the axes along which it only repeats."""
    for axis, stride in enumerate(given.stride()[:-1]):
        given = given.narrow(axis, 0, 1) if stride == 0 else given
    return given


def _codes(step: Any) -> tuple[CodeType, ...]:
    """What tells steps apart: their own code, and that of the functions they close over."""
    held = [cell.cell_contents for cell in step.__closure__ or ()]
    return step.__code__, *(f.__code__ for f in held if inspect.isfunction(f))
