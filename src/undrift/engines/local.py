"""Local stochastic gradient steps, with the options that training runs use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from undrift.core.struct import Struct
from undrift.core.treatment import Treatment, Weights
from undrift.engines.fused import fused


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Treatment):
    """How local gradients are treated (:class:`undrift.core.treatment.Treatment`) and uploads are weighed.

    weights  uniform, or samples: clients count by their number of samples
    """

    weights: Weights = "uniform"

    @property
    def plain(self) -> bool:
        """Whether gradients are used as they come."""
        return not self.weight_decay and self.clip is None

    def clipped(self, v: Tensor) -> Tensor:
        if self.clip is None:
            return v
        return v * self.scale(v)

    def treated(self, y: Tensor, g: Tensor) -> Tensor:
        """The gradient a method sees: clipped, then with weight decay."""
        if not self.weight_decay:
            return self.clipped(g)
        if self.clip is None:
            return torch.add(g, y, alpha=self.weight_decay)
        return self.clipped(g).add_(y, alpha=self.weight_decay)

    def scale(self, v: Tensor) -> Tensor:
        """What clipping multiplies each row by."""
        assert self.clip is not None
        return self.clip / v.norm(dim=-1, keepdim=True).clamp(min=self.clip)


class Descent:
    """The part of ``f`` that every engine shares."""

    options: Options
    round: int
    _engine: Any
    _raw = False

    @property
    def blocks_before(self) -> int:
        return self._engine.blocks_before

    @property
    def decay(self) -> float:
        return self.options.decay if self.round else 1.0

    def sgd(self, x: Tensor, lr: float, direction: Callable | None = None, prox: float = 0.0) -> Any:
        options = self.options
        straight = direction is None and options.plain and not prox
        direction = direction or (lambda y, grad: grad(y))
        compiled = self._compiles(x)
        rate = x.new_full((), lr) if compiled else lr  # a number would be compiled anew when it changes
        if options.clip is not None and options.clip_scope != "task":
            whole = options.clip_scope == "whole"
            outside = options.weight_decay + (0.0 if whole else prox)

            def step(y: Tensor, grad: Callable) -> Tensor:
                v = direction(y, grad)
                if prox:
                    v = torch.add(v, y - x, alpha=prox) if whole else torch.sub(v, x, alpha=prox)
                kept = (1 - rate * outside) * y
                return kept.addcmul_(v, -rate * options.scale(v))

            with self._untreated():
                return self._compiled(x, step) if compiled else self.descend(x, step)
        if compiled:

            def plainly(y: Tensor, grad: Callable) -> Tensor:
                v = direction(y, grad if options.plain else lambda z: options.treated(z, grad(z)))
                return y - rate * (v + prox * (y - x) if prox else v)

            with self._untreated():
                return self._compiled(x, plainly)
        own = None  # what the last step made, which is nobody else's: to write over it spares passes through memory

        def down(y: Tensor, grad: Any) -> Tensor:
            nonlocal own
            if straight:
                own = self._step_(y if y is own else y.clone(), lr, grad)
                return own
            v = direction(y, grad)
            v = torch.add(v, y - x, alpha=prox) if prox else v
            own = y.sub_(v, alpha=lr) if y is own else torch.sub(y, v, alpha=lr)
            return own

        return self.descend(x, down)

    def descend(self, y: Any, step: Callable, until: Callable | None = None, start: int = 0) -> Any:
        raise NotImplementedError

    def _compiles(self, x: Tensor) -> bool:
        """Whether steps from ``x`` are compiled."""
        return False

    def _compiled(self, x: Tensor, step: Callable) -> Tensor:
        """Local steps from ``x``, compiled."""
        return self.descend(x, fused(step))

    def _step_(self, y: Tensor, lr: float, grad: Any) -> Tensor:
        """``y - lr * grad(y)``, written over ``y``."""
        return y.sub_(grad(y), alpha=lr)

    @contextmanager
    def _untreated(self) -> Iterator[None]:
        """Gradients in here come as they are: the step itself clips and decays."""
        self._raw = True
        try:
            yield
        finally:
            self._raw = False

    def _treated(self, y: Tensor, g: Tensor) -> Tensor:
        return g if self._raw or self.options.plain else self.options.treated(y, g)


def iterate(y: Any) -> Tensor:
    """The iterate itself, where local work carries more than that."""
    return getattr(y, y.vectors[0]) if isinstance(y, Struct) else y
