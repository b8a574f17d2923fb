"""The mini-batches of local steps: their draws, the same on every engine, and gradients of them
part by part, so that memory is that of one part.

:class:`CohortDraws` is NumPy's ``choice`` and ``permutation`` for many clients at once, number for
number. Clients whose draws take a turn that is too rare to be followed for all, one in thousands at
most, are left to NumPy itself, as all of them are where that is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from undrift._device import upload
from undrift.core.problem import SLICE, Draws, MiniBatch, Oracle, Problem
from undrift.core.streams import Streams

SIDE = 64
"""Samples up to which clients are drawn side by side."""
FEW = 20
"""So many clients, and one more for each sample, are as fast one by one."""


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
        self._laid: tuple[int, dict[bytes, tuple[int, np.ndarray]]] = -1, {}

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
        """The next samples of each client's shuffle."""
        positions = np.empty((len(clients), size), dtype=np.int64)
        lengths = -(-self._held[clients] // size)
        for length in np.unique(lengths).tolist():
            which = np.flatnonzero(lengths == length)
            epoch, place = divmod(step, length)
            positions[which] = self._shuffles(clients[which], round, epoch, size)[place]
        # One copy for all clients: on a GPU, one for each length of an epoch slows the round.
        return upload(positions, self.problem.device)

    def _shuffles(self, clients: np.ndarray, round: int, epoch: int, size: int) -> np.ndarray:
        """``[steps, C, size]`` of clients with equally many steps in an epoch, laid out once."""
        current, laid = self._laid
        if current != round:
            self._laid = round, (laid := {})
        if laid.get(key := clients.tobytes(), (-1,))[0] != epoch:
            order = self._draws(clients, round, epoch).permutation()
            missing = (0, 0), (0, -order.shape[1] % size)
            padded = np.pad(order, missing, constant_values=-1).reshape(len(clients), -1, size)
            laid[key] = epoch, padded.swapaxes(0, 1).copy()
        return laid[key][1]

    def _draws(self, clients: np.ndarray, round: int, step: int) -> CohortDraws:
        return CohortDraws(self.streams, "batches", (round, step), clients, self._held[clients])

    def _keys(self, clients: np.ndarray, round: int, step: int) -> Tensor:
        """A number ``[C]`` for every client, which decides its dropout or noise in this step."""
        # "dropout" is the stream of clients that drop out
        (drawn,) = self.streams.words("masks", round, clients, step, 1)
        return upload((drawn >> np.uint64(1)).astype(np.int64), self.problem.device)


class InParts(Oracle):
    """The gradients of ``oracle`` on ``size`` samples at a time.

    Their mean is by what the samples count, not over parts: it is the gradient on all of them,
    where the loss is such a mean.
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
        held, total = self._oracle.counts(batch).to(y.dtype), torch.zeros_like(y)
        for k, part in enumerate(torch.split(batch, self._size, dim=1)):
            here = self._oracle.counts(part).to(y.dtype)
            # a client without samples in this part is shown one that counts nothing, whatever its
            # gradient: some losses have none on a single sample, or on targets that they ignore
            shown = torch.where((part >= 0).any(1, keepdim=True), part, 0)
            which = slice(k * self._size, k * self._size + part.shape[1])
            drawn = None if draws is None else draws.columns(len(batch), which)
            part_key = None if key is None else key + k * SLICE
            found = self._given(y, shown, drawn, part_key)
            share = (here / held).view(-1, *(1,) * (y.dim() - 1))
            total += torch.where(share > 0, found * share, 0.0)
        return total

    def _given(
        self, y: Tensor, batch: Tensor | None, draws: Draws | None, key: Tensor | None
    ) -> Tensor:
        """The oracle's own gradient; only some take more than a mini-batch."""
        given: list[Any] = [batch, draws, key]
        while given and given[-1] is None:
            given.pop()
        return self._oracle.grad(y, *given)


class CohortDraws:
    """One stream at (round, step), for ``clients`` that hold so many samples each."""

    def __init__(
        self,
        streams: Streams,
        stream: str,
        place: tuple[int, int],
        clients: np.ndarray,
        held: np.ndarray,
    ):
        self._streams, self._stream, (self._round, self._step) = streams, stream, place
        self._clients, self._held = clients, held

    def choice(self, size: int) -> np.ndarray:
        """``choice(held, size, replace=False)`` of each, ``[C, size]``; all hold more than that."""
        held, places = self._held, np.arange(size)[:, None]
        found = np.empty((size, len(held)), dtype=np.int64)

        def alone(rng: Generator, held: int) -> np.ndarray:
            return rng.choice(held, size, replace=False)

        if self._apart(size):
            return self._completed(found, alone, held > 0)
        last = np.concatenate([held - size + places, 0 * held + places[:0:-1]])
        # A number up to ``last`` is the upper half of a word's product with their count; where the
        # lower half is small, the word may have to be drawn again (Lemire 2019).
        products = self._words(len(last)) * (last + 1).astype(np.uint64)
        rare = ((products & np.uint64(2**32 - 1)).astype(np.int64) <= last).any(0)
        drawn = (products >> np.uint64(32)).astype(np.int64)
        for k in range(size):  # Floyd's algorithm
            taken = (found[:k] == drawn[k]).any(0)
            found[k] = np.where(taken, last[k], drawn[k])
        swap = _swaps(found)
        for i, j in zip(last[size:], drawn[size:], strict=True):
            swap(i, j)
        # of more samples than this NumPy may shuffle all
        return self._completed(found, alone, rare | (held > 10_000))

    def permutation(self) -> np.ndarray:
        """``permutation(held)`` of each, ``[C, most]``, then -1."""
        most, left = int(self._held.max()), self._held - 1
        places = np.arange(most)[:, None]
        found = np.where(places <= left, places, -1)

        def alone(rng: Generator, held: int) -> np.ndarray:
            return np.pad(rng.permutation(held), (0, most - held), constant_values=-1)

        if self._apart(most):
            return self._completed(found, alone, left >= 0)
        # of every word so many bits as the largest place has, until these are no larger
        masks = np.array([2 ** place.bit_length() - 1 for place in range(most)])
        swap = _swaps(found)
        for word in self._words(2 * most + 16).astype(np.int64):
            drawn = word & masks[left]
            fits = drawn <= left
            swap(left, np.where(fits, drawn, left))
            left = left - (fits & (left > 0))
        return self._completed(found, alone, left > 0)

    def _apart(self, samples: int) -> bool:
        """Whether clients are faster one by one."""
        return samples > SIDE or len(self._clients) < FEW + samples

    def _words(self, count: int) -> np.ndarray:
        """The first words of 32 bits, ``[count, C]``."""
        at = self._stream, self._round, self._clients, self._step
        words = self._streams.words(*at, -(-count // 2))
        halves = words & np.uint64(2**32 - 1), words >> np.uint64(32)
        return np.stack(halves, 1).reshape(-1, words.shape[1])[:count]

    def _completed(
        self,
        found: np.ndarray,
        alone: Callable[[Generator, int], np.ndarray],
        missing: np.ndarray,
    ) -> np.ndarray:
        """``found [size, C]`` as ``[C, size]``, where those of some clients are drawn alone."""
        at = self._streams.along(self._stream)
        for column in np.flatnonzero(missing).tolist():
            rng = at(self._round, int(self._clients[column]), self._step)
            found[:, column] = alone(rng, int(self._held[column]))
        return np.ascontiguousarray(found.T)


def _swaps(found: np.ndarray) -> Callable[[np.ndarray, np.ndarray], None]:
    """A function that swaps what every column has in two rows."""
    flat, column = found.reshape(-1), np.arange(found.shape[1])

    def swap(i: np.ndarray, j: np.ndarray) -> None:
        i, j = i * len(column) + column, j * len(column) + column
        flat[i], flat[j] = flat[j], flat[i]

    return swap
