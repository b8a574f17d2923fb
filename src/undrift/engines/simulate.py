"""The fast engine: the cohort side by side, every vector ``[C, d]``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift.core.cohort import Cohort
from undrift.core.problem import Oracle, Recording
from undrift.core.struct import Struct
from undrift.engines.codec import sparse_bytes
from undrift.engines.engine import Engine
from undrift.engines.local import Descent, iterate
from undrift.engines.memory import folder, plan
from undrift.engines.store import Apart, Rows, Store
from undrift.engines.threads import Halted, grouped

PREVIOUS = "previous model"
"""The clients' last local models beside what a method declares; no field can have that name."""


class Simulate(Engine):
    """All clients of a cohort in one process, their vectors stacked.

    ``store`` says where the vectors of all clients are kept: on the ``device``, in memory beside
    the GPU (``host``), in
    a ``file``, or in the first of these with room for them (``auto``). The numbers are the same.
    """

    def __init__(self, *args: Any, store: str = "auto", **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.needs = plan(self.method, self.problem, self.cohort, store)
        start = dict(self.method.client(self.x0).lasting().items())
        start |= {PREVIOUS: self.x0} if self.problem.remembers else {}
        start = {
            name: v if v.any() else torch.zeros_like(v) for name, v in start.items()
        }  # 0 * x0 has negative zeros
        n, place = self.problem.clients, self.needs.place
        self.store = (
            Store(start, n)
            if place == "device"
            else Apart(start, n, folder() if place == "file" else None)
        )
        self._scratch: tuple[np.ndarray, dict[str, Tensor]] | None = None

    @property
    def clients(self) -> Any:
        """What the clients remember: a record of vectors ``[N, d]``."""
        return self.method.Client(
            **{name: v for name, v in self.store.tensors().items() if name != PREVIOUS}
        )

    def exchange(self, phase: Any, cohort: Cohort, steps: list[int], picked: int | None) -> Any:
        members = None if cohort.full else cohort.members
        mine = self.store.gather(members)
        self.store.expect(self._next)
        f = Stacked(self, self.problem.at(members), cohort, steps, mine.pop(PREVIOUS, None))
        work = (
            phase.work
            if self.problem.together is None
            else grouped(phase.work, self.problem.together)
        )
        down = phase.send(self.server)
        me, up = work(self._me(mine, cohort), down, f)
        self._keep(me, f, members)
        self.ledger.gradients += f.gradients
        self.ledger.bytes_down += cohort.size * sparse_bytes(down)
        self.ledger.bytes_up += sparse_bytes(
            up, lambda v: f.rows(v) if picked is None else f.rows(v)[picked]
        )
        return up.map(lambda v: self.reduce(f.rows(v), phase.reduction, cohort, picked))

    def forget(self) -> None:
        self._scratch = None

    def client_tensors(self) -> dict[str, Tensor]:
        return _saved(self.store.tensors()) | self._scratch_tensors()

    def client_parts(self) -> dict[str, Tensor | Rows]:
        return _saved(self.store.rows()) | self._scratch_tensors()

    def load_clients(self, tensors: dict[str, Tensor]) -> None:
        self.store.load(
            {
                name: tensors[saved]
                for saved, name in _saved({n: n for n in self.store.names}).items()
            }
        )
        names = [name for name in self.method.Client.scratch if f"scratch.{name}" in tensors]
        rows = {name: tensors[f"scratch.{name}"].to(self.x0.device, copy=True) for name in names}
        self._scratch = (tensors["scratch_members"].cpu().numpy().copy(), rows) if rows else None

    def _scratch_tensors(self) -> dict[str, Any]:
        if self._scratch is None:
            return {}
        members, rows = self._scratch
        return {f"scratch.{name}": v for name, v in rows.items()} | {
            "scratch_members": torch.from_numpy(members)
        }

    def _next(self) -> np.ndarray:
        """Who takes part in the next round."""
        if self.cohort.always_full(self.problem.clients):
            return self._everyone
        return self.cohort.draw(self.streams, self.round + 1, self.problem.clients).members

    def _me(self, mine: dict[str, Tensor], cohort: Cohort) -> Any:
        if self._scratch is not None:
            members, rows = self._scratch
            if len(members) != cohort.size:
                at = upload(np.searchsorted(members, cohort.members), self.x0.device)
                rows = {name: v.index_select(0, at) for name, v in rows.items()}
            mine |= rows
        return self.method.Client(**mine)

    def _keep(self, me: Any, f: Stacked, members: np.ndarray | None) -> None:
        lasting = {name: f.rows(getattr(me, name)) for name in me.vectors}
        if f.ends:
            self._ends = f.ends
            if self.problem.remembers:
                lasting[PREVIOUS] = torch.cat(f.ends)
        if lasting:
            self.store.scatter(members, lasting)
        self._scratch = None
        if scratch := {
            name: f.rows(v) for name in me.scratch if (v := getattr(me, name)) is not None
        }:
            self._scratch = f.cohort.members, scratch


class Stacked(Descent):
    """``f`` for a whole cohort."""

    def __init__(
        self,
        engine: Simulate,
        oracle: Oracle,
        cohort: Cohort,
        steps: list[int],
        previous: Tensor | None = None,
    ):
        self.round, self.blocks, self.options = engine.round, engine.blocks, engine.options
        self.steps: Any = 0
        self.gradients = 0
        self.ends: list[Tensor] = []
        self.cohort = cohort
        self._engine, self._oracle, self._planned, self._previous = engine, oracle, steps, previous
        self._calls = self._drawn = 0

    def part(self, rows: slice, halted: Callable[[], bool]) -> Group:
        """``f`` for some of the clients; it raises :class:`Halted` at the next step once
        ``halted()``.
        """
        cohort = dataclasses.replace(self.cohort, members=self.cohort.members[rows])
        previous = None if self._previous is None else self._previous[rows]
        engine = self._engine
        return Group(
            halted, engine, engine.problem.at(cohort.members), cohort, self._planned[rows], previous
        )

    def join(self, parts: Sequence[Stacked]) -> None:
        """What its parts have done."""
        self.gradients = sum(part.gradients for part in parts)
        self.ends = [rows for part in parts for rows in part.ends]

    def rows(self, v: Tensor) -> Tensor:
        """One row per client, where a vector is still common to all."""
        return v if v.dim() == 2 else v.expand(self.cohort.size, -1)

    def grad(self, y: Tensor, step: int | None = None) -> Tensor:
        self.gradients += self.cohort.size
        y = self.rows(y)
        self._oracle.begin(y, self._previous)
        return self._treated(y, self._oracle.grad(y, *(() if step is None else self._batch(step))))

    def solve(self, v: Tensor, lam: float) -> Tensor:
        self.ends = [self._oracle.solve(self.rows(v), lam)]
        return self.ends[0]

    def descend(self, y: Any, step: Callable, until: Callable | None = None, start: int = 0) -> Any:
        y = y.map(self.rows) if isinstance(y, Struct) else self.rows(y)
        self._oracle.begin(iterate(y), self._previous)
        fewest, most = min(self._planned), max(self._planned)
        if until is None and fewest == most:
            for j in range(start, most):
                y = step(y, self._bound(j))
            self._count(self.cohort.size)
            self.steps = most - start
        else:
            y = self._masked(y, step, until, start, most)
        self._drawn += most
        self.ends = [iterate(y)]
        return y

    def _masked(self, y: Any, step: Callable, until: Callable | None, start: int, most: int) -> Any:
        """Clients that have taken their steps, or met ``until``, keep what they have."""
        planned = np.array(self._planned)
        last = upload(planned, self._engine.x0.device).unsqueeze(-1)
        for j in range(start, most):
            going = last > j
            y = _where(going, step(y, self._bound(j)), y)
            self._count(int(going.sum()) if until is not None else int((planned > j).sum()))
            if until is not None:
                last = torch.where(going & until(y), j + 1, last)
                if int(last.max()) <= j + 1:
                    break
        self.steps = (last - start).to(self._engine.x0.dtype)
        return y

    def _count(self, active: int) -> None:
        self.gradients += self._calls * active
        self._calls = 0

    def _bound(self, step: int) -> Gradient:
        """``grad`` inside one step."""
        return Gradient(self, self._batch(self._drawn + step))

    def _compiles(self, x: Tensor) -> bool:
        if not x.is_cuda:
            return False
        y = self.rows(x)
        self._oracle.begin(y, self._previous)
        return self._bound(0).recorded(y) is not None

    def _step_(self, y: Tensor, lr: float, grad: Gradient) -> Tensor:
        return grad.step_(y, lr)

    def _compiled(self, x: Tensor, step: Callable) -> Tensor:
        y = (
            super()._compiled(x, step).clone()
        )  # a recorded step writes over what it returned before
        self.ends = [y]
        return y

    def _batch(self, step: int) -> tuple[Any, ...]:
        return self._engine.drawn(self.cohort.members, step)


class Gradient:
    """``grad`` of a cohort inside one step: bound to its mini-batch."""

    def __init__(self, f: Stacked, batch: tuple[Any, ...]):
        self._f, self._batch = f, batch

    def __call__(self, y: Tensor) -> Tensor:
        self.count(1)
        return self._f._treated(y, self._f._oracle.grad(y, *self._batch))

    def step_(self, y: Tensor, lr: float) -> Tensor:
        self.count(1)
        return self._f._oracle.step_(y, lr, *self._batch)

    def recorded(self, y: Tensor) -> Recording | None:
        """The recording that this gradient is a replay of, made ready for this mini-batch."""
        return self._f._oracle.recorded(y, *self._batch)

    def count(self, calls: int) -> None:
        self._f._calls += calls


class Group(Stacked):
    """``f`` for some clients of a cohort, while others work."""

    def __init__(self, halted: Callable[[], bool], *args: Any):
        super().__init__(*args)
        self._halted = halted

    def _bound(self, step: int) -> Gradient:
        if self._halted():
            raise Halted
        return super()._bound(step)


def _saved(vectors: dict[str, Any]) -> dict[str, Any]:
    """By the names of a snapshot."""
    return {
        "client_previous" if name == PREVIOUS else f"client.{name}": v
        for name, v in vectors.items()
    }


def _where(mask: Tensor, new: Any, old: Any) -> Any:
    if isinstance(new, Struct):
        return new.map(lambda n, o: torch.where(mask, n, o), old)
    return torch.where(mask, new, old)
