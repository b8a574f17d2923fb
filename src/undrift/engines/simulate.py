"""The fast engine: the cohort side by side, every vector ``[C, d]``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core.cohort import Cohort
from undrift.core.problem import Oracle
from undrift.core.struct import Struct
from undrift.engines.base import Engine
from undrift.engines.local import Descent, iterate


class Simulate(Engine):
    """All clients of a cohort in one process, their vectors stacked."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        n = self.problem.clients
        self.clients = self.method.client(self.x0).map(lambda v: v.expand(n, -1))
        self._scratch: tuple[np.ndarray, dict[str, Tensor]] | None = None
        self._owned = False
        self.previous = self.x0.repeat(n, 1) if self.problem.remembers else None

    def exchange(self, phase: Any, cohort: Cohort, steps: list[int], picked: int | None) -> Any:
        oracle = self.problem.at(None if cohort.full else cohort.members)
        f = Stacked(self, oracle, cohort, steps)
        me, up = phase.work(self._gather(cohort), phase.send(self.server), f)
        self._scatter(cohort, me.map(f.rows))
        self.ledger.gradients += f.gradients
        if f.end is not None:
            self.ends = f.end
            if self.previous is not None:
                self.previous[torch.from_numpy(cohort.members)] = f.end
        return up.map(lambda v: self.reduce(f.rows(v), phase.reduction, cohort, picked))

    def forget(self) -> None:
        self._scratch = None

    def client_tensors(self) -> dict[str, Tensor]:
        self._owned = False  # what is handed out is not written to again
        tensors = {f"client.{name}": v for name, v in self.clients.items()}
        if self._scratch:
            members, rows = self._scratch
            tensors |= {f"scratch.{name}": v for name, v in rows.items()}
            tensors["scratch_members"] = torch.from_numpy(members)
        return tensors if self.previous is None else {**tensors, "client_previous": self.previous.clone()}

    def load_clients(self, tensors: dict[str, Tensor]) -> None:
        declared = self.method.Client
        self.clients = declared(**{n: tensors[f"client.{n}"] for n in declared.vectors})
        self._owned = False
        self.previous = tensors["client_previous"].clone() if self.problem.remembers else None
        rows = {n: tensors[f"scratch.{n}"] for n in declared.scratch if f"scratch.{n}" in tensors}
        self._scratch = (tensors["scratch_members"].cpu().numpy(), rows) if rows else None

    def _gather(self, cohort: Cohort) -> Any:
        """The cohort's states. Copies, unless the cohort is everyone: then nothing is ever written in place."""
        me = self.clients
        if not cohort.full:
            index = torch.as_tensor(cohort.members, device=self.x0.device)
            me = me.map(lambda v: v.index_select(0, index))
        if self._scratch:
            members, rows = self._scratch
            if len(members) != cohort.size:
                at = torch.as_tensor(np.searchsorted(members, cohort.members), device=self.x0.device)
                rows = {name: v.index_select(0, at) for name, v in rows.items()}
            me = me.replace(**rows)
        return me

    def _scatter(self, cohort: Cohort, me: Any) -> None:
        kept = me.lasting()
        if cohort.full:
            self.clients, self._owned = kept, False
        elif kept.vectors:
            if not self._owned:
                self.clients, self._owned = self.clients.map(lambda v: v.clone()), True
            index = torch.as_tensor(cohort.members, device=self.x0.device)
            for name, rows in kept.items():
                getattr(self.clients, name).index_copy_(0, index, rows)
        self._scratch = None
        if scratch := {name: v for name in me.scratch if (v := getattr(me, name)) is not None}:
            self._scratch = cohort.members, scratch


class Stacked(Descent):
    """``f`` for a whole cohort."""

    def __init__(self, engine: Simulate, oracle: Oracle, cohort: Cohort, steps: list[int]):
        self.round, self.blocks, self.options = engine.round, engine.blocks, engine.options
        self.steps: Any = 0
        self.gradients = 0
        self.end: Any = None
        self._engine, self._oracle, self._cohort, self._planned = engine, oracle, cohort, steps
        self._calls = self._drawn = 0

    def rows(self, v: Tensor) -> Tensor:
        """One row per client, where a vector is still common to all."""
        return v if v.dim() == 2 else v.expand(self._cohort.size, -1)

    def grad(self, y: Tensor, step: int | None = None) -> Tensor:
        self.gradients += self._cohort.size
        y = self.rows(y)
        self._oracle.begin(y, self._previous)
        return self._treated(y, self._oracle.grad(y, *(() if step is None else self._batch(step))))

    def solve(self, v: Tensor, lam: float) -> Tensor:
        self.end = self._oracle.solve(self.rows(v), lam)
        return self.end

    def descend(self, y: Any, step: Callable, until: Callable | None = None, start: int = 0) -> Any:
        y = y.map(self.rows) if isinstance(y, Struct) else self.rows(y)
        self._oracle.begin(iterate(y), self._previous)
        fewest, most = min(self._planned), max(self._planned)
        if until is None and fewest == most:
            for j in range(start, most):
                y = step(y, self._bound(j))
            self._count(self._cohort.size)
            self.steps = most - start
        else:
            y = self._masked(y, step, until, start, most)
        self._drawn += most
        self.end = iterate(y)
        return y

    def _masked(self, y: Any, step: Callable, until: Callable | None, start: int, most: int) -> Any:
        """Clients that have taken their steps, or met ``until``, keep what they have."""
        last = torch.tensor(self._planned, device=self._engine.x0.device).unsqueeze(-1)
        for j in range(start, most):
            going = last > j
            y = _where(going, step(y, self._bound(j)), y)
            self._count(int(going.sum()))
            if until is not None:
                last = torch.where(going & until(y), j + 1, last)
                if int(last.max()) <= j + 1:
                    break
        self.steps = (last - start).to(self._engine.x0.dtype)
        return y

    def _count(self, active: int) -> None:
        self.gradients += self._calls * active
        self._calls = 0

    def _bound(self, step: int) -> Callable[[Tensor], Tensor]:
        if self._engine.batches is None:
            return self._full
        batch = self._batch(self._drawn + step)

        def grad(y: Tensor) -> Tensor:
            self._calls += 1
            return self._treated(y, self._oracle.grad(y, *batch))

        return grad

    def _full(self, y: Tensor) -> Tensor:
        self._calls += 1
        return self._treated(y, self._oracle.grad(y))

    def _batch(self, step: int) -> tuple[Any, ...]:
        batches = self._engine.batches
        return () if batches is None else batches.draw(self._cohort.members, self.round, step)

    @property
    def _previous(self) -> Tensor | None:
        previous = self._engine.previous
        return None if previous is None else previous[torch.from_numpy(self._cohort.members)]


def _where(mask: Tensor, new: Any, old: Any) -> Any:
    if isinstance(new, Struct):
        return new.map(lambda n, o: torch.where(mask, n, o), old)
    return torch.where(mask, new, old)
