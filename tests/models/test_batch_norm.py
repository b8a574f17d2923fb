"""Networks with batch normalisation become networks that clients can share."""

import copy

import pytest
import torch
from tests.objectives.world import CPU, DIGITS, PARTS
from torch import nn

from undrift.engines import Simulate, Wire
from undrift.methods import Scaffold
from undrift.models import freeze_batch_norm, refuse_batch_statistics, to_group_norm
from undrift.models.net import seeded
from undrift.problems import Neural


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)

    def forward(self, x):
        return x + self.norm(self.conv(x)).relu()


def trained():
    """With statistics, weights and biases that are not those of new layers."""
    with seeded(0):
        net = nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6, eps=1e-3), nn.ReLU(), Residual(), nn.Flatten(),
            nn.Linear(216, 8), nn.BatchNorm1d(8, affine=False), nn.Tanh(), nn.Linear(8, 10),
        )  # fmt: skip
        for parameter in net.parameters():
            nn.init.normal_(parameter, std=0.2)
        for _ in range(20):
            net(DIGITS.images / 255)
    return net


def test_frozen_statistics_are_those_of_evaluation():
    net = trained()
    frozen, x = freeze_batch_norm(net), DIGITS.images / 255
    with torch.no_grad():
        want = net.eval()(x)
        assert not torch.allclose(copy.deepcopy(net).train()(x), want, atol=0.1)
        torch.testing.assert_close(frozen.train()(x), want, rtol=1e-5, atol=1e-5)
    assert frozen.state_dict().keys() == net.state_dict().keys()
    net.load_state_dict(frozen.state_dict())
    assert type(net[1]) is nn.BatchNorm2d


@pytest.mark.parametrize("change", [freeze_batch_norm, to_group_norm])
def test_networks_with_either_are_trained(change):
    given = trained()
    kept = copy.deepcopy(given.state_dict())
    problem = Neural(change(given), DIGITS, PARTS).to(torch.float64, CPU)
    assert all(torch.equal(v, kept[name]) for name, v in given.state_dict().items())
    ends = []
    for kind in (Simulate, Wire):
        engine = kind(Scaffold(lr=0.05), problem, steps=2, batch=4)
        for _ in range(2):
            engine.run_round()
        ends.append(engine.x)
    torch.testing.assert_close(*ends, rtol=1e-11, atol=1e-12)
    module = problem.module(ends[0])
    norms = {name: v for name, v in module.state_dict().items() if name.startswith("1.")}
    assert not torch.equal(norms["1.weight"], kept["1.weight"])
    if change is freeze_batch_norm:
        assert torch.equal(norms["1.running_mean"], kept["1.running_mean"])


def test_groups():
    def groups(channels, *most):
        return to_group_norm(nn.BatchNorm1d(channels), *most).num_groups

    assert [groups(n) for n in (1, 2, 3, 12, 64, 48, 7)] == [1, 1, 1, 6, 32, 24, 1]
    assert groups(64, 4) == 4 and groups(12, 5) == 4
    converted = to_group_norm(trained())
    refuse_batch_statistics(converted)
    assert [type(layer) for layer in converted.modules()].count(nn.GroupNorm) == 3
    assert torch.equal(converted[3].norm.weight, trained()[3].norm.weight)
    assert converted[1].eps == 1e-3 and converted[6].weight is None
    with pytest.raises(ValueError, match="groups = 0 is not allowed"):
        groups(4, 0)


def test_what_cannot_be_frozen():
    with pytest.raises(ValueError, match=r"BatchNorm2d at '0' keeps no statistics .*to_group_norm"):
        freeze_batch_norm(nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False)))


def test_a_layer_under_two_names():
    norm = nn.BatchNorm1d(4)
    both = to_group_norm(nn.Sequential(norm, nn.Linear(4, 4), norm))
    assert type(both[0]) is type(both[2]) is nn.GroupNorm
    assert both[0].weight is both[2].weight
