"""Mini-batches, the same for every engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from undrift.core.problem import Problem
from undrift.core.streams import Streams
from undrift.core.upload import upload


class Batches:
    """``size`` samples of a client's own at each local step, without replacement.

    Drawn anew at each step, or in epochs: then the steps run through a fresh shuffle of all samples each time.
    """

    def __init__(self, streams: Streams, problem: Problem, size: int, epochs: bool):
        self.streams, self.problem, self.size, self.epochs = streams, problem, size, epochs
        self._shuffles: tuple[int, dict[int, tuple[int, np.ndarray]]] = -1, {}

    def draw(self, members: Sequence[int] | np.ndarray, round: int, step: int) -> tuple[Any, ...]:
        """Positions ``[C, size]`` among each client's samples, -1 for none; then what the augmentation drew."""
        clients = np.asarray(members).tolist()
        positions, at = np.full((len(clients), self.size), -1), self.streams.along("batches")
        for row, client in zip(positions, clients, strict=True):
            chosen = self._chosen(at, client, round, step)
            row[: len(chosen)] = chosen
        batch = (upload(positions, self.problem.device),)
        if (augmentation := self.problem.augmentation) is None:
            return batch
        at = self.streams.along("augment")
        draws = [augmentation.draw(at(round, client, step), self.size) for client in clients]
        return *batch, type(draws[0]).join(draws).to(self.problem.device)

    def _chosen(self, at: Callable[..., Generator], client: int, round: int, step: int) -> np.ndarray:
        n = self.problem.samples[client]
        if self.epochs:
            epoch, place = divmod(step, -(-n // self.size))
            return self._shuffle(at, client, round, epoch)[place * self.size : (place + 1) * self.size]
        if n <= self.size:
            return np.arange(n)
        return at(round, client, step).choice(n, self.size, replace=False)

    def _shuffle(self, at: Callable[..., Generator], client: int, round: int, epoch: int) -> np.ndarray:
        """The order of a client's samples in an epoch, kept for its steps."""
        current, kept = self._shuffles
        if current != round:
            self._shuffles = round, (kept := {})
        if client not in kept or kept[client][0] != epoch:
            kept[client] = epoch, at(round, client, epoch).permutation(self.problem.samples[client])
        return kept[client][1]
