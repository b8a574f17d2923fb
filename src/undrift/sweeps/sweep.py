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
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core.method import Method
from undrift.core.options import refuse
from undrift.core.params import BadParameters, values
from undrift.core.problem import MiniBatch, Oracle, Problem, Unsupported
from undrift.core.struct import Message, State
from undrift.engines.engine import Engine, Simulate
from undrift.engines.judge import Diverged, Stuck, client_rows
from undrift.engines.order import Order
from undrift.engines.work import Counters, Ledger, Work


class OddSettings(Exception):
    """Settings whose round is not an ordinary one."""

    def __init__(self, which: np.ndarray):
        self.which = which
        super().__init__(f"settings {which.tolist()}")


class SweepProblem(Problem):
    """``count`` copies of a problem, each with its own point: vectors are ``[..., count, d]``."""

    def __init__(self, inner: Problem, count: int):
        self.inner, self.count = inner, count
        self.clients, self.samples, self.dim = inner.clients, inner.samples, count * inner.dim
        self.dtype, self.device, self.sampled = inner.dtype, inner.device, inner.sampled
        self.keyed, self.augmentation, self.labelled = (
            inner.keyed,
            inner.augmentation,
            inner.labelled,
        )
        self.differentiates, self.pooled = inner.differentiates, inner.pooled
        self.together, self.remembers = inner.together, inner.remembers
        self._last: tuple[bytes | None, Oracle] | None = None

    def at(self, members: np.ndarray | None = None) -> Oracle:
        key = None if members is None else members.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, SweepOracle(self.inner, members, self.count)
        return self._last[1]

    def start(self) -> Tensor:
        return self.inner.start().expand(self.count, -1)

    def with_label_noise(self, noise: Mapping[int, np.ndarray]) -> SweepProblem:
        return SweepProblem(self.inner.with_label_noise(noise), self.count)

    def to(self, dtype: torch.dtype, device: torch.device) -> SweepProblem:
        return SweepProblem(self.inner.to(dtype, device), self.count)


class SweepOracle(Oracle):
    """The problems of some clients at ``count`` points each, ``[C, count, d]``."""

    def __init__(self, problem: Problem, members: np.ndarray | None, count: int):
        self.problem, self.members, self.count = problem, members, count
        self.once = problem.at(members)

    @cached_property
    def often(self) -> Oracle:
        """For oracles that take one point of each client: the clients ``count`` times over."""
        members = np.arange(self.problem.clients) if self.members is None else self.members
        return self.problem.at(np.tile(members, self.count))

    @cached_property
    def each(self) -> list[Oracle]:
        """An oracle for each setting: those that factorise keep the factors of one weight."""
        return [copy.copy(self.once) for _ in range(self.count)]

    def begin(self, start: Tensor, previous: Tensor | None) -> None:
        if not self.once.several:
            self.often.begin(
                _one_by_one(start), None if previous is None else _one_by_one(previous)
            )

    def counts(self, batch: Tensor) -> Tensor:
        return self.once.counts(batch)

    def grad(self, y: Tensor, *batch: Any) -> Tensor:
        if self.once.several:
            return self.once.grad(y, *batch)
        found = self.often.grad(_one_by_one(y), *self._tiled(batch))
        return found.view(self.count, *y.shape[::2]).transpose(0, 1)

    def solve(self, v: Tensor, lam: float | Tensor) -> Tensor:
        weights = torch.as_tensor(lam).expand(self.count, 1).flatten().tolist()
        rows = zip(self.each, v.unbind(1), weights, strict=True)
        return torch.stack([f.solve(one, weight) for f, one, weight in rows], 1)

    def _tiled(self, batch: MiniBatch) -> Iterator[Any]:
        """What was drawn for each client, once for each setting."""
        for drawn in batch:
            if isinstance(drawn, Tensor):
                yield drawn.repeat(self.count, *(1,) * (drawn.dim() - 1))
            else:
                yield drawn and type(drawn).join([drawn] * self.count)


