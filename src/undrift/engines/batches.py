"""What chance decides of local steps, the same for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift.core.problem import Problem
from undrift.core.streams import Streams


class Batches:
    """``size`` samples of a client's own at each local step, without replacement.

    Drawn anew at each step, or in epochs: then the steps run through a fresh shuffle of all samples
    each time. A size
    that no client has samples for is that of the largest client.
    """

    def __init__(self, streams: Streams, problem: Problem, size: int, epochs: bool):
        self.streams, self.problem, self.epochs = streams, problem, epochs
        self.size = min(size, max(problem.samples))
        self._laid: tuple[int, dict[tuple[int, ...], tuple[int, Tensor]]] = -1, {}

    def draw(self, members: Sequence[int] | np.ndarray, round: int, step: int) -> tuple[Any, ...]:
        """Positions ``[C, size]`` among each client's samples, -1 for none; then what the
        augmentation drew.
        """
        clients = np.asarray(members).tolist()
        batch = (
            self._epoch(clients, round, step) if self.epochs else self._fresh(clients, round, step),
        )
        if (augmentation := self.problem.augmentation) is None:
            return batch
        at = self.streams.along("augment")
        draws = [augmentation.draw(at(round, client, step), self.size) for client in clients]
        return *batch, type(draws[0]).join(draws).to(self.problem.device)

    def _fresh(self, clients: list[int], round: int, step: int) -> Tensor:
        """Samples drawn for this step alone; all of them, where a client has no more."""
        positions, at = np.full((len(clients), self.size), -1), self.streams.along("batches")
        for row, client in zip(positions, clients, strict=True):
            n = self.problem.samples[client]
            if n <= self.size:
                row[:n] = np.arange(n)
            else:
                row[:] = at(round, client, step).choice(n, self.size, replace=False)
        return upload(positions, self.problem.device)

    def _epoch(self, clients: list[int], round: int, step: int) -> Tensor:
        """The next samples of each client's shuffle; shuffles are laid out once for all the steps
        of an epoch.
        """
        lengths = {-(-self.problem.samples[client] // self.size) for client in clients}
        if len(lengths) > 1:
            return torch.cat([self._epoch([client], round, step) for client in clients])
        epoch, place = divmod(step, lengths.pop())
        current, laid = self._laid
        if current != round:
            self._laid = round, (laid := {})
        if laid.get(key := tuple(clients), (-1,))[0] != epoch:
            laid[key] = epoch, upload(self._shuffles(clients, round, epoch), self.problem.device)
        return laid[key][1][place]

    def _shuffles(self, clients: list[int], round: int, epoch: int) -> np.ndarray:
        """``[steps, C, size]``, of clients with equally many steps in an epoch."""
        at, rows = self.streams.along("batches"), []
        for client in clients:
            order = at(round, client, epoch).permutation(self.problem.samples[client])
            rows.append(
                np.pad(order, (0, -len(order) % self.size), constant_values=-1).reshape(
                    -1, self.size
                )
            )
        return np.stack(rows, 1)


def keys(
    streams: Streams,
    device: torch.device,
    members: Sequence[int] | np.ndarray,
    round: int,
    step: int,
) -> Tensor:
    """A number ``[C]`` for every client, which decides what it drops in this step."""
    at = streams.along("masks")  # "dropout" is the stream of clients that drop out
    drawn = [
        at(round, client, step).integers(2**63, dtype=np.int64)
        for client in np.asarray(members).tolist()
    ]
    return upload(np.array(drawn), device)
