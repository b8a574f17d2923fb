"""What ``f`` offers to a method: a client's own problem and its local training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from undrift.core.struct import Vec


class Local(Protocol):
    """``f``: a client's own problem, as a method sees it."""

    round: int
    """The number of rounds completed before this one."""
    blocks: int
    """How often the method asked its local work to be repeated before communicating."""
    blocks_before: int
    """How often it was repeated in all the rounds before this one."""
    decay: float
    """What lr was multiplied by since the round before; 1 in the first round."""
    steps: Any
    """Local steps taken by the last ``descend`` or ``sgd``, per client."""

    def grad(self, y: Vec, step: int | None = None) -> Vec:
        """Gradient at ``y``: on all the client's data, or on the mini-batch of one local step."""

    def descend(self, y: Any, step: Callable, until: Callable | None = None, start: int = 0) -> Any:
        """Repeat ``y = step(y, grad)`` for local steps ``start, start + 1, ...`` of this round.

        Inside one step ``grad`` stays on one mini-batch. ``until(y)`` stops a client after the step that meets it.
        """

    def sgd(self, x: Vec, lr: float, direction: Callable | None = None, prox: float = 0.0) -> Vec:
        """Local steps ``y = y - lr * (direction(y, grad) + prox * (y - x))`` from ``y = x``.

        The direction is ``grad(y)`` unless given; it does not keep ``y``, which the next step may write over.
        Weight decay and gradient clipping, where the run asks for them, happen here.
        """

    def solve(self, v: Vec, lam: float) -> Vec:
        r"""The minimiser of :math:`f_i(y) - \langle v, y\rangle + \frac{\lambda}{2}\|y\|^2`."""
