"""Packs: xz of a NumPy archive whose images are JPEG files laid end to end."""

from __future__ import annotations

import io
import lzma
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from undrift.data.files import BadData, reading, whole
from undrift.data.pixels import Pixels, decode

NOTE = "JPEG q80"


def read(path: Path) -> Pixels:
    """Image k is bytes ``offset[k]`` to ``offset[k + 1]`` of ``jpeg``; its ``split`` is 0 for train and 1 for test."""
    with reading(path), lzma.open(path) as file:
        pack = np.load(io.BytesIO(whole(file, path)), allow_pickle=False)
        if not isinstance(pack, NpzFile):
            raise BadData(f"{path} holds one array and not a NumPy archive; make it again")
        jpeg, offset, label, split, classes = (pack[key] for key in ("jpeg", "offset", "label", "split", "classes"))
    _check(path, jpeg, offset, label, split)
    ends = offset.tolist()

    def part(number: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        mine = np.flatnonzero(split == number)
        images = decode(
            mine.tolist(), lambda k: jpeg[ends[k] : ends[k + 1]].tobytes(), lambda k: f"{path}: image {k}", "RGB"
        )
        return images, label[mine].astype(np.int64)

    return Pixels(*part(0), *part(1), tuple(map(str, classes)), NOTE)


def _check(path: Path, jpeg: NDArray, offset: NDArray, label: NDArray, split: NDArray) -> None:
    whole_numbers = all(a.ndim == 1 and np.issubdtype(a.dtype, np.integer) for a in (jpeg, offset, label, split))
    if not whole_numbers or jpeg.dtype != np.uint8:
        raise BadData(f"{path}: jpeg must be a list of bytes, and offset, label and split lists of whole numbers")
    if not len(offset) == len(label) + 1 == len(split) + 1:
        raise BadData(
            f"{path}: {len(label)} labels, {len(split)} splits and {len(offset)} offsets do not go together; "
            "offsets must be one more"
        )
    if offset[0] != 0 or offset[-1] != len(jpeg) or (np.diff(offset.astype(np.int64)) < 0).any():
        raise BadData(f"{path}: offset must rise from 0 to {len(jpeg)}, the length of jpeg")
    if not np.isin(split, (0, 1)).all():
        raise BadData(f"{path}: split must be 0 (train) or 1 (test)")
