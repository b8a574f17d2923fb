"""What a user gives as data: samples as rows of tables, and which of them each client holds."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import Dataset, TensorDataset
from torch.utils.data import default_collate as collate

from undrift.core.params import BadParameters, about, not_allowed
from undrift.data.files import brief
from undrift.data.partition import hold_out
from undrift.problems.ragged import positions
from undrift.problems.randomness import watched

Fields = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""One tensor or several, whose rows are samples."""
Output = Any
"""What a network returns: whatever its loss and metrics take."""
PIECE = 4096
"""Samples of a Dataset that are read at a time."""
WANTED = (
    "a pair (inputs, targets) of tensors or arrays, a Dataset of such pairs (the .dataset of a "
    "DataLoader), or a list with one of these for each client"
)


def mapped(change: Callable[[Tensor], Tensor], fields: Fields) -> Fields:
    """The same fields, each one changed."""
    if isinstance(fields, Tensor):
        return change(fields)
    found: Fields = tree_map(change, fields)
    return found


def count(fields: Fields) -> int:
    """How many samples they are of."""
    return len(tree_leaves(fields)[0])


class SampleRows(NamedTuple):
    """Samples: their inputs and their targets."""

    x: Fields
    y: Fields

    def mapped(self, change: Callable[[Tensor], Tensor]) -> SampleRows:
        return SampleRows(mapped(change, self.x), mapped(change, self.y))

    def take(self, numbers: Tensor) -> SampleRows:
        """Those with these numbers."""
        # The usual case by itself, without a walk through fields: this runs in every local step.
        if isinstance(self.x, Tensor) and isinstance(self.y, Tensor):
            return SampleRows(self.x.index_select(0, numbers), self.y.index_select(0, numbers))
        return self.mapped(lambda v: v.index_select(0, numbers))

    def to(self, device: torch.device) -> SampleRows:
        return self.mapped(lambda v: v.to(device))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All of them, by name: ``inputs``, or ``inputs[1]`` and ``inputs['mask']``."""
        for name, fields in (("inputs", self.x), ("targets", self.y)):
            if isinstance(fields, Tensor):
                yield name, fields
                continue
            keyed = enumerate(fields) if isinstance(fields, tuple) else fields.items()
            yield from ((f"{name}[{key!r}]", field) for key, field in keyed)


def shown(value: object) -> str:
    """Type and shape of a tensor of samples, in words."""
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    sizes = ", ".join(["n", *map(str, value.shape[1:])])
    return f"{str(value.dtype).removeprefix('torch.')} [{sizes}]"


class ClientData(NamedTuple):
    """All samples of a federation, and which client holds them."""

    train: SampleRows
    parts: list[np.ndarray]
    """The numbers of every client's training samples."""
    test: SampleRows | None
    test_parts: list[np.ndarray] | None
    """Of its test samples; ``None`` where those are nobody's."""

    def to(self, device: torch.device) -> ClientData:
        train, test = self.train.to(device), self.test
        if test is not None:
            # Samples that were held out lie in the same table, which need not be there twice.
            test = train if test is self.train else test.to(device)
        return self._replace(train=train, test=test)

    def named(self, table: SampleRows, sample: int) -> str:
        """A sample of a table in words, with the client that has it."""
        held = (self.train, self.parts), (self.test, self.test_parts or [])
        parts = [pair for own, some in held if own is table for pair in enumerate(some)]
        # Of one client alone, as on a node, the number is not that of the federation.
        several = len(self.parts) > 1
        who = [f" (client {client})" for client, part in parts if several and sample in part]
        return f"sample {sample} of {'train' if table is self.train else 'test'}{''.join(who[:1])}"

    def refuse_overflow(self, dtype: torch.dtype) -> None:
        """Refuse NaN and numbers that are infinite in ``dtype``."""
        short = str(dtype).removeprefix("torch.")
        for field, table in (("train", self.train), ("test", self.test)):
            if table is not None:
                with about("Neural", field):
                    for name, v in table.tensors():
                        if not v.is_floating_point() or not v.numel():
                            continue
                        # Of the ends alone, which are NaN if any number is: no copy is made.
                        if not torch.stack(v.aminmax()).to(dtype).isfinite().all():
                            sound = v.to(dtype).isfinite().view(len(v), -1).all(1)
                            where = self.named(table, int(sound.int().argmin()))
                            raise ValueError(
                                f"{where}: its {name} are not finite in {short}; leave it out, "
                                "scale it, or fill in what was not measured"
                            )


