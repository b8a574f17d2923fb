"""Tensors and arrays of any kind, as tensors that share their memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from undrift.data.files import brief
from undrift.problems.neural.table import Fields


def as_fields(name: str, given: object) -> Fields:
    """What was given as tensors on the CPU, which share its memory where they can."""
    if isinstance(given, tuple) and given:
        return tuple(_tensor(f"{name}, [{k}],", part) for k, part in enumerate(given))
    if isinstance(given, Mapping) and given:
        return {str(key): _tensor(f"{name}, {key!r},", part) for key, part in given.items()}
    return _tensor(name, given)


def _tensor(name: str, given: object) -> Tensor:
    if not isinstance(given, Tensor):
        array = _array(name, given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # read-only memory: nobody writes to it here
            given = torch.from_numpy(array)
    if given.is_complex():
        raise TypeError(f"{name} are complex numbers; give torch.view_as_real of them")
    if given.layout != torch.strided or not given.dim():
        raise ValueError(f"{name} must be a dense tensor or array with one row for each sample")
    return given.detach().cpu()


def _array(name: str, given: object) -> np.ndarray:
    """What was given as an array that torch can share, if it holds numbers."""
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise TypeError(f"{name} are a masked array; fill it, or leave out those samples")
    try:
        array = np.asarray(given)
    except Exception as error:  # NumPy says so in many ways
        reason = f"{name} are not numbers: {brief(error)}"
        if isinstance(given, list | tuple):
            reason = f"{name} have rows of different lengths; pad them to one length"
        raise TypeError(reason) from None
    if array.dtype.kind in REMEDIES:
        kind, remedy = REMEDIES[array.dtype.kind]
        if any(isinstance(one, str) for one in (array.flat if array.dtype == object else ())):
            kind, remedy = REMEDIES["U"]
        raise TypeError(f"{name} are {kind}, not numbers; {remedy}")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # torch has no longer ones
        array = array.astype(np.float64)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array) if any(step < 0 for step in array.strides) else array


TEXTS = ("texts", "number them, as by np.unique(labels, return_inverse=True)[1] for classes")
REMEDIES = {
    "U": TEXTS,
    "S": TEXTS,
    "O": ("Python objects", "give an array of one type, as np.array(values, dtype=np.float32)"),
    "M": ("dates", "give numbers, such as the days since the first"),
    "m": ("spans of time", "give numbers, such as seconds"),
    "V": ("records", "give each of their columns as an array"),
}
"""What arrays of other kinds hold, by NumPy's letters, and what to do about it."""
