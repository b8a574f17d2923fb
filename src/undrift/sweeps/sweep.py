"""Several settings of one method side by side, on the same data, at little more than one's price.

Vectors have one more axis: ``[T, d]`` at the server, ``[C, T, d]`` at the clients. What differs
between the settings is a column ``[T, 1]``, so methods stay as they are written: what they do is by
coordinates, or along the last axis.

That is the ordinary course of a round, in which all clients count and every vector is finite. A
setting for which that is not so leaves the stack as it was when the round began, and goes on by
itself as any other run.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core.method import Method
from undrift.core.options import refuse
from undrift.core.params import BadParameters, values
from undrift.core.problem import Problem, Unsupported
from undrift.core.struct import Message, State
from undrift.engines.engine import Engine, Simulate
from undrift.engines.judge import Diverged, Stuck, client_rows
from undrift.engines.memory import SMALL, SPARE, Needs, free
from undrift.engines.order import Order
from undrift.engines.work import Counters, Ledger, Work
from undrift.sweeps.several import SweepProblem


class OddSettings(Exception):
    """Settings whose round is not an ordinary one."""

    def __init__(self, which: np.ndarray):
        self.which = which
        super().__init__(f"settings {which.tolist()}")


def columns(methods: Sequence[Method], like: Tensor) -> Method:
    """One method, with a column ``[T, 1]`` for each hyper-parameter in which ``methods`` differ."""
    one = copy.copy(methods[0])
    for name, value in values(one).items():
        every = [getattr(method, name) for method in methods]
        if any(other != value for other in every):
            # Beside the checks of a method's fields: each of ``methods`` has passed them.
            object.__setattr__(one, name, like.new_tensor(every).unsqueeze(1))
    return one


class SweepEngine(Simulate):
    """The settings ``methods`` of one method on ``problem``, while their rounds are ordinary."""

    def __init__(self, methods: Sequence[Method], problem: Problem, **arguments: Any):
        self.methods, many = list(methods), SweepProblem(problem, len(methods))
        like = torch.empty(0, dtype=problem.dtype, device=problem.device)
        super().__init__(columns(methods, like), many, **arguments)
        for method in methods:
            if reasons := refuse(method, self.options, None, problem):
                raise BadParameters(type(method).__name__, dict(reasons))
        if self.faulty is not None or self.reducer.rule is not None:
            raise Unsupported("faulty clients and robust rules look at whole uploads")
        if any(sent.sparse for phase in method.exchanges() for sent in (phase.Down, phase.Up)):
            raise Unsupported("sparse vectors take other bytes in each setting")
        self._size = problem.dim * self.x0.element_size()
        self.usual: dict[str, np.ndarray] = {}
        """The usual length ``[T]`` of each upload, by phase and name, as :class:`Sound` has it."""

    def judge(self, order: Order, down: Message, work: Work) -> Mapping[int, str]:
        rows = [torch.linalg.vector_norm(row.v, dim=-1) for row in client_rows(work)]
        norms = torch.cat(rows).cpu().numpy().astype(np.float64)
        odd = ~np.isfinite(norms.sum(0))
        if self.soundness.norm < math.inf and order.phase.who != "all":
            # Where a cohort has converged, uploads are rounding errors.
            sent = [torch.linalg.vector_norm(v, dim=-1) for _, v in down.items()]
            least = torch.finfo(self.x0.dtype).eps * torch.stack(sent).amax(0).cpu().numpy()
            size = len(work.senders)
            for k, (name, _) in enumerate(work.vectors()):
                some = norms[k * size : (k + 1) * size]
                odd |= self._uneven(f"{order.place}.{name}", some, least)
        if odd.any():
            raise OddSettings(np.flatnonzero(odd))
        return {}

    def _uneven(self, key: str, lengths: np.ndarray, least: np.ndarray) -> np.ndarray:
        """Settings ``[T]`` in which somebody's upload is too long, as :class:`Sound` judges."""
        bound, some = self.soundness.norm, np.sort(lengths, axis=0)
        low, high = some[(len(some) - 1) // 2], some[len(some) // 2]
        usual = self.usual.get(key, np.zeros(len(self.methods)))
        apart = high > bound * low
        scale = np.where(apart, np.where(usual > 0, usual, high), np.maximum(usual, high))
        longer = ~apart & (high > usual)
        self.usual[key] = np.where(longer, 2.0 ** np.frexp(high)[1], usual)
        uneven: np.ndarray = (some[-1] > bound * scale) & (scale > least)
        return uneven

    def _check_server(self, order: Order, server: State) -> None:
        sizes = [torch.linalg.vector_norm(v, dim=-1) for _, v in server.items()]
        odd = ~torch.stack(sizes).sum(0).isfinite().cpu().numpy()
        if odd.any():
            raise OddSettings(np.flatnonzero(odd))

    def run_round(self) -> None:
        """As that of any engine; raises :class:`OddSettings` with everything as it was before."""
        before = copy.copy(self.ledger), dict(self.usual)
        try:
            super().run_round()
        except Exception:
            self._roll_back()
            self.ledger, self.usual = before
            raise

    def narrow(self, other: SweepEngine, kept: Sequence[int]) -> None:
        """Continue from the settings ``kept`` of another stack."""
        tensors, counters = other.snapshot()
        self._continue(
            {
                n: v.index_select(v.dim() - 2, torch.tensor(kept, device=v.device))
                for n, v in tensors.items()
            },
            counters,
        )
        self.usual = {key: scale[kept] for key, scale in other.usual.items()}
        if isinstance(self.ledger.gradients, np.ndarray):
            self.ledger.gradients = self.ledger.gradients[kept]

    def setting(self, t: int) -> tuple[dict[str, Tensor], Counters]:
        """A snapshot of one setting, as that of a run by itself."""
        tensors, counters = self.snapshot()
        gradients = np.broadcast_to(self.ledger.gradients, len(self.methods))
        usual = {key: float(scale[t]) for key, scale in sorted(self.usual.items()) if scale[t]}
        ours = {name: v.select(v.dim() - 2, t) for name, v in tensors.items()}
        ledger = counters["ledger"] | {"gradients": int(gradients[t])}
        return ours, counters | {"ledger": ledger, "usual": usual}


class Sweep:
    """Runs the settings ``methods`` of one method, in stacks as long as that is possible.

    One stack has as many settings as there is memory for, and no more than one thread of networks
    works on at a time: beyond that they are no faster side by side.
    """

    def __init__(self, methods: Sequence[Method], problem: Problem, **arguments: Any):
        self.methods, self.problem, self.arguments = list(methods), problem, arguments
        self.alone: dict[int, Engine] = {}
        """Engines of the settings that left the stacks."""
        self.why = ""
        """Why none of them could be in a stack."""
        self.failed: dict[int, Diverged | Stuck] = {}
        """Settings that cannot go on."""
        self._dropped: dict[int, Ledger] = {}
        self.stacks: list[tuple[list[int], SweepEngine]] = []
        """Settings, and the engine in which they are, in this order."""
        everyone = np.arange(len(methods))
        needs = Simulate(methods[0], problem, **arguments).memory
        most = most_together(needs, problem, len(methods))
        try:
            for part in np.array_split(everyone, -(-len(methods) // most)):
                some = part.tolist()
                self.stacks.append((some, self._stack(some)))
        except Unsupported as error:
            self.why, self.stacks = str(error), []
            self.alone = {
                t: Simulate(method, problem, **arguments) for t, method in enumerate(methods)
            }

    @property
    def stacked(self) -> list[int]:
        """The settings in stacks."""
        return [t for some, _ in self.stacks for t in some]

    def run_round(self) -> None:
        """One round of every setting that can go on."""
        ahead, self.stacks = self.stacks, []
        while ahead:
            some, engine = ahead.pop(0)
            try:
                engine.run_round()
                self.stacks.append((some, engine))
            except OddSettings as odd:
                ahead[:0] = self._without(some, engine, odd.which.tolist())
            except torch.OutOfMemoryError:
                half, rest = np.array_split(np.arange(len(some)), 2)
                if not len(rest):  # as it would be in a run of its own
                    raise
                ahead[:0] = self._part(some, engine, half) + self._part(some, engine, rest)
            except Exception as error:
                # Such as a method that decides by a hyper-parameter. What is wrong with a setting
                # itself is raised when it goes on.
                self.why = f"{type(error).__name__}: {error}"
                self._without(some, engine, range(len(some)))
        for t, single in self.alone.items():
            if t not in self.failed:
                try:
                    single.run_round()
                except (Diverged, Stuck) as error:
                    self.failed[t] = error

    def keep(self, settings: Sequence[int]) -> None:
        """Go on with these settings alone; what others have spent is still known."""
        for t in [*self.stacked, *self.alone]:
            if t not in settings:
                self._dropped[t] = self.ledger(t)
        self.alone = {t: engine for t, engine in self.alone.items() if t in settings}
        before, self.stacks = self.stacks, []
        for some, engine in before:
            kept = [place for place, t in enumerate(some) if t in settings]
            self.stacks += self._part(some, engine, kept)

    def x(self, t: int) -> Tensor:
        """The server's model in one setting."""
        if t in self.alone:
            return self.alone[t].x
        engine, place = self._find(t)
        return engine.x[place]

    def metrics(self, t: int) -> dict[str, float]:
        """Those of the server's model in one setting."""
        return self.problem.metrics(self.x(t))

    def ledger(self, t: int) -> Ledger:
        """What one setting has spent."""
        if t in self._dropped:
            return self._dropped[t]
        if t in self.alone:
            return self.alone[t].ledger
        engine, place = self._find(t)
        gradients = np.broadcast_to(engine.ledger.gradients, len(engine.methods))[place]
        return dataclasses.replace(engine.ledger, gradients=int(gradients))

    def _find(self, t: int) -> tuple[SweepEngine, int]:
        """The stack in which a setting is, and its place there."""
        return next((engine, some.index(t)) for some, engine in self.stacks if t in some)

    def _stack(self, settings: Sequence[int]) -> SweepEngine:
        methods = [self.methods[t] for t in settings]
        return SweepEngine(methods, self.problem, **self.arguments)

    def _without(
        self, some: list[int], engine: SweepEngine, odd: Sequence[int]
    ) -> list[tuple[list[int], SweepEngine]]:
        """Let settings at some places go on by themselves, and the others in a smaller stack."""
        for place in odd:
            t = some[place]
            self.alone[t] = Simulate(self.methods[t], self.problem, **self.arguments)
            self.alone[t].restore(*engine.setting(place))
        return self._part(some, engine, [k for k in range(len(some)) if k not in odd])

    def _part(
        self, some: list[int], engine: SweepEngine, places: Sequence[int] | np.ndarray
    ) -> list[tuple[list[int], SweepEngine]]:
        """The settings at some places of a stack, as a stack; none without any."""
        if len(places) in (0, len(some)):
            return [(some, engine)] if len(places) else []
        kept = [some[place] for place in places]
        stack = self._stack(kept)
        stack.narrow(engine, [*places])
        return [(kept, stack)]


def most_together(needs: Needs, problem: Problem, settings: int) -> int:
    """How many settings are run side by side, of which each needs so much."""
    most = min(settings, problem.together or settings)
    if settings * (needs.states + needs.work) < SMALL:
        return most
    # The states of all settings are kept; stacks work one after another.
    room = free("device", problem.device) * (1 - SPARE) - settings * needs.states
    return max(1, min(most, int(room // needs.work)))
