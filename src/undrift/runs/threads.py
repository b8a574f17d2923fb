"""How many threads a run computes with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from undrift._threads import cores
from undrift.core.cohort import Sampling
from undrift.core.problem import Problem

SMALL = 2_000_000
"""Parameters times samples of a gradient of all clients, below which one thread is fastest."""


@contextmanager
def threads(problem: Problem, batch: int | None, cohort: Sampling | None) -> Iterator[None]:
    """No more than there are cores to use, and one for small gradients, where more are slower.

    If OMP_NUM_THREADS is set, as many as it says.
    """
    before = torch.get_num_threads()
    samples = batch or sum(problem.samples) / problem.clients or 1
    size = problem.dim * samples * (cohort.size if cohort else problem.clients)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1 if size < SMALL else min(before, cores()))
    try:
        yield
    finally:
        torch.set_num_threads(before)
