"""States and messages: small frozen records of flat vectors.

What is not declared is not saved, not sent and not counted.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NoReturn, Self

if TYPE_CHECKING:
    from torch import Tensor

    Vec = Tensor
    Sparse = Tensor
    Scratch = Tensor
else:

    class Vec:
        """A flat vector: ``[d]`` for one client, ``[C, d]`` for a cohort."""

    class Sparse:
        """A vector of a message; only its non-zero entries travel where that is less."""

    class Scratch:
        """A vector kept between the phases of one round and forgotten at its end."""


BLOCK = 2**16
"""Squares of float32 numbers that may be added one after another."""


def length(v: Vec) -> Vec:
    """The norm of each row, ``[..., 1]``.

    torch on a CPU adds a row's squares one after another: in float32 the norm of 10^7 numbers would
    be 0.04 % too small, of 10^8 numbers 1 %. So long rows are taken in blocks.
    """
    blocks = [v] if v.is_cuda else v.tensor_split(v.shape[-1] // BLOCK + 1, dim=-1)
    norms: list[Vec] = [block.norm(dim=-1, keepdim=True) for block in blocks]
    return functools.reduce(lambda one, other: one.hypot(other), norms)


class Struct:
    """A frozen record whose annotated fields are vectors; a ``Scratch`` one may be missing.

    Not a dataclass: building a hundred of them would slow down every start of the command line by a
    tenth of a second.
    """

    vectors: tuple[str, ...] = ()
    """Fields that are always there: the ``Vec`` and the ``Sparse`` ones."""
    sparse: tuple[str, ...] = ()
    """Those of them that are ``Sparse``."""
    whole: tuple[str, ...] = ()
    """Those of them that are ``Vec``, which travel whole."""
    scratch: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Every declared field."""
    _kinds: Mapping[str, str] = {}
    _required: frozenset[str] = frozenset()

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        own = inspect.get_annotations(cls).items()
        cls._kinds = {**cls._kinds, **{name: _kind(cls, name, note) for name, note in own}}
        cls.vectors = tuple(name for name, kind in cls._kinds.items() if kind != "Scratch")
        cls.sparse, cls.whole, cls.scratch = (
            tuple(name for name, kind in cls._kinds.items() if kind == each)
            for each in ("Sparse", "Vec", "Scratch")
        )
        cls.names, cls._required = cls.vectors + cls.scratch, frozenset(cls.vectors)

    def __init__(self, **fields: Vec | None) -> None:
        if fields.keys() != self._required:
            self._refuse(fields)
        self.__dict__.update(fields)

    def _refuse(self, fields: Collection[str]) -> None:
        for name in fields:
            if name not in self.names:
                raise TypeError(self._lacks(name))
        for name in self.vectors:
            if name not in fields:
                # The default ``server`` gives x alone, the default ``client`` nothing.
                default = isinstance(self, State) and {"x"}.issuperset(fields)
                made = f"; {type(self).__name__.lower()}(self, x0) must give it" if default else ""
                raise TypeError(f"{type(self).__qualname__}: {name} is missing{made}")

    def _lacks(self, name: str) -> str:
        return f"{type(self).__qualname__} " + (
            f"has no {name} yet: no phase of this round has kept one, by replace({name}=...)"
            if name in self.scratch
            else f"has no field {name}; it has {', '.join(self.names) or 'none'}"
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(self._lacks(name))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"{type(self).__qualname__} is frozen; make a new one with replace({name}=...)"
        )

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{n}={v}' for n, v in self.items())})"

    def items(self) -> list[tuple[str, Vec]]:
        """(name, vector) of every field that is present."""
        return [(n, v) for n in self.names if (v := vars(self).get(n)) is not None]

    def replace(self, **changes: Vec | None) -> Self:
        """The same record with some vectors changed."""
        if not self._required.issuperset(changes):
            self._refuse({**self.__dict__, **changes})
        return self._like({**self.__dict__, **changes})

    def lasting(self) -> Self:
        """The same record without its scratch vectors."""
        return self._like({n: getattr(self, n) for n in self.vectors}) if self.scratch else self

    def map(self, change: Callable[..., Vec], *others: Struct) -> Self:
        """The same record with ``change`` applied to each vector (and to those of ``others``)."""
        return self._like({n: change(v, *[getattr(o, n) for o in others]) for n, v in self.items()})

    def _like(self, fields: Mapping[str, Vec | None]) -> Self:
        """A record of the same class, whose ``fields`` are known to be right."""
        record = object.__new__(type(self))
        record.__dict__.update(fields)
        return record


def _kind(cls: type, name: str, note: object) -> str:
    kind = note if isinstance(note, str) else getattr(note, "__name__", str(note))
    kind = kind.rsplit(".", 1)[-1]
    field = f"{cls.__qualname__}.{name}"
    if kind not in ("Vec", "Sparse", "Scratch"):
        raise TypeError(f"{field}: a field is a Vec, a Sparse or a Scratch, not {kind}")
    if kind == ("Scratch" if issubclass(cls, Message) else "Sparse"):
        raise TypeError(f"{field}: a Sparse is a field of a message, a Scratch one of a state")
    return kind


class State(Struct):
    """What the server or a client remembers from round to round."""


class Message(Struct):
    """What travels: ``Down`` from the server, ``Up`` from a client."""
