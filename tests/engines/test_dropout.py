"""Dropout in local steps: from the engine's streams, the same whoever runs it, and nowhere else."""

import random

import numpy as np
import pytest
import torch
from tests.objectives.world import CPU, DIGITS, PARTS, close, points
from tests.reference import masks
from tests.rounds import played
from torch import nn
from torch.nn.functional import cross_entropy

from undrift.core.streams import Streams
from undrift.engines import Simulate, Wire
from undrift.methods import GD, FedAvg, FedLin, FedRecu, FedSpeed, Scaffold
from undrift.models import Net
from undrift.models.net import seeded
from undrift.objectives import FedNTD
from undrift.problems import Neural
from undrift.problems.neural import oracle


class Reusing(nn.Module):
    """One layer of dropout, called after each of the others."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(64, 8), nn.Linear(8, 8), nn.Linear(8, 10)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        h = self.dropout(self.first(x.flatten(1)).tanh())
        return self.head(self.dropout(self.second(h).tanh()))


def layered():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 9), nn.Tanh(), nn.Dropout(0.3), nn.Linear(9, 10)
    )


def convolutional(rate=0.4):
    first = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.3))
    second = nn.Sequential(nn.Flatten(), nn.Linear(27, 8), nn.Tanh())
    return Net([first, second], nn.Linear(8, 6), nn.Linear(6, 10), dropout=rate)


def federation(make, dtype=torch.float64, **options):
    with seeded(0):
        net = make()
    return Neural(net, DIGITS, PARTS, **options).to(dtype, CPU)


EVERY = pytest.mark.parametrize("make", [Reusing, layered, convolutional])
CASES = {
    "mini-batches": (FedAvg(lr=0.1), {"batch": 4, "steps": 3, "cohort": 4}),
    "epochs": (Scaffold(lr=0.1), {"batch": 4, "epochs": 2, "cohort": 3}),
    "all samples": (FedAvg(lr=0.1), {"steps": [2, 1, 3, 1, 2, 1]}),
    "one gradient before": (FedLin(lr=0.1), {"steps": 3}),
    "a recursion": (FedRecu(lr=0.1), {"steps": 3, "batch": 5}),
    "two gradients a step": (FedSpeed(lr=0.1), {"steps": 2, "batch": 5}),
}
CASE = pytest.mark.parametrize("case", CASES)


# -- by formula


def by_hand(y, part, kept):
    """The gradient of ``layered`` with the mask written out."""
    leaf = y.clone().requires_grad_()
    w, b, v, c = leaf.split([64 * 9, 9, 90, 10])
    h = (
        DIGITS.images[part].double().flatten(1) / 255 @ w.view(9, 64).T + b
    ).tanh() * torch.from_numpy(kept)
    cross_entropy(h @ v.view(10, 9).T + c, DIGITS.labels[part], reduction="none").mean().backward()
    return leaf.grad


def key(round, client, step, seed=0):
    return Streams(seed).at("masks", round, client, step).integers(2**63, dtype=np.int64)


def test_local_steps_are_those_of_masks_written_out():
    """Three rounds of FedAvg on all samples, by a loop over clients and steps."""
    problem = federation(layered)
    x = problem.start()
    for round in range(3):
        ends = []
        for client, part in enumerate(PARTS):
            y = x
            for step in range(2):
                kept = masks.mask((len(part), 9), 0.3, key(round, client, step, seed=4))
                y = y - 0.1 * by_hand(y, part, kept)
            ends.append(y)
        x = torch.stack(ends).mean(0)
    for engine in (Simulate, Wire):
        got = played(FedAvg(lr=0.1), problem, engine, steps=2, seed=4).x
        torch.testing.assert_close(got, x, rtol=1e-11, atol=1e-12)


def test_slices_of_many_samples_drop_different_units(monkeypatch):
    monkeypatch.setattr(oracle, "PASS", 4)
    problem = federation(layered)
    y, keys = points(problem), torch.arange(6) + 11
    got = problem.at().grad(y, None, None, keys)
    for i, part in enumerate(PARTS):
        want = sum(
            len(some)
            / len(part)
            * by_hand(y[i], some, masks.mask((len(some), 9), 0.3, 11 + i, part=k))
            for k, some in enumerate(np.split(part, range(4, len(part), 4)))
        )
        torch.testing.assert_close(got[i], want, rtol=1e-11, atol=1e-12)


# -- the same whoever runs it
# ----------------------------------------------------------------------------------------


@pytest.mark.covering(3)
@EVERY
@CASE
def test_engines_agree(make, case):
    method, setting = CASES[case]
    slow = played(method, federation(make), Wire, **setting)
    for options in ({}, {"stacked": True}, {"stacked": False}):
        fast = played(method, federation(make, **options), Simulate, **setting)
        torch.testing.assert_close(fast.x, slow.x, rtol=1e-12, atol=1e-12)
        assert fast.ledger == slow.ledger


@pytest.mark.covering(2)
@EVERY
@CASE
def test_runs_are_repeated_to_the_bit_by_any_number_of_threads(make, case, threads):
    method, setting = CASES[case]
    found = []
    for count in (1, 2, 3):
        threads(count)
        problem = federation(make, torch.float32)
        problem.together = 2
        found.append(played(method, problem, Simulate, **setting).x)
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_the_gradient_before_local_steps_has_the_mask_of_the_first():
    """FedLin's correction then vanishes in a single step: it is a step of gradient descent with the
    same masks.
    """
    for setting in ({}, {"batch": 5}):
        linear, plain = (
            played(m, federation(layered), Simulate, rounds=1, **setting)
            for m in (FedLin(lr=0.1), GD(lr=0.1))
        )
        torch.testing.assert_close(linear.x, plain.x, rtol=1e-12, atol=1e-12)


# -- it acts, and only in local steps
# --------------------------------------------------------------------------------


@EVERY
def test_it_is_off_in_metrics_and_in_gradients_outside_of_steps(make):
    problem = federation(make, train_metrics=True)
    x = points(problem, 1)[0]
    module = problem.module(x).double()
    nn.utils.vector_to_parameters(x, module.parameters())
    with torch.no_grad():
        loss = cross_entropy(module(DIGITS.test_images.double() / 255), DIGITS.test_labels)
    assert problem.metrics(x)["loss"] == pytest.approx(float(loss), rel=1e-12)
    got = problem.at().grad(x.expand(6, -1))
    for i, part in enumerate(PARTS):
        module.zero_grad()
        cross_entropy(module(DIGITS.images[part].double() / 255), DIGITS.labels[part]).backward()
        want = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
        torch.testing.assert_close(got[i], want, rtol=1e-11, atol=1e-12)


def test_other_models_of_an_objective_drop_nothing():
    """FedNTD runs the local model, which is dropped, and then the received one, which is not."""
    problem = federation(lambda: convolutional(0.0), objective=FedNTD())
    seen = []
    f, y = problem.at(np.array([3])), points(problem, 1)
    f.begin(y, None)
    f.net.trunk[0][3].register_forward_hook(
        lambda module, inputs, output: seen.append(torch.equal(output, inputs[0]))
    )
    f.grad(y, torch.arange(8).unsqueeze(0), None, torch.tensor([5]))
    assert seen == [False, True]


def test_networks_without_dropout_draw_no_keys():
    problem = federation(lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(64, 10)))
    assert not problem.keyed
    for batch, count in ((None, 0), (5, 1)):
        batches = Simulate(FedAvg(lr=0.1), problem, batch=batch).batches
        assert len(batches.draw(np.arange(6), 0, 0)) == count


def test_gradients_are_taken_in_training_mode_and_metrics_in_evaluation():
    class Noting(nn.Linear):
        def forward(self, x):
            modes.add((self.training, torch.is_grad_enabled()))
            return super().forward(x.flatten(1))

    modes = set()
    problem = Neural(Noting(64, 10), DIGITS, PARTS, stacked=False)
    modes.clear()
    problem.at().grad(points(problem), torch.zeros(6, 1, dtype=torch.int64))
    problem.at().grad(points(problem))
    assert modes == {(True, True)}
    problem.metrics(problem.start())
    assert modes == {(True, True), (False, False)}


# -- chance of other kinds
# --------------------------------------------------------------------------------


class Drawing(nn.Module):
    def __init__(self, chance):
        super().__init__()
        self.head, self.chance = nn.Linear(64, 10), chance

    def forward(self, x):
        return self.chance(self, self.head(x.flatten(1)))


class Recurrent(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.body, self.head = nn.LSTM(8, 5, 2, batch_first=True, **options), nn.Linear(5, 10)

    def forward(self, x):
        return self.head(self.body(x.squeeze(1))[0][:, -1])


class Attentive(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.body, self.head = (
            nn.MultiheadAttention(8, 2, batch_first=True, **options),
            nn.Linear(8, 10),
        )

    def forward(self, x):
        rows = x.squeeze(1)
        return self.head(self.body(rows, rows, rows, need_weights=False)[0].mean(1))


SEEDED = {
    "F.dropout": lambda: Drawing(lambda net, z: nn.functional.dropout(z, 0.5, net.training)),
    "noise": lambda: Drawing(lambda net, z: z + torch.randn_like(z) if net.training else z),
    "LSTM": lambda: Recurrent(dropout=0.1),
    "attention": lambda: Attentive(dropout=0.1),
}
REFUSED = {
    "F.dropout at any time": lambda: Drawing(lambda net, z: nn.functional.dropout(z, 0.5)),
    "noise in evaluation": lambda: Drawing(
        lambda net, z: z if net.training else z + torch.rand(10)
    ),
    "Python's": lambda: Drawing(lambda net, z: z * random.random()),
    "NumPy's": lambda: Drawing(lambda net, z: z * np.random.rand()),
}


@pytest.mark.covering(3)
@pytest.mark.parametrize("what", SEEDED)
def test_what_a_network_draws_itself_follows_from_the_seed(what):
    """Engines agree, runs repeat, and the caller's generator is left alone."""
    with seeded(0):
        problem = Neural(SEEDED[what](), DIGITS, PARTS).to(torch.float64, CPU)
    assert problem.keyed and not problem.placed.stacked and problem.together > 12
    random = torch.get_rng_state()
    fast, slow, again, other = (
        played(FedAvg(lr=0.1), problem, kind, rounds=2, steps=2, batch=4, seed=seed)
        for kind, seed in ((Simulate, 0), (Wire, 0), (Simulate, 0), (Simulate, 1))
    )
    close(fast.x, slow.x, 1e-12)
    assert torch.equal(fast.x, again.x) and not torch.equal(fast.x, other.x)
    x = fast.x
    assert problem.metrics(x) == problem.metrics(x)
    y, batch = points(problem), torch.zeros(6, 2, dtype=torch.int64)
    keys = torch.arange(6)
    full, drawn = problem.at().grad(y), problem.at().grad(y, batch, None, keys)
    assert torch.equal(full, problem.at().grad(y))
    assert torch.equal(drawn, problem.at().grad(y, batch, None, keys))
    assert not torch.equal(drawn, problem.at().grad(y, batch, None, keys + 1))
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("what", REFUSED)
def test_chance_that_cannot_be_repeated_is_refused(what):
    with seeded(0):
        net = REFUSED[what]()
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[2]
    with pytest.raises(ValueError, match="draws random numbers") as error:
        Neural(net, DIGITS, PARTS)
    assert "\n" not in str(error.value)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[2]) == before[1:]
