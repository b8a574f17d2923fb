"""What is changed in a network for speed changes no number."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.objectives.world import DIGITS, PARTS
from undrift.models import build
from undrift.models.net import seeded
from undrift.problems import Neural
from undrift.problems.layers import pool_first


def kinds(net):
    return [type(m).__name__ for m in net.modules() if not list(m.children())]


def plain():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2, padding=1), nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    )


def gradients(net, x, labels):
    net.zero_grad()
    cross_entropy(net(x), labels).backward()
    return {name: p.grad.clone() for name, p in net.named_parameters()}


@pytest.mark.parametrize("make", [plain, lambda: build("cnn-small", 1, 8, 10)])
def test_pooling_first_gives_the_same_gradients(make):
    with seeded(0):
        net = make().double()
    x, labels = torch.randn(20, 1, 8, 8, dtype=torch.float64), torch.arange(20) % 10
    before, order = gradients(net, x, labels), kinds(net)
    assert "ReLU MaxPool2d" in " ".join(order)
    assert pool_first(net) is net and "ReLU MaxPool2d" not in " ".join(kinds(net))
    after = gradients(net, x, labels)
    assert list(before) == list(after) and all(torch.equal(before[name], after[name]) for name in before)


class Skipping(nn.Module):
    """Takes its layers apart."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(4 * 16, 10)

    def forward(self, x):
        h = self.body[:2](x)
        return self.head((self.body[2](h) + h[..., ::2, ::2]).flatten(1))


def test_what_a_user_may_look_into_stays_as_it_is():
    net = pool_first(Skipping())
    assert kinds(net)[:3] == ["Conv2d", "ReLU", "MaxPool2d"]
    hooked = plain()
    hooked[1].register_forward_hook(lambda module, inputs, output: output + 1)
    assert kinds(pool_first(hooked))[1] == "ReLU"
    given = plain()
    Neural(given, DIGITS, PARTS)
    assert kinds(given)[1] == "ReLU"


class Viewing(nn.Module):
    """``view`` fails where channels are last."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4 * 36, 10)

    def forward(self, x):
        return self.head(self.conv(x).view(len(x), -1))


def test_channels_are_last_where_the_network_can_take_it():
    last = {"memory_format": torch.channels_last}
    wide = Neural(build("cnn-small", 1, 8, 10), DIGITS, PARTS)
    assert wide.prepare(DIGITS.images.expand(-1, 3, -1, -1)).is_contiguous(**last)
    for net in (Viewing(), build("mlp", 1, 8, 10)):
        problem = Neural(net, DIGITS, PARTS)
        assert problem.prepare(DIGITS.images.expand(-1, 3, -1, -1)).is_contiguous()
        y = problem.start().float().repeat(6, 1)
        assert problem.at().grad(y, torch.zeros(6, 1, dtype=torch.int64)).isfinite().all()
