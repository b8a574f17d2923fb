"""Gradients over several mini-batches: those of a large one, in the memory of a small one."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from tests.engines.test_dropout import federation as dropping
from tests.engines.test_dropout import layered
from tests.objectives.world import federation
from tests.rounds import after
from tests.spec.texts import GOOD
from torch import nn
from torch.nn import functional as F

import undrift as ud
import undrift.methods as um
from undrift.check.federations import least_squares
from undrift.core.params import BadParameters
from undrift.core.problem import Oracle
from undrift.engines import Simulate, Wire
from undrift.engines.batches import InParts
from undrift.models.net import seeded
from undrift.problems.named import build
from undrift.problems.neural import oracle
from undrift.problems.neural.oracle import NeuralOracle
from undrift.runs.prepare import lay_out
from undrift.spec.reader import parse

EVERY = pytest.mark.parametrize("engine", [Simulate, Wire])
PROBLEMS = {
    "least squares": least_squares,
    "logistic": lambda: build("logistic", clients=5),
    "softmax": lambda: build("softmax-synthetic", clients=4),
    "augmented network": lambda: federation(smooth=True),
    "formula": lambda: build("images", clients=4, train=90, test=20, model="mlp", hidden=8).to(
        torch.float64, torch.device("cpu")
    ),
}


@pytest.mark.covering
@EVERY
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("work", [{"steps": 3}, {"epochs": 2}], ids=["steps", "epochs"])
def test_it_is_the_gradient_of_one_large_mini_batch(engine, name, work, batch=3):
    """Also where a client has fewer samples than that, or than one mini-batch."""
    problem = PROBLEMS[name]()
    method = um.FedLin(lr=0.02)
    large = engine(method, problem, batch=4 * batch, **work)
    parts = engine(method, problem, batch=batch, **work, training={"accumulate": 4})
    after(2, large, parts)
    torch.testing.assert_close(parts.x, large.x, rtol=0, atol=1e-11)
    assert parts.steps == large.steps and parts.identity != large.identity


WEIGHED = {
    "weights": (nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 5.0])), nn.Identity),
    "ignored": (nn.CrossEntropyLoss(ignore_index=1), nn.Identity),
    "both": (
        partial(F.cross_entropy, weight=torch.tensor([0.1, 1.0, 5.0]), ignore_index=0),
        nn.Identity,
    ),
    "logarithms": (nn.NLLLoss(weight=torch.tensor([0.1, 1.0, 5.0])), lambda: nn.LogSoftmax(1)),
}


@EVERY
@pytest.mark.parametrize("what", WEIGHED)
def test_a_mean_by_the_weights_of_classes_is_that_of_all_samples(engine, what, monkeypatch):
    """By torch.optim on all samples of a client at once: in parts, and in passes of three."""
    monkeypatch.setattr(oracle, "PASS", 3)
    loss, last = WEIGHED[what]
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(20, 4, generator=draw, dtype=torch.float64)
    y = torch.randint(3, (20,), generator=draw)
    y[:4] = 1  # a whole part that is ignored
    with seeded(0):
        net = nn.Sequential(nn.Linear(4, 3), last())
    parts, ends = [range(8), range(8, 20)], []
    placed = oracle.OwnLoss(loss, None).to(torch.float64, torch.device("cpu")).function
    for part in parts:
        mine = copy.deepcopy(net).double()
        optimiser = torch.optim.SGD(mine.parameters(), lr=0.5)
        for _ in range(2):
            optimiser.zero_grad()
            placed(mine(x[part]), y[part]).backward()
            optimiser.step()
        ends.append(nn.utils.parameters_to_vector(mine.parameters()).detach())
    problem = ud.Neural(net, (x, y), parts, loss=loss).to(torch.float64, torch.device("cpu"))
    for given in ({"batch": 3, "training": {"accumulate": 4}}, {"batch": 12}, {}):
        machine = engine(um.FedAvg(lr=0.5), problem, steps=2, **given)
        machine.run_round()
        torch.testing.assert_close(machine.x, torch.stack(ends).mean(0), rtol=0, atol=1e-12)


@EVERY
@pytest.mark.parametrize("work", [{"steps": 3}, {"epochs": 2}], ids=["steps", "epochs"])
def test_each_client_counts_the_mini_batches_that_it_has(engine, work):
    rng = np.random.default_rng(0)
    X, parts = rng.normal(size=(40, 2)), np.split(np.arange(40), [3, 10])
    problem = ud.problems.Logistic(X, np.sign(X[:, 0]), parts)
    machine = engine(um.FedAvg(lr=0.01), problem, batch=2, **work, training={"accumulate": 4})
    machine.run_round()
    wanted = {"steps": 3 * (2 + 4 + 4), "epochs": 2 * (2 + 4 + 15)}
    assert machine.ledger.gradients == wanted[next(iter(work))]


def test_every_gradient_is_counted():
    problem = least_squares()
    for method, per_step in ((um.FedAvg(lr=0.02), 1), (um.FedSpeed(lr=0.02), 2)):
        for engine in (Simulate, Wire):
            machine = engine(method, problem, steps=3, batch=2, training={"accumulate": 3})
            machine.run_round()
            assert machine.ledger.gradients == problem.clients * 3 * per_step * 3
    machine = Simulate(
        um.Scaffold(lr=0.02, option="I"), problem, steps=3, batch=2, training={"accumulate": 3}
    )
    machine.run_round()
    assert machine.ledger.gradients == problem.clients * (9 + 1)  # one on all samples


@EVERY
def test_no_more_than_a_mini_batch_is_in_memory(engine, monkeypatch):
    seen = []
    loss = NeuralOracle.loss

    def spy(self, y, x, *rest, **named):
        seen.append(x.shape[-4])
        return loss(self, y, x, *rest, **named)

    monkeypatch.setattr(NeuralOracle, "loss", spy)
    machine = engine(um.FedAvg(lr=0.02), federation(), steps=2, batch=2, training={"accumulate": 4})
    machine.run_round()
    assert max(seen) == 2


def test_each_mini_batch_drops_something_else():
    problem = dropping(layered)
    fast, slow, large = (
        kind(um.FedAvg(lr=0.1), problem, steps=2, **given)
        for kind, given in (
            (Simulate, {"batch": 2, "training": {"accumulate": 2}}),
            (Wire, {"batch": 2, "training": {"accumulate": 2}}),
            (Simulate, {"batch": 4}),
        )
    )
    for machine in (fast, slow, large):
        machine.run_round()
    torch.testing.assert_close(fast.x, slow.x, rtol=0, atol=1e-12)
    assert not torch.allclose(fast.x, large.x, atol=1e-6)
    seen = []

    class Spy(Oracle):
        def grad(self, y, batch, draws, key):
            seen.append(key)
            return 0 * y

    keys = torch.tensor([5, 7])
    InParts(Spy(), 2).grad(torch.zeros(2, 3), torch.arange(8).reshape(2, 4), None, keys)
    assert len({key.tolist()[0] for key in seen}) == 2 and torch.equal(seen[0], keys)


def test_a_client_without_samples_in_a_part_adds_nothing_to_it():
    class Spy(Oracle):
        def grad(self, y, batch):
            assert (batch >= 0).any(1).all()
            return (batch.double() * (batch >= 0)).sum(1, keepdim=True) / (batch >= 0).sum(
                1, keepdim=True
            )

    batch = torch.tensor([[1, 2, 3, 4], [6, -1, -1, -1], [7, 8, 9, -1]])
    found = InParts(Spy(), 2).grad(torch.zeros(3, 1, dtype=torch.float64), batch)
    np.testing.assert_allclose(found[:, 0], [2.5, 6.0, 8.0])


def test_what_is_wrong_is_told():
    for given in (
        {"training": {"accumulate": 4}},
        {"batch": 2, "training": {"accumulate": 0}},
        {"training": {"accumulate": "a"}},
    ):
        with pytest.raises(BadParameters) as found:
            ud.run(um.FedAvg(lr=0.1), "quadratic", rounds=1, **given)
        assert [*found.value.problems] == ["training.accumulate"]
    found = []
    lay_out(parse("training.accumulate = 2\n" + GOOD), 0, found)
    assert {one.path for one in found} == {("training", "accumulate")}
    assert {one.line for one in found} == {1}
    spec = parse(
        "training.accumulate = 2\nbatch = 4\n" + GOOD.replace("quadratic", "least-squares")
    )
    assert spec.drawn == 8 and parse(spec.toml()).identity == spec.identity


def test_theory_sees_the_whole_gradient():
    """FedPDVR's eta has the size of mini-batches."""
    method = um.FedPDVR(eta="theory", gamma="theory")
    found = [
        ud.run(method, least_squares(), rounds=1, steps=3, **given).method.eta
        for given in ({"batch": 8}, {"batch": 2, "training": {"accumulate": 4}}, {"batch": 2})
    ]
    assert found[0] == found[1] != found[2]


@EVERY
def test_a_loss_that_needs_several_samples_leaves_nobody_out(engine):
    """The small client is shown one sample again and again, where it has none left."""

    def correlation(outputs, targets):
        o, t = outputs - outputs.mean(), targets - targets.mean()
        return 1 - (o * t).sum() / (o.norm() * t.norm())

    torch.manual_seed(0)
    x = torch.randn(44, 3)
    parts = [np.arange(4), np.arange(4, 44)]
    problem = ud.Neural(torch.nn.Linear(3, 1), (x, x[:, :1]), parts, loss=correlation)
    run = engine(um.FedAvg(lr=0.1), problem, batch=4, steps=2, training={"accumulate": 2})
    run.run_round()
    assert not run.rejections and bool(run.x.isfinite().all())
