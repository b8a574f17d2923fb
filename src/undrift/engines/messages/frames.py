"""Messages as bytes, checked against the receiver's own declaration.

A frame is a SHA-256, an :class:`Address`, and the vectors as a safetensors file. The digest is of
all that follows it: it finds accidents and mix-ups, and is not a signature, since whoever can write
a frame can write its digest too. Whether numbers are finite is not looked at.

A ``Sparse`` vector ``g`` is sent as ``g.places`` and ``g.values``, its non-zero entries in
ascending order, where that takes fewer bytes than all of them; otherwise as any other vector.
Zeros have no sign then.
"""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from undrift.core.struct import Message
from undrift.engines.messages.format import LENGTH, BadFormat, dump, parse
from undrift.engines.messages.packet import ABOUT, BODY, DIGEST

Way = Literal["down", "up"]
WAYS: tuple[Way, Way] = ("down", "up")
Reason = Literal["malformed", "damaged", "foreign"]

MOST_ENTRY = 128
"""Bytes that a head has for a tensor beside its name."""


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

    def frame(self, body: bytes) -> bytes:
        """The message ``body`` as it travels to or from this client."""
        run, round, phase, client, way = self
        about = ABOUT.pack(bytes.fromhex(run), round, phase, client, WAYS.index(way))
        addressed = about + body
        return hashlib.sha256(addressed).digest() + addressed


def pack(message: Message) -> bytes:
    """The declared vectors and nothing else, for any number of addresses."""
    tensors: dict[str, Tensor] = {}
    for name, v in message.items():
        tensors |= _packed(name, v) if name in message.sparse else {name: v}
    return dump(tensors)


def decode(kind: type[Message], frame: bytes, like: Tensor, address: Address) -> Message:
    """The message of ``kind`` at this ``address``, its vectors as ``like``; all else is refused."""
    # The receiver's own bound comes first: nothing is done with more bytes than that.
    most = header(kind) + len(kind.vectors) * like.nbytes
    if not BODY + LENGTH <= len(frame) <= most:
        raise BadFrame("malformed", f"{kind.__qualname__} cannot have {len(frame)} bytes")
    view = memoryview(frame)
    if view[:DIGEST] != hashlib.sha256(view[DIGEST:]).digest():
        raise BadFrame("damaged", f"{kind.__qualname__} has another digest than it says")
    run, round, phase, client, way = ABOUT.unpack_from(frame, DIGEST)
    if way >= len(WAYS):
        raise BadFrame("malformed", f"{kind.__qualname__} goes neither down nor up")
    found = Address(run.hex(), round, phase, client, WAYS[way])
    if found != address:
        raise BadFrame("foreign", f"{found}, not {address}")
    return _message(kind, frame, like)


def header(kind: type[Message]) -> int:
    """The most bytes that a frame has beside its numbers."""
    # A character of a name takes up to 12 bytes in JSON, and a sparse vector is two tensors.
    entries = (2 * (12 * len(name) + MOST_ENTRY) for name in kind.vectors)
    return BODY + LENGTH + 16 + sum(entries)


def sparse_bytes(message: Message) -> int:
    """Bytes of the ``Sparse`` vectors of a message, or of several (``[C, d]``)."""
    return sum(_least(getattr(message, name)) for name in message.sparse)


def _message(kind: type[Message], frame: bytes, like: Tensor) -> Message:
    """The vectors of a frame, each of the form of ``like``."""
    name = kind.__qualname__
    try:
        found = parse(frame[BODY:], header(kind))
    except BadFormat as error:
        raise BadFrame("malformed", f"{name}: {error}") from None
    packed = [_parts(field) for field in kind.sparse if field not in found]
    wanted = {field: (like.dtype, tuple(like.shape)) for field in kind.vectors}
    for field, places, values in packed:
        del wanted[field]
        entries = (found[places].numel(),) if places in found else ()
        wanted |= {places: (_numbering(like.numel()), entries), values: (like.dtype, entries)}
    forms = {field: (v.dtype, tuple(v.shape)) for field, v in found.items()}
    # Sparse vectors that take more bytes than whole ones are nobody's who keeps to the form.
    most = len(kind.vectors) * like.nbytes
    if forms != wanted or sum(v.nbytes for v in found.values()) > most:
        raise BadFrame("malformed", f"{name} has {forms}, not {wanted}")
    for field, places, values in packed:
        found[field] = _unpacked(f"{name}.{field}", found.pop(places), found.pop(values), like)
    return kind(**{field: v.to(like.device) for field, v in found.items()})


def _parts(name: str) -> tuple[str, str, str]:
    """A sparse vector, and what its places and values are called."""
    return name, f"{name}.places", f"{name}.values"


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
    _, places, values = _parts(name)
    at = v.nonzero().squeeze(-1)
    return {places: at.to(_numbering(v.numel())), values: v[at]}


def _unpacked(field: str, places: Tensor, values: Tensor, like: Tensor) -> Tensor:
    """The whole vector, once its entries are found to be some of it, each once."""
    d = like.numel()
    if len(places) and not (
        int(places[0]) >= 0 and int(places[-1]) < d and bool((places[1:] > places[:-1]).all())
    ):
        raise BadFrame("malformed", f"{field}: places are not ascending numbers from 0 to {d - 1}")
    return torch.zeros(d, dtype=like.dtype).scatter(0, places.long(), values)
