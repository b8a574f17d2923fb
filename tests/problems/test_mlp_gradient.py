"""Linear layers with ReLU between: the formula agrees with automatic differentiation."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import cross_entropy

from tests.objectives.world import CPU, DIGITS, PARTS, PIPELINE
from undrift.models import Net, build, flatten
from undrift.models.net import seeded
from undrift.objectives import MOON, FedLC
from undrift.problems import Neural
from undrift.problems.neural import mlp_gradient
from undrift.problems.neural.mlp_gradient import MLPGradient, slope_of_cross_entropy

BEND = nn.ReLU()
DENSE = {
    "mlp": lambda: build("mlp", 1, 8, 10, hidden=(7, 5)),
    "linear": lambda: build("linear", 1, 8, 10),
    "sequential": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(64, 7), BEND, nn.Identity(), nn.Linear(7, 6), BEND, nn.Linear(6, 10)
    ),
    "no biases": lambda: nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 7, bias=False),
        nn.ReLU(inplace=True),
        nn.Linear(7, 10, bias=False),
    ),
    "nothing between": lambda: nn.Sequential(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 7)), nn.Identity(), nn.Linear(7, 10)
    ),
}


def made(name):
    with seeded(0):
        return DENSE[name]().double().train(False)


def by_module(net, y, x, labels, weights):
    vector = y.clone()
    nn.utils.vector_to_parameters(vector, net.parameters())
    net.zero_grad()
    (weights * cross_entropy(net(x), labels, reduction="none")).sum().backward()
    return torch.cat([p.grad.reshape(-1) for p in net.parameters()])


@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize("name", DENSE)
def test_the_formula_is_the_derivative(name, clients):
    net = made(name)
    vector, layout = flatten(net)
    generator = torch.Generator().manual_seed(1)
    y = vector + 0.1 * torch.randn(clients, layout.dim, dtype=torch.float64, generator=generator)
    x = torch.randn(clients, 4, 1, 8, 8, dtype=torch.float64, generator=generator)
    labels = torch.randint(10, (clients, 4), generator=generator)
    weights = torch.rand(clients, 4, dtype=torch.float64, generator=generator)
    weights[0, 2] = 0
    got = MLPGradient.of(net, layout).gradients(y, x, labels, weights, slope_of_cross_entropy)
    for c in range(clients):
        torch.testing.assert_close(
            got[c], by_module(net, y[c], x[c], labels[c], weights[c]), rtol=1e-12, atol=1e-13
        )
    over = y.clone()
    MLPGradient.of(net, layout).step_(
        MLPGradient.of(net, layout).views(over), 0.3, x, labels, weights, slope_of_cross_entropy
    )
    torch.testing.assert_close(over, y - 0.3 * got, rtol=1e-12, atol=1e-13)


class Twice(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def tied(*names):
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    for name in names:
        setattr(net[3], name, getattr(net[1], name))
    return net


def hooked():
    net = made("mlp")
    net.head.register_forward_hook(lambda module, inputs, output: 2 * output)
    return net


again = nn.Linear(64, 64)
OTHER = {
    "another function": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(64, 7), nn.Tanh(), nn.Linear(7, 10)
    ),
    "convolutions": lambda: build("cnn-small", 1, 8, 10),
    "own layer": lambda: nn.Sequential(nn.Flatten(), Twice(64, 10)),
    "own class": lambda: type("Mine", (nn.Sequential,), {})(nn.Flatten(), nn.Linear(64, 10)),
    "tied weights": lambda: tied("weight"),
    "tied biases": lambda: tied("bias"),
    "a layer twice": lambda: nn.Sequential(
        nn.Flatten(), again, nn.ReLU(), again, nn.ReLU(), nn.Linear(64, 10)
    ),
    "a hook": hooked,
    "dropout": lambda: nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 10)),
    "dropout of the features": lambda: Net([], nn.Flatten(), nn.Linear(64, 10), dropout=0.5),
    "ReLU first": lambda: nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(64, 10)),
    "ReLU last": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.ReLU()),
    "pixels in rows": lambda: nn.Sequential(nn.Linear(8, 8), nn.Flatten(), nn.Linear(64, 10)),
    "rows flattened": lambda: nn.Sequential(nn.Flatten(2), nn.Flatten(), nn.Linear(64, 10)),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_networks_are_differentiated(name):
    with seeded(0):
        net = OTHER[name]().double().train(False)
    assert MLPGradient.of(net, flatten(net)[1]) is None
    problem = Neural(net, DIGITS, PARTS).to(torch.float64, CPU)
    vector, part = flatten(net)[0], PARTS[2][:3]
    got = problem.at().grad(vector.repeat(6, 1), torch.tensor([[0, 1, 2]] * 6))
    net.zero_grad()
    cross_entropy(net(DIGITS.images[part].double() / 255), DIGITS.labels[part]).backward()
    want = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
    torch.testing.assert_close(got[2], want, rtol=1e-11, atol=1e-12)


def test_losses_that_look_into_the_network_are_differentiated():
    net = made("mlp")
    assert Neural(net, DIGITS, PARTS).placed.mlp is not None
    assert Neural(net, DIGITS, PARTS, objective=FedLC()).placed.mlp is None
    assert Neural(net, DIGITS, PARTS, objective=MOON()).placed.mlp is None


@pytest.mark.parametrize("name", DENSE)
def test_problems_use_it_for_mini_batches_and_all_samples(name):
    net = made(name)
    problem = Neural(net, DIGITS, PARTS, pipeline=PIPELINE).to(torch.float64, CPU)
    assert problem.placed.mlp is not None and problem.placed.stacked
    y = problem.start() + 0.1 * torch.randn(6, problem.dim, dtype=torch.float64)
    f = problem.at()
    batch = torch.tensor([[0, 1, -1]] * 6)
    for chosen, got in (([0, 1], f.grad(y, batch)), (slice(None), f.grad(y))):
        for i, part in enumerate(PARTS):
            x, labels = (
                (DIGITS.images[part[chosen]].double() / 255 - 0.3) / 0.4,
                DIGITS.labels[part[chosen]],
            )
            weights = torch.full((len(labels),), 1 / len(labels), dtype=torch.float64)
            torch.testing.assert_close(
                got[i], by_module(net, y[i], x, labels, weights), rtol=1e-11, atol=1e-12
            )
    for given in ((), (batch,), (batch,)):  # the last on other memory than the one before
        over = y.clone()
        assert f.step_(over, 0.3, *given) is over
        torch.testing.assert_close(over, y - 0.3 * f.grad(y, *given), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("room", [0, 2 * 6 * 3 * 64, mlp_gradient.ROOM])
@pytest.mark.parametrize("pipeline", [None, PIPELINE])
def test_steps_laid_out_at_once_are_those_one_by_one(monkeypatch, pipeline, room):
    """One, three and all five at a time; augmented ones carry what was drawn for them."""
    monkeypatch.setattr(mlp_gradient, "ROOM", room)
    problem = Neural(made("mlp"), DIGITS, PARTS, pipeline=pipeline).to(torch.float64, CPU)
    batches = [(torch.tensor([[k, k + 1, -1 if k == 3 else 8]] * 6),) for k in range(5)]
    if pipeline is not None:
        rng = np.random.default_rng(0)
        batches = [(batch, problem.augmentation.draw(rng, 18).to(CPU)) for (batch,) in batches]
    f, start = problem.at(), problem.start().repeat(6, 1)
    one_by_one, at_once = start.clone(), start.clone()
    for batch in batches:
        one_by_one -= 0.3 * f.grad(one_by_one, *batch)
    assert f.follow_(at_once, 0.3, iter(batches)) is at_once
    torch.testing.assert_close(at_once, one_by_one, rtol=1e-12, atol=1e-13)


def spread(outputs, targets):
    """Compares samples with one another."""
    return (outputs - targets).square().mean() * (1 + outputs.std())


TABLE = [
    (torch.randn(9, 6, dtype=torch.float64), torch.rand(9, 2, dtype=torch.float64)),
    (torch.randn(4, 6, dtype=torch.float64), torch.rand(4, 2, dtype=torch.float64)),
]


@pytest.mark.parametrize(
    "loss",
    [F.mse_loss, nn.SmoothL1Loss(), nn.BCEWithLogitsLoss(), nn.CrossEntropyLoss(), spread],
    ids=["mse", "smooth L1", "BCE", "cross-entropy", "own"],
)
def test_any_loss_of_the_outputs_has_the_formula(loss):
    """Mini-batches, some of them padded, all samples, and steps without a stored gradient."""
    with seeded(0):
        net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    problem = Neural(net, TABLE, loss=loss).to(torch.float64, CPU)
    assert problem.placed.mlp is not None
    y = problem.start() + 0.1 * torch.randn(2, problem.dim, dtype=torch.float64)
    oracle = problem.at()

    def by_module(c, rows):
        nn.utils.vector_to_parameters(y[c].clone(), net.parameters())
        net.zero_grad()
        loss(net(TABLE[c][0][rows]), TABLE[c][1][rows]).backward()
        return torch.cat([p.grad.reshape(-1) for p in net.parameters()])

    batch = torch.tensor([[8, 0, 5], [3, 1, -1]])
    for given, rows in (((batch,), ([8, 0, 5], [3, 1])), ((), (slice(None), slice(None)))):
        want = torch.stack([by_module(c, rows[c]) for c in range(2)])
        got = oracle.grad(y, *given)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-13)
        over = oracle.step_(y.clone(), 0.3, *given)
        torch.testing.assert_close(over, y - 0.3 * want, rtol=1e-12, atol=1e-13)


def test_a_sample_that_is_no_vector_needs_flatten():
    """A linear layer on rows of pixels is applied to each of them."""
    net = nn.Sequential(nn.Linear(8, 3), nn.ReLU(), nn.Linear(3, 8))
    images = torch.rand(6, 8, 8)
    problem = Neural(net, [(images, images)], loss=F.mse_loss)
    assert problem.placed.mlp is None
