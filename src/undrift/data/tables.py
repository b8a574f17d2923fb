"""Binary classification sets: those of scikit-learn, natural federations, svmlight (LIBSVM) and
CSV files.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import spmatrix
from sklearn import datasets

from undrift.core.params import BadParameters, unknown
from undrift.data.files import FOLDER, BadData, dense, existing_folder, reading, unpacking, whole
from undrift.data.natural import cards, federation

Arrays = tuple[NDArray[np.float64], NDArray[np.float64]]
Columns = tuple[NDArray[np.float64], NDArray[np.generic], tuple[str, ...], tuple[str, ...]]

FORMAT = (
    "copy it again if it is damaged; in svmlight format a line is a label and COLUMN:VALUE pairs, "
    'as 1 1:0.5 3:-2; for CSV and npz files see "From a CSV file" in docs/your-data.md'
)
LABEL = "label"
"""The column of a CSV file with the two classes, unless another is named."""
MISSING = {"", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None"}
"""Cells without a value; none, in small letters, is a word."""
MOST_WORDS = 30
"""Different words of a column; with more it is names or notes, and no kind of anything."""


@dataclasses.dataclass(frozen=True)
class BinarySet:
    """Features ``[M, d]`` and labels ``[M]`` in {-1, +1}; ``classes`` are what a file has for them,
    in this order; ``columns`` are the names of the features, where they have some; ``groups``, the
    clients of samples, are those of a CSV file.
    """

    features: NDArray[np.float64]
    labels: NDArray[np.float64]
    name: str
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


def load(
    name: str,
    folder: str | Path | None = None,
    labels: Sequence[float] | None = None,
    columns: int | None = None,
    label: str = LABEL,
    group: str | None = None,
) -> BinarySet:
    """A set of scikit-learn, a file by its path, or an svmlight file in ``folder`` (default:
    ``$UNDRIFT_DATA``). A path has a suffix, such as ``mine.csv``.

    The smaller of the file's two labels becomes -1, the larger +1. With ``labels``, which says what
    they are, the file may have one of them only. It has as many columns as its largest number says;
    with ``columns``, which are counted from 1, the last ones may be all zero. Of a CSV file
    ``label`` is the column of the labels and ``group`` that of the clients.

    >>> load("breast-cancer").features.shape
    (569, 30)
    """
    if name in _BUNDLED or name in cards():
        if labels is not None or columns is not None or group:
            raise ValueError(f"labels, features and group are for files: leave them out for {name}")
        if name in cards():
            found = federation(name)
            return BinarySet(
                found.features,
                np.where(found.target == 1, 1.0, -1.0),
                name,
                found.card.classes,
                found.columns,
            )
        return BinarySet(*_BUNDLED[name](), name)
    path: Path | None = Path(name).expanduser()
    if path and path.suffix and not folder:
        if path.is_file():
            return _read(path, labels, columns, name, label, group)
        if path.name != name or not os.environ.get(FOLDER):
            raise BadData(f"there is no file {name} beside the spec or in {Path.cwd()}")
    if not (folder or os.environ.get(FOLDER)):
        natural = [name for name, card in cards().items() if card.problem == "logistic"]
        complaint = unknown("data set", name, [*_BUNDLED, *natural])
        raise BadData(
            f"{complaint}; for others give a file, such as mine.csv, or a folder, or set {FOLDER} "
            "to one"
        )
    root = existing_folder(folder)
    if path := _find(name, root):
        return _read(path, labels, columns, name, label, group)
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
    packed = ("", ".xz", ".bz2", ".gz")
    files = [name + text + ending for text in ("", ".svmlight") for ending in packed]
    tried = (place / file for place in _places(folder) for file in files)
    return next((path for path in tried if path.is_file()), None)


def _read(
    path: Path,
    labels: Sequence[float] | None,
    columns: int | None,
    name: str,
    label: str,
    group: str | None,
) -> BinarySet:
    """Dense features and labels in {-1, +1}."""
    if ".csv" in path.suffixes[-2:]:
        if columns is not None:
            raise ValueError(f"features is for svmlight files: leave it out for {name}")
        features, raw, names, groups = _csv(path, label, group)
    elif group or label != LABEL:
        raise ValueError(f"label and group are for CSV files: leave them out for {name}")
    else:
        names, groups = (), ()
        features, raw = _svmlight(path, columns)
    found = np.unique(raw)
    kinds = found if labels is None else np.sort(labels)
    spell = str if raw.dtype.kind == "U" else "{:.17g}".format
    if len(kinds) != 2 or len(np.setdiff1d(found, kinds)):
        remedy = (
            "leave the rows of others out, or see ud.Neural"
            if len(found) > 2
            else "where one is elsewhere, write numbers and name both, as labels = [-1, 1]"
        )
        raise ValueError(
            f"{path} has as labels {', '.join(map(spell, found[:5]))}{', ...' * (len(found) > 5)}, "
            f"{len(found)} in all; logistic regression here needs two: {remedy}"
        )
    classes = tuple(map(spell, kinds))
    signs = np.where(raw == kinds[1], 1.0, -1.0)
    if not isinstance(features, np.ndarray):  # not before: a set that is refused may be large
        features = dense(path, features)
    return BinarySet(features, signs, name, classes, names, groups)


def _svmlight(path: Path, columns: int | None) -> tuple[spmatrix, NDArray[np.float64]]:
    """Features, and the labels as they stand there."""
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
    if not np.isfinite(features.data).all():
        raise ValueError(f"{path} holds features that are not finite numbers; remove those samples")
    return features, raw


def _csv(path: Path, label: str, group: str | None) -> Columns:
    """The same of a CSV file, whose labels may be words; the names of columns, and clients."""
    with reading(path, "save it as CSV in UTF-8, with a header"), unpacking(path) as file:
        text = whole(file, path).decode("utf-8-sig")
        mark = max(",;\t", key=text.partition("\n")[0].count)
        read = csv.DictReader(io.StringIO(text, newline=""), delimiter=mark, skipinitialspace=True)
        rows = [(read.line_num, row) for row in read]
    if longer := [line for line, row in rows if None in row]:
        raise BadData(
            f"{path}: line {longer[0]} has a cell too many: put a cell that holds {mark!r} in "
            "quotation marks, and write numbers with a point"
        )
    table = {
        name: {
            line: "" if (cell := (row[name] or "").strip()) in MISSING else cell
            for line, row in rows
        }
        for name in read.fieldnames or ()
        if name and rows
    }
    for what, name in (("label", label), ("group", group)):
        if name and name not in table:
            there = f'{", ".join(table) or "nothing below a header"}: say which, as {what} = "NAME"'
            raise BadParameters("data", {what: f"{path} has no column {name}, but {there}"})
    columns, wrong = dict[str, list[float]](), list[str]()
    for name, cells in table.items():
        values, words = [*map(_number, cells.values())], sorted({*cells.values()} - {""})
        lacking = [line for line, cell in cells.items() if not cell]
        if name in (label, group):
            _refuse_alike(path, name, cells)
        elif "," in "".join(words) and all(
            math.isfinite(_number(word.replace(",", "."))) for word in words
        ):
            raise BadData(f"{path}: {name} has decimal commas? write points, as 0.5 for 0,5")
        elif any(map(math.isfinite, values)) or not words:
            columns[name] = values
            lacking = [
                line for line, value in zip(cells, values, strict=True) if not math.isfinite(value)
            ]
        elif len(words) > MOST_WORDS:
            raise BadData(f"{path}: {name} has {len(words)} different words: leave it out")
        else:
            _refuse_alike(path, name, cells)
            columns |= {
                f"{name}={word}": [cell == word for cell in cells.values()] for word in words
            }
        wrong += [f"{name} of line {line}" for line in lacking]
    if wrong:
        raise BadData(
            f"{path} has cells that are empty, as NA is, or no numbers, {len(wrong)} in all: first "
            f"{', '.join(wrong[:5])}; leave such rows or columns out, or fill them"
        )
    numbers = np.array([*map(_number, table[label].values())])
    return (
        np.array([*columns.values()], dtype=np.float64).T,
        numbers if np.isfinite(numbers).all() else np.array([*table[label].values()]),
        tuple(columns),
        tuple(table[group].values()) if group else (),
    )


def _refuse_alike(path: Path, name: str, cells: Mapping[int, str]) -> None:
    """Refuse a column with one word in two spellings, which would count as two."""
    spelt = dict[str, str]()
    for line, word in cells.items():
        other = spelt.setdefault("".join(word.casefold().split()), word)
        if other != word:
            raise BadData(
                f"{path}: {name} has {other!r}, and in line {line} {word!r}, which differ in "
                "capitals or spaces alone: write them alike"
            )


def _number(text: str) -> float:
    """A cell of a CSV file; NaN where it is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