def client_data(train: object, parts: Sequence[ArrayLike] | None, test: object) -> ClientData:
    """What was given as data, with every client's share of it; nothing is copied if it can stay."""
    if isinstance(train, list) is not (parts is None):
        text = (
            "parts says which samples each client holds, as undrift.data.iid(len(inputs), "
            "clients=10) does; leave it out where train is a list with the data of each client"
        )
        raise BadParameters("Neural", {"parts": text})
    with about("Neural", "train"):
        table, held = _table("train", train)
        if not all(sizes := [*map(len, held)]):
            raise ValueError(f"client {sizes.index(0)} of the list has no samples; leave it out")
    if parts is not None:
        with about("Neural", "parts"):
            held = positions(parts, count(table.x))
    with about("Neural", "test"):
        found = _with_test(table, held, test)
    found.refuse_overflow(torch.float64)
    return found


def _with_test(table: SampleRows, parts: list[np.ndarray], test: object) -> ClientData:
    if test is None:
        return ClientData(table, parts, None, None)
    if isinstance(test, float | int | np.floating | np.integer):
        if not 0 < test < 1:
            allowed = "a share of every client's samples, > 0 and < 1, or test data"
            raise ValueError(not_allowed("test", test, allowed))
        # A sample that two clients hold could be in training with one and in test with the other.
        left, taken = hold_out(parts, float(test))
        if np.bincount(np.concatenate(parts)).max() > 1 or not any(map(len, taken)):
            raise ValueError(
                "a share can be held out where no sample is held twice and some client has two; "
                "give test data of its own"
            )
        return ClientData(table, left, table, taken)
    if isinstance(test, list) and len(test) != len(parts):
        raise ValueError(
            f"test is a list, the data of each client, of length {len(test)}, but there are "
            f"{len(parts)} clients; a tuple (inputs, targets) is everyone's"
        )
    tested, owners = _table("test", test)
    _refuse_other("test", tested, "train", table, shapes=False)
    return ClientData(table, parts, tested, owners if isinstance(test, list) else None)


def _table(name: str, given: object) -> tuple[SampleRows, list[np.ndarray]]:
    """All samples that were given as one table, and which of them each part of a list has."""
    parts = given if isinstance(given, list) else [given]
    of = [f"{name}[{k}]" if len(parts) > 1 else name for k in range(len(parts))]
    found = [
        None if part is None else _rows(which, part) for which, part in zip(of, parts, strict=True)
    ]
    pieces = [rows for rows in found if rows is not None and count(rows.x)]
    if not pieces:
        raise ValueError(f"{name} has no samples; give {WANTED}")
    for which, piece in zip(of, found, strict=True):
        if piece is not None and count(piece.x):
            _refuse_other(which, piece, "another client", pieces[0])
    # One after another they are a copy; alone they stay where they are.
    whole = pieces[0] if len(pieces) == 1 else cat(pieces)
    ends = np.cumsum([0 if rows is None else count(rows.x) for rows in found])
    return whole, np.split(np.arange(ends[-1]), ends[:-1])


def _rows(name: str, given: object) -> SampleRows:
    """The samples of one client, or of all."""
    if isinstance(given, TensorDataset) and len(given.tensors) == 2:
        given = given.tensors
    if isinstance(given, tuple) and len(given) == 2 and not any(map(_is_dataset, given)):
        fields = zip(("inputs", "targets"), given, strict=True)
        rows = SampleRows(*(_fields(f"{part} of {name}", v) for part, v in fields))
        lengths = {field: len(v) for field, v in rows.tensors()}
        if len({*lengths.values()}) > 1:
            raise ValueError(f"{name} must have one row of each for every sample; got {lengths}")
        return rows
    if _is_dataset(given):
        return _read(name, given)
    raise TypeError(f"{name} must be {WANTED}; got a {type(given).__name__}")


def cat(pieces: Sequence[SampleRows]) -> SampleRows:
    """Samples one after another."""
    return SampleRows(*(tree_map(lambda *v: torch.cat(v), *part) for part in zip(*pieces)))  # noqa: B905


