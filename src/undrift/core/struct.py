"""States and messages: small frozen records of flat vectors.

What is not declared is not saved, not sent and not counted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
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


class Struct:
    """A frozen record whose annotated fields are vectors; a ``Scratch`` one may be ``None``.

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
        cls.sparse = tuple(name for name, kind in cls._kinds.items() if kind == "Sparse")
        cls.whole = tuple(name for name, kind in cls._kinds.items() if kind == "Vec")
        cls.scratch = tuple(name for name, kind in cls._kinds.items() if kind == "Scratch")
        cls.names, cls._required = cls.vectors + cls.scratch, frozenset(cls.vectors)
        for name in cls.scratch:
            setattr(cls, name, None)

    def __init__(self, **fields: Vec | None) -> None:
        if fields.keys() != self._required:
            self._refuse(fields)
        self.__dict__.update(fields)

    def _refuse(self, fields: Iterable[str]) -> None:
        for name in self.vectors:
            if name not in fields:
                raise TypeError(f"{type(self).__qualname__}: {name} is missing")
        for name in fields:
            if name not in self.vectors and name not in self.scratch:
                known = ", ".join(self.names)
                raise TypeError(f"{type(self).__qualname__} has no field {name}; it has {known}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"{type(self).__qualname__} is frozen; make a new one with replace({name}=...)"
        )

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{n}={v}' for n, v in self.items())})"

    def items(self) -> list[tuple[str, Vec]]:
        """(name, vector) of every field that is present."""
        return [(n, v) for n in self.names if (v := getattr(self, n)) is not None]

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
        if others:
            return self._like(
                {n: change(v, *(getattr(o, n) for o in others)) for n, v in self.items()}
            )
        return self._like({n: change(v) for n, v in self.__dict__.items() if v is not None})

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
    if kind == "Sparse" and not issubclass(cls, Message):
        raise TypeError(f"{field}: a Sparse is a field of a message; what is remembered is a Vec")
    return kind


class State(Struct):
    """What the server or a client remembers from round to round."""


class Message(Struct):
    """What travels: ``Down`` from the server, ``Up`` from a client."""
