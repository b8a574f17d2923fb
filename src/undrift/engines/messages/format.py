"""The safetensors format: the length of a head in eight bytes, the head in JSON, the numbers.

The package safetensors reads it, once the head is known to be short enough. To write, that package
wants all tensors in memory; checkpoints are written block by block.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
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


class BadFormat(ValueError):
    """Bytes that are no safetensors file, or one beyond its bounds."""


class Form(Protocol):
    """What a head says of a tensor."""

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


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
    parts = {name: torch.empty(shape, dtype=dtype, device="meta") for name, dtype, shape in forms}
    return head(parts, {}), order(parts)


def parse(whole: bytes, most: int) -> dict[str, Tensor]:
    """The tensors of such bytes, whose head has at most ``most``."""
    _bound(whole[:LENGTH], most)
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(whole)
    except (SafetensorError, KeyError) as error:  # a type of numbers that torch has not
        raise BadFormat(str(error)) from None
    return tensors


def write(path: Path, parts: Mapping[str, Any], about: Mapping[str, str]) -> None:
    """Make a file in one step whose metadata are ``about`` and a digest of it and of all parts.

    A part is a tensor, or a sequence of blocks with its dtype and shape, which are read one by one.
    """
    total = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
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
            _bound(file.read(LENGTH), most)
        with safe_open(path, "pt") as found:
            about = dict(found.metadata() or {})
            tensors = {name: found.get_tensor(name) for name in found.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, BadFormat) as error:
        raise BadFormat(f"cannot be read ({error})") from error
    digest = about.pop("digest", None)
    total = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in order(tensors):
        total.update(form(name, tensors[name]))
        total.update(content(tensors[name]))
    if digest != total.hexdigest():
        raise BadFormat("damaged (its digest does not match)")
    return about, tensors


def _bound(start: bytes, most: int) -> None:
    # Before the head is parsed: it may be damaged, or made to do harm.
    if (length := int.from_bytes(start, "little")) > most:
        raise BadFormat(f"a head of {length} bytes, where {most} are allowed")
