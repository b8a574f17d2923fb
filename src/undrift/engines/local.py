"""What ``f`` shares in every engine: local steps, and how their gradients are treated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from undrift.core.struct import Struct
from undrift.engines.compile import fused
from undrift.engines.options import Options
from undrift.engines.sgd import along_the_gradient, clipped_step, overwriting_step, plain_step


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

    def sgd(
        self, x: Tensor, lr: float, direction: Callable | None = None, prox: float = 0.0
    ) -> Any:
        options, compiled = self.options, self._compiles(x)
        straight = direction is None and options.plain and not prox
        direction = direction or along_the_gradient
        if options.clip is None or options.clip_scope == "task":
            if not compiled:
                fast = self._step_ if straight else None
                return self.descend(x, overwriting_step(x, lr, direction, prox, fast))
            make = plain_step
        else:
            make = clipped_step
        rate = (
            x.new_full((), lr) if compiled else lr
        )  # a number would be compiled anew when it changes
        step = make(x, rate, direction, prox, options)
        with self._untreated():
            return self._compiled(x, step) if compiled else self.descend(x, step)

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
