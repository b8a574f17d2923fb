"""What a user gives as data, as a table; what cannot be one is refused with a way out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)
from torch.utils.data import default_collate as collate

from undrift.problems.neural.arrays import as_fields
from undrift.problems.neural.dataset import is_dataset, is_frame, read_dataset
from undrift.problems.neural.table import Held, Read, Rows, Table, numbered

WANTED = "a pair (inputs, targets) of tensors or arrays, or a Dataset of such pairs"


def as_table(name: str, given: object) -> Table:
    if isinstance(given, DataLoader):
        _refuse_loader(name, given)
        given = given.dataset
    if isinstance(given, TensorDataset) and len(given.tensors) > 1:
        *inputs, targets = given.tensors
        given = (inputs[0] if len(inputs) == 1 else tuple(inputs)), targets
    if isinstance(given, tuple) and len(given) == 2:
        return _pair(name, *given)
    if is_dataset(given):
        return read_dataset(name, given)
    if isinstance(given, IterableDataset):
        raise TypeError(
            f"{name} is an IterableDataset, whose samples have no numbers; give a Dataset with "
            "__len__ and __getitem__, or tensors"
        )
    raise TypeError(f"{name} must be {WANTED}; got {_instead(name, given)}")


def _instead(name: str, given: object) -> str:
    """What was given in the place of data, and what to do about it."""
    kind = type(given).__name__
    if isinstance(given, tuple):
        return f"a tuple of {len(given)}: a list has the data of each client"
    if isinstance(given, Mapping):
        return f"a {kind}: list({name}.values()) would be the data of each client"
    if isinstance(given, Iterator):
        return f"a {kind}, which can be read only once: give list({name})"
    if isinstance(given, Dataset):
        return f"a {kind} without __len__: add it"
    if isinstance(given, nn.Module):
        return f"a {kind}: the network is the first argument, its data the second"
    if is_frame(given):
        return f"a {kind}: give its columns, as (frame[names].to_numpy(), frame[target].to_numpy())"
    return f"a {kind}"


def _refuse_loader(name: str, given: DataLoader[object]) -> None:
    """Refuse a loader that gives other samples than its Dataset has."""
    if given.collate_fn is not collate:
        raise TypeError(
            f"{name} is a DataLoader with a collate_fn of its own; give a Dataset whose "
            "samples all have the same shape"
        )
    batches: object = given.batch_sampler
    sampler = given.sampler if type(batches) in (BatchSampler, type(None)) else batches
    whole = isinstance(sampler, SequentialSampler)
    if isinstance(sampler, RandomSampler):
        whole = not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    if not whole and not isinstance(given.dataset, IterableDataset):
        raise TypeError(
            f"{name} is a DataLoader whose {type(sampler).__name__} chooses among its samples; "
            "give the Dataset, or a Subset of it"
        )


def _pair(name: str, inputs: object, targets: object) -> Table:
    if any(isinstance(part, Dataset | DataLoader) for part in (inputs, targets)):
        raise TypeError(f"{name} is a tuple of data sets; give a list with one for each client")
    rows = Rows(as_fields(f"inputs of {name}", inputs), as_fields(f"targets of {name}", targets))
    (first, total), *others = ((field, len(v)) for field, v in rows.tensors())
    for field, length in others:
        if length != total:
            raise ValueError(
                f"{name} has {total} {first}, but {length} {field}; give one row for each sample"
            )
    if not total:
        raise ValueError(f"{name} has no samples; give some")
    table = Held(rows)
    if any(isinstance(array, np.memmap) for part in (inputs, targets) for array in _arrays(part)):
        known = all(not isinstance(array, np.memmap) for array in _arrays(targets))
        return Read(table.take, total, numbered(name), rows.y if known else None)
    return table


def _arrays(given: object) -> list[object]:
    if isinstance(given, tuple):
        return list(given)
    return list(given.values()) if isinstance(given, Mapping) else [given]


def _rows(array: object) -> int | None:
    """How many samples there are in an array, or in a list."""
    if isinstance(array, Tensor | np.ndarray):
        return int(array.shape[0]) if array.ndim else None
    return len(array) if isinstance(array, list) else None


def is_empty(given: object) -> bool:
    """Whether these are data without any sample."""
    if isinstance(given, tuple):
        arrays = [array for part in given for array in _arrays(part)]
        return bool(arrays) and all(_rows(array) == 0 for array in arrays)
    if isinstance(given, DataLoader):
        return is_empty(given.dataset)
    return given is None or (is_dataset(given) and not len(given))
