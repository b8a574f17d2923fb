"""Samples: rows of one tensor or several, inputs and targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import Tensor

Fields = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""One tensor or several, whose rows are samples."""
Output = Any
"""What a network returns: whatever its loss and metrics take."""


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


class SampleRows(NamedTuple):
    """Samples: their inputs and their targets."""

    x: Fields
    y: Fields

    def mapped(self, change: Callable[[Tensor], Tensor]) -> SampleRows:
        return SampleRows(mapped(change, self.x), mapped(change, self.y))

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
