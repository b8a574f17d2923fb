"""The random draws of local steps, the same on every engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift.core.problem import MiniBatch, Problem
from undrift.core.streams import Streams

Places = list[tuple[int, int]]
"""Clients, each with its step."""


class Batches:
    """``size`` samples of a client's own at each local step, without replacement.

    Drawn anew at each step, or in epochs: then the steps run through a fresh shuffle of all samples
    each time. A size that no client has samples for is that of the largest client; without one a
    gradient is that of all samples. With ``part``, gradients are taken of so many samples at a
    time, which are the same ones.
    """

    def __init__(
        self,
        streams: Streams,
        problem: Problem,
        size: int | None,
        epochs: bool = False,
        part: int | None = None,
    ):
        self.streams, self.problem, self.epochs, self.part = streams, problem, epochs, part
        self.size = None if size is None else min(size, max(problem.samples))
        self.whole = self.size is None and not problem.keyed
        """Whether every gradient is that of all samples, and nothing is drawn."""
        self._laid: tuple[int, dict[tuple[int, ...], tuple[int, Tensor]]] = -1, {}

    def draw(
        self, members: Sequence[int] | np.ndarray, round: int, step: int | np.ndarray
    ) -> MiniBatch:
        """Positions ``[C, size]`` among each client's samples, -1 for none; then what the
        augmentation drew, and keys. ``step`` is that of all clients, or of each.
        """
        if self.whole:
            return ()
        clients = np.asarray(members).tolist()
        places = list(zip(clients, np.broadcast_to(step, len(clients)).tolist(), strict=True))
        batch = () if self.size is None else self._samples(places, round, self.size)
        if not self.problem.keyed:
            return batch
        return *batch, *(None,) * (2 - len(batch)), self._keys(places, round)

    def parts(self, members: Sequence[int] | np.ndarray, step: int | np.ndarray) -> np.ndarray:
        """The gradients ``[C]`` that each client takes for one of its mini-batch: as many as it has
        parts with samples.
        """
        if self.size is None or self.part is None:
            return np.ones(len(members), dtype=np.int64)
        held = np.array([self.problem.samples[client] for client in members])
        if self.epochs:
            held = held - self.size * (step % -(-held // self.size))
        parts: np.ndarray = -(-np.minimum(held, self.size) // self.part)
        return parts

    def _samples(self, places: Places, round: int, size: int) -> MiniBatch:
        draw = self._epoch if self.epochs else self._fresh
        batch = draw(places, round, size)
        if (augmentation := self.problem.augmentation) is None:
            return (batch,)
        at = self.streams.along("augment")
        draws = [augmentation.draw(at(round, *place), size) for place in places]
        return batch, type(draws[0]).join(draws).to(self.problem.device)

    def _fresh(self, places: Places, round: int, size: int) -> Tensor:
        """Samples drawn for this step alone; all of them, where a client has no more."""
        positions, at = np.full((len(places), size), -1), self.streams.along("batches")
        for row, (client, step) in zip(positions, places, strict=True):
            n = self.problem.samples[client]
            if n <= size:
                row[:n] = np.arange(n)
            else:
                row[:] = at(round, client, step).choice(n, size, replace=False)
        return upload(positions, self.problem.device)

    def _epoch(self, places: Places, round: int, size: int) -> Tensor:
        """The next samples of each client's shuffle, laid out once for all steps of an epoch."""
        samples = self.problem.samples
        reached = {divmod(step, -(-samples[client] // size)) for client, step in places}
        lengths = {-(-samples[client] // size) for client, _ in places}
        if len(reached) > 1 or len(lengths) > 1:
            return torch.cat([self._epoch([place], round, size) for place in places])
        clients, ((epoch, place),) = [client for client, _ in places], reached
        current, laid = self._laid
        if current != round:
            self._laid = round, (laid := {})
        if laid.get(key := tuple(clients), (-1,))[0] != epoch:
            shuffles = self._shuffles(clients, round, epoch, size)
            laid[key] = epoch, upload(shuffles, self.problem.device)
        return laid[key][1][place]

    def _shuffles(self, clients: list[int], round: int, epoch: int, size: int) -> np.ndarray:
        """``[steps, C, size]``, of clients with equally many steps in an epoch."""
        at, rows = self.streams.along("batches"), []
        for client in clients:
            order = at(round, client, epoch).permutation(self.problem.samples[client])
            padded = np.pad(order, (0, -len(order) % size), constant_values=-1)
            rows.append(padded.reshape(-1, size))
        return np.stack(rows, 1)

    def _keys(self, places: Places, round: int) -> Tensor:
        """A number ``[C]`` for every client, which decides its dropout or noise in this step."""
        at = self.streams.along("masks")  # "dropout" is the stream of clients that drop out
        drawn = [at(round, *place).integers(2**63, dtype=np.int64) for place in places]
        return upload(np.array(drawn), self.problem.device)
