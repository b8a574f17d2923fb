"""A saved run knows its network, its loss and its metrics again, and another one is refused."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import undrift as ud
from undrift.models.net import seeded
from undrift.records.journal import BadFolder

generator = torch.Generator().manual_seed(0)
X = torch.randn(24, 4, generator=generator)
Y = X[:, :1].sin()
PARTS = [range(k, 24, 3) for k in range(3)]


def net(between=nn.ReLU):
    with seeded(0):
        return nn.Sequential(nn.Linear(4, 5), between(), nn.Linear(5, 1))


class Scaled(nn.Module):
    def __init__(self, scale):
        super().__init__()
        with seeded(0):
            self.inner, self.scale = nn.Linear(4, 1), scale

    def forward(self, x):
        return self.scale * self.inner(x)


def quantile(outputs, targets, q=0.5):
    away = targets - outputs
    return torch.maximum(q * away, (q - 1) * away).mean()


def leaning(q):
    return lambda outputs, targets: quantile(outputs, targets, q)


def once(outputs, targets):
    return (outputs - targets).abs().mean()


def often(outputs, targets):
    return 100 * (outputs - targets).abs().mean()


often.__name__ = often.__qualname__ = "once"


def squares(outputs, targets):
    return (outputs - targets).square().mean()


def each(metric, outputs, targets):
    """A number for each sample."""
    return metric(outputs, targets).expand(len(outputs))


CASES = {
    "a parameter of a function": [{"loss": partial(quantile, q=q)} for q in (0.5, 0.9)],
    "a parameter of a module": [{"loss": nn.HuberLoss(delta=d)} for d in (1.0, 0.1)],
    "what a function closes over": [{"loss": leaning(q)} for q in (0.5, 0.9)],
    "the code of a loss": [{"loss": once}, {"loss": often}],
    "an activation": [{"module": net()}, {"module": net(nn.Tanh)}],
    "a setting of a network": [{"module": Scaled(scale)} for scale in (1.0, 2.0)],
    "one more metric": [{}, {"metrics": ["mae"]}],
    "the code of a metric": [{"metrics": {"m": partial(each, m)}} for m in (once, squares)],
}


def train(folder, module=None, loss=F.mse_loss, metrics=None):
    problem = ud.Neural(module or net(), (X, Y), PARTS, loss=loss, metrics=metrics)
    return ud.run(ud.FedAvg(lr=0.1), problem, rounds=2, batch=4, save=folder)


@pytest.mark.parametrize("name", CASES)
def test_another_one_is_refused(name, tmp_path):
    first, second = CASES[name]
    before = train(tmp_path / "run", **first)
    again = train(tmp_path / "run", **first)
    assert torch.equal(again.x, before.x)
    with pytest.raises(BadFolder):
        train(tmp_path / "run", **second)
