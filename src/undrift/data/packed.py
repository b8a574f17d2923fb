"""Packs: xz of a NumPy archive whose images are JPEG files laid end to end."""

from __future__ import annotations

import io
import math
from pathlib import Path
from zipfile import ZipFile

import numpy as np
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from undrift.data.files import BadData, reading, swelling, unpacking, whole
from undrift.data.pixels import Pixels, decode

Array = NDArray[np.generic]
NOTE = "JPEG q80"
_ARRAYS = ("jpeg", "offset", "label", "split", "classes")
_HEADERS = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}


def read(path: Path) -> Pixels:
    """Image k is bytes ``offset[k]`` to ``offset[k + 1]`` of ``jpeg``; ``split`` is 1 for test."""
    with reading(path), unpacking(path) as file:
        pack = np.load(io.BytesIO(whole(file, path)), allow_pickle=False)
        if not isinstance(pack, NpzFile) or pack.zip is None:
            raise BadData(f"{path} holds one array and not a NumPy archive; make it again")
        _measure(path, pack.zip)
        jpeg, offset, label, split, classes = (pack[key] for key in _ARRAYS)
    _check(path, jpeg, offset, label, split, classes)
    ends = offset.tolist()

    def part(number: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        mine = np.flatnonzero(split == number)
        images = decode(
            mine.tolist(),
            lambda k: jpeg[ends[k] : ends[k + 1]].tobytes(),
            lambda k: f"{path}: image {k}",
            "RGB",
        )
        return images, label[mine].astype(np.int64)

    return Pixels(*part(0), *part(1), tuple(map(str, classes)), NOTE)


def _measure(path: Path, archive: ZipFile) -> None:
    """Refuse arrays that are missing or announce more than they hold, before any is allocated."""
    there = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
    if missing := [name for name in _ARRAYS if name not in there]:
        raise BadData(f"{path} lacks {', '.join(missing)}; make it again")
    entries = [there[name] for name in _ARRAYS]
    swelling(path, sum(entry.file_size for entry in entries))
    for entry in entries:
        with archive.open(entry) as member:
            read = _HEADERS.get(read_magic(member))
            shape, _, dtype = read(member) if read else ((), False, np.dtype(bool))
        if read is None or math.prod(shape) * dtype.itemsize > entry.file_size:
            raise BadData(f"{path}: {entry.filename} announces more than it holds; make it again")


def _check(
    path: Path, jpeg: Array, offset: Array, label: Array, split: Array, classes: Array
) -> None:
    """Refuse arrays that do not belong together, which would give other images."""
    kinds = {(a.ndim, a.dtype.kind in "iu") for a in (jpeg, offset, label, split)} == {(1, True)}
    sound = kinds and jpeg.dtype == np.uint8 and classes.ndim == 1 and classes.dtype.kind in "US"
    sound = sound and len(offset) == len(label) + 1 == len(split) + 1
    if sound:
        ends = offset.astype(np.int64)
        sound = ends[0] == 0 and ends[-1] == len(jpeg) and bool((np.diff(ends) >= 0).all())
    if not sound or not np.isin(split, (0, 1)).all():
        raise BadData(
            f"{path}: jpeg must be bytes, offset rise from 0 to their number, label and split (0 "
            "or 1) be whole numbers one fewer, and classes names; make it again"
        )
