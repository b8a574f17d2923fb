"""Decoded images kept on disk, one file per source file, found by the source's SHA-256."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

from undrift._files import write_whole
from undrift.data.files import cache_folder, digest
from undrift.data.pixels import Pixels, check

_ARRAYS = ("images", "labels", "test_images", "test_labels")
_VERSION = 1


def cached(read: Callable[[Path], Pixels]) -> Callable[[Path], Pixels]:
    """``read``, done once per content of a file; entries that cannot be read are made again."""

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
    write_whole(path, save(arrays, metadata={"words": words}))


def _load(path: Path) -> Pixels | None:
    """The entry, or ``None`` if it is missing or cannot be read."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, "np") as file:
            classes, note = json.loads((file.metadata() or {})["words"])
            arrays = {name: file.get_tensor(name) for name in _ARRAYS}
    except (OSError, KeyError, ValueError, SafetensorError):
        return None
    return Pixels(**arrays, classes=tuple(classes), note=note)
