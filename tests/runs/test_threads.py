"""How many threads a run computes with."""

import pytest
import torch

from undrift.core.cohort import Sampling
from undrift.core.options import RunOptions
from undrift.problems import build
from undrift.runs.prepare import threads


@pytest.mark.parametrize(
    "given, cores, samples, want",
    [(None, 2, 100, 2), (None, 8, 100, 4), (None, 1, 100, 1), (None, 2, 5, 1), ("4", 1, 5, 4)],
)
def test_no_more_threads_than_cores_and_one_for_little(monkeypatch, given, cores, samples, want):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setattr("undrift.runs.prepare.cores", lambda: cores)
    problem = build("softmax-synthetic", clients=50, samples=samples, sizes="equal")
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        with threads(problem, RunOptions(cohort=Sampling(size=40))):
            assert torch.get_num_threads() == want
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)
