"""Images and labels as plain arrays: what every reader returns, and keeps on disk if asked to."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from undrift._files import write_whole
from undrift.data.files import BadData, cache_folder, digest

Item = TypeVar("Item")
Bytes = NDArray[np.uint8]
Labels = NDArray[np.int64]

_ARRAYS = ("images", "labels", "test_images", "test_labels")
_MODES = {"1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr"}
_VERSION = 1


class Pixels(NamedTuple):
    """Images uint8 ``[n, C, H, W]`` and labels int64 ``[n]``, for training and for testing."""

    images: Bytes
    labels: Labels
    test_images: Bytes
    test_labels: Labels
    classes: tuple[str, ...]
    note: str = ""


def decode(
    items: Sequence[Item], read: Callable[[Item], bytes], say: Callable[[Item], str], mode: str
) -> Bytes:
    """JPEG or PNG files of one size as ``[n, C, H, W]``; C is 1 for mode L and 3 for RGB."""
    from PIL import Image

    out: Bytes = np.empty((0, 0, 0, 0), np.uint8)
    for k, item in enumerate(items):
        try:
            with Image.open(io.BytesIO(read(item)), formats=("JPEG", "PNG")) as image:
                kind = image.mode
                plane = np.asarray(image if kind == mode else image.convert(mode))
        except Exception as error:  # decoders fail in many ways on damaged files
            raise BadData(f"{say(item)} is not a readable JPEG or PNG; fetch it again") from error
        if not k:
            out = np.empty((len(items), len(mode), *plane.shape[:2]), np.uint8)
        if plane.shape[:2] != out.shape[2:] or kind not in _MODES:
            height, width = out.shape[2:]
            raise BadData(
                f"{say(item)} must have 8 bits per channel and be {width} x {height}, the size of "
                f"{say(items[0])}"
            )
        out[k] = plane.reshape(*plane.shape[:2], -1).transpose(2, 0, 1)
    return out


def check(pixels: Pixels, source: object) -> Pixels:
    """``pixels``, refused unless images, labels and classes fit together."""
    parts = {
        "train": (pixels.images, pixels.labels),
        "test": (pixels.test_images, pixels.test_labels),
    }
    classes = len(pixels.classes)
    for part, (images, labels) in parts.items():
        if not len(images) or len(images) != len(labels):
            raise BadData(
                f"{source} has {len(images)} {part} images and {len(labels)} {part} labels; give "
                "some, and as many of each"
            )
        if len(bad := np.flatnonzero((labels < 0) | (labels >= classes))):
            raise BadData(
                f"{source}: {part} image {bad[0]} has label {labels[bad[0]]}, "
                f"which is not one of 0 to {classes - 1}; fetch it again"
            )
    if pixels.images.shape[1:] != pixels.test_images.shape[1:]:
        raise BadData(
            f"{source} has train images of shape {pixels.images.shape[1:]} "
            f"but test images of shape {pixels.test_images.shape[1:]}"
        )
    return pixels


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
    write_whole(path, save(arrays, {"words": json.dumps([pixels.classes, pixels.note])}))


def _load(path: Path) -> Pixels | None:
    """The entry, or ``None`` if it is missing or cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            classes, note = json.loads((file.metadata() or {})["words"])
            arrays = {name: file.get_tensor(name) for name in _ARRAYS}
    except (OSError, KeyError, ValueError, SafetensorError):
        return None
    return Pixels(**arrays, classes=tuple(classes), note=note)
