"""The reference engine: one client after the other, every message as bytes. Slow and obvious."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core.cohort import Cohort
from undrift.core.problem import Oracle
from undrift.engines.codec import decode, encode, sparse_bytes
from undrift.engines.engine import Engine
from undrift.engines.local import Descent, iterate


class Wire(Engine):
    """Each client separately; ``frames_down`` and ``frames_up`` are the bytes that really
    travelled.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.clients = [self.method.client(self.x0) for _ in range(self.problem.clients)]
        self.previous = [self.x0] * self.problem.clients if self.problem.remembers else None
        self.frames_down = self.frames_up = 0

    def exchange(self, phase: Any, cohort: Cohort, steps: list[int], picked: int | None) -> Any:
        message = phase.send(self.server)
        down = encode(message)
        self.ledger.bytes_down += cohort.size * sparse_bytes(message)
        ends, uploads = [], []
        for k, (i, planned) in enumerate(zip(cohort.members, steps, strict=True)):
            self.frames_down += len(down)
            f = One(self, self.problem.at(np.array([i])), int(i), planned)
            self.clients[i], up = phase.work(self.clients[i], decode(phase.Down, down, self.x0), f)
            self.ledger.gradients += f.gradients
            if f.end is not None:
                ends.append(f.end)
                if self.previous is not None:
                    self.previous[i] = f.end
            if picked is None or picked == k:
                frame = encode(up)
                self.frames_up += len(frame)
                self.ledger.bytes_up += sparse_bytes(up)
                uploads.append(decode(phase.Up, frame, self.x0))
        if ends:
            self._ends = [torch.stack(ends)]
        only = None if picked is None else 0
        return uploads[0].map(
            lambda *v: self.reduce(torch.stack(v), phase.reduction, cohort, only), *uploads[1:]
        )

    def forget(self) -> None:
        self.clients = [client.lasting() for client in self.clients]

    def client_tensors(self) -> dict[str, Tensor]:
        declared = self.method.Client
        tensors = {
            f"client.{n}": torch.stack([getattr(c, n) for c in self.clients])
            for n in declared.vectors
        }
        holders = [
            i
            for i, c in enumerate(self.clients)
            if any(getattr(c, n) is not None for n in declared.scratch)
        ]
        if holders:
            present = [
                n for n in declared.scratch if getattr(self.clients[holders[0]], n) is not None
            ]
            for n in present:
                tensors[f"scratch.{n}"] = torch.stack(
                    [getattr(self.clients[i], n) for i in holders]
                )
            tensors["scratch_members"] = torch.tensor(holders)
        if self.previous is not None:
            tensors["client_previous"] = torch.stack(self.previous)
        return tensors

    def load_clients(self, tensors: dict[str, Tensor]) -> None:
        declared = self.method.Client
        tensors = {name: v.to(self.x0.device, copy=True) for name, v in tensors.items()}
        self.clients = [
            declared(**{n: tensors[f"client.{n}"][i] for n in declared.vectors})
            for i in range(self.problem.clients)
        ]
        if self.previous is not None:
            self.previous = list(tensors["client_previous"])
        for k, i in enumerate(
            tensors.get("scratch_members", torch.tensor([], dtype=torch.long)).tolist()
        ):
            scratch = {
                n: tensors[f"scratch.{n}"][k] for n in declared.scratch if f"scratch.{n}" in tensors
            }
            self.clients[i] = self.clients[i].replace(**scratch)


class One(Descent):
    """``f`` for one client."""

    def __init__(self, engine: Wire, oracle: Oracle, client: int, planned: int):
        self.round, self.blocks, self.options = engine.round, engine.blocks, engine.options
        self.steps = self._drawn = 0
        self.gradients = 0
        self.end: Any = None
        self._engine, self._oracle, self._client, self._planned = engine, oracle, client, planned

    def grad(self, y: Tensor, step: int | None = None) -> Tensor:
        self.gradients += 1
        self._begin(y)
        return self._gradient(y, step)

    def _gradient(self, y: Tensor, step: int | None) -> Tensor:
        batch = () if step is None else self._batch(step)
        return self._treated(y, self._oracle.grad(y.unsqueeze(0), *batch).squeeze(0))

    def _begin(self, y: Tensor) -> None:
        previous = self._engine.previous
        self._oracle.begin(
            y.unsqueeze(0), None if previous is None else previous[self._client].unsqueeze(0)
        )

    def solve(self, v: Tensor, lam: float) -> Tensor:
        self.end = self._oracle.solve(v.unsqueeze(0), lam).squeeze(0)
        return self.end

    def descend(self, y: Any, step: Callable, until: Callable | None = None, start: int = 0) -> Any:
        self.steps = 0
        self._begin(iterate(y))
        for j in range(start, self._planned):
            y = step(y, lambda z, j=self._drawn + j: self._counted(z, j))
            self.steps += 1
            if until is not None and bool(until(y)):
                break
        self._drawn += self._planned
        self.end = iterate(y)
        return y

    def _counted(self, y: Tensor, step: int) -> Tensor:
        self.gradients += 1
        return self._gradient(y, step)

    def _batch(self, step: int) -> tuple[Any, ...]:
        return self._engine.drawn([self._client], step)