def _refuse_other(
    name: str, rows: SampleRows, like_name: str, like: SampleRows, shapes: bool = True
) -> None:
    """Refuse samples of other fields, of which one alone are images, or of other ``shapes``."""

    def kinds(rows: SampleRows) -> dict[str, object]:
        return {
            key: (v.dtype == torch.uint8, shapes and [*v.shape[1:]]) for key, v in rows.tensors()
        }

    if kinds(rows) != kinds(like):
        raise ValueError(
            f"the samples of {name} are of another kind than those of {like_name}, by "
            f"(uint8, shape) {kinds(rows)} and {kinds(like)}; give the same "
            "inputs and targets everywhere, in the same shapes, and uint8 for images alone"
        )


def _fields(name: str, given: object) -> Fields:
    """What was given as tensors on the CPU, which share its memory where they can."""
    if isinstance(given, tuple) and given:
        return tuple(_tensor(f"{name}, [{k}],", part) for k, part in enumerate(given))
    if isinstance(given, Mapping) and given:
        return {str(key): _tensor(f"{name}, {key!r},", part) for key, part in given.items()}
    return _tensor(name, given)


def _tensor(name: str, given: object) -> Tensor:
    try:
        if not isinstance(given, Tensor):
            if np.ma.is_masked(given):  # np.asarray would forget the mask
                raise TypeError("some are masked")
            given = _shared(np.asarray(given))
    except Exception as error:  # NumPy says in many ways that there are no numbers
        raise TypeError(
            f"{name} are not numbers that torch can hold: {brief(error)}; give an array of numbers "
            "with rows of one length, classes as np.unique(names, return_inverse=True)[1]"
        ) from None
    if given.is_complex() or given.layout != torch.strided or not given.dim():
        raise TypeError(f"{name} must be a dense tensor of real numbers, a row for each sample")
    return given.detach().cpu()


def _shared(array: np.ndarray) -> Tensor:
    """The same memory, but for what torch has not: other orders of bytes, rows backwards."""
    array = array.astype(array.dtype.newbyteorder("="), copy=any(n < 0 for n in array.strides))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # read-only memory: nobody writes to it here
        return torch.from_numpy(array)


def _is_dataset(given: object) -> TypeGuard[Sequence[object]]:
    """Whether it is torch's, or one that gives several samples at once as torch's do."""
    known = isinstance(given, Dataset) or hasattr(given, "__getitems__")
    return known and hasattr(given, "__len__")


def _read(name: str, dataset: Sequence[object]) -> SampleRows:
    """All samples of a Dataset, some thousand at a time."""
    at_once = getattr(dataset, "__getitems__", lambda numbers: [dataset[k] for k in numbers])

    def read(numbers: Sequence[int]) -> SampleRows:
        try:
            inputs, targets = collate(at_once(numbers))
            return SampleRows(_collated(inputs), _collated(targets))
        except Exception as error:  # a Dataset may fail in any way
            raise ValueError(
                f"samples {numbers[0]} to {numbers[-1]} of {name} are not pairs (input, target) of "
                f"tensors, arrays or numbers of one shape: {type(error).__name__}, {brief(error)}; "
                "undrift.data.from_datasets makes them of columns"
            ) from error

    # In pieces: samples are objects first and a copy then, and both of a whole set may not fit.
    pieces = []
    for k in range(0, len(dataset), PIECE):
        numbers = range(k, min(k + PIECE, len(dataset)))
        piece, drawn = watched(functools.partial(read, list(numbers)))
        if drawn:
            raise ValueError(
                f"{name} has other samples each time it is read, so that no run could be repeated; "
                "leave out random transforms, or give each sample a generator of its own"
            )
        pieces.append(piece)
    return cat(pieces) if pieces else SampleRows(torch.empty(0), torch.empty(0))


def _collated(fields: object) -> Fields:
    """What torch made of some samples: lists where they had tuples."""
    found = tuple(fields) if isinstance(fields, list) else fields
    if not tree_leaves(found) or not all(isinstance(v, Tensor) for v in tree_leaves(found)):
        raise TypeError(f"got a {type(fields).__name__}")
    return found  # type: ignore[return-value]
