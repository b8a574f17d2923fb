"""The mini-batches of local steps: their draws, the same on every engine, and gradients of them
part by part, so that memory is that of one part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift.core.problem import SLICE, Draws, MiniBatch, Oracle, Problem
from undrift.core.streams import Streams
from undrift.engines.draws import CohortDraws


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
        self._held = np.asarray(problem.samples)
        self._laid: tuple[int, dict[bytes, tuple[int, Tensor]]] = -1, {}

    def draw(
        self, members: Sequence[int] | np.ndarray, round: int, step: int | np.ndarray
    ) -> MiniBatch:
        """Positions ``[C, size]`` among each client's samples, -1 for none; then what the
        augmentation drew, and keys. ``step`` is that of all clients, or of each.
        """
        if self.whole:
            return ()
        clients = np.asarray(members)
        if isinstance(step, np.ndarray):
            return self._each(clients, round, step)
        batch = () if self.size is None else self._samples(clients, round, step, self.size)
        if not self.problem.keyed:
            return batch
        return *batch, *(None,) * (2 - len(batch)), self._keys(clients, round, step)

    def _each(self, clients: np.ndarray, round: int, steps: np.ndarray) -> MiniBatch:
        """Where clients are not at the same step: one after another."""
        every = [self.draw([i], round, k) for i, k in zip(clients, steps.tolist(), strict=True)]
        found = list[Any]()
        for some in zip(*every, strict=True):
            first = some[0]
            joined = torch.cat(some) if isinstance(first, Tensor) else first and first.join(some)
            found.append(joined)
        return tuple(found)

    def parts(self, members: Sequence[int] | np.ndarray, step: int | np.ndarray) -> np.ndarray:
        """The gradients ``[C]`` that each client takes for one of its mini-batch: as many as it has
        parts with samples.
        """
        if self.size is None or self.part is None:
            return np.ones(len(members), dtype=np.int64)
        held = self._held[members]
        if self.epochs:
            held = held - self.size * (step % -(-held // self.size))
        parts: np.ndarray = -(-np.minimum(held, self.size) // self.part)
        return parts

    def _samples(self, clients: np.ndarray, round: int, step: int, size: int) -> MiniBatch:
        draw = self._epoch if self.epochs else self._fresh
        batch = draw(clients, round, step, size)
        if (augmentation := self.problem.augmentation) is None:
            return (batch,)
        at = self.streams.along("augment")
        draws = [augmentation.draw(at(round, client, step), size) for client in clients.tolist()]
        return batch, type(draws[0]).join(draws).to(self.problem.device)

    def _fresh(self, clients: np.ndarray, round: int, step: int, size: int) -> Tensor:
        """Samples drawn for this step alone; all of them, where a client has no more."""
        held, places = self._held[clients], np.arange(size)
        positions = np.where(places < held[:, None], places, -1)
        if len(more := np.flatnonzero(held > size)):
            positions[more] = self._draws(clients[more], round, step).choice(size)
        return upload(positions, self.problem.device)

    def _epoch(self, clients: np.ndarray, round: int, step: int, size: int) -> Tensor:
        """The next samples of each client's shuffle, laid out once for all steps of an epoch."""
        device, lengths = self.problem.device, -(-self._held[clients] // size)
        if (different := np.unique(lengths)).size > 1:
            batch = torch.empty(len(clients), size, dtype=torch.int64, device=device)
            for which in (np.flatnonzero(lengths == length) for length in different):
                batch[upload(which, device)] = self._epoch(clients[which], round, step, size)
            return batch
        epoch, place = divmod(step, int(lengths[0]))
        current, laid = self._laid
        if current != round:
            self._laid = round, (laid := {})
        if laid.get(key := clients.tobytes(), (-1,))[0] != epoch:
            order = self._draws(clients, round, epoch).permutation()
            missing = (0, 0), (0, -order.shape[1] % size)
            padded = np.pad(order, missing, constant_values=-1).reshape(len(clients), -1, size)
            laid[key] = epoch, upload(padded.swapaxes(0, 1).copy(), device)
        return laid[key][1][place]

    def _draws(self, clients: np.ndarray, round: int, step: int) -> CohortDraws:
        return CohortDraws(self.streams, "batches", (round, step), clients, self._held[clients])

    def _keys(self, clients: np.ndarray, round: int, step: int) -> Tensor:
        """A number ``[C]`` for every client, which decides its dropout or noise in this step."""
        # "dropout" is the stream of clients that drop out
        (drawn,) = self.streams.words("masks", round, clients, step, 1)
        return upload((drawn >> np.uint64(1)).astype(np.int64), self.problem.device)


class InParts(Oracle):
    """The gradients of ``oracle`` on ``size`` samples at a time.

    Their mean is over samples, not over parts: it is the gradient on all of them, where the loss is
    a mean over samples.
    """

    def __init__(self, oracle: Oracle, size: int):
        self._oracle, self._size = oracle, size

    def begin(self, start: Tensor, previous: Tensor | None) -> None:
        self._oracle.begin(start, previous)

    def solve(self, v: Tensor, lam: float) -> Tensor:
        return self._oracle.solve(v, lam)

    def grad(
        self,
        y: Tensor,
        batch: Tensor | None = None,
        draws: Draws | None = None,
        key: Tensor | None = None,
    ) -> Tensor:
        if batch is None:
            return self._given(y, None, draws, key)
        held = (batch >= 0).sum(1, keepdim=True)
        total = torch.zeros_like(y)
        for k, part in enumerate(torch.split(batch, self._size, dim=1)):
            here = (part >= 0).sum(1, keepdim=True)
            # a client without samples in this part is shown one that counts nothing, whatever its
            # gradient: some losses have none on a single sample
            shown = torch.where(here > 0, part, 0)
            which = slice(k * self._size, k * self._size + part.shape[1])
            drawn = None if draws is None else draws.columns(len(batch), which)
            part_key = None if key is None else key + k * SLICE
            found = self._given(y, shown, drawn, part_key)
            total += torch.where(here > 0, found * (here.to(y.dtype) / held), 0.0)
        return total

    def _given(
        self, y: Tensor, batch: Tensor | None, draws: Draws | None, key: Tensor | None
    ) -> Tensor:
        """The oracle's own gradient; only some take more than a mini-batch."""
        given: list[Any] = [batch, draws, key]
        while given and given[-1] is None:
            given.pop()
        return self._oracle.grad(y, *given)
