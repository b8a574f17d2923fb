"""Datasets of Hugging Face, and partitioners of flwr-datasets, as data of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from undrift.core.params import BadParameters, unknown

Names = str | Sequence[str] | Mapping[str, str]
"""A column; several, which are arguments in that order; or those of arguments by name."""


class HFDataset(Protocol):
    """What is needed of ``datasets.Dataset``."""

    @property
    def column_names(self) -> list[str]:
        """The names of all columns."""

    def __len__(self) -> int:
        """How many samples it has."""

    def with_format(self, type: str, columns: list[str]) -> HFDataset:
        """These columns, as arrays of that library."""

    def __getitem__(self, key: list[int]) -> Mapping[str, np.ndarray]:
        """Several samples, by column."""


@runtime_checkable
class Partitioner(Protocol):
    """What is needed of a partitioner that has its dataset."""

    @property
    def num_partitions(self) -> int:
        """How many clients there are."""

    def load_partition(self, partition_id: int) -> HFDataset:
        """The samples of one client."""


class Columns:
    """Samples of a dataset as pairs (input, target), for ``undrift.Neural``."""

    def __init__(self, dataset: HFDataset, input: Names, target: Names):
        self.input, self.target = input, target
        for field, names in {"input": input, "target": target}.items():
            for name in _flat(names):
                if name not in dataset.column_names:
                    text = unknown("column", name, dataset.column_names)
                    raise BadParameters("from_datasets", {field: text})
        self._rows = dataset.with_format("numpy", columns=[*{*_flat(input), *_flat(target)}])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> tuple[object, object]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[tuple[object, object]]:
        """Several samples at once, as PyTorch's loaders ask for them."""
        rows = self._rows[list(numbers)]
        return [
            (_entry(rows, self.input, k), _entry(rows, self.target, k)) for k in range(len(numbers))
        ]


def from_datasets(
    given: HFDataset | Partitioner | Sequence[HFDataset], input: Names, target: Names
) -> Columns | list[Columns]:
    """A ``datasets.Dataset`` as data of :class:`undrift.Neural`; of several, a client's data each.

    ``given`` is a dataset, a list with that of each client, or a partitioner of flwr-datasets whose
    ``dataset`` is set. ``input`` and ``target`` are names of columns; a list of names are several
    inputs in that order, a dictionary those of the network's arguments by name. Columns must be
    numbers or images of one shape: tokenise texts first, as by ``dataset.map``.

    >>> from_datasets(dataset, input="pixels", target="label")  # doctest: +SKIP
    >>> from_datasets(partitioner, input=["tokens", "mask"], target="label")  # doctest: +SKIP
    """
    if isinstance(given, Partitioner):
        return [
            Columns(given.load_partition(client), input, target)
            for client in range(given.num_partitions)
        ]
    if isinstance(given, list | tuple):
        return [Columns(_checked(f"[{k}]", one), input, target) for k, one in enumerate(given)]
    return Columns(_checked("", given), input, target)


def _checked(place: str, given: object) -> HFDataset:
    """``given``, if it is a dataset whose samples have numbers."""
    needed = ("with_format", "column_names", "__len__")
    if isinstance(given, Mapping) or not all(hasattr(given, name) for name in needed):
        text = (
            f"given{place} must be a datasets.Dataset, such as the split given['train'] and no "
            "stream, or a partitioner of flwr-datasets that has its dataset; got a "
            f"{type(given).__name__}"
        )
        raise BadParameters("from_datasets", {"given": text})
    return given  # type: ignore[return-value]


def _flat(names: Names) -> list[str]:
    if isinstance(names, str):
        return [names]
    return list(names.values() if isinstance(names, Mapping) else names)


def _entry(rows: Mapping[str, np.ndarray], names: Names, k: int) -> object:
    if isinstance(names, str):
        return rows[names][k]
    if isinstance(names, Mapping):
        return {argument: rows[name][k] for argument, name in names.items()}
    return tuple(rows[name][k] for name in names)
