"""Messages as bytes: safetensors, checked against the receiver's own declaration.

A frame says in its metadata where it belongs (its :class:`Address`), and has a SHA-256 of all its
bytes but those of the digest itself. The digest finds accidents and mix-ups; it is not a signature:
whoever can write a frame can write its digest too. Whether numbers are finite is not looked at.

A ``Sparse`` vector ``g`` is sent as ``g.places`` and ``g.values``, its non-zero entries in
ascending order, where that takes fewer bytes than all of them; otherwise as any other vector.
Zeros have no sign then.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from undrift.core.struct import Message
from undrift.engines.format import (
    LENGTH,
    BadFormat,
    Extent,
    content,
    fields,
    opening,
    order,
    placed,
    table,
)

Way = Literal["down", "up"]
Reason = Literal["malformed", "damaged", "foreign", "stale", "early", "duplicate"]

HEAD = re.compile(
    rb'\{"__metadata__": \{"digest": "([0-9a-f]{64})", "run": "([0-9a-f]{32})"'
    rb', "round": "([0-9]{1,18})", "phase": "([0-9]{1,18})", "client": "([0-9]{1,18})"'
    rb', "way": "(down|up)"\}(?:, (.*))?\} *'
)
AT = LENGTH + len('{"__metadata__": {"digest": "')
"""Where the digest is in a frame."""
AFTER = AT + 64
MOST_METADATA = 320
"""Bytes of a head beside its tensors: numbers of up to 18 digits, and the name of a run."""
MOST_PLACE = 120
"""Bytes of a head for a tensor beside its name."""


class BadFrame(ValueError):
    """Bytes that are not the awaited message: ``reason`` says in a word why."""

    def __init__(self, reason: Reason, text: str):
        self.reason = reason
        super().__init__(f"{reason} message: {text}")


class Address(NamedTuple):
    """Where a message belongs."""

    run: str
    """The ``identity`` of an engine, 32 hexadecimal digits."""
    round: int
    phase: int
    """The place of the phase in its round, from 0."""
    client: int
    """The receiver of a message down, the sender of one up."""
    way: Way


class Packed(NamedTuple):
    """A message as bytes, for any number of addresses."""

    fields: str
    numbers: bytes

    def frame(self, address: Address) -> bytes:
        """The message as it travels to or from one client."""
        run, round, phase, client, way = address
        start = opening(
            f'{{"digest": "{"0" * 64}", "run": "{run}", "round": "{round}", '
            f'"phase": "{phase}", "client": "{client}", "way": "{way}"}}',
            self.fields,
        )
        before, after = start[:AT], start[AFTER:]
        return b"".join((before, _digest(before, after, self.numbers), after, self.numbers))


class Envelope(NamedTuple):
    """A whole frame for a kind of message; its numbers have not been looked at."""

    address: Address
    places: Mapping[str, Extent]
    numbers: memoryview

    @classmethod
    def of(cls, kind: type[Message], frame: bytes, like: Tensor) -> Envelope:
        """Check the size, the head and the digest of a frame."""
        name, most, view = kind.__qualname__, header(kind), memoryview(frame)
        size = LENGTH + int.from_bytes(view[:LENGTH], "little")
        numbers = len(kind.vectors) * like.numel() * like.element_size()
        if not LENGTH < size <= min(most, len(frame)) or len(frame) > size + numbers:
            raise BadFrame(
                "malformed", f"{name} cannot have {len(frame)} bytes, {size} before its numbers"
            )
        if not (found := HEAD.fullmatch(frame, LENGTH, size)):
            raise BadFrame("malformed", f"{name} does not begin with a digest and an address")
        digest, run, round, phase, client, way, fields = found.groups(b"")
        if digest != _digest(view[:AT], view[AFTER:]):
            raise BadFrame("damaged", f"{name} has another digest than it says")
        try:
            places, end = _placed(fields)
        except BadFormat as error:
            raise BadFrame("malformed", f"{name}: {error}") from None
        if size + end != len(frame):
            raise BadFrame("malformed", f"{name} has {len(frame)} bytes, not {size + end}")
        going: Way = "down" if way == b"down" else "up"
        address = Address(run.decode(), int(round), int(phase), int(client), going)
        return cls(address, places, view[size:])

    def message(self, kind: type[Message], like: Tensor) -> Message:
        """The numbers, as vectors of the form of ``like``."""
        places, name = self.places, kind.__qualname__
        packed = [field for field in kind.sparse if field not in places]
        whole = [field for field in kind.vectors if field not in packed]
        expected = {*whole, *(part for field in packed for part in _parts(field))}
        if places.keys() != expected:
            text = f"{name} has the fields {sorted(places)}, not {sorted(expected)}"
            raise BadFrame("malformed", text)
        dtype, shape, numbering = like.dtype, tuple(like.shape), _numbering(like.numel())
        for field in whole:
            _demand(f"{name}.{field}", places[field], dtype, shape)
        for field in packed:
            at, values = (places[part] for part in _parts(field))
            entries = (math.prod(at.shape),)
            _demand(f"{name}.{field}.places", at, numbering, entries)
            _demand(f"{name}.{field}.values", values, dtype, entries)
        vectors = {field: self._vector(places[field]) for field in whole}
        for field in packed:
            entry, number = (self._vector(places[part]) for part in _parts(field))
            vectors[field] = _unpacked(f"{name}.{field}", entry, number, like)
        if like.device.type != "cpu":
            vectors = {field: v.to(like.device) for field, v in vectors.items()}
        return kind(**vectors)

    def _vector(self, place: Extent) -> Tensor:
        """A copy of its numbers."""
        dtype, shape, start, end = place
        if start == end:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(self.numbers[start:end]), dtype=dtype)


class Inbox:
    """What one end of a run awaits: one message of each of some clients, for one phase.

    It remembers no more than the numbers of these clients.
    """

    def __init__(self, run: str, way: Way):
        self.run, self.way = run, way
        self.turn = 0, 0
        """The round and the place of the phase."""
        self._clients: frozenset[int] = frozenset()
        self._received: set[int] = set()

    def expect(self, round: int, phase: int, clients: Iterable[int]) -> None:
        """From now on messages of these clients for this phase, and no others."""
        self.turn = round, phase
        self._clients, self._received = frozenset(clients), set()

    def take(self, kind: type[Message], frame: bytes, like: Tensor) -> tuple[int, Message]:
        """The client and the message of a frame that is awaited.

        Raises :class:`BadFrame` for any other; a frame that is refused changes nothing, so that the
        right one may still come.
        """
        envelope = Envelope.of(kind, frame, like)
        found, turn = envelope.address, envelope.address[1:3]
        if found.run != self.run or found.way != self.way or found.client not in self._clients:
            raise BadFrame("foreign", f"{found} is not of this run and its clients")
        if turn != self.turn:
            reason: Reason = "stale" if turn < self.turn else "early"
            raise BadFrame(reason, f"{found}, where round and phase are {self.turn}")
        if found.client in self._received:
            raise BadFrame("duplicate", f"{found} was received before")
        message = envelope.message(kind, like)
        self._received.add(found.client)
        return found.client, message


def header(kind: type[Message]) -> int:
    """The most bytes that a frame has beside its numbers."""
    return _header(kind.vectors, kind.sparse)


def sparse_bytes(message: Message) -> int:
    """Bytes of the ``Sparse`` vectors of a message, or of several (``[C, d]``)."""
    if not message.sparse:
        return 0
    return sum(_least(getattr(message, name)) for name in message.sparse)


def pack(message: Message) -> Packed:
    """The declared vectors and nothing else."""
    tensors: dict[str, Tensor] = {}
    for name, v in message.items():
        tensors |= _packed(name, v) if name in message.sparse else {name: v}
    text, names = _fields(tuple((name, v.dtype, v.shape) for name, v in tensors.items()))
    return Packed(text, b"".join(content(tensors[name]) for name in names))


def encode(message: Message, address: Address) -> bytes:
    """One frame of a message."""
    return pack(message).frame(address)


def decode(kind: type[Message], frame: bytes, like: Tensor, address: Address) -> Message:
    """The message of ``kind`` at this ``address``, its vectors as ``like``; all else is refused."""
    envelope = Envelope.of(kind, frame, like)
    if envelope.address != address:
        raise BadFrame("foreign", f"{envelope.address}, not {address}")
    return envelope.message(kind, like)


@cache
def _header(vectors: tuple[str, ...], sparse: tuple[str, ...]) -> int:
    names = [part for name in sparse for part in _parts(name)]
    names += [name for name in vectors if name not in sparse]
    return MOST_METADATA + sum(len(json.dumps(name)) + MOST_PLACE for name in names)


@lru_cache(256)
def _fields(forms: tuple[tuple[str, torch.dtype, torch.Size], ...]) -> tuple[str, list[str]]:
    """What a head says of tensors, and their names in its order."""
    parts = {name: Extent(dtype, shape, 0, 0) for name, dtype, shape in forms}
    return fields(parts), order(parts)


def _digest(*parts: bytes | memoryview) -> bytes:
    """Of the bytes of a frame on both sides of its digest.

    The first eight say where the head ends, so that nothing can move between head and numbers.
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode()