def _one_by_one(y: Tensor) -> Tensor:
    """Vectors ``[C, T, d]`` as rows ``[T * C, d]``, setting by setting."""
    return y.transpose(0, 1).flatten(0, 1)


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
    """Runs the settings ``methods`` of one method, in a stack as long as that is possible."""

    def __init__(self, methods: Sequence[Method], problem: Problem, **arguments: Any):
        self.methods, self.problem, self.arguments = list(methods), problem, arguments
        self.alone: dict[int, Engine] = {}
        """Engines of the settings that left the stack."""
        self.why = ""
        """Why none of them could be in a stack."""
        self.failed: dict[int, Diverged | Stuck] = {}
        """Settings that cannot go on."""
        self._dropped: dict[int, Ledger] = {}
        self.stacked = list(range(len(methods)))
        """The settings in the stack, in its order."""
        self.stack: SweepEngine | None = None
        try:
            self.stack = SweepEngine(methods, problem, **arguments)
        except Unsupported as error:
            self.why, self.stacked = str(error), []
            self.alone = dict(
                enumerate(Simulate(method, problem, **arguments) for method in methods)
            )

    def run_round(self) -> None:
        """One round of every setting that can go on."""
        odd: Sequence[int] = self._advance()
        while odd:
            self._leave(odd)
            odd = self._advance()
        for t, engine in self.alone.items():
            if t not in self.failed:
                try:
                    engine.run_round()
                except (Diverged, Stuck) as error:
                    self.failed[t] = error

    def keep(self, settings: Sequence[int]) -> None:
        """Go on with these settings alone; what others have spent is still known."""
        for t in [*self.stacked, *self.alone]:
            if t not in settings:
                self._dropped[t] = self.ledger(t)
        self.alone = {t: engine for t, engine in self.alone.items() if t in settings}
        self._narrow([place for place, t in enumerate(self.stacked) if t in settings])

    def x(self, t: int) -> Tensor:
        """The server's model in one setting."""
        if t in self.alone:
            return self.alone[t].x
        assert self.stack is not None
        return self.stack.x[self.stacked.index(t)]

    def metrics(self, t: int) -> dict[str, float]:
        """Those of the server's model in one setting."""
        return self.problem.metrics(self.x(t))

    def ledger(self, t: int) -> Ledger:
        """What one setting has spent."""
        if t in self._dropped:
            return self._dropped[t]
        if t in self.alone:
            return self.alone[t].ledger
        assert self.stack is not None
        spent, place = self.stack.ledger, self.stacked.index(t)
        gradients = np.broadcast_to(spent.gradients, len(self.stacked))[place]
        return dataclasses.replace(spent, gradients=int(gradients))

    def _advance(self) -> list[int]:
        """A round of the stack; without one, the settings whose round is not an ordinary one."""
        if self.stack is None:
            return []
        try:
            self.stack.run_round()
        except OddSettings as odd:
            return [self.stacked[place] for place in odd.which]
        except Exception as error:
            # Such as a method that decides by a hyper-parameter, or too little memory. What is
            # wrong with a setting itself is raised when it goes on.
            self.why = f"{type(error).__name__}: {error}"
            return self.stacked
        return []

    def _leave(self, odd: Sequence[int]) -> None:
        """Let settings go on by themselves, and the others in a smaller stack."""
        assert self.stack is not None
        for place, t in enumerate(self.stacked):
            if t in odd:
                engine = Simulate(self.methods[t], self.problem, **self.arguments)
                engine.restore(*self.stack.setting(place))
                self.alone[t] = engine
        self._narrow([place for place, t in enumerate(self.stacked) if t not in odd])

    def _narrow(self, places: Sequence[int]) -> None:
        """Go on with some of the settings in the stack."""
        old, everyone = self.stack, len(self.stacked)
        self.stacked = [self.stacked[place] for place in places]
        if old is None or len(places) == everyone:
            return
        self.stack = None
        if places:
            methods = [self.methods[t] for t in self.stacked]
            self.stack = SweepEngine(methods, self.problem, **self.arguments)
            self.stack.narrow(old, places)
