"""Binary classification sets in svmlight (LIBSVM) text, plain or compressed, read from a folder."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_svmlight_file

from undrift.data.files import BadData, swelling

_OPEN: dict[str, Callable[..., IO[Any]]] = {
    "": Path.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".gz": gzip.open,
}
_TEXT = ("", ".svmlight")
_LARGEST = 8 << 30
_ROWS, _ROW = 1 << 24, 1 << 26
"""Rows, and bytes of one, that no set known here has more of."""


def places(folder: Path) -> list[Path]:
    """Where the sets of ``folder`` may lie."""
    return [folder, folder / "svmlight"]


def names(folder: Path) -> list[str]:
    """The sets of ``folder``: the files of its svmlight subfolder, or its own where it has none."""
    inner = folder / "svmlight"
    files = (
        path.name for path in (inner if inner.is_dir() else folder).iterdir() if path.is_file()
    )
    return sorted(
        {re.sub(r"(\.svmlight)?(\.xz|\.bz2|\.gz)?$", "", name, count=1) for name in files}
    )


def find(name: str, folder: Path) -> Path | None:
    """The file of a set, or ``None``."""
    if Path(name).name != name:
        raise ValueError(
            f"{name!r} is not the name of a data set; give a plain name and the folder apart from it"
        )
    tried = (
        place / f"{name}{text}{packed}"
        for place in places(folder)
        for text in _TEXT
        for packed in _OPEN
    )
    return next((path for path in tried if path.is_file()), None)


def read(path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Dense features and labels in {-1, +1}; of the two labels in the file the smaller becomes -1."""
    try:
        with _OPEN.get(path.suffix, _OPEN[""])(path, "rb") as file:
            features, raw = load_svmlight_file(_Lines(path, file), dtype=np.float64)
    except BadData:
        raise
    except (
        lzma.LZMAError,
        zlib.error,
        EOFError,
        OSError,
        ValueError,
        OverflowError,
        MemoryError,
    ) as error:
        raise ValueError(
            f"{path} cannot be read as svmlight text ({error}); fetch the file again"
        ) from error
    kinds = np.unique(raw)
    if len(kinds) != 2:
        raise ValueError(
            f"{path} has {len(kinds)} different labels; logistic regression here needs exactly two"
        )
    if not np.isfinite(features.data).all():
        raise ValueError(f"{path} holds features that are not finite numbers; remove those rows")
    if 8 * features.shape[0] * features.shape[1] > _LARGEST:
        rows, columns = features.shape
        raise ValueError(
            f"{path} has {rows} rows of {columns} columns, more than {_LARGEST >> 30} GiB as a dense array; "
            "use a set with fewer columns"
        )
    return features.toarray(), np.where(raw == kinds[1], 1.0, -1.0)


class _Lines:
    """The lines of a file, while it does not unpack to what no set is."""

    def __init__(self, path: Path, file: IO[Any]):
        self.path, self.file, self.read = path, file, file.read

    def __iter__(self) -> Iterator[bytes]:
        size = looked = 0
        for row, line in enumerate(iter(lambda: self.file.readline(_ROW), b"")):
            size += len(line)
            if size >> 20 > looked:
                looked = size >> 20
                swelling(self.path, size)
            if row >= _ROWS or len(line) >= _ROW:
                raise BadData(
                    f"{self.path} has more than {_ROWS} rows, or one of more than {_ROW >> 20} MiB; cut it"
                )
            yield line
