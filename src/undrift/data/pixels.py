"""Images and labels as plain arrays: what every reader returns."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from undrift.data.files import BadData, brief

Item = TypeVar("Item")
Bytes = NDArray[np.uint8]
Labels = NDArray[np.int64]

_LARGEST = 16 << 30
_MODES = {"1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr"}


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
    from PIL import Image, UnidentifiedImageError

    out: Bytes = np.empty((0, 0, 0, 0), np.uint8)
    for k, item in enumerate(items):
        try:
            with Image.open(io.BytesIO(read(item)), formats=("JPEG", "PNG")) as image:
                if k == 0:
                    out = _room(len(items), len(mode), image.height, image.width)
                if (image.height, image.width) != out.shape[2:]:
                    _, _, height, width = out.shape
                    raise BadData(
                        f"{say(item)} is {image.width} x {image.height} but {say(items[0])} "
                        f"is {width} x {height}; the images of a set must have one size"
                    )
                if image.mode not in _MODES:
                    raise BadData(
                        f"{say(item)} has pixels of kind {image.mode}; "
                        "save it with 8 bits per channel"
                    )
                plane = np.asarray(image if image.mode == mode else image.convert(mode))
        except BadData:
            raise
        except Exception as error:  # decoders fail in many ways on damaged files
            other = isinstance(error, UnidentifiedImageError)
            reason = "neither JPEG nor PNG" if other else brief(error)
            raise BadData(
                f"{say(item)} is not a readable image ({reason}); fetch it again"
            ) from error
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
        if not len(images):
            raise BadData(f"{source} has no {part} images")
        if len(images) != len(labels):
            raise BadData(
                f"{source} has {len(images)} {part} images but {len(labels)} {part} labels; "
                "fetch it again"
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


def _room(*shape: int) -> Bytes:
    if np.prod(shape, dtype=float) > _LARGEST:
        raise BadData(
            f"{shape[0]} images of {shape[3]} x {shape[2]} "
            f"take more than {_LARGEST >> 30} GiB; shrink them"
        )
    return np.empty(shape, np.uint8)
