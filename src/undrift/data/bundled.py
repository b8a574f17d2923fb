"""Binary classification sets that come with scikit-learn: nothing to download."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

Arrays = tuple[NDArray[np.float64], NDArray[np.float64]]


def _breast_cancer() -> Arrays:
    """569 x 30, columns standardised; +1 is benign."""
    features, target = datasets.load_breast_cancer(return_X_y=True)
    return (features - features.mean(0)) / features.std(0), np.where(target == 1, 1.0, -1.0)


def _digits() -> Arrays:
    """1797 x 64, pixels in [0, 1]; +1 is an odd digit."""
    features, target = datasets.load_digits(return_X_y=True)
    return features / 16, np.where(target % 2 == 1, 1.0, -1.0)


bundled: dict[str, Callable[[], Arrays]] = {"breast-cancer": _breast_cancer, "digits": _digits}
