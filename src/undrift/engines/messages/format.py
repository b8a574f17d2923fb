"""The safetensors format: the length of a head in eight bytes, the head in JSON, the numbers.

The package safetensors wants all tensors in memory to write them, and does not let a reader bound
the head. Checkpoints are written block by block, and a head may be damaged, or made to do harm: it
is bounded and checked before anything is made of it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from collections.abc import Mapping
from functools import lru_cache
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


class Head(NamedTuple):
    """What a head says: texts, where every tensor is, and the bytes of all of them."""

    metadata: Mapping[str, str]
    extents: Mapping[str, Extent]
    size: int


def order(parts: Mapping[str, Form]) -> list[str]:
    """Larger numbers first, so that all of them are aligned."""
    return sorted(parts, key=lambda name: (-parts[name].dtype.itemsize, name))


def head(parts: Mapping[str, Form], metadata: Mapping[str, str]) -> bytes:
    """What a file begins with: the metadata, and the form and place of every tensor."""
    end, found = 0, dict[str, object]({METADATA: metadata} if metadata else {})
    for name in order(parts):
        start, end = end, end + math.prod(parts[name].shape) * parts[name].dtype.itemsize
        kind, shape = KINDS[parts[name].dtype], list(parts[name].shape)
        found[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(found).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(LENGTH, "little") + text


def content(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, as such a file holds them."""
    if tensor.dtype == torch.bfloat16:  # which NumPy does not know
        tensor = tensor.detach().view(torch.int16)
    return tensor.numpy(force=True).reshape(-1).view(np.uint8).data


def form(name: str, part: Form) -> bytes:
    """What a digest takes of a tensor beside its content."""
    return f"{name} {part.dtype} {list(part.shape)}".encode()


def dump(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as the bytes of such a file."""
    start, names = _opening(tuple((name, v.dtype, v.shape) for name, v in tensors.items()))
    return b"".join([start, *(content(tensors[name]) for name in names)])


@lru_cache(256)
def _opening(forms: tuple[tuple[str, torch.dtype, torch.Size], ...]) -> tuple[bytes, list[str]]:
    """The head of such tensors, and their names in its order."""
    # The uploads of a run all have the same one, and JSON takes longer than a small upload.
    parts = {name: Extent(dtype, shape, 0, 0) for name, dtype, shape in forms}
    return head(parts, {}), order(parts)


def parse(whole: bytes, most: int) -> dict[str, Tensor]:
    """The tensors of such bytes, whose head has at most ``most``."""
    return _read(io.BytesIO(whole), len(whole), most)[1]


def write(path: Path, parts: Mapping[str, Any], about: Mapping[str, str]) -> None:
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


def read(path: Path, most: int) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors as :func:`write` wrote them, of a head of at most ``most`` bytes."""
    try:
        with opened(path) as file:
            metadata, tensors = _read(file, os.fstat(file.fileno()).st_size, most)
    except (OSError, BadFormat) as error:
        raise BadFormat(f"cannot be read ({error})") from error
    about = {name: text for name, text in metadata.items() if name != "digest"}
    total = hashlib.sha256(json.dumps(about).encode())
    for name in order(tensors):
        total.update(form(name, tensors[name]))
        total.update(content(tensors[name]))
    if metadata.get("digest") != total.hexdigest():
        raise BadFormat("damaged (its digest does not match)")
    return about, tensors


def _read(file: BinaryIO, total: int, most: int) -> tuple[Mapping[str, str], dict[str, Tensor]]:
    length = int.from_bytes(file.read(LENGTH), "little")
    if length > min(most, total - LENGTH):
        raise BadFormat(f"a head of {length} bytes in {total}, where {most} are allowed")
    metadata, extents, size = parsed(file.read(length))
    if LENGTH + length + size != total:
        raise BadFormat(f"{total} bytes, where its head describes {LENGTH + length + size}")
    # Tensors follow one another in the order of ``extents``: the file is read from end to end.
    return metadata, {name: _tensor(file, name, extent) for name, extent in extents.items()}


def parsed(text: bytes) -> Head:
    """What the JSON of a head says, if its tensors follow one another without gaps."""
    try:
        entries = _DECODER.decode(text.decode())
    except (ValueError, RecursionError) as error:
        raise BadFormat(f"its head is not JSON ({str(error)[:80]})") from None
    if not isinstance(entries, dict):
        raise BadFormat("its head is not a table")
    metadata = entries.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(type(v) is str for v in metadata.values()):
        raise BadFormat("its metadata are not texts")
    extents = [(name, _extent(name, entry)) for name, entry in entries.items()]
    # A gap would hide bytes that no digest of tensors sees; an overlap, tensors in one another.
    extents.sort(key=lambda pair: pair[1][2:])
    end = 0
    for name, extent in extents:
        if extent.start != end:
            raise BadFormat(f"{name[:80]!r} begins at {extent.start}, not at {end}")
        end = extent.end
    return Head(metadata, dict(extents), end)


def _extent(name: str, entry: Any) -> Extent:
    """The form and place of a tensor, its numbers small enough to compute with."""
    try:
        dtype, shape, (start, end) = TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        known = type(shape) is list and len(shape) <= MOST_DIMENSIONS and len(entry) == 3
    except (KeyError, TypeError, ValueError):
        known = False
    if not known:
        raise BadFormat(f"{name[:80]!r} has no known dtype, shape and data_offsets")
    size, room = dtype.itemsize, MOST_NUMBERS
    # One dimension after another: the product of what was not looked at may have any size.
    for n in shape:
        if type(n) is not int or not 0 <= n <= room:
            raise BadFormat(f"{name[:80]!r} has a shape that no tensor has")
        size, room = size * n, room // (n or 1)
    if type(start) is not int or type(end) is not int or end != start + size:
        raise BadFormat(f"{name[:80]!r} has data_offsets that are not {size} apart")
    return Extent(dtype, tuple(shape), start, end)


def _tensor(file: BinaryIO, name: str, extent: Extent) -> Tensor:
    """The next tensor of a file."""
    if extent.start == extent.end:
        return torch.empty(extent.shape, dtype=extent.dtype)
    try:
        numbers = np.empty(extent.end - extent.start, np.uint8)
    except MemoryError as error:
        raise BadFormat(f"no memory for {name[:80]!r} ({error})") from None
    if file.readinto(numbers.data) != len(numbers):  # type: ignore[attr-defined]
        raise BadFormat("it became shorter while it was read")
    return torch.from_numpy(numbers).view(extent.dtype).reshape(extent.shape)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    # JSON readers differ in which of two equal keys they take: what one checks, another would use.
    if len(table) != len(pairs):
        raise ValueError("a key is repeated")
    return table


_DECODER = json.JSONDecoder(object_pairs_hook=_once)
