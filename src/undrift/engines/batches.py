"""Mini-batches, the same for every engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from undrift.core.problem import Problem
from undrift.core.streams import Streams


class Batches:
    """``size`` samples of a client's own at each local step, without replacement.

    Drawn anew at each step, or in epochs: then the steps run through a fresh shuffle of all samples each time.
    """

    def __init__(self, streams: Streams, problem: Problem, size: int, epochs: bool):
        self.streams, self.problem, self.size, self.epochs = streams, problem, size, epochs

    def draw(self, members: Iterable[int], round: int, step: int) -> tuple[Any, ...]:
        """Positions ``[C, size]`` among each client's samples, -1 for none; then what the augmentation drew."""
        members = [int(client) for client in members]
        positions = np.stack([self._row(client, round, step) for client in members])
        batch = (torch.from_numpy(positions).to(self.problem.device),)
        if (augmentation := self.problem.augmentation) is None:
            return batch
        rngs = [self.streams.at("augment", round, client, step) for client in members]
        draws = [augmentation.draw(rng, self.size) for rng in rngs]
        return *batch, type(draws[0]).join(draws).to(self.problem.device)

    def _row(self, client: int, round: int, step: int) -> np.ndarray:
        n = self.problem.samples[client]
        row = np.full(self.size, -1)
        if self.epochs:
            epoch, place = divmod(step, -(-n // self.size))
            order = self.streams.at("batches", round, client, epoch).permutation(n)
            chosen = order[place * self.size : (place + 1) * self.size]
        elif n <= self.size:
            chosen = np.arange(n)
        else:
            chosen = self.streams.at("batches", round, client, step).choice(n, self.size, replace=False)
        row[: len(chosen)] = chosen
        return row
