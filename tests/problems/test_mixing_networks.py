"""Networks that let the samples of a batch see one another: no padding, no other client's."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import undrift as ud
from tests.problems.test_own_networks import NETWORKS, problem
from undrift.models.net import seeded

RNG = np.random.default_rng(7)
X, Y = torch.tensor(RNG.normal(size=(21, 6))), torch.tensor(RNG.integers(0, 3, 21))
PARTS = [np.arange(5), np.arange(5, 21)]


class Centred(nn.Linear):
    """Looks at the mean of its batch, at evaluation or only in training."""

    def __init__(self, always=True, zero=False):
        super().__init__(6, 3)
        self.always = always
        if zero:
            nn.init.zeros_(self.weight)

    def forward(self, x):
        return super().forward(x - x.mean(0) if self.always or self.training else x)


class Attending(nn.Linear):
    def forward(self, x):
        return super().forward((x @ x.T).softmax(1) @ x)


class Dropping(nn.Linear):
    """Draws from torch's generator in training."""

    def forward(self, x):
        return super().forward(F.dropout(x, 0.5, self.training))


class OverTime(nn.Module):
    """Takes the first axis for time, as nn.LSTM does unless it is told."""

    def __init__(self, batch_first):
        super().__init__()
        self.cell, self.head = nn.LSTM(2, 4, batch_first=batch_first), nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.cell(x.view(-1, 3, 2))[0].flatten(1))


MIXING = {
    "a mean": Centred,
    "a mean in training": lambda: Centred(always=False),
    "weights of zero": lambda: Centred(zero=True),
    "attention": lambda: Attending(6, 3),
    "time": lambda: OverTime(batch_first=False),
}
APART = {
    "time": lambda: OverTime(batch_first=True),
    "dropout": lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3)),
    "dropout by torch": lambda: Dropping(6, 3),
    "groups": lambda: nn.Sequential(nn.Linear(6, 8), nn.GroupNorm(2, 8), nn.Linear(8, 3)),
    "deep": lambda: nn.Sequential(
        *(part for _ in range(30) for part in (nn.Linear(6, 6), nn.Tanh(), nn.LayerNorm(6))),
        nn.Linear(6, 3),
    ),
}


def made(make, parts=PARTS):
    with seeded(0):
        return ud.Neural(make(), (X, Y), parts)


@pytest.mark.parametrize("what", MIXING)
def test_gradients_of_padded_batches_are_those_of_the_samples(what):
    task = made(MIXING[what])
    assert task.placed.alone
    task = task.to(torch.float64, torch.device("cpu"))
    y = task.start().expand(2, -1) + 0.1 * torch.randn(2, task.dim, dtype=torch.float64)
    for batch in ([[0, 3, 4, -1], [1, 2, 7, 9]], [[4, -1, -1, -1], [1, 5, -1, -1]]):
        found = task.at().grad(y, torch.tensor(batch))
        for row, part, g, point in zip(batch, PARTS, found, y, strict=True):
            net, own = task.module(point).double().train(), part[[k for k in row if k >= 0]]
            nn.utils.vector_to_parameters(point, net.parameters())
            loss = F.cross_entropy(net(X[own]), Y[own])
            want = torch.autograd.grad(loss, list(net.parameters()))
            torch.testing.assert_close(g, torch.cat([v.flatten() for v in want]))


def test_each_client_is_judged_by_its_own_samples():
    task = made(Centred)
    net = task.module(task.start())
    want = [F.cross_entropy(net(X[part].float()), Y[part]).item() for part in PARTS]
    found = task.client_metrics(task.start())["loss"]
    torch.testing.assert_close(found, torch.tensor(want).double())
    assert task.metrics(task.start())["loss"] == pytest.approx(np.mean(want))


@pytest.mark.parametrize("what", APART)
def test_samples_that_see_nobody_are_padded(what):
    assert not made(APART[what]).placed.mixes


@pytest.mark.parametrize("what", NETWORKS)
def test_own_networks_are_padded(what):
    assert not problem(what).placed.mixes


def test_one_sample_cannot_tell():
    with seeded(0):
        assert not ud.Neural(Centred(), (X[:1], Y[:1]), [[0]]).placed.mixes
