"""Neural networks as a problem: gradients, precision, and what is refused."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.objectives.world import (
    CPU,
    DIGITS,
    PARTS,
    PIPELINE,
    close,
    federation,
    network,
    points,
    seen,
)
from tests.rounds import after
from undrift import problems
from undrift.core.params import BadParameters
from undrift.core.problem import Unsupported
from undrift.data import paper_partitions, partition
from undrift.engines import Simulate
from undrift.methods import FedAvg
from undrift.models import build, flatten, unflatten
from undrift.objectives import MOON, FedDecorr, FedLC, FedMLB, FedNTD
from undrift.problems import Neural
from undrift.problems import named as catalog
from undrift.problems.neural import oracle


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def by_module(y, images, labels, net=None):
    """A plain torch step on a module: zero_grad, forward, backward."""
    net = (network() if net is None else net).double()
    net.load_state_dict(
        unflatten(y, flatten(net)[1]), strict=False
    )  # tied weights and buffers have one name
    net.zero_grad()
    cross_entropy(net(seen(images)), labels).backward()
    return torch.cat([p.grad.reshape(-1) for p in net.parameters()])


@pytest.mark.parametrize("stacked", [False, True])
def test_mini_batch_gradients_are_those_of_a_module(stacked):
    problem = federation(stacked=stacked)
    members = np.array([3, 0])
    batch = torch.tensor([[4, 0, 7, -1], [2, -1, -1, 1]])
    y = points(problem, 2)
    got = problem.at(members).grad(y, batch)
    for row, (client, chosen) in enumerate(zip(members, ([4, 0, 7], [2, 1]), strict=True)):
        samples = torch.from_numpy(PARTS[client][chosen])
        close(got[row], by_module(y[row], DIGITS.images[samples], DIGITS.labels[samples]))


@pytest.mark.parametrize("stacked", [False, True])
def test_training_samples_are_augmented_as_drawn(stacked):
    problem = federation(stacked=stacked)
    y, batch = points(problem, 2), torch.tensor([[4, 0, 7], [2, 1, 0]])
    draws = [PIPELINE.augmentation.draw(np.random.default_rng(k), 3) for k in range(2)]
    got = problem.at(np.array([3, 0])).grad(y, batch, type(draws[0]).join(draws).to("cpu"))
    for row, client in enumerate((3, 0)):
        samples = torch.from_numpy(PARTS[client][batch[row]])
        changed = PIPELINE.augmentation.apply(DIGITS.images[samples], draws[row].to("cpu"))
        assert not torch.equal(changed, DIGITS.images[samples])
        close(got[row], by_module(y[row], changed, DIGITS.labels[samples]))


@pytest.mark.parametrize("size", [512, 4])
def test_full_gradients_are_those_of_all_samples_however_many_pass_at_once(size, monkeypatch):
    monkeypatch.setattr(oracle, "PASS", size)
    problem = federation()
    y = points(problem)
    got = problem.at().grad(y)
    for i, part in enumerate(PARTS):
        close(got[i], by_module(y[i], DIGITS.images[part], DIGITS.labels[part]))


def test_an_objective_that_compares_samples_does_so_within_a_pass(monkeypatch):
    """FedDecorr's full gradient is a weighted mean of those of its passes."""
    monkeypatch.setattr(oracle, "PASS", 5)
    problem = federation(FedDecorr(beta=2.0))
    f, y, n = problem.at(np.array([3])), points(problem, 1), len(PARTS[3])
    want = sum(
        len(chosen) / n * f.grad(y, chosen.unsqueeze(0)) for chosen in torch.arange(n).split(5)
    )  # fmt: skip
    close(f.grad(y), want)


def test_gradients_leave_everything_else_alone():
    problem = federation(MOON())
    f, y = problem.at(), points(problem)
    start = points(problem, seed=1).requires_grad_()
    f.begin(start, start)
    kept, random = y.clone(), torch.get_rng_state()
    weights = [p.clone() for p in problem.net.parameters()]
    with torch.no_grad():
        first = f.grad(y, torch.zeros(problem.clients, 1, dtype=torch.int64))
    assert not first.requires_grad and start.grad is None
    close(y, kept, 0)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(
        torch.equal(p, w) and p.grad is None
        for p, w in zip(problem.net.parameters(), weights, strict=True)
    )
    with pytest.raises(Unsupported, match="has no exact local minimiser"):
        f.solve(y, 1.0)


