"""How many threads a run computes with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from undrift.core.cohort import Sampling
from undrift.core.problem import Problem

SMALL = 2_000_000
"""Parameters times samples of a gradient of all clients, below which one thread is fastest."""


@contextmanager
def threads(problem: Problem, batch: int | None, cohort: Sampling | None) -> Iterator[None]:
    """One thread for small gradients, where more are slower, unless OMP_NUM_THREADS is set."""
    before = torch.get_num_threads()
    samples = batch or sum(problem.samples) / problem.clients or 1
    size = problem.dim * samples * (cohort.size if cohort else problem.clients)
    if "OMP_NUM_THREADS" not in os.environ and size < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
