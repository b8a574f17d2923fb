"""Networks whose convolutions are computed by rows, as on aarch64."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.objectives.world import CPU, DIGITS, PARTS, federation, points
from undrift.core.params import BadParameters
from undrift.models import build
from undrift.models.convolutions import ConvByRows
from undrift.objectives import MOON, CrossEntropy
from undrift.problems import Neural
from undrift.problems.neural import network as networks

MEMBERS = np.array([3, 0, 2])
BATCH = torch.tensor([[4, 0, 7, -1], [2, -1, -1, 1], [1, 2, 3, 4]])


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def by_rows(monkeypatch):
    """A function that says whether they are, in whatever is built from then on."""

    def say(wanted):
        monkeypatch.setattr(networks, "ONE_BY_ONE", wanted)
        monkeypatch.setattr("undrift.models.convolutions.LARGE", 0)

    return say


def convolutions(problem):
    return {type(m) for m in problem.at(MEMBERS).net.modules() if isinstance(m, nn.Conv2d)}


def gradient(problem, rows=slice(None)):
    oracle = problem.at(MEMBERS[rows])
    y = points(problem, len(MEMBERS))[rows]
    oracle.begin(y, y + 0.01)
    return oracle.grad(y, BATCH[rows])


@pytest.mark.parametrize("objective", [CrossEntropy(), MOON()], ids=["cross-entropy", "MOON"])
def test_gradients_are_the_same_to_rounding(by_rows, objective):
    found = {}
    for wanted in (True, False):
        by_rows(wanted)
        problem = federation(objective, torch.float32, smooth=True)
        assert convolutions(problem) == {ConvByRows if wanted else nn.Conv2d}
        found[wanted] = gradient(problem)
    error = (found[True] - found[False]).norm() / found[False].norm()
    assert error < 1e-5


def test_float64_moves_by_no_bit(by_rows):
    found = []
    for wanted in (True, False):
        by_rows(wanted)
        problem = federation()
        assert convolutions(problem) == {nn.Conv2d}
        found.append(gradient(problem))
    assert torch.equal(*found)


def test_bits_do_not_depend_on_the_other_clients(by_rows):
    by_rows(True)
    problem = federation(dtype=torch.float32)
    every = gradient(problem)
    for c in range(len(MEMBERS)):
        assert torch.equal(gradient(problem, slice(c, c + 1))[0], every[c])


@pytest.mark.parametrize("options", [{"stacked": True}, {"precision": "bf16"}], ids=str)
def test_networks_that_run_as_one_and_bf16_keep_torchs(by_rows, options):
    by_rows(True)
    problem = federation(dtype=torch.float32, **options)
    assert convolutions(problem) == {nn.Conv2d}
    try:
        assert gradient(problem).isfinite().all()
    except BadParameters as error:  # torch has no bf16 convolutions on every processor
        assert set(error.problems) == {"precision"}


class Viewing(nn.Module):
    """Takes no other layout than torch's usual one."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 3, 3), nn.Linear(108, 10)

    def forward(self, x):
        return self.head(self.conv(x).view(len(x), -1))


def test_a_module_that_needs_channels_first_keeps_them(by_rows):
    by_rows(True)
    problem = Neural(Viewing(), DIGITS, PARTS).to(torch.float32, CPU)
    assert convolutions(problem) == {nn.Conv2d}
    assert gradient(problem).isfinite().all()


def test_a_large_network_has_channels_last_where_rows_are_faster(by_rows, monkeypatch):
    monkeypatch.setattr(networks, "FEW", 0)
    for wanted in (True, False):
        by_rows(wanted)
        problem = Neural(build("cnn-small", 1, 8, 10), DIGITS, PARTS)
        for dtype, last in ((torch.float32, wanted), (torch.float64, False)):
            assert problem.to(dtype, CPU).placed.network.channels_last is last
