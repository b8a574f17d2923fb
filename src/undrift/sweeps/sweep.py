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
            if reasons := dict(refuse(method, self.options, None, problem)):
                raise BadParameters(type(method).__name__, reasons)
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
        usual = {key: float(scale[t]) for key, scale in sorted(self.usual.items()) if scale[t]}
        ours = {name: v.select(v.dim() - 2, t) for name, v in tensors.items()}
        return ours, counters | {"ledger": vars(self.spent(t)), "usual": usual}

    def spent(self, t: int) -> Ledger:
        """What one setting has spent."""
        gradients = np.broadcast_to(self.ledger.gradients, len(self.methods))
        return dataclasses.replace(self.ledger, gradients=int(gradients[t]))


Stack = tuple[list[int], SweepEngine]
"""Settings, and the engine in which they are, in this order."""


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
        self.stacks: list[Stack] = []
        needs = Simulate(methods[0], problem, **arguments).memory
        most = most_together(needs, problem, len(methods))
        try:
            for part in np.array_split(np.arange(len(methods)), -(-len(methods) // most)):
                self.stacks.append(self._stack(part.tolist()))
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
                ahead[:0] = self._without(some, engine, [some[place] for place in odd.which])
            except torch.OutOfMemoryError:
                if len(some) == 1:  # as it would be in a run of its own
                    raise
                half = (len(some) + 1) // 2
                ahead[:0] = [self._part(some, engine, t) for t in (some[:half], some[half:])]
            except Exception as error:
                # Such as a method that decides by a hyper-parameter. What is wrong with a setting
                # itself is raised when it goes on.
                self.why = f"{type(error).__name__}: {error}"
                self._without(some, engine, some)
        for t in self.alone.keys() - self.failed.keys():
            try:
                self.alone[t].run_round()
            except (Diverged, Stuck) as error:
                self.failed[t] = error

    def keep(self, settings: Sequence[int]) -> None:
        """Go on with these settings alone; what others have spent is still known."""
        before = [*self.stacked, *self.alone]
        self._dropped |= {t: self.ledger(t) for t in before if t not in settings}
        self.alone = {t: engine for t, engine in self.alone.items() if t in settings}
        parts = [self._part(some, engine, settings) for some, engine in self.stacks]
        self.stacks = [part for part in parts if part[0]]

    def x(self, t: int) -> Tensor:
        """The server's model in one setting."""
        return self._at(t)[0]

    def ledger(self, t: int) -> Ledger:
        """What one setting has spent."""
        return self._dropped[t] if t in self._dropped else self._at(t)[1]

    def _at(self, t: int) -> tuple[Tensor, Ledger]:
        """Where a setting is, and what it has spent."""
        if t in self.alone:
            return self.alone[t].x, self.alone[t].ledger
        engine, place = next((one, some.index(t)) for some, one in self.stacks if t in some)
        return engine.x[place], engine.spent(place)

    def _stack(self, settings: list[int]) -> Stack:
        methods = [self.methods[t] for t in settings]
        return settings, SweepEngine(methods, self.problem, **self.arguments)

    def _without(self, some: list[int], engine: SweepEngine, odd: Sequence[int]) -> list[Stack]:
        """Let settings go on by themselves, and the others of a stack, if any, in a smaller one."""
        for t in odd:
            self.alone[t] = Simulate(self.methods[t], self.problem, **self.arguments)
            self.alone[t].restore(*engine.setting(some.index(t)))
        rest = [t for t in some if t not in odd]
        return [self._part(some, engine, rest)] if rest else []

    def _part(self, some: list[int], engine: SweepEngine, settings: Sequence[int]) -> Stack:
        """What a stack has of these settings, as a stack; as it is with all of them, or none."""
        kept = [t for t in some if t in settings]
        if len(kept) in (0, len(some)):
            return kept, engine
        _, part = self._stack(kept)
        part.narrow(engine, [some.index(t) for t in kept])
        return kept, part


def most_together(needs: Needs, problem: Problem, settings: int) -> int:
    """How many settings are run side by side, of which each needs so much."""
    most = min(settings, problem.together or settings)
    if settings * (needs.states + needs.work) < SMALL:
        return most
    # The states of all settings are kept; stacks work one after another.
    room = free("device", problem.device) * (1 - SPARE) - settings * needs.states
    return max(1, min(most, int(room // needs.work)))
