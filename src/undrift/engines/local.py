"""``f`` for one client and for a stack of clients, and the steps of local SGD.

It knows its share of an order, an oracle, the run's draws and options; never an engine. A step of
local SGD is ``step(y, grad) -> y``, with one maker for each way in which steps are taken; all of
them follow ``direction(y, grad) + prox * (y - x)``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift.core.local import Direction, Grad, Iterate, Local, Step, Until
from undrift.core.method import Method
from undrift.core.optimisers import Optimiser
from undrift.core.options import Training
from undrift.core.problem import MiniBatch, Problem, Recording
from undrift.core.struct import State
from undrift.engines.batches import Batches, InParts
from undrift.engines.compile import fused
from undrift.engines.order import Share

Weight = float | Tensor
"""A number, or a column with one for each of several settings."""
NOTHING: tuple[int | np.ndarray, MiniBatch] = -1, ()


class Common(NamedTuple):
    """What clients work by in every round: the method, their data, the first point, the rules."""

    method: Method
    problem: Problem
    at_clients: Problem
    """The same with the labels that clients train on, some of which may be wrong."""
    x0: Tensor
    batches: Batches
    training: Training


class Descent(Local):
    """What every ``f`` shares: the numbers of its order, and local SGD.

    A group of clients on a thread raises :class:`Halted` at a step once ``halted()``.
    """

    end: Tensor | None = None
    """The last local models."""

    def __init__(
        self,
        share: Share,
        common: Common,
        previous: Tensor | None,
        halted: Callable[[], bool] | None = None,
    ):
        order, part = share.order, common.batches.part
        self.round, self.decay = order.counted, order.decay
        self.blocks, self.blocks_before = order.blocks, order.blocks_before
        self.steps: float | Tensor = 0
        self.gradients = 0
        self.members, self._size, self._halted = share.members, len(share.members), halted
        self._going = np.ones(self._size, bool)
        """Clients who take the step in progress: only they spend gradients."""
        self._axes = common.x0.dim()
        self._rows = self._size, *(-1,) * self._axes
        self._planned, self._batches, self._options = share.steps, common.batches, common.training
        oracle = common.at_clients.at(None if share.everyone else share.members)
        self._oracle = oracle if part is None else InParts(oracle, part)
        self._previous = previous
        self._raw = False
        self._drawing = order.round
        self._drawn: int | np.ndarray = 0
        """Steps that were planned before: of all clients alike, or of each."""

    def descend(
        self,
        y: Iterate,
        step: Step[Iterate],
        until: Until[Iterate] | None = None,
        start: int = 0,
    ) -> Iterate:
        raise NotImplementedError

    def sgd(
        self, x: Tensor, lr: Weight, direction: Direction | None = None, prox: Weight = 0.0
    ) -> Tensor:
        # Only plain SGD may write over its iterates, or leave its steps to the oracle. With an
        # optimiser, with clipping and in compiled code it is the step that treats the gradient.
        options, along = self._options, direction or along_the_gradient
        clips = options.clip is not None and options.clip_scope != "task"
        if options.optimiser is not None:
            step = optimised_step(x, lr, along, prox, options, options.optimiser)
            with self._untreated(clips):
                return self.descend(x, step)
        compiled = self._compiles(x)
        if not (clips or compiled):
            if direction is None and options.plain and not some(prox):
                return self._straight(x, lr)
            return self.descend(x, overwriting_step(x, lr, along, prox))
        # A number would be compiled anew when it changes.
        rate = x.new_full((), lr) if compiled and not isinstance(lr, Tensor) else lr
        step = (clipped_step if clips else plain_step)(x, rate, along, prox, options)
        with self._untreated():
            return self._compiled(x, step) if compiled else self.descend(x, step)

    def _compiles(self, x: Tensor) -> bool:
        """Whether steps from ``x`` are compiled."""
        return False

    def _compiled(self, x: Tensor, step: Step[Tensor]) -> Tensor:
        """Local steps from ``x``, compiled."""
        return self.descend(x, fused(step))

    def _straight(self, x: Tensor, lr: Weight) -> Tensor:
        """Local steps that are no more than ``y - lr * grad(y)``."""
        return self.descend(x, overwriting_step(x, lr, along_the_gradient, 0.0))

    @contextmanager
    def _untreated(self, raw: bool = True) -> Iterator[None]:
        """Gradients in here come as they are, if ``raw``: the step itself clips and decays."""
        self._raw = raw
        try:
            yield
        finally:
            self._raw = False

    def _treated(self, y: Tensor, g: Tensor) -> Tensor:
        return g if self._raw or self._options.plain else self._options.treated(y, g)

    def _batch(self, step: int | np.ndarray) -> MiniBatch:
        return self._batches.draw(self.members, self._drawing, step)

    def _parts(self, step: int | np.ndarray) -> int:
        """Gradients that all clients together take for one of their mini-batches."""
        return int(self._batches.parts(self.members, step).sum())


class One(Descent):
    """``f`` for one client: vectors are ``[d]``."""

    def rows(self, v: Tensor) -> Tensor:
        """The vector of one client as a row."""
        return v.unsqueeze(0)

    def grad(self, y: Tensor, step: int | None = None) -> Tensor:
        self._begin(y)
        return self._counted(y, step)

    def solve(self, v: Tensor, lam: float) -> Tensor:
        self.end = self._oracle.solve(v.unsqueeze(0), lam).squeeze(0)
        return self.end

    def descend(
        self,
        y: Iterate,
        step: Step[Iterate],
        until: Until[Iterate] | None = None,
        start: int = 0,
    ) -> Iterate:
        taken, (planned,) = 0, self._planned
        self._begin(iterate(y))
        for j in range(start, planned):
            y = step(y, partial(self._counted, step=self._drawn + j))
            taken += 1
            if until is not None and bool(until(y)):
                break
        # As planned, not as taken: what is drawn next must not depend on when ``until`` was met.
        self._drawn += planned
        self.steps, self.end = taken, iterate(y)
        return y

    def _begin(self, y: Tensor) -> None:
        self._oracle.begin(y.unsqueeze(0), self._previous)

    def _counted(self, y: Tensor, step: int | np.ndarray | None) -> Tensor:
        self.gradients += 1 if step is None else self._parts(step)
        batch = () if step is None else self._batch(step)
        return self._treated(y, self._oracle.grad(y.unsqueeze(0), *batch).squeeze(0))


class Halted(Exception):
    """A group must stop: another one failed, or the run was interrupted."""


class Stacked(Descent):
    """``f`` for several clients side by side: vectors are ``[C, d]``."""

    _calls: int | np.ndarray = 0
    """Gradients in the steps that are not counted yet: of all clients alike, or of each."""
    _recording: Recording | None = None
    _ahead = NOTHING

    def rows(self, v: Tensor) -> Tensor:
        """One row per client, where a vector is still common to all."""
        return v if v.dim() > self._axes else v.expand(self._rows)

    def grad(self, y: Tensor, step: int | None = None) -> Tensor:
        self._count(1 if step is None else self._batches.parts(self.members, step))
        y = self.rows(y)
        self._oracle.begin(y, self._previous)
        return self._treated(y, self._oracle.grad(y, *(() if step is None else self._batch(step))))

    def solve(self, v: Tensor, lam: float) -> Tensor:
        self.end = self._oracle.solve(self.rows(v), lam)
        return self.end

    def descend(
        self,
        y: Iterate,
        step: Step[Iterate],
        until: Until[Iterate] | None = None,
        start: int = 0,
    ) -> Iterate:
        y = cast(Iterate, y.map(self.rows) if isinstance(y, State) else self.rows(y))
        self._oracle.begin(iterate(y), self._previous)
        return self._repeat(y, step, until, start)

    def _repeat(
        self, y: Iterate, step: Step[Iterate], until: Until[Iterate] | None = None, start: int = 0
    ) -> Iterate:
        fewest, most = min(self._planned), max(self._planned)
        if until is None and fewest == most:
            for grad in self._gradients(range(start, most)):
                y = step(y, grad)
            self._count(self._calls)
            self.steps = most - start
        else:
            y = self._masked(y, step, until, start, most)
        self._drawn += most if fewest == most else np.array(self._planned)
        self._calls, self.end = 0, iterate(y)
        return y

    def _masked(
        self, y: Iterate, step: Step[Iterate], until: Until[Iterate] | None, start: int, most: int
    ) -> Iterate:
        """Clients that have taken their steps, or met ``until``, keep what they have."""
        planned, like = np.array(self._planned), iterate(y)
        last = upload(planned, like.device).view(-1, *(1,) * self._axes)
        steps = range(start, most)
        for j, grad in zip(steps, self._gradients(steps), strict=True):
            # Everybody takes the step, and those who are done keep what they have: a smaller stack
            # would be other shapes for the oracle, and other rounding for the rest.
            going, self._calls = last > j, 0
            self._going = planned > j if until is None else going.flatten(1).cpu().numpy()
            y = _where(going, step(y, grad), y)
            self._count(self._calls)
            if until is not None:
                last = torch.where(going & until(y), j + 1, last)
                if int(last.max()) <= j + 1:
                    break
        self._going, self.steps = np.ones(self._size, bool), (last - start).to(like.dtype)
        return y

    def _count(self, calls: int | np.ndarray) -> None:
        """Add gradients, of all clients alike or of each, for those who take this step."""
        spent = (calls * self._going.T).sum(-1)
        self.gradients += spent if spent.size > 1 else spent.item()

    def _gradients(self, steps: range) -> Iterator[Gradient]:
        """``grad`` inside each of these steps."""
        if self._batches.whole and self._halted is None:
            yield from repeat(Gradient(self, (), 1), len(steps))
            return
        for step in (self._drawn + j for j in steps):
            if self._halted is not None and self._halted():
                raise Halted
            batches = self._batches
            parts = 1 if batches.part is None else batches.parts(self.members, step)
            yield Gradient(self, self._batch(step), parts)

    def _compiles(self, x: Tensor) -> bool:
        self._recording = self._recorded(x) if x.is_cuda else None
        return self._recording is not None

    def _recorded(self, x: Tensor) -> Recording | None:
        """The recording that gradients of steps from ``x`` are replays of."""
        y = self.rows(x)
        self._oracle.begin(y, self._previous)
        # A recording is asked for with the first mini-batch, which is drawn here and kept for the
        # first step: drawing it again would take as long again.
        gradient = next(self._gradients(range(1)))
        self._ahead = self._drawn, gradient.batch
        return gradient.recorded(y)

    def _batch(self, step: int | np.ndarray) -> MiniBatch:
        (ahead, batch), self._ahead = self._ahead, NOTHING
        return batch if np.array_equal(ahead, step) else super()._batch(step)

    def _straight(self, x: Tensor, lr: Weight) -> Tensor:
        steps, batches = max(self._planned), self._batches
        # An oracle takes these steps by itself only where they are the same for all clients.
        if min(self._planned) < steps or (batches.part is not None and not batches.whole):
            fast: Any = Gradient.step_
            return self.descend(x, overwriting_step(x, lr, along_the_gradient, 0.0, fast))
        start = self.rows(x)
        self._oracle.begin(start, self._previous)
        gradients = self._gradients(range(steps))
        if batches.whole:
            self.end = self._oracle.descend_(start.clone(), lr, gradients)
        else:
            self.end = self._oracle.follow_(start.clone(), lr, (g.batch for g in gradients))
        self.gradients += self._size * steps
        self.steps, self._drawn = steps, self._drawn + steps
        return self.end

    def _compiled(self, x: Tensor, step: Step[Tensor]) -> Tensor:
        recording = self._recording
        if recording is None:
            return super()._compiled(x, step)
        y = self._repeat(self.rows(recording.arranged(x)), fused(step))
        self.end = recording.restored(y)
        return self.end


@dataclasses.dataclass(eq=False, slots=True)
class Gradient:
    """``grad`` of several clients inside one step: bound to its mini-batch."""

    f: Stacked
    batch: MiniBatch
    parts: int | np.ndarray
    """Gradients that it takes: for all clients alike, or for each."""

    def __call__(self, y: Tensor) -> Tensor:
        self.f._calls += self.parts
        return self.f._treated(y, self.f._oracle.grad(y, *self.batch))

    def step_(self, y: Tensor, lr: Weight) -> Tensor:
        self.f._calls += self.parts
        return self.f._oracle.step_(y, lr, *self.batch)

    def recorded(self, y: Tensor) -> Recording | None:
        """The recording that this gradient is a replay of, made ready for this mini-batch."""
        return self.f._oracle.recorded(y, *self.batch)

    def count(self, calls: int) -> None:
        self.f._calls += calls


def iterate(y: Tensor | State) -> Tensor:
    """The iterate itself, where local work carries more than that."""
    if isinstance(y, Tensor):
        return y
    first: Tensor = getattr(y, y.vectors[0])
    return first


def _where(mask: Tensor, new: Iterate, old: Iterate) -> Iterate:
    def chosen(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(mask, a, b)

    if isinstance(new, State) and isinstance(old, State):
        return new.map(chosen, old)
    return cast(Iterate, chosen(cast(Tensor, new), cast(Tensor, old)))


def some(weight: Weight) -> bool:
    """Whether a weight counts at all."""
    return isinstance(weight, Tensor) or weight != 0


def plus(v: Tensor, weight: Weight, w: Tensor, out: Tensor | None = None) -> Tensor:
    """``v + weight * w`` in one pass."""
    if isinstance(weight, Tensor):
        return torch.addcmul(v, weight, w, out=out)
    return torch.add(v, w, alpha=weight, out=out)


def along_the_gradient(y: Tensor, grad: Grad) -> Tensor:
    """The direction of plain SGD."""
    return grad(y)


def plain_step(
    x: Tensor, lr: Weight, direction: Direction, prox: Weight, options: Training
) -> Step[Tensor]:
    """Clips gradients and adds weight decay itself, and writes nothing in place: for compiling."""

    def step(y: Tensor, grad: Grad) -> Tensor:
        v = direction(y, grad if options.plain else lambda z: options.treated(z, grad(z)))
        return y - lr * (v + prox * (y - x) if some(prox) else v)

    return step


def clipped_step(
    x: Tensor, lr: Weight, direction: Direction, prox: Weight, options: Training
) -> Step[Tensor]:
    """Clips the whole direction; of the reference's proximal term the part in y stays outside."""
    whole = options.clip_scope == "whole"
    outside = options.weight_decay + (0.0 if whole else prox)

    def step(y: Tensor, grad: Grad) -> Tensor:
        v = direction(y, grad)
        if some(prox):
            v = plus(v, prox, y - x) if whole else plus(v, -prox, x)
        kept = (1 - lr * outside) * y
        return kept.addcmul_(v, -lr * options.scale(v))

    return step