@lru_cache(256)
def _placed(fields: bytes) -> tuple[Mapping[str, Extent], int]:
    """The places of the tensors of a frame, and their bytes."""
    return placed(table(b"{%b}" % fields))


def _demand(field: str, place: Extent, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    if place.dtype != dtype or place.shape != shape:
        found, wanted = (f"{kind} {[*form]}" for kind, form in (place[:2], (dtype, shape)))
        raise BadFrame("malformed", f"{field} is {found}, not {wanted}")


def _parts(name: str) -> tuple[str, str]:
    return f"{name}.places", f"{name}.values"


def _numbering(d: int) -> torch.dtype:
    """The type of places in a vector of ``d`` numbers."""
    return torch.int32 if d <= 2**31 else torch.int64


def _least(rows: Tensor) -> int:
    """Bytes of vectors ``[d]`` or ``[C, d]``, each in the smaller of its two forms."""
    d, size = rows.shape[-1], rows.element_size()
    entries = rows.count_nonzero(-1) * (size + _numbering(d).itemsize)
    return int(entries.clamp(max=d * size).sum())


def _packed(name: str, v: Tensor) -> dict[str, Tensor]:
    if v.dim() != 1 or _least(v) == v.numel() * v.element_size():
        return {name: v}
    places = v.nonzero().squeeze(-1)
    return dict(zip(_parts(name), (places.to(_numbering(v.numel())), v[places]), strict=True))


def _unpacked(field: str, places: Tensor, values: Tensor, like: Tensor) -> Tensor:
    """The whole vector, once its entries are found to be some of it, each once."""
    d = like.numel()
    if len(places) and not (
        int(places[0]) >= 0 and int(places[-1]) < d and bool((places[1:] > places[:-1]).all())
    ):
        raise BadFrame("malformed", f"{field}: places are not ascending numbers from 0 to {d - 1}")
    return torch.zeros(d, dtype=like.dtype).scatter(0, places.long(), values)
