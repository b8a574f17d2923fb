"""The safetensors format: the length of a head in eight bytes, the head in JSON, the numbers.

A head may be damaged, or made to do harm: it is bounded and checked before anything is made of it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from undrift._files import naming, opened, writing

KINDS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
TYPES = {name: dtype for dtype, name in KINDS.items()}
LENGTH = 8
"""Bytes that say how long the head is."""
METADATA = "__metadata__"
MOST_DIMENSIONS = 16
MOST_NUMBERS = 2**59
"""Of a tensor, so that its bytes can be counted in 64 bits."""


class BadFormat(ValueError):
    """Bytes that are no safetensors file, or one beyond its bounds."""


class Form(Protocol):
    """What a head says of a tensor."""

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


class Extent(NamedTuple):
    """The form of a tensor, and its bytes among the numbers."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


def head(parts: Mapping[str, Form], metadata: Mapping[str, str]) -> bytes:
    """What a file begins with: the metadata, and the form and place of every tensor."""
    return opening(json.dumps(metadata), fields(parts))


def fields(parts: Mapping[str, Form]) -> str:
    """The form and place of every tensor, in JSON without the braces."""
    end, places = 0, dict[str, object]()
    for name in order(parts):
        start, end = end, end + math.prod(parts[name].shape) * parts[name].dtype.itemsize
        kind, shape = KINDS[parts[name].dtype], list(parts[name].shape)
        places[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    return json.dumps(places)[1:-1]


def opening(metadata: str, fields: str) -> bytes:
    """A head of JSON."""
    text = f'{{"{METADATA}": {metadata}{", " if fields else ""}{fields}}}'.encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(LENGTH, "little") + text


def order(parts: Mapping[str, Form]) -> list[str]:
    """Larger numbers first, so that all of them are aligned."""
    return sorted(parts, key=lambda name: (-parts[name].dtype.itemsize, name))


def content(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, as such a file holds them."""
    if tensor.dtype == torch.bfloat16:  # which NumPy does not know
        tensor = tensor.detach().view(torch.int16)
    return tensor.numpy(force=True).reshape(-1).view(np.uint8).data


def form(name: str, part: Form) -> bytes:
    """What a digest takes of a tensor beside its content."""
    return f"{name} {part.dtype} {list(part.shape)}".encode()


def digest(tensors: Mapping[str, Tensor], before: bytes = b"") -> str:
    """The SHA-256 of tensors, after the bytes ``before``."""
    total = hashlib.sha256(before)
    for name in order(tensors):
        total.update(form(name, tensors[name]))
        total.update(content(tensors[name]))
    return total.hexdigest()


def write_sealed(path: Path, parts: Mapping[str, Any], about: Mapping[str, str]) -> None:
    """Make a file in one step whose metadata are ``about`` and a digest of it and of all parts.

    A part is a tensor, or a sequence of blocks with its dtype and shape, which are read one by one.
    """
    total = hashlib.sha256(json.dumps(about).encode())
    with naming(path), writing(path) as file:
        file.write(head(parts, {**about, "digest": "0" * 64}))
        for name in order(parts):
            total.update(form(name, parts[name]))
            for block in [parts[name]] if isinstance(parts[name], Tensor) else parts[name]:
                written = content(block)
                total.update(written)
                file.write(written)
        # The digest is known only now; its place in the head has been kept.
        file.seek(0)
        file.write(head(parts, {**about, "digest": total.hexdigest()}))


def read_sealed(path: Path, most: int) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What :func:`write_sealed` wrote, of a head of at most ``most`` bytes."""
    try:
        about, tensors = read(path, most)
    except (OSError, BadFormat) as error:
        raise BadFormat(f"cannot be read ({error})") from error
    found = about.pop("digest", "")
    if found != digest(tensors, json.dumps(about).encode()):
        raise BadFormat("damaged (its digest does not match)")
    return about, tensors


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Make a file in one step: the same bytes for the same tensors."""
    with naming(path), writing(path) as file:
        file.write(head(tensors, metadata))
        for name in order(tensors):
            file.write(content(tensors[name]))


def read(path: Path, most: int) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors of a file with a head of at most ``most`` bytes."""
    with opened(path) as file:
        return _read(file, os.fstat(file.fileno()).st_size, most)


def dump(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as the bytes of such a file."""
    return b"".join([head(tensors, {}), *(content(tensors[name]) for name in order(tensors))])


def parse(whole: bytes, most: int) -> dict[str, Tensor]:
    """The tensors of such bytes, whose head has at most ``most``."""
    _, tensors = _read(io.BytesIO(whole), len(whole), most)
    return tensors


def _read(file: BinaryIO, total: int, most: int) -> tuple[dict[str, str], dict[str, Tensor]]:
    length = int.from_bytes(file.read(LENGTH), "little")
    if length > min(most, total - LENGTH):
        raise BadFormat(f"a head of {length} bytes in {total}, where {most} are allowed")
    found = table(file.read(length))
    metadata = found.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(type(v) is str for v in metadata.values()):
        raise BadFormat("its metadata are not texts")
    places, end = placed(found)
    if LENGTH + length + end != total:
        raise BadFormat(f"{total} bytes, where its head describes {LENGTH + length + end}")
    return metadata, {name: _tensor(file, name, place) for name, place in places.items()}


def table(text: bytes) -> dict[str, Any]:
    """The table in a head."""
    try:
        found = _DECODER.decode(text.decode())
    except (ValueError, RecursionError) as error:
        raise BadFormat(f"its head is not JSON ({str(error)[:80]})") from None
    if not isinstance(found, dict):
        raise BadFormat("its head is not a table")
    return found


def placed(entries: Mapping[str, Any]) -> tuple[dict[str, Extent], int]:
    """The places of tensors, which follow one another without gaps, and where the last one ends."""
    places = [(name, _place(name, entry)) for name, entry in entries.items()]
    places.sort(key=lambda pair: pair[1][2:])
    end = 0
    for name, place in places:
        if place.start != end:
            raise BadFormat(f"{name[:80]!r} begins at {place.start}, not at {end}")
        end = place.end
    return dict(places), end


def _tensor(file: BinaryIO, name: str, place: Extent) -> Tensor:
    """The next tensor of a file."""
    if place.start == place.end:
        return torch.empty(place.shape, dtype=place.dtype)
    try:
        numbers = np.empty(place.end - place.start, np.uint8)
    except MemoryError as error:
        raise BadFormat(f"no memory for {name[:80]!r} ({error})") from None
    if file.readinto(numbers.data) != len(numbers):  # type: ignore[attr-defined]
        raise BadFormat("it became shorter while it was read")
    return torch.from_numpy(numbers).view(place.dtype).reshape(place.shape)


def _place(name: str, entry: Any) -> Extent:
    """The form and place of a tensor, its numbers small enough to compute with."""
    try:
        dtype, shape, (start, end) = TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        known = type(shape) is list and len(shape) <= MOST_DIMENSIONS and len(entry) == 3
    except (KeyError, TypeError, ValueError):
        known = False
    if not known:
        raise BadFormat(f"{name[:80]!r} has no known dtype, shape and data_offsets")
    size, room = dtype.itemsize, MOST_NUMBERS
    for n in shape:
        if type(n) is not int or not 0 <= n <= room:
            raise BadFormat(f"{name[:80]!r} has a shape that no tensor has")
        size, room = size * n, room // (n or 1)
    if type(start) is not int or type(end) is not int or end != start + size:
        raise BadFormat(f"{name[:80]!r} has data_offsets that are not {size} apart")
    return Extent(dtype, tuple(shape), start, end)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key is repeated")
    return table


_DECODER = json.JSONDecoder(object_pairs_hook=_once)
