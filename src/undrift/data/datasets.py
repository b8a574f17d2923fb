"""Binary classification sets by name."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undrift.core.params import unknown
from undrift.data import svmlight
from undrift.data.bundled import bundled
from undrift.data.files import FOLDER


@dataclasses.dataclass(frozen=True)
class Table:
    """Features ``[M, d]`` and labels ``[M]`` in {-1, +1}."""

    features: NDArray[np.float64]
    labels: NDArray[np.float64]
    name: str


def load(name: str, folder: str | Path | None = None) -> Table:
    """A set that ships with scikit-learn, or else a svmlight file in ``folder`` (default:
    ``$UNDRIFT_DATA``).

    >>> load("breast-cancer").features.shape
    (569, 30)
    """
    if name in bundled:
        return Table(*bundled[name](), name)
    where = folder or os.environ.get(FOLDER)
    if not where:
        raise ValueError(
            f"{unknown('data set', name, bundled)}; for others name a folder, or set {FOLDER} to one"
        )
    root = Path(where).expanduser()
    if not root.is_dir():
        raise ValueError(
            f"the data folder {root} does not exist; name another, or set {FOLDER} to one"
        )
    path = svmlight.find(name, root)
    if path is None:
        complaint = unknown("data set", name, [*svmlight.names(root), *bundled])
        raise ValueError(f"{complaint}; looked in {' and '.join(map(str, svmlight.places(root)))}")
    return Table(*svmlight.read(path), name)
