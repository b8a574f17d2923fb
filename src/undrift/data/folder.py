"""A folder of images: ``train/CLASS/*`` and ``test/CLASS/*``, PNG or JPEG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undrift.data.files import BadData
from undrift.data.pixels import Pixels, decode

_SUFFIXES = {".png", ".jpg", ".jpeg"}


def read(root: Path) -> Pixels:
    """Classes are the sub-folders of train, sorted. Grey if every image is, else RGB."""
    classes = _folders(root / "train")
    if strange := sorted(set(_folders(root / "test")) - set(classes)):
        raise BadData(
            f"{root / 'test' / strange[0]} is a class that {root / 'train'} lacks; "
            "remove or rename it"
        )
    train, test = _files(root / "train", classes), _files(root / "test", classes)
    mode = "L" if all(_grey(path) for path, _ in train + test) else "RGB"
    return Pixels(*_decoded(train, mode), *_decoded(test, mode), tuple(classes))


def _folders(part: Path) -> list[str]:
    if not part.is_dir():
        raise BadData(f"{part} does not exist; an image folder has train/CLASS/ and test/CLASS/")
    return sorted(
        path.name for path in part.iterdir() if path.is_dir() and not path.name.startswith(".")
    )


def _files(part: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    folders = ((k, part / name) for k, name in enumerate(classes) if (part / name).is_dir())
    found = [
        (path, k) for k, folder in folders for path in sorted(folder.iterdir()) if _is_image(path)
    ]
    if strange := next((path for path, _ in found if not path.is_file()), None):
        raise BadData(f"{strange} is not a plain file; remove or rename it")
    return found


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")


def _grey(path: Path) -> bool:
    from PIL import Image

    try:
        with Image.open(path, formats=("JPEG", "PNG")) as image:
            return image.mode in ("1", "L")
    except Exception:  # the decoder will name it
        return True


def _decoded(
    items: Sequence[tuple[Path, int]], mode: str
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    images = decode([path for path, _ in items], Path.read_bytes, str, mode)
    return images, np.array([label for _, label in items], np.int64)
