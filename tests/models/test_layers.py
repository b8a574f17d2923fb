"""What is changed in a network for speed changes no number."""

import dataclasses

import pytest
import torch
from tests.objectives.world import DIGITS, PARTS
from torch import nn
from torch.nn.functional import cross_entropy

from undrift.models import build
from undrift.models.net import channels_last, pool_first, seeded
from undrift.problems import Neural


def kinds(net):
    return [type(m).__name__ for m in net.modules() if not list(m.children())]


def plain():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.MaxPool2d(2, padding=1),
        nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
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
    assert list(before) == list(after) and all(
        torch.equal(before[name], after[name]) for name in before
    )


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
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 10)

    def forward(self, x):
        return self.head(self.conv(x).view(len(x), -1))


def seen_by(net, data):
    """Whether channels are last in what the first layer gives, for a gradient."""
    problem, found = Neural(net, data, PARTS), []
    for own in (problem.at().net, problem.placed.network.own()):
        first = next(m for m in own.modules() if isinstance(m, nn.Conv2d | nn.Linear))
        first.register_forward_hook(
            lambda module, inputs, output: found.append(output.stride(1) == 1)
        )
    y = problem.start().float().repeat(6, 1)
    for batch in ((), (torch.zeros(6, 1, dtype=torch.int64),)):
        assert problem.at().grad(y, *batch).isfinite().all()
    problem.metrics(y[0])
    return set(found)


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_are_last_where_the_network_can_take_it(channels):
    pixels, test = (
        images.repeat(1, channels, 1, 1) for images in (DIGITS.images, DIGITS.test_images)
    )
    data = dataclasses.replace(DIGITS, images=pixels, test_images=test)
    assert seen_by(build("cnn-small", channels, 8, 10), data) == {True}
    if channels == 3:
        assert seen_by(Viewing(), data) == {False}


def test_channels_last_moves_no_number():
    for channels in (1, 3):
        x = torch.rand(2, channels, 4, 5)
        assert torch.equal(channels_last(x), x)
        assert channels_last(x).stride() == (20 * channels, 1, 5 * channels, channels)
