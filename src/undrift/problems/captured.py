"""A cohort's gradient on a GPU as one CUDA graph: inputs copied into fixed buffers, replayed, read from another."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import grad, vmap

Way = Literal["streams", "stacked"]


class Captured:
    """``gradients(y, x, *others) -> [C, d]`` recorded once and replayed.

    ``prepare`` makes the arguments of ``loss``, all clients', from the buffers; ``loss`` is one client's. The clients
    run side by side on streams of their own (``streams``), or as one network with stacked weights (``stacked``).
    """

    def __init__(
        self,
        prepare: Callable[..., tuple[Any, ...]],
        loss: Callable[..., Tensor],
        inputs: tuple[Tensor | None, ...],
        y: Tensor,
        way: Way,
        autocast: torch.dtype | None = None,
    ):
        self.prepare, self.loss, self.way, self.autocast = prepare, loss, way, autocast
        self.y = y.clone()
        self.inputs = tuple(None if t is None else t.clone() for t in inputs)
        self.out = torch.empty_like(y)
        self.streams = [torch.cuda.Stream() for _ in range(len(y))] if way == "streams" else []
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._body()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._body()

    def __call__(self, y: Tensor, inputs: tuple[Tensor | None, ...]) -> Tensor:
        self.y.copy_(y)
        for mine, given in zip(self.inputs, inputs, strict=True):
            if mine is not None and given is not None:
                mine.copy_(given, non_blocking=True)
        self.graph.replay()
        return self.out.clone()

    def seconds(self) -> float:
        """Time of one replay."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.graph.replay()
        start.record()
        for _ in range(3):
            self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 3e3

    def _body(self) -> None:
        arguments = self.prepare(*self.inputs)
        if self.way == "stacked":
            dims = tuple(None if a is None else 0 for a in arguments)
            with self._precision():
                self.out.copy_(vmap(grad(self.loss), in_dims=(0, *dims))(self.y, *arguments))
            return
        main = torch.cuda.current_stream()
        for c, stream in enumerate(self.streams):
            stream.wait_stream(main)
            with torch.cuda.stream(stream), torch.enable_grad():
                leaf = self.y[c].detach().requires_grad_()
                with self._precision():
                    value = self.loss(leaf, *(None if a is None else a[c] for a in arguments))
                self.out[c].copy_(torch.autograd.grad(value, leaf)[0])
        for stream in self.streams:
            main.wait_stream(stream)

    def _precision(self) -> torch.autocast:
        return torch.autocast("cuda", dtype=self.autocast or torch.bfloat16, enabled=self.autocast is not None)


def capture(
    prepare: Callable[..., tuple[Any, ...]],
    loss: Callable[..., Tensor],
    inputs: tuple[Tensor | None, ...],
    y: Tensor,
    *,
    compiled: bool = False,
    autocast: torch.dtype | None = None,
) -> Captured | None:
    """The faster of the two ways, by measurement; ``None``, with one line of warning, where neither can be captured."""
    best: Captured | None = None
    reason: Exception | None = None
    for way in ("streams", "stacked"):
        wanted = torch.compile(loss, dynamic=False) if compiled and way == "streams" else loss
        try:
            found = Captured(prepare, wanted, inputs, y, way, autocast)
        except Exception as error:
            reason = error
            torch.cuda.synchronize()
            continue
        if best is None or found.seconds() < best.seconds():
            best = found
    if best is None:
        warnings.warn(f"this model cannot be captured as a CUDA graph and runs step by step: {reason}", stacklevel=2)
    return best
