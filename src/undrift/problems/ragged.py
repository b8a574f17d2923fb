"""Samples of many clients as rows of one table, client by client: padded only when used."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from undrift._device import upload

WASTE = 4
"""Clients are padded to the largest one if that takes less than so many times the memory."""


class Ragged:
    """Clients' rows of a table: ``sizes[c]`` from ``first[c]`` on; the last row is no sample."""

    def __init__(self, first: np.ndarray, sizes: np.ndarray):
        self.first, self.sizes = first, sizes
        self.most = int(sizes.max(initial=0))

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, which: slice | NDArray[np.int64]) -> Ragged:
        return Ragged(self.first[which], self.sizes[which])

    @classmethod
    def blocks(cls, members: np.ndarray, size: int) -> Ragged:
        """Clients ``members`` of a table in which each has ``size`` rows."""
        return cls(members * size, np.full(len(members), size))

    @cached_property
    def equal(self) -> bool:
        return bool((self.sizes == self.most).all())

    @cached_property
    def wasteful(self) -> bool:
        """Whether padding takes too much memory."""
        return len(self) * self.most >= WASTE * int(self.sizes.sum())

    def stack(self, table: Tensor) -> Tensor:
        """The clients' rows ``[C, most, ...]``, padded with the last row; a view where possible."""
        m, blocks = self.most, self._blocks
        if blocks is None:
            last, place = table.shape[0] - 1, np.arange(m)
            padded = np.where(place < self.sizes[:, None], self.first[:, None] + place, last)
            return take(table, upload(padded, table.device))
        if isinstance(blocks, slice):
            return torch.unflatten(table[blocks], 0, (-1, m))
        every = torch.unflatten(table[: table.shape[0] // m * m], 0, (-1, m))
        return every.index_select(0, upload(blocks, table.device))

    @cached_property
    def _blocks(self) -> slice | np.ndarray | None:
        """Where clients have equally many rows: all of these in a row, or the numbers of blocks."""
        if not self.equal:
            return None
        start, m = int(self.first[0]), self.most
        if bool((np.diff(self.first) == m).all()):
            return slice(start, start + len(self) * m)
        return None if (self.first % m).any() else self.first // m

    def drawn(self, table: Tensor, batch: Tensor) -> Tensor:
        """Rows ``[C, B, ...]`` at these positions of each client, the last row of all for -1."""
        first, _ = self.spans(table.device)
        return take(table, torch.where(batch < 0, len(table) - 1, first + batch))

    def passes(self, most: int) -> list[np.ndarray]:
        """The numbers of the clients' rows, client by client, in pieces of at most so many."""
        ends = np.cumsum(self.sizes)
        rows = np.repeat(self.first - ends + self.sizes, self.sizes) + np.arange(self.sizes.sum())
        return [rows[k : k + most] for k in range(0, len(rows), most)]

    def spans(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """``first`` and ``sizes``, each ``[C, 1]``."""
        if self._spans is None or self._spans.device != device:
            self._spans = upload(np.stack([self.first, self.sizes])[..., None], device)
        return self._spans[0], self._spans[1]

    _spans: Tensor | None = None


def take(table: Tensor, index: Tensor) -> Tensor:
    """``table[index]``; several times faster on a CPU than advanced indexing."""
    return torch.unflatten(table.index_select(0, index.flatten()), 0, index.shape)


def relabelled(labels: Tensor, rows: Tensor, numbers: Tensor, classes: int) -> Tensor:
    """A copy of ``labels`` with another class in some rows, decided by numbers from 0 to 1.

    >>> relabelled(torch.tensor([0, 1, 2]), torch.tensor([0, 2]), torch.tensor([0.0, 0.9]), 3)
    tensor([1, 1, 1])
    """
    changed, rows = labels.clone(), rows.to(labels.device)
    further = 1 + (numbers * (classes - 1)).long().to(labels.device)
    changed[rows] = (changed[rows] + further) % classes
    return changed


def divided(
    a: Tensor, y: Tensor, parts: Sequence[ArrayLike], l2: float | None
) -> tuple[Tensor, Ragged, float]:
    """Of features and what goes with them: the samples client by client, who holds them, and l2."""
    if a.ndim != 2 or y.shape != a.shape[:1]:
        raise ValueError(
            f"features of shape {list(a.shape)} do not go with labels of shape {list(y.shape)}; "
            "give [samples, features] and [samples]"
        )
    order, held = owned(parts, len(y))
    l2 = 1 / len(order) if l2 is None else float(l2)
    if not 0 <= l2 < float("inf"):
        raise ValueError(f"l2 = {l2} is not allowed: a finite number >= 0")
    return torch.from_numpy(order).to(a.device), held, l2


def owned(parts: Sequence[ArrayLike], total: int) -> tuple[np.ndarray, Ragged]:
    """The numbers of the clients' samples, client by client, and who holds which of them."""
    arrays = positions(parts, total)
    sizes, order = np.array([len(part) for part in arrays]), np.concatenate(arrays)
    if np.bincount(order).max() > 1:
        raise ValueError(
            f"parts must hold different positions from 0 to {total - 1}, each at most once"
        )
    return order, Ragged(np.cumsum(sizes) - sizes, sizes)


def positions(parts: Sequence[ArrayLike], total: int) -> list[np.ndarray]:
    """The numbers of every client's samples, where ``parts`` may be masks of all ``total``."""
    if isinstance(parts, str | Mapping) or not isinstance(parts, Iterable):
        raise TypeError(
            "parts must be a list of the samples of every client, as undrift.data.iid and by_group "
            f"give it; got a {type(parts).__name__}"
        )
    found = [_numbers(part, client, total) for client, part in enumerate(parts)]
    if not found:
        raise ValueError("parts is empty; a federation needs at least one client")
    held = np.unique(np.concatenate(found))
    if len(held) == held[-1] + 1 < total:  # as made from labels of the first samples alone
        warnings.warn(
            f"the last {total - len(held)} of {total} samples belong to no client", stacklevel=4
        )
    return found


def _numbers(part: ArrayLike, client: int, total: int) -> np.ndarray:
    try:
        numbers = np.asarray(part)
    except Exception:  # ragged lists, tensors of a GPU: NumPy says so in many ways
        numbers = np.asarray(None)
    if numbers.dtype.kind == "b" and numbers.shape == (total,):
        return _numbers(np.flatnonzero(numbers), client, total)
    whole = numbers.ndim == 1 and len(numbers) and numbers.dtype.kind in "iu"
    # An Index of pandas has the labels of rows, which are not their numbers once some are left out.
    labels = hasattr(part, "get_indexer")
    if labels or not whole or numbers.min() < 0 or numbers.max() >= total:
        least = f"from 0 to {total - 1}{f', not {numbers.max()},' if whole else ''}"
        raise ValueError(
            f"client {client} must hold at least one sample, as an array of whole numbers {least} "
            f"or a mask of all {total}; use another partition or fewer clients, and "
            "undrift.data.by_group(frame[column]) for a frame of pandas"
        )
    return numbers.astype(np.int64, copy=False)
