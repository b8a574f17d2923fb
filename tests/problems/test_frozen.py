"""Frozen parameters are not trained, not sent and not counted, and stay what they were."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.objectives.world import CPU, DIGITS, PARTS, points
from tests.rounds import after
from undrift.engines import Simulate, Wire
from undrift.methods import FedAvg, Scaffold
from undrift.models import build, flatten
from undrift.models.net import seeded
from undrift.problems import Neural


def frozen(net, *names):
    for name in names:
        net.get_parameter(name).requires_grad_(False)
    return net


def mlp():
    """Differentiated by formula, if nothing were frozen."""
    return frozen(build("mlp", 1, 8, 10, hidden=(7,)), "trunk.0.1.weight", "head.bias")


def smooth():
    with seeded(0):
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.Tanh(), nn.Linear(9, 10))
    return frozen(net, "1.weight", "1.bias")


def convolutional():
    return frozen(build("cnn-small", 1, 8, 10), "trunk.0.0.weight")


def tied():
    """A frozen weight under two names, and a trained one under two."""
    with seeded(0):
        net = nn.Sequential(
            nn.Flatten(), *(nn.Linear(64, 64, bias=False) for _ in range(4)), nn.Linear(64, 10)
        )
    net[2].weight, net[4].weight = net[1].weight, net[3].weight
    return frozen(net, "1.weight")


EVERY = pytest.mark.parametrize("make", [mlp, smooth, convolutional, tied])


@EVERY
def test_the_vector_holds_what_is_trained(make):
    net = make()
    problem = Neural(net, DIGITS, PARTS)
    trained = {name: p for name, p in net.named_parameters() if p.requires_grad}
    assert problem.layout.names == tuple(trained) and problem.placed.mlp is None
    assert (
        problem.dim
        == sum(p.numel() for p in trained.values())
        < sum(p.numel() for p in net.parameters())
    )
    assert torch.equal(
        problem.start().float(), torch.cat([p.detach().reshape(-1) for p in trained.values()])
    )
    engine = Simulate(FedAvg(lr=0.1), problem, batch=4)
    engine.run_round()
    assert engine.ledger.bytes_up == len(PARTS) * problem.dim * 4


@EVERY
@pytest.mark.parametrize("stacked", [False, True])
def test_gradients_are_those_of_the_module(make, stacked):
    net = make().double()
    problem = Neural(net, DIGITS, PARTS, stacked=stacked).to(torch.float64, CPU)
    y = points(problem)
    small, whole = problem.at().grad(y, torch.tensor([[0, 1]] * 6)), problem.at().grad(y)
    for i, part in enumerate(PARTS):
        for got, chosen in ((small[i], part[:2]), (whole[i], part)):
            module = problem.module(y[i])
            cross_entropy(
                module(DIGITS.images[chosen].double() / 255), DIGITS.labels[chosen]
            ).backward()
            want = torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.requires_grad])
            torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)


@EVERY
def test_training_leaves_them_alone_on_every_engine(make):
    given = make()
    kept = copy.deepcopy(given.state_dict())
    setting = {"steps": 3, "batch": 5, "cohort": 4}
    ends = []
    for kind, options in (
        (Wire, {}),
        (Simulate, {"stacked": False}),
        (Simulate, {"stacked": True}),
        (Simulate, {}),
    ):
        problem = Neural(given, DIGITS, PARTS, **options).to(torch.float64, CPU)
        engine = kind(Scaffold(lr=0.1), problem, **setting)
        after(4, engine)
        ends.append(engine.x)
        module = problem.module(engine.x)
        for name, p in module.named_parameters():
            assert torch.equal(p, kept[name]) != p.requires_grad, name
    for other in ends[1:]:
        torch.testing.assert_close(other, ends[0], rtol=1e-11, atol=1e-12)
    assert all(torch.equal(v, kept[name]) for name, v in given.state_dict().items())


def test_they_lose_no_digit_on_the_way_through_another_precision():
    net = smooth().double()
    with torch.no_grad():
        net[1].weight.fill_(0.1)
    problem = Neural(net, DIGITS, PARTS)
    assert problem.net[1].weight.dtype == torch.float32
    back = problem.to(torch.float32, CPU).to(torch.float64, CPU)
    assert torch.equal(back.net[1].weight, net[1].weight)
    with torch.no_grad():
        want = cross_entropy(net(DIGITS.test_images.double() / 255), DIGITS.test_labels)
    assert back.metrics(back.start())["loss"] == pytest.approx(float(want), rel=1e-13)


def test_something_must_be_trained():
    with pytest.raises(ValueError, match="nothing to train in this module"):
        Neural(build("linear", 1, 8, 10).requires_grad_(False), DIGITS, PARTS)
    with pytest.raises(ValueError, match="nothing to train in this module"):
        flatten(nn.Flatten())
