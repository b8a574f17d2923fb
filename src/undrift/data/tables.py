"""Binary classification sets: those of scikit-learn, natural federations, and svmlight (LIBSVM)
files of a folder.
"""

from __future__ import annotations

import dataclasses
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

from undrift.core.params import unknown
from undrift.data.files import FOLDER, BadData, existing_folder, reading, unpacking, whole
from undrift.data.natural import cards, federation

Arrays = tuple[NDArray[np.float64], NDArray[np.float64]]

FORMAT = (
    "copy it again if it is damaged; in svmlight format a line is a label and COLUMN:VALUE pairs, "
    'as 1 1:0.5 3:-2; for CSV and npz files see "From a CSV file" in docs/your-data.md'
)
_LARGEST = 8 << 30


@dataclasses.dataclass(frozen=True)
class BinarySet:
    """Features ``[M, d]`` and labels ``[M]`` in {-1, +1}; ``classes`` are what a file has for them,
    in this order.
    """

    features: NDArray[np.float64]
    labels: NDArray[np.float64]
    name: str
    classes: tuple[str, ...] = ()


def load(
    name: str,
    folder: str | Path | None = None,
    labels: Sequence[float] | None = None,
    columns: int | None = None,
) -> BinarySet:
    """A set of scikit-learn, else an svmlight file in ``folder`` (default: ``$UNDRIFT_DATA``).

    The smaller of the file's two labels becomes -1, the larger +1. With ``labels``, which says what
    they are, the file may have one of them only. It has as many columns as its largest number says;
    with ``columns``, which are counted from 1, the last ones may be all zero.

    >>> load("breast-cancer").features.shape
    (569, 30)
    """
    if name in _BUNDLED or name in cards():
        if labels is not None or columns is not None:
            raise ValueError(
                f"labels and features are for svmlight files: leave them out for {name}"
            )
        if name in cards():
            found = federation(name)
            return BinarySet(
                found.features, np.where(found.target == 1, 1.0, -1.0), name, found.card.classes
            )
        return BinarySet(*_BUNDLED[name](), name)
    if not (folder or os.environ.get(FOLDER)):
        natural = [name for name, card in cards().items() if card.problem == "logistic"]
        complaint = unknown("data set", name, [*_BUNDLED, *natural])
        raise BadData(f"{complaint}; for others name a folder, or set {FOLDER} to one")
    root = existing_folder(folder)
    if path := _find(name, root):
        return _read(path, labels, columns, name)
    complaint = unknown("data set", name, [*_BUNDLED, *_names(root)], most=10)
    raise BadData(f"{complaint}; looked in {' and '.join(map(str, _places(root)))}")


def _breast_cancer() -> Arrays:
    """569 x 30, columns standardised; +1 is benign."""
    features, target = datasets.load_breast_cancer(return_X_y=True)
    return (features - features.mean(0)) / features.std(0), np.where(target == 1, 1.0, -1.0)


def _digits() -> Arrays:
    """1797 x 64, pixels in [0, 1]; +1 is an odd digit."""
    features, target = datasets.load_digits(return_X_y=True)
    return features / 16, np.where(target % 2 == 1, 1.0, -1.0)


_BUNDLED: Mapping[str, Callable[[], Arrays]] = {"breast-cancer": _breast_cancer, "digits": _digits}


def _places(folder: Path) -> list[Path]:
    return [folder, folder / "svmlight"]


def _names(folder: Path) -> list[str]:
    """The sets of ``folder``: the files of its svmlight subfolder, or its own where it has none."""
    inner = folder / "svmlight"
    files = (inner if inner.is_dir() else folder).iterdir()
    packed = re.compile(r"(\.svmlight)?(\.xz|\.bz2|\.gz)?$")
    return sorted({packed.sub("", path.name, count=1) for path in files if path.is_file()})


def _find(name: str, folder: Path) -> Path | None:
    if Path(name).name != name:
        raise ValueError(
            f"{name!r} is not the name of a data set; give a plain name and the folder separately"
        )
    endings = (text + packed for text in ("", ".svmlight") for packed in ("", ".xz", ".bz2", ".gz"))
    files = [f"{name}{ending}" for ending in endings]
    tried = (place / file for place in _places(folder) for file in files)
    return next((path for path in tried if path.is_file()), None)


def _read(path: Path, labels: Sequence[float] | None, columns: int | None, name: str) -> BinarySet:
    """Dense features and labels in {-1, +1}."""
    based = "auto" if columns is None else True
    with reading(path, FORMAT), unpacking(path) as file:
        features, raw = datasets.load_svmlight_file(
            io.BytesIO(whole(file, path)), dtype=np.float64, zero_based=based
        )
    if columns is not None:
        if 0 in features.indices or features.shape[1] > columns + 1:
            raise ValueError(f"{path} must have columns from 1 to features = {columns} alone")
        features = features[:, 1:]
        features.resize(features.shape[0], columns)
    found = np.unique(raw)
    kinds = found if labels is None else np.sort(labels)
    if len(kinds) != 2 or len(np.setdiff1d(found, kinds)):
        raise ValueError(
            f"{path} has {len(found)} different labels, from {found.min():g} to {found.max():g}; "
            "logistic regression here needs two: where one of them is elsewhere, name both, as "
            "labels = [-1, 1]"
        )
    if not np.isfinite(features.data).all():
        raise ValueError(f"{path} holds features that are not finite numbers; remove those samples")
    rows, width = features.shape
    if 8 * rows * width > _LARGEST:
        raise ValueError(
            f"{path} has {rows} rows of {width} columns, "
            f"more than {_LARGEST >> 30} GiB as a dense array; use a set with fewer columns"
        )
    classes = tuple(f"{kind:.17g}" for kind in kinds)
    return BinarySet(features.toarray(), np.where(raw == kinds[1], 1.0, -1.0), name, classes)
