"""What a problem offers to engines, metrics and theory."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor


class Unsupported(TypeError):
    """A problem was asked for something it does not have; the message says what and what to use
    instead.
    """


@dataclasses.dataclass(frozen=True)
class Constants:
    """Constants of a federation, ``None`` where a problem has none."""

    L: float | None = None
    """Smoothness of every f_i."""
    mu: float | None = None
    """Strong convexity of every f_i (0 when convex, negative when not)."""
    L_mean: float | None = None
    """Smoothness of f."""
    mu_mean: float | None = None
    """Strong convexity of f."""
    delta_A: float | None = None
    """Averaged Hessian dissimilarity."""
    delta_B: float | None = None
    """Bounded Hessian dissimilarity."""


class OtherNumbers(RuntimeError):
    """What was compiled is not, rounding apart, what it is without compilation."""


def apart(y: Tensor) -> Tensor:
    """``y`` with different rows, so that one client's cannot pass for another's."""
    import torch

    return y * (1 + 0.01 * torch.arange(len(y), dtype=y.dtype, device=y.device).unsqueeze(-1))


class Recording(Protocol):
    """A gradient recorded on a device, of whatever lies in its buffers."""

    y: Tensor
    """The buffer of the points."""
    steps: dict[Any, Any]
    """Local steps that were recorded with this gradient inside; its owner releases them with it."""
    refused: set[Any]
    """Steps that gave other numbers with it."""

    def gradient(self, y: Tensor) -> Tensor:
        """The gradient at ``y`` for the other buffers, computed rather than replayed: for recording
        it in turn.
        """

    def record(self, work: Callable[[], Any]) -> tuple[Any, Any]:
        """``work`` as a graph that shares this one's memory, with what it returned."""

    def check(self, found: Tensor, expected: Tensor) -> None:
        """Refuse what was compiled with :class:`OtherNumbers` if it is not what it is without
        compilation.
        """


class Oracle(abc.ABC):
    """The problems of some clients side by side; row c of every argument belongs to the c-th of
    them.
    """

    @abc.abstractmethod
    def grad(self, y: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradients ``[C, d]`` at ``y [C, d]``, on all data or on the samples ``batch [C, B]``.

        ``batch`` holds positions among each client's own samples, -1 for none. Where the problem
        has an
        ``augmentation``, what it drew for the C * B samples follows as a third argument (or
        ``None``), and where it
        ``drops``, a number ``[C]`` as a fourth, which decides what each client drops; without it
        nothing is.
        """

    def step_(self, y: Tensor, lr: float, *batch: Any) -> Tensor:
        """``y - lr * grad(y, *batch)``, written over ``y``."""
        return y.sub_(self.grad(y, *batch), alpha=lr)

    def recorded(self, y: Tensor, *batch: Any) -> Recording | None:
        """The recording that this gradient is a replay of, if any, with the batch in its buffers.

        What a local step adds to it is then worth compiling.
        """
        return None

    def begin(self, start: Tensor, previous: Tensor | None) -> None:
        """Local training sets out from ``start [C, d]``; ``previous`` are the clients' last local
        models.
        """

    def solve(self, v: Tensor, lam: float) -> Tensor:
        """Row-wise minimisers of f_i(y) - <v, y> + (lam/2)|y|^2."""
        raise Unsupported(
            f"{type(self).__name__} has no exact local minimiser; use a quadratic, least-squares or logistic problem, "
            "or a method whose local solver is gradient descent"
        )


class Problem(abc.ABC):
    """f = mean of f_i over the clients, in flat coordinates."""

    clients: int
    dim: int
    samples: list[int]
    """Samples per client; mini-batches are drawn from them."""
    dtype: torch.dtype
    device: torch.device
    augmentation: Any = None
    """Random changes to samples: ``draw(rng, n)`` decides them, the oracle applies them."""
    drops: bool = False
    """Whether local steps leave out parts of the model at random, as dropout does."""
    together: int | None = None
    """How many clients are best worked on side by side, each group of them on one thread; ``None``:
    all there are.
    """
    remembers: bool = False
    """Whether the local loss looks at a client's last local model, which the engine then keeps."""
    differentiates: bool = False
    """Whether gradients come from automatic differentiation, not from a formula."""

    @abc.abstractmethod
    def at(self, members: np.ndarray | None = None) -> Oracle:
        """The local problems of some clients (all when ``None``), their data gathered once."""

    @abc.abstractmethod
    def metrics(self, x: Tensor) -> dict[str, float]:
        """``loss`` and ``grad_norm`` of f at ``x``; ``gap`` and ``distance`` where the optimum is
        known.
        """

    @abc.abstractmethod
    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        """The same problem in another precision or on another device."""

    def release(self) -> None:
        """Give back what was recorded on a device; a run that goes on records it anew."""

    @property
    def constants(self) -> Constants:
        return Constants()

    @property
    def optimum(self) -> Any:
        """The minimiser x* ``[d]`` in float64, or ``None`` where it is not known."""
        return None

    def digest(self) -> str | None:
        """The SHA-256 of what it was made from: data, partition, first point; ``None`` where that
        is not known.
        """
        return None

    def start(self) -> Tensor:
        """The default first point."""
        import torch

        return torch.zeros(self.dim, dtype=torch.float64)
