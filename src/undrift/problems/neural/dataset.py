"""A Dataset as a table: its samples one by one, each of them the same every time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence, Sized
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from torch.utils.data import default_collate as collate

from undrift.data.files import brief
from undrift.problems.neural.drawing import watched
from undrift.problems.neural.table import Fields, Held, Read, Rows, Table, cat, numbered

SMALL = 2**30
"""A Dataset of up to so many bytes is read into memory once; a larger one whenever it is used."""


class _Dataset(Sized):
    def __getitem__(self, number: int) -> object: ...


def is_dataset(given: object) -> TypeGuard[_Dataset]:
    by_number = hasattr(given, "__getitem__") and hasattr(given, "__len__")
    plain = isinstance(given, tuple | list | Mapping | str | Tensor | np.ndarray | nn.Module)
    return by_number and (isinstance(given, Dataset) or not (plain or is_frame(given)))


def is_frame(given: object) -> bool:
    """Whether it is a table of pandas, whose rows are not reached by their numbers."""
    return hasattr(given, "to_numpy") and hasattr(given, "columns")


def read_dataset(name: str, dataset: _Dataset) -> Table:
    """A Dataset: in memory if it is small, else read again whenever it is used."""
    total, lock = len(dataset), threading.Lock()
    if not total:
        raise ValueError(f"{name} has no samples; give some")

    def sample(number: int) -> object:
        try:
            return dataset[number]
        except Exception as error:  # a Dataset may fail in any way
            raise ValueError(
                f"sample {number} of {name} cannot be read: {type(error).__name__}, "
                f"{brief(error)}; its Dataset must give each of its {total}"
            ) from error

    at_once = getattr(dataset, "__getitems__", None)

    def read(numbers: Sequence[int]) -> Rows:
        with lock:  # clients may train on several threads
            try:
                samples = at_once(list(numbers)) if at_once else None
            except Exception:  # one by one, to say which
                samples = None
            if samples is None:
                samples = [sample(number) for number in numbers]
        for number, found in zip(numbers, samples, strict=True):
            if not (isinstance(found, tuple | list) and len(found) == 2):
                kind = f"a {type(found).__name__}"
                if isinstance(found, tuple | list):
                    kind += f" of {len(found)}"
                remedy = "make it a pair (input, target)"
                if hasattr(dataset, "with_format"):
                    remedy = "give undrift.data.from_datasets(dataset, input=..., target=...)"
                raise TypeError(f"sample {number} of {name} is {kind}; {remedy}")
        try:
            return Rows(*map(_collated, collate(samples)))
        except Exception as error:  # a Dataset may give anything
            raise TypeError(
                f"the samples of {name} cannot be put into tensors: {brief(error)}; make inputs "
                "and targets tensors, arrays or numbers of the same shapes"
            ) from None

    def settled(numbers: Sequence[int]) -> Rows:
        found, drawn = watched(lambda: read(numbers))
        if any(drawn):
            raise ValueError(
                f"reading {name} draws random numbers, so that no run could be repeated; leave out "
                "random transforms, or give each sample a generator of its own, from its number"
            )
        return found

    first, again = settled([0]), read([0])
    for (_, a), (_, b) in zip(first.tensors(), again.tensors(), strict=True):
        if not torch.equal(a, b) and not a.isnan().any():
            raise ValueError(
                f"sample 0 of {name} is another one each time it is read, so that no run could be "
                "repeated; leave out random transforms"
            )
    size = total * sum(v.numel() * v.element_size() for _, v in first.tensors())
    if size <= SMALL:
        pieces = [range(k, min(k + 4096, total)) for k in range(0, total, 4096)]
        return Held(cat([settled(piece) for piece in pieces]))
    return Read(lambda numbers: read(numbers.tolist()), total, numbered(name))


def _collated(fields: object) -> Fields:
    """What torch made of some samples: lists where they had tuples."""
    if isinstance(fields, Tensor):
        return fields
    several = isinstance(fields, list | tuple)
    found = tuple(fields) if several else fields  # type: ignore[arg-type]
    inside = found if isinstance(found, tuple) else getattr(found, "values", tuple)()
    if inside and all(isinstance(part, Tensor) for part in inside):
        return found  # type: ignore[return-value]
    raise TypeError(f"got a {type(fields).__name__}")
