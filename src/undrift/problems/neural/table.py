"""Samples as rows of tables, in memory or read when they are used."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

Fields = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""One tensor or several, whose rows are samples."""
Output = Any
"""What a network returns: whatever its loss and metrics take."""
CPU = torch.device("cpu")


def mapped(change: Callable[[Tensor], Tensor], fields: Fields) -> Fields:
    """The same fields, each one changed."""
    if isinstance(fields, Tensor):
        return change(fields)
    if isinstance(fields, tuple):
        return tuple(map(change, fields))
    return {name: change(field) for name, field in fields.items()}


def leaves(fields: Fields) -> tuple[Tensor, ...]:
    """The tensors themselves."""
    if isinstance(fields, Tensor):
        return (fields,)
    return fields if isinstance(fields, tuple) else tuple(fields.values())


def count(fields: Fields) -> int:
    """How many samples they are of."""
    return len(leaves(fields)[0])


def versions(*values: Output) -> list[int]:
    """How often each tensor in them was written to."""
    found = list[int]()
    for value in values:
        if isinstance(value, Tensor):
            found.append(value._version)
        elif isinstance(value, tuple | list | dict):
            found += versions(*(value.values() if isinstance(value, dict) else value))
    return found


def shown(value: object) -> str:
    """Type and shape of a tensor of samples, in words."""
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    sizes = ", ".join(["n", *map(str, value.shape[1:])])
    return f"{str(value.dtype).removeprefix('torch.')} [{sizes}]"


class Rows(NamedTuple):
    """Samples: their inputs and their targets."""

    x: Fields
    y: Fields

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Rows:
        return Rows(mapped(change, self.x), mapped(change, self.y))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All of them, by name: ``inputs``, or ``inputs[1]`` and ``inputs['mask']``."""
        for name, fields in (("inputs", self.x), ("targets", self.y)):
            if isinstance(fields, Tensor):
                yield name, fields
                continue
            keyed = enumerate(fields) if isinstance(fields, tuple) else fields.items()
            yield from ((f"{name}[{key!r}]", field) for key, field in keyed)


class Table(abc.ABC):
    """Samples by number."""

    held: ClassVar[bool]
    """Whether all of them are on the device of the run."""
    y: Fields | None
    """All targets; ``None`` where they are not known without reading every sample."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def take(self, numbers: Tensor) -> Rows:
        """Some samples, on the device of the run."""

    @abc.abstractmethod
    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        """On the device of a run; the numbers become ``dtype`` as they are used."""


class Held(Table):
    """Samples in memory."""

    held = True

    def __init__(self, rows: Rows):
        self.rows = rows
        self.x, self.y = rows

    def __len__(self) -> int:
        return count(self.x)

    def take(self, numbers: Tensor) -> Rows:
        if isinstance(self.x, Tensor) and isinstance(self.y, Tensor):
            return Rows(self.x.index_select(0, numbers), self.y.index_select(0, numbers))
        return self.rows.mapped(lambda v: v.index_select(0, numbers))

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        return type(self)(self.rows.mapped(lambda v: v.to(device)))


@dataclasses.dataclass(frozen=True)
class Read(Table):
    """Samples that stay where they are, and are looked at as they are read."""

    read: Callable[[Tensor], Rows]
    """Some samples, on the CPU."""
    length: int
    called: Callable[[int], str]
    """What a sample is called, by its number."""
    y: Fields | None = None
    dtype: torch.dtype = torch.float32
    device: torch.device = CPU

    held = False

    def __len__(self) -> int:
        return self.length

    def take(self, numbers: Tensor) -> Rows:
        numbers = numbers.cpu()
        rows = self.read(numbers)
        for name, v in rows.tensors():
            if (wrong := unfinite(v, self.dtype)) is not None:
                text = too_large(name, v[wrong], self.dtype)
                raise ValueError(f"{self.called(int(numbers[wrong]))}: {text}")
        return rows.mapped(lambda v: v.to(self.device))

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        return dataclasses.replace(self, dtype=dtype, device=device)


def unfinite(v: Tensor, dtype: torch.dtype) -> int | None:
    """The first row with a number that is not finite in ``dtype``."""
    if not v.is_floating_point() or not v.numel():
        return None
    most = torch.finfo(dtype).max
    if all(-most <= float(end) <= most for end in v.aminmax()):
        return None
    return next(k for k in range(len(v)) if not float(v[k].abs().max()) <= most)


def too_large(name: str, row: Tensor, dtype: torch.dtype) -> str:
    """The complaint about a sample that :func:`unfinite` found."""
    if not bool(row.isfinite().all()):
        return f"its {name} hold numbers that are not finite; remove it or replace them"
    largest, kind = float(row.abs().max()), str(dtype).removeprefix("torch.")
    return (
        f"its {name} hold {largest:.3g}, which is infinite in {kind}, the precision of this run: "
        "scale them, or use dtype float64"
    )


def cat(pieces: Sequence[Rows]) -> Rows:
    """Samples one after another."""
    return Rows(*(_cat_fields(fields) for fields in zip(*pieces, strict=True)))


def _cat_fields(pieces: Sequence[Fields]) -> Fields:
    first = pieces[0]
    if isinstance(first, Tensor):
        return torch.cat(pieces)  # type: ignore[arg-type]
    if isinstance(first, tuple):
        return tuple(map(torch.cat, zip(*pieces, strict=True)))
    return {name: torch.cat([piece[name] for piece in pieces]) for name in first}  # type: ignore[index,call-overload]


def numbered(name: str) -> Callable[[int], str]:
    """What the samples of some data are called."""
    return lambda number: f"sample {number} of {name}"
