"""The global generators of torch, NumPy and Python, and who draws from them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch

Result = TypeVar("Result")


def generators() -> dict[str, object]:
    """The states of all of them, by the library they belong to."""
    state = np.random.get_state(legacy=False)["state"]
    return {
        "torch": torch.get_rng_state().tolist(),
        "NumPy": {name: np.asarray(part).tolist() for name, part in state.items()},
        "Python": random.getstate(),
    }


def watched(work: Callable[[], Result]) -> tuple[Result, set[str]]:
    """What ``work`` gives, and whose generators it draws from; all are left as they were."""
    pythons, numpys = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        before = generators()
        try:
            found = work()
            after = generators()
        finally:
            random.setstate(pythons)
            np.random.set_state(numpys)
    return found, {name for name, state in before.items() if state != after[name]}
