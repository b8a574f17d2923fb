"""A problem at several points at once: vectors are ``[T, d]``, those of clients ``[C, T, d]``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core.problem import MiniBatch, Oracle, Problem, Recording, Replayed, Result


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
        self.remembers = inner.remembers
        # As many vectors at a time as the problem likes, where a client has ``count`` of them.
        self.together = inner.together and max(1, inner.together // count)
        self._last: SweepOracle | None = None
        self._recordings: dict[Recording, SweepRecording] = {}

    def at(self, members: np.ndarray | None = None) -> Oracle:
        who, last = np.arange(self.clients) if members is None else members, self._last
        if last is None or not np.array_equal(last.members, who):
            last = SweepOracle(self.inner, who, self.count, self._recordings)
        # One that keeps factors is used again; one of networks on threads is its thread's own.
        self._last = last if self.together is None else None
        return last

    def start(self) -> Tensor:
        return self.inner.start().expand(self.count, -1)

    def with_label_noise(self, noise: Mapping[int, np.ndarray]) -> SweepProblem:
        return SweepProblem(self.inner.with_label_noise(noise), self.count)

    def to(self, dtype: torch.dtype, device: torch.device) -> SweepProblem:
        return SweepProblem(self.inner.to(dtype, device), self.count)


class SweepOracle(Oracle):
    """The problems of some clients at ``count`` points each, ``[C, count, d]``.

    An oracle that takes one point of each client has every client ``count`` times instead: row
    ``c * count + t`` is client c's in setting t.
    """

    def __init__(
        self,
        problem: Problem,
        members: np.ndarray,
        count: int,
        recordings: dict[Recording, SweepRecording],
    ):
        self.problem, self.members, self.count = problem, members, count
        self.once, self._recordings = problem.at(members), recordings

    @cached_property
    def pieces(self) -> list[tuple[slice, Oracle]]:
        """As many rows at a time as the problem works on, and their oracle."""
        rows = np.repeat(self.members, self.count)
        side = min(self.problem.together or len(rows), len(rows))
        cuts = [slice(k, k + side) for k in range(0, len(rows), side)]
        return [(cut, self.problem.at(rows[cut])) for cut in cuts]

    @cached_property
    def each(self) -> list[Oracle]:
        """An oracle for each setting: those that factorise keep the factors of one weight."""
        return [copy.copy(self.once) for _ in range(self.count)]

    def begin(self, start: Tensor, previous: Tensor | None) -> None:
        if not self.once.several:
            before = None if previous is None else previous.flatten(0, 1)
            rows = start.flatten(0, 1)
            for cut, oracle in self.pieces:
                oracle.begin(rows[cut], None if before is None else before[cut])

    def counts(self, batch: Tensor) -> Tensor:
        return self.once.counts(batch)

    def grad(self, y: Tensor, *batch: Any) -> Tensor:
        if self.once.several:
            return self.once.grad(y, *batch)
        rows = y.flatten(0, 1)
        found = [f.grad(rows[cut], *self._rows(batch, cut)) for cut, f in self.pieces]
        return torch.cat(found).view(y.shape)

    def follow_(self, y: Tensor, lr: float | Tensor, batches: Iterable[MiniBatch]) -> Tensor:
        if self.once.several:
            return super().follow_(y, lr, batches)
        rows, rates, drawn = y.view(-1, y.shape[-1]), lr, [*batches]
        for cut, f in self.pieces:
            if isinstance(lr, Tensor):
                rates = lr.repeat(len(self.members), 1)[cut]
            # A piece takes all its steps before the next one begins: it stays in the cache.
            f.follow_(rows[cut], rates, (self._rows(batch, cut) for batch in drawn))
        return y

    def recorded(self, y: Tensor, *batch: Any) -> Recording | None:
        if self.once.several or len(self.pieces) > 1:
            return None
        ((cut, f),) = self.pieces
        found = f.recorded(y.flatten(0, 1), *self._rows(batch, cut))
        if found is not None and found not in self._recordings:
            self._recordings[found] = SweepRecording(found, self.count)
        return None if found is None else self._recordings[found]

    def solve(self, v: Tensor, lam: float | Tensor) -> Tensor:
        weights = torch.as_tensor(lam).expand(self.count, 1).flatten().tolist()
        rows = zip(self.each, v.unbind(1), weights, strict=True)
        return torch.stack([f.solve(one, weight) for f, one, weight in rows], 1)

    def _rows(self, batch: MiniBatch, cut: slice) -> MiniBatch:
        """What was drawn for each client, for some of the rows."""
        clients = np.repeat(np.arange(len(self.members)), self.count)[cut]
        which = torch.from_numpy(clients).to(self.problem.device)
        return tuple(
            drawn.index_select(0, which)
            if isinstance(drawn, Tensor)
            else drawn and drawn.batches(len(self.members), which)
            for drawn in batch
        )


class SweepRecording:
    """A gradient that was recorded for C * T rows, its points as ``[C, T, D]``."""

    def __init__(self, inner: Recording, count: int):
        # Views of the same memory: what is recorded reads and writes these buffers.
        self.inner, shape = inner, (-1, count)
        self.y = torch.unflatten(inner.y, 0, shape)
        self.short = None if inner.short is None else torch.unflatten(inner.short, 0, shape)
        self.outline = torch.unflatten(inner.outline, 0, shape)
        self.steps, self.refused = inner.steps, inner.refused
        self.arranged, self.restored, self.norms = inner.arranged, inner.restored, inner.norms
        self.gradient, self.check = inner.gradient, inner.check

    def place(self, y: Tensor) -> None:
        self.inner.place(y.flatten(0, 1))

    def parts(self, z: Tensor, short: Tensor | None = None) -> list[Tensor]:
        rows = z.flatten(0, 1)
        return self.inner.parts(rows, None if short is None else short.flatten(0, 1))

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        return self.inner.joined(parts).view(self.y.shape)

    def record(self, work: Callable[[], Result]) -> tuple[Replayed, Result]:
        return self.inner.record(work)
