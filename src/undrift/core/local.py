"""What ``f`` offers to a method: a client's own problem and its local training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from undrift.core.struct import State, Vec

Iterate = TypeVar("Iterate", bound=Vec | State)
"""What local steps carry on: a vector, or a record of vectors whose first is the iterate."""
Grad = Callable[[Vec], Vec]
"""A gradient that stays on one mini-batch."""
Step = Callable[[Iterate, Grad], Iterate]
Direction = Callable[[Vec, Grad], Vec]
Until = Callable[[Iterate], Vec]
"""A test of each client's iterate: true or false, ``[C, 1]`` or ``[1]``."""


class Local(Protocol):
    """``f``: a client's own problem, as a method sees it."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            offers = {one for one in (*Local.__annotations__, *vars(Local)) if one[0] != "_"}
            raise AttributeError(f"f has no {name}; it has {', '.join(sorted(offers))}")

    round: int
    """The number of rounds completed before this one."""
    blocks: int
    """How often the local work is repeated before communicating."""
    blocks_before: int
    """How often it was repeated in all the rounds before this one."""
    decay: float
    """What lr was multiplied by since the round before; in the first round, since it was given."""
    steps: float | Vec
    """Local steps taken by the last ``descend`` or ``sgd``, per client."""

    def grad(self, y: Vec, step: int | None = None) -> Vec:
        """Gradient at ``y``: on all the client's data, or on the mini-batch of one local step."""

    def descend(
        self,
        y: Iterate,
        step: Step[Iterate],
        until: Until[Iterate] | None = None,
        start: int = 0,
    ) -> Iterate:
        """Repeat ``y = step(y, grad)`` for local steps ``start, start + 1, ...`` of this round.

        Inside one step ``grad`` stays on one mini-batch. A client stops after the step whose result
        meets ``until``.
        """

    def sgd(self, x: Vec, lr: float, direction: Direction | None = None, prox: float = 0.0) -> Vec:
        """Local steps ``y = y - lr * (direction(y, grad) + prox * (y - x))`` from ``y = x``, or
        those of the run's own optimiser along the same.

        The direction is ``grad(y)`` unless given; it must not keep ``y``, which the next step may
        write over. Weight decay and gradient clipping of the run happen here.
        """

    def solve(self, v: Vec, lam: float) -> Vec:
        r"""The minimiser of :math:`f_i(y) - \langle v, y\rangle + \frac{\lambda}{2}\|y\|^2`."""
