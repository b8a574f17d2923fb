"""The random draws of local steps, the same on every engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift.core.problem import MiniBatch, Problem
from undrift.core.streams import Streams


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
        self.whole = self.size is None and not problem.drops
        """Whether every gradient is that of all samples, and nothing is drawn."""
        self._laid: tuple[int, dict[tuple[int, ...], tuple[int, Tensor]]] = -1, {}

    def draw(self, members: Sequence[int] | np.ndarray, round: int, step: int) -> MiniBatch:
        """Positions ``[C, size]`` among each client's samples, -1 for none; then what the
        augmentation drew, and dropout's keys.
        """
        if self.whole:
            return ()
        clients = np.asarray(members).tolist()
        batch = () if self.size is None else self._samples(clients, round, step, self.size)
        if not self.problem.drops:
            return batch
        return *batch, *(None,) * (2 - len(batch)), self._keys(clients, round, step)

    def parts(self, members: Sequence[int] | np.ndarray, step: int) -> np.ndarray:
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

    def _samples(self, clients: list[int], round: int, step: int, size: int) -> MiniBatch:
        draw = self._epoch if self.epochs else self._fresh
        batch = draw(clients, round, step, size)
        if (augmentation := self.problem.augmentation) is None:
            return (batch,)
        at = self.streams.along("augment")
        draws = [augmentation.draw(at(round, client, step), size) for client in clients]
        return batch, type(draws[0]).join(draws).to(self.problem.device)

    def _fresh(self, clients: list[int], round: int, step: int, size: int) -> Tensor:
        """Samples drawn for this step alone; all of them, where a client has no more."""
        positions, at = np.full((len(clients), size), -1), self.streams.along("batches")
        for row, client in zip(positions, clients, strict=True):
            n = self.problem.samples[client]
            if n <= size:
                row[:n] = np.arange(n)
            else:
                row[:] = at(round, client, step).choice(n, size, replace=False)
        return upload(positions, self.problem.device)

    def _epoch(self, clients: list[int], round: int, step: int, size: int) -> Tensor:
        """The next samples of each client's shuffle, laid out once for all steps of an epoch."""
        lengths = {-(-self.problem.samples[client] // size) for client in clients}
        if len(lengths) > 1:
            return torch.cat([self._epoch([client], round, step, size) for client in clients])
        epoch, place = divmod(step, lengths.pop())
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

    def _keys(self, clients: list[int], round: int, step: int) -> Tensor:
        """A number ``[C]`` for every client, which decides what it drops in this step."""
        at = self.streams.along("masks")  # "dropout" is the stream of clients that drop out
        drawn = [at(round, client, step).integers(2**63, dtype=np.int64) for client in clients]
        return upload(np.array(drawn), self.problem.device)
