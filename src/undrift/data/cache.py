"""Decoded images kept on disk, one file per source file, found by the source's SHA-256."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undrift._files import write_whole
from undrift.data.files import cache_folder, digest
from undrift.data.pixels import Pixels, check

_ARRAYS = ("images", "labels", "test_images", "test_labels")
_VERSION = 1
_MOST = 1 << 20
"""Bytes of the head of an entry, which holds the names of classes."""


def cached(read: Callable[[Path], Pixels]) -> Callable[[Path], Pixels]:
    """``read``, done once per content of a file; damaged entries are made again."""

    def cached_read(source: Path) -> Pixels:
        name = f"{source.name.split('.')[0]}-{digest(source)}-{_VERSION}.safetensors"
        path = cache_folder() / name
        if kept := _load(path):
            return kept
        pixels = check(read(source), source)
        try:
            _store(path, pixels)
        except OSError as error:
            warnings.warn(
                f"decoded images could not be kept in {path.parent} ({error})", stacklevel=2
            )
        return pixels

    return cached_read


def _store(path: Path, pixels: Pixels) -> None:
    from safetensors.numpy import save

    arrays = {name: getattr(pixels, name) for name in _ARRAYS}
    words = json.dumps([pixels.classes, pixels.note])
    content = save(arrays, metadata={"words": words, "digest": _digest(arrays, words)})
    write_whole(path, content)


def _load(path: Path) -> Pixels | None:
    """The entry, or ``None`` if it is missing or damaged."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with path.open("rb") as start:
            if int.from_bytes(start.read(8), "little") > _MOST:
                return None
        with safe_open(path, "np") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in _ARRAYS}
        words = header["words"]
        if header["digest"] != _digest(arrays, words):
            return None
    except (OSError, KeyError, ValueError, SafetensorError):
        return None
    classes, note = json.loads(words)
    return Pixels(**arrays, classes=tuple(classes), note=note)


def _digest(arrays: dict[str, NDArray[np.generic]], words: str) -> str:
    total = hashlib.sha256(words.encode())
    for name in _ARRAYS:
        total.update(f"{arrays[name].dtype} {arrays[name].shape}".encode())
        total.update(np.ascontiguousarray(arrays[name]).data)
    return total.hexdigest()
