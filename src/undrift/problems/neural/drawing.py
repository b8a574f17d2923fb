"""Whether some work draws random numbers from the generators that a process shares."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
import torch

Result = TypeVar("Result")


class Drawn(NamedTuple):
    """Whose generators were drawn from."""

    torch: bool
    others: bool
    """Of Python or NumPy."""


def watched(work: Callable[[], Result]) -> tuple[Result, Drawn]:
    """What ``work`` gives, and from what it draws; the generators are left as they were."""
    own, numpys = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torchs, others = torch.get_rng_state(), _generators()
        try:
            found = work()
            drawn = not torch.equal(torch.get_rng_state(), torchs)
            return found, Drawn(drawn, _generators() != others)
        finally:
            random.setstate(own)
            np.random.set_state(numpys)


def _generators() -> tuple[object, ...]:
    state = np.random.get_state(legacy=False)["state"]
    return random.getstate(), {name: np.asarray(part).tolist() for name, part in state.items()}