def optimised_step(
    x: Tensor, lr: Weight, direction: Direction, prox: Weight, options: Training, local: Optimiser
) -> Step[Tensor]:
    """Hands what a step of SGD would follow to another optimiser, from its beginning on."""
    scope = "task" if options.clip is None else options.clip_scope
    outside = options.weight_decay + (prox if scope == "reference" else 0.0)
    move = local.begin(lr)

    def step(y: Tensor, grad: Grad) -> Tensor:
        v = direction(y, grad)
        if some(prox):
            v = plus(v, -prox, x) if scope == "reference" else v + prox * (y - x)
        if scope != "task":
            v = plus(v * options.scale(v), outside, y)
        return move(y, v)

    return step


def overwriting_step(
    x: Tensor,
    lr: Weight,
    direction: Direction,
    prox: Weight,
    fast: Callable[[Grad, Tensor, Weight], Tensor] | None = None,
) -> Step[Tensor]:
    """Writes over what it made itself, which nobody else holds: that saves passes through memory.

    ``fast(grad, y, lr)`` writes ``y - lr * grad(y)`` over ``y``, where a step is no more than that.
    """
    own: Tensor | None = None

    def step(y: Tensor, grad: Grad) -> Tensor:
        nonlocal own
        # The first point is the caller's: it is copied once, and what comes of it is ours.
        if fast is not None:
            own = fast(grad, y if y is own else y.clone(), lr)
            return own
        v = direction(y, grad)
        v = plus(v, prox, y - x) if some(prox) else v
        if isinstance(lr, Tensor):
            own = torch.addcmul(y, -lr, v, out=y if y is own else None)
        else:  # a little faster than plus()
            own = y.sub_(v, alpha=lr) if y is own else torch.sub(y, v, alpha=lr)
        return own

    return step