def test_a_module_given_is_copied():
    net = network()
    problem = Neural(net, DIGITS, PARTS)
    before = problem.start()
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    net.train()
    close(problem.start(), before, 0)
    assert not problem.net.training


def test_precision():
    double = federation()
    single = double.to(torch.float32, CPU)
    assert (double.dtype, single.dtype) == (torch.float64, torch.float32) and single is not double
    y, batch = points(double), torch.zeros(6, 1, dtype=torch.int64)
    for arguments in ((), (batch,)):
        got, want = single.at().grad(y.float(), *arguments), double.at().grad(y, *arguments)
        assert got.dtype == torch.float32 and want.dtype == torch.float64
        close(got.double(), want, 2e-5)
    back = single.to(torch.float64, CPU)
    close(back.at().grad(y), double.at().grad(y), 0)
    assert single.placed.samples.train.x.data_ptr() == double.placed.samples.train.x.data_ptr()
    assert single.metrics(double.start()) == pytest.approx(double.metrics(double.start()), rel=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize(
    "objective", [None, MOON(), FedMLB(), FedLC(), FedNTD(), FedDecorr()], ids=str
)
def test_cuda_follows_the_cpu(objective):
    problem = federation(objective, compiled=False)
    moved = problem.to(torch.float64, torch.device("cuda"))
    runs = [Simulate(FedAvg(lr=0.1), p, steps=2, batch=5, cohort=3) for p in (problem, moved)]
    after(3, *runs)
    assert float((runs[0].x - runs[1].x.cpu()).abs().max()) < 1e-9
    assert moved.metrics(runs[0].x) == pytest.approx(problem.metrics(runs[0].x), rel=1e-9)


def test_networks_without_convolutions_are_stacked():
    assert Neural(build("mlp", 1, 8, 10, hidden=(4,)), DIGITS, PARTS).placed.stacked
    assert (
        not Neural(network(), DIGITS, PARTS).placed.stacked
        and Neural(network(), DIGITS, PARTS, stacked=True).placed.stacked
    )


class Own(nn.Module):
    """A user's module: a buffer, tied weights, and dropout that would be random in training."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
        self.second.weight = self.first.weight
        self.head, self.dropout = nn.Linear(64, 10), nn.Dropout(0.5)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x):
        h = self.dropout(self.first(x.flatten(1)).tanh())
        return self.head(self.second(h) * self.scale)


@pytest.mark.parametrize("stacked", [False, True])
def test_a_users_module(stacked):
    torch.manual_seed(0)
    net = Own()
    problem = Neural(net, DIGITS, PARTS, pipeline=PIPELINE, stacked=stacked).to(torch.float64, CPU)
    assert problem.dim == 64 * 64 + 650 and problem.net.scale.dtype == torch.float64
    y = points(problem)
    got = problem.at().grad(y, torch.tensor([[0, 1]] * 6))
    for i, part in enumerate(PARTS):
        close(got[i], by_module(y[i], DIGITS.images[part[:2]], DIGITS.labels[part[:2]], net.eval()))
    engine = Simulate(FedAvg(lr=0.1), problem, steps=2, batch=4)
    before = problem.metrics(engine.x)["loss"]
    after(3, engine)
    assert problem.metrics(engine.x)["loss"] < before


@pytest.mark.parametrize("objective", [MOON(), FedMLB(), FedDecorr()], ids=str)
def test_a_users_module_has_no_inside(objective):
    with pytest.raises(BadParameters) as caught:
        Neural(Own(), DIGITS, PARTS, objective=objective)
    assert set(caught.value.problems) == {"objective"}
    for other in (FedLC(), FedNTD()):
        f = Neural(Own(), DIGITS, PARTS, objective=other).at()
        y = flatten(Own())[0].repeat(6, 1)
        f.begin(y, None)
        assert f.grad(y, torch.zeros(6, 1, dtype=torch.int64)).isfinite().all()


def test_objectives_say_what_they_lack():
    with pytest.raises(BadParameters) as caught:
        Neural(build("linear", 1, 8, 10), DIGITS, PARTS, objective=FedMLB())
    assert set(caught.value.problems) == {"objective"}
    problem = federation(MOON())
    with pytest.raises(RuntimeError):
        problem.at().grad(points(problem))


def test_a_network_declares_its_facts():
    data = dataclasses.replace(DIGITS, note="JPEG q80")
    problem = Neural(network(), data, PARTS, precision="tf32")
    assert (problem.note, problem.precision) == ("JPEG q80", "tf32")
    assert problem.class_names == tuple(map(str, range(10)))
    counts = problem.label_counts()
    assert counts.sum(1).tolist() == problem.samples
    assert torch.equal(problem.label_counts(np.array([2, 0])), counts[[2, 0]])
    named = problem.tensors(problem.start())
    assert (
        named.keys() == problem.state_dict(problem.start()).keys() == network().state_dict().keys()
    )


# -- by name


def test_images_by_name():
    problem = catalog.build("images", clients=5, train=200, test=50, hidden=16)
    assert type(problem) is problems.Neural and problem.clients == 5 and sum(problem.samples) == 200
    assert len(problem.placed.samples.test.x) == 50 and problem.net.head.in_features == 16
    close(problem.start().float(), flatten(build("cnn-small", 1, 8, 10, hidden=16))[0], 0)
    assert catalog.build("images-digits", clients=5, test=50).samples != problem.samples
    assert (
        catalog.Images(seed=3, train=200)
        .build()
        .start()
        .ne(catalog.Images(train=200).build().start())
        .any()
    )


def test_images_take_an_objective():
    plain, projected = catalog.Images(train=60), catalog.Images(train=60, projection=True)
    assert type(plain.build().objective).__name__ == "CrossEntropy"
    problem = projected.build(MOON(mu=2.0))
    assert problem.objective == MOON(mu=2.0) and problem.remembers
    assert problem.net.head.in_features == 256
    assert catalog.Images(train=60, projection=32).build().net.head.in_features == 32


@pytest.mark.parametrize("name", ["fedspeed", "feddyn", "fedacg", "fedrecu"])
def test_papers_partitions_by_name(name):
    from undrift.core.streams import Streams

    problem = catalog.Images(partition=name, clients=4, beta=2.0, seed=7, train=300).build()
    want = getattr(paper_partitions, name)(
        problem.data.labels.numpy(), 4, Streams(7).at("data"), beta=2.0
    )
    assert all(np.array_equal(a, b) for a, b in zip(problem.parts, want, strict=True))
    shards = catalog.Images(partition="by-label", clients=4, shards=3, train=300).build()
    want = partition.by_label(problem.data.labels.numpy(), 4, Streams(0).at("data"), shards=3)
    assert all(np.array_equal(a, b) for a, b in zip(shards.parts, want, strict=True))


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("hidden", {"hidden": 8, "model": "resnet18"}),
        ("augment", {"augment": "fedspeed"}),
        ("model", {"model": "vgg"}),
        ("projection", {"projection": 0}),
    ],
)
def test_bad_parameters_of_images(field, given):
    with pytest.raises(BadParameters) as caught:
        catalog.Images(**given)
    assert set(caught.value.problems) == {field}


@pytest.mark.parametrize("given", [{"train": 5000}, {"model": "cnn"}, {"clients": 61, "train": 60}])
def test_images_that_cannot_be_built(given):
    with pytest.raises(ValueError):
        catalog.Images(**given).build()


@pytest.mark.parametrize("preset", ["fedspeed", "fedacg", "fedrecu"])
def test_papers_augmentations_by_name(preset, monkeypatch):
    """Without CIFAR-10 here: digits in its shape."""
    from undrift.data import augment, images

    grown = DIGITS.images.repeat(1, 3, 4, 4)
    cifar = dataclasses.replace(DIGITS, images=grown, test_images=grown[:30])
    monkeypatch.setattr(images, "load_images", lambda *_: cifar)
    problem = catalog.Images(data="cifar10", augment=preset, clients=2, partition="iid").build()
    assert problem.pipeline == augment.presets[preset]("cifar10") and problem.augmentation.flip
    engine = Simulate(FedAvg(lr=0.1), problem, steps=1, batch=4)
    engine.run_round()
    assert engine.x.isfinite().all() and engine.x.ne(engine.x0).any()
