"""A cohort's gradient on a GPU as one CUDA graph, with fixed buffers for inputs and result."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.func import vmap

from undrift.core.problem import OtherNumbers, apart
from undrift.models.arrangement import Arrangement

Result = TypeVar("Result")
Way = Literal["streams", "stacked"]
GAIN: Mapping[Way, float] = {"streams": 2.5, "stacked": 3.1}
"""How many times faster compilation made each way with ResNet-18 on an H200."""


class LossForm(NamedTuple):
    """One client's loss, a function of its weights in an order of their own."""

    loss: Callable[..., Tensor]
    """``loss(weights, *arguments)``, of weights by name."""
    arrangement: Arrangement
    fused: LossForm | None = None
    """The same loss, rounding apart, as it is best compiled."""
    fastest: bool = False
    """Whether no other way need be tried beside it."""


class Captured:
    """The gradients of a cohort recorded once and replayed.

    ``prepare`` makes the arguments of all clients' losses from the buffers; ``form`` has one
    client's loss and how weights are arranged for it. The clients run side by side on streams of
    their own (``streams``), or as one network with stacked weights (``stacked``). Local steps that
    were recorded around this gradient are in ``steps``; they share its buffers and its memory.

    The points are kept arranged, in ``y [C, D]``. Where products run in a lower precision than that
    of ``y``, the gradient reads matrices from ``short``, the same in that precision: whoever writes
    ``y`` writes ``short`` too.
    """

    def __init__(
        self,
        prepare: Callable[..., tuple[Any, ...]],
        form: LossForm,
        inputs: tuple[Tensor | None, ...],
        y: Tensor,
        way: Way,
        compiled: bool = False,
        autocast: torch.dtype | None = None,
    ):
        # A graph replays kernels at the addresses they were recorded with. So points, inputs and
        # result are buffers of this object that are written to and read from, never replaced.
        self.way, self.compiled, self.autocast = way, compiled, autocast
        self.arrangement = form.arrangement
        body = form.loss if way == "streams" else _summed(form)
        self.loss = torch.compile(body, dynamic=False) if compiled else body
        self.prepare = torch.compile(prepare, dynamic=False) if compiled else prepare
        self.y = form.arrangement.arranged(y)
        self.short = None if autocast is None else self.y.to(autocast)
        self.outline = y.new_empty(()).expand(y.shape)
        self.inputs = tuple(None if t is None else t.clone() for t in inputs)
        self.streams: list[torch.cuda.Stream] = []
        if way == "streams":
            self.streams = [torch.cuda.Stream() for _ in y]  # type: ignore[no-untyped-call]
        self.steps: dict[Any, Any] = {}
        self.refused: set[Any] = set()
        # Local steps recorded around this gradient allocate from the same pool: they never run at
        # the same time as it, and would otherwise each keep the memory of a whole gradient.
        self.pool = torch.cuda.graph_pool_handle()
        parts = self.parts(self.y, self.short)
        self.graph, self.out = self.record(lambda: self.gradient(parts))

    def __call__(self, y: Tensor, inputs: tuple[Tensor | None, ...]) -> Tensor:
        # Into the buffers first: a replay reads them and nothing else.
        self.arrangement.place(y, *self.parts(self.y, self.short))
        self.load(inputs)
        self.graph.replay()
        return self.result()

    def result(self) -> Tensor:
        """The gradient that the last replay found, in the order in which points are given."""
        return self.arrangement.restored(*self.out)

    def arranged(self, v: Tensor, out: Tensor | None = None) -> Tensor:
        """``v [..., d]`` in the order of ``y``, written over ``out``, if that is given."""
        return self.arrangement.arranged(v, out)

    def restored(self, v: Tensor) -> Tensor:
        """A vector in the order of ``y`` as it was given."""
        return self.arrangement.restored(*self.arrangement.blocks(v))

    def parts(self, z: Tensor, short: Tensor | None = None) -> list[Tensor]:
        """What the gradient at ``z`` reads; ``short`` is ``z`` as matrices are read, if known."""
        if self.autocast is not None and short is None:
            short = z.to(self.autocast)
        matrices, _ = self.arrangement.blocks(z if short is None else short)
        return [matrices, self.arrangement.blocks(z)[1]]

    def norms(self, v: Tensor) -> Tensor:
        """``v.norm(dim=-1, keepdim=True)``."""
        return self.arrangement.norms(v)

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """The parts of a gradient as one vector, in the precision of ``y``."""
        matrices, rest = parts
        return torch.cat([matrices.to(rest.dtype), rest], -1)

    def check(
        self, found: Tensor, expected: Tensor, otherwise: str = "without compilation"
    ) -> None:
        """Refuse what was recorded if, rounding apart, it is not what it is ``otherwise``."""
        double, short = self.y.dtype == torch.float64, torch.backends.cuda.matmul.allow_tf32
        tolerance = 0.2 if self.autocast else 1e-6 if double else 0.05 if short else 0.01
        error, size = float((found - expected).norm()), float(expected.norm())
        if not error <= tolerance * size:
            raise OtherNumbers(
                f"it gives other numbers than {otherwise} ({error:.1e} away from {size:.1e})"
            )

    def place(self, y: Tensor) -> None:
        """Make ``y``, which is arranged, the points of the next gradient."""
        self.y.copy_(y)
        if self.short is not None:
            self.short.copy_(y)

    def load(self, inputs: tuple[Tensor | None, ...]) -> None:
        """Copy what the next gradients are of into the buffers."""
        for mine, given in zip(self.inputs, inputs, strict=True):
            if mine is not None and given is not None:
                mine.copy_(given, non_blocking=True)

    def record(self, work: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
        """``work`` as a CUDA graph, with its result: memory that every replay writes anew."""
        # torch asks for some passes on another stream before a capture: they compile, choose
        # algorithms and allocate workspaces, none of which may happen while a graph is recorded.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with _without_cudnn_attention(), warnings.catch_warnings():
            # The first pass compiles: torch's advice about that is not for those who call undrift,
            # and the network's own warnings came with the gradient that was launched by itself.
            warnings.simplefilter("ignore")
            with torch.cuda.stream(side):
                for _ in range(3):
                    work()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with _without_collection(), torch.cuda.graph(graph, pool=self.pool):
                out = work()
        return graph, out

    def release(self) -> None:
        """Give the graphs and their memory back; it cannot be replayed any more."""
        # The steps' graphs hold memory of the same pool: it is freed only with the last of them.
        for graph in (self.graph, *(step.graph for step in self.steps.values())):
            graph.reset()
        self.steps.clear()

    def seconds(self) -> float:
        """Time of one replay."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        self.graph.replay()  # the first replay uploads the graph
        start.record()
        for _ in range(3):
            self.graph.replay()
        end.record()
        end.synchronize()
        milliseconds: float = start.elapsed_time(end)
        return milliseconds / 3e3

    def gradient(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The gradient in each of these parts for the loaded inputs, computed and not replayed."""
        arguments = self.prepare(*self.inputs)
        if self.way == "stacked":
            return self._stacked(parts, arguments)
        main, out = torch.cuda.current_stream(), self.arrangement.room(parts)
        # Waiting in both directions makes the other streams part of the capture: without the first
        # wait their work would not be recorded, without the second the capture would fail to end.
        for c, stream in enumerate(self.streams):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                given = tuple(None if a is None else a[c] for a in arguments)
                self._write([part[c] for part in parts], given, [mine[c] for mine in out])
        for stream in self.streams:
            main.wait_stream(stream)
        return out

    def _write(
        self, parts: Sequence[Tensor], arguments: tuple[object, ...], out: Sequence[Tensor]
    ) -> None:
        """One client's gradient, found in each parameter and copied to its place all at once."""
        named = self.arrangement.named(*parts)
        leaves = {name: v.detach().requires_grad_() for name, v in named.items()}
        found = self._differentiated(list(leaves.values()), leaves, *arguments)
        places = list(self.arrangement.named(*out).values())
        for dtype in {v.dtype: None for v in found}:  # a kernel takes one
            some = [k for k, v in enumerate(found) if v.dtype == dtype]
            torch._foreach_copy_([places[k] for k in some], [found[k] for k in some])

    def _stacked(self, parts: Sequence[Tensor], arguments: tuple[object, ...]) -> list[Tensor]:
        leaves = [part.detach().requires_grad_() for part in parts]
        return [g.contiguous() for g in self._differentiated(leaves, *leaves, *arguments)]

    def _differentiated(self, leaves: Sequence[Tensor], *arguments: object) -> list[Tensor]:
        # Only the forward pass is cast: its backward runs in the types that it recorded.
        short = self.autocast is not None
        with torch.enable_grad():
            with torch.autocast("cuda", dtype=self.autocast or torch.bfloat16, enabled=short):
                value = self.loss(*arguments)
            found = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
        return list(found)


@contextmanager
def _without_cudnn_attention() -> Iterator[None]:
    """Attention by torch's own kernels: captured, cuDNN's has given NaN for a GPT in bf16."""
    on = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(on)


@contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage collection: freeing an older graph would break the capture of another."""
    # What is garbage already goes now, so that none of it is collected by chance in between.
    gc.collect()
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _summed(form: LossForm) -> Callable[..., Tensor]:
    """The sum of all clients' losses, of the two blocks in which their weights are arranged: row c
    of its gradient is client c's, whose loss alone depends on its weights.
    """

    def loss(matrices: Tensor, rest: Tensor, *arguments: object) -> Tensor:
        return form.loss(form.arrangement.named(matrices, rest), *arguments)

    def total(*arguments: Any) -> Tensor:
        dims = tuple(None if a is None else 0 for a in arguments)
        return vmap(loss, in_dims=dims)(*arguments).sum()

    return total


def capture(
    prepare: Callable[..., tuple[Any, ...]],
    forms: Mapping[Way, LossForm],
    inputs: tuple[Tensor | None, ...],
    y: Tensor,
    launched: Tensor,
    *,
    compiled: bool = False,
    autocast: torch.dtype | None = None,
) -> Captured | None:
    """The fastest of these ways, then compiled; warns in one line where it cannot.

    They are compared before they are compiled, which takes a minute each, by the time they take and
    what compilation is likely to gain; a way whose fused form is known to be the ``fastest`` ends
    the search. Deterministic algorithms leave no choice: only compiled and stacked does every
    sum have an order. A graph is used only if it gives the first client's gradient as it was
    ``launched`` by itself, and compiled code only if it gives the plain code's numbers; if fused
    layers do not, the form is compiled without them.
    """

    def record(way: Way, form: LossForm, compiled: bool = False) -> Captured:
        made = Captured(prepare, form, inputs, y, way, compiled, autocast)
        if bool(launched.isfinite().all()):  # else it is the weights or the data that are at fault
            made.graph.replay()
            made.check(made.result()[0], launched, "launched by itself")
        return made

    def compare(plain: Captured, form: LossForm) -> Captured:
        # At points that differ from client to client: equal rows would hide a mix-up of clients.
        made = record(plain.way, form, compiled=True)
        for one in (plain, made):
            one.place(one.arranged(apart(y)))
            one.graph.replay()
        made.check(made.result(), plain.result())
        return made

    if compiled and torch.are_deterministic_algorithms_enabled():
        return record("stacked", forms["stacked"], compiled=True)
    # Plain graphs first: they are cheap to make, they tell which way is faster, and what is
    # compiled afterwards is held against the winner.
    found: dict[float, Captured] = {}
    reason: Exception | None = None
    for way, form in forms.items():
        try:
            one = record(way, form)
            found[one.seconds() / (GAIN[way] if compiled else 1)] = one
            if compiled and form.fused is not None and form.fused.fastest:
                break
        except Exception as error:
            reason = error
            # An error of a kernel may come later than its launch: not in the next attempt.
            torch.cuda.synchronize()
    if not found:
        warnings.warn(
            f"this network cannot be captured as a CUDA graph ({_first_line(reason)}): "
            "every step is launched by itself, which is slower",
            stacklevel=2,
        )
        return None
    # The slower ones go before anything is compiled: each holds the memory of a whole gradient.
    best = found.pop(min(found))
    for other in found.values():
        other.release()
    if not compiled:
        return best
    form = forms[best.way]
    tries = [(form, "compiled", "it runs as a plain CUDA graph")]
    if form.fused is not None:
        tries.insert(0, (form.fused, "compiled with fused layers", "it is compiled without"))
    for form, what, instead in tries:
        try:
            made = compare(best, form)
            best.release()
            return made
        except Exception as error:
            torch.cuda.synchronize()
            warnings.warn(
                f"this network cannot be {what} ({_first_line(error)}): {instead}, which is slower",
                stacklevel=2,
            )
    return best


def _first_line(error: Exception | None) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0]
