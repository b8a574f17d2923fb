"""What a network is trained on: never changed, taken as it is meant, or refused in one sentence."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.engines.test_dropout import Attentive, Recurrent
from tests.objectives.world import CPU, DIGITS, PARTS, network, points
from undrift.engines import Simulate, Wire
from undrift.methods import FedAvg
from undrift.models.net import seeded
from undrift.problems import Logistic, Neural


def images(**changes):
    return dataclasses.replace(DIGITS, **changes)


def floats(dtype=torch.float32, shape=(1, 8, 8)):
    """Standardised inputs, some of them negative."""
    x, test = (
        (pixels.to(dtype) / 40 - 3).reshape(-1, *shape)
        for pixels in (DIGITS.images, DIGITS.test_images)
    )
    return images(images=x, test_images=test)


def tokens(dtype=torch.int64):
    x, test = (
        (pixels.flatten(1) // 20).to(dtype) for pixels in (DIGITS.images, DIGITS.test_images)
    )
    return images(images=x, test_images=test)


def made(*layers):
    with seeded(0):
        return nn.Sequential(*(layer() for layer in layers))


def dense():
    return made(nn.Flatten, lambda: nn.Linear(64, 10))


def writing():
    """Its first layer writes over its input."""
    return made(lambda: nn.ReLU(inplace=True), nn.Flatten, lambda: nn.Linear(64, 10))


# -- data that is taken


@pytest.mark.parametrize("make", [dense, writing, network], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "data", [DIGITS, floats(), floats(torch.float64)], ids=["uint8", "float32", "float64"]
)
def test_the_callers_data_are_never_written(make, data):
    kept = [v.clone() for v in (data.images, data.labels, data.test_images, data.test_labels)]
    problem = Neural(make(), data, PARTS, train_metrics=True)
    engine = Simulate(FedAvg(lr=0.1), problem, steps=2, batch=4)
    engine.run_round()
    problem.metrics(engine.x)
    problem.at().grad(points(problem))
    problem.to(torch.float64, CPU).metrics(engine.x)
    after = data.images, data.labels, data.test_images, data.test_labels
    assert all(torch.equal(a, b) for a, b in zip(kept, after, strict=True))


@pytest.mark.parametrize("given", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("make", [dense, network], ids=lambda make: make.__name__)
def test_floats_are_not_scaled(make, given):
    data = floats(given)
    problem = Neural(make(), data, PARTS).to(torch.float64, CPU)
    assert torch.equal(problem.placed.prepare(data.images), data.images.double())
    y = points(problem)
    got = problem.at().grad(y, torch.tensor([[0, 1]] * 6))
    for i, part in enumerate(PARTS):
        module = problem.module(y[i]).double()
        nn.utils.vector_to_parameters(y[i], module.parameters())
        cross_entropy(module(data.images[part[:2]].double()), DIGITS.labels[part[:2]]).backward()
        want = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
        torch.testing.assert_close(got[i], want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_tokens_stay_whole_numbers(dtype):
    net = made(lambda: nn.Embedding(13, 3), nn.Flatten, lambda: nn.Linear(192, 10))
    problem = Neural(net, tokens(dtype), PARTS).to(torch.float64, CPU)
    assert problem.placed.prepare(problem.placed.samples.train.x).dtype == dtype
    fast, slow = (kind(FedAvg(lr=0.5), problem, steps=3, batch=8) for kind in (Simulate, Wire))
    before = problem.metrics(fast.x)["loss"]
    for _ in range(5):
        fast.run_round()
        slow.run_round()
    assert problem.metrics(fast.x)["loss"] < before
    torch.testing.assert_close(fast.x, slow.x, rtol=1e-11, atol=1e-12)


def test_convolutions_on_inputs_without_channels():
    class Lifting(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 2, 3), nn.Linear(72, 10)

        def forward(self, x):
            return self.head(self.conv(x.unsqueeze(1)).flatten(1))

    problem = Neural(Lifting(), floats(shape=(8, 8)), PARTS)
    assert problem.at().grad(points(problem), torch.tensor([[0, 1]] * 6)).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int16])
def test_labels_of_any_whole_numbers(dtype):
    data = images(labels=DIGITS.labels.to(dtype), test_labels=DIGITS.test_labels.to(dtype))
    problem, same = Neural(network(), data, PARTS), Neural(network(), DIGITS, PARTS)
    assert problem.metrics(problem.start()) == same.metrics(same.start())
    y = points(problem)
    assert torch.equal(problem.at().grad(y), same.at().grad(y))


# -- parts


def test_masks_are_the_samples_they_mark():
    first = np.arange(60) < 25
    for parts in ([first, ~first], [torch.from_numpy(first), list(~first)]):
        problem = Neural(dense(), DIGITS, parts)
        assert [part.tolist() for part in problem.parts] == [list(range(25)), list(range(25, 60))]
        assert problem.samples == [25, 35]
    features, labels = DIGITS.images.flatten(1).double() / 255, DIGITS.labels.double() % 2 * 2 - 1
    masked, numbered = (
        Logistic(features, labels, parts)
        for parts in ([first, ~first], np.split(np.arange(60), [25]))
    )
    assert torch.equal(masked.rows, numbered.rows)


# -- networks that torch would stack one by one


class Choosing(nn.Linear):
    """A branch that looks at a number, which no stacked network can."""

    def forward(self, x):
        h = super().forward(x.flatten(1))
        return h if float(h.sum()) > 0 else 2 * h


@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("make", [Recurrent, Attentive, lambda: Choosing(64, 10)])
def test_networks_that_cannot_be_stacked_run_one_by_one_and_quietly(make, dtype, tol):
    with seeded(0):
        net = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem = Neural(net, DIGITS, PARTS).to(dtype, CPU)
        fast, slow = (kind(FedAvg(lr=0.1), problem, steps=2, batch=4) for kind in (Simulate, Wire))
        for _ in range(2):
            fast.run_round()
            slow.run_round()
    torch.testing.assert_close(fast.x, slow.x, rtol=tol, atol=tol)
    assert not torch.equal(fast.x, fast.x0)
