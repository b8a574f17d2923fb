"""Recordings in one process: freeing older ones harms no newer one; no method falls back."""

import gc
import warnings

import pytest
import torch
from torch import nn

from tests.problems.test_neural_cuda import problem
from tests.rounds import after
from undrift.engines import Simulate
from undrift.methods import FedACG, FedAvg, FedDyn, FedSpeed, Scaffold
from undrift.models.architectures import BasicBlock
from undrift.models.arrangement import Arrangement
from undrift.models.layout import Layout
from undrift.models.net import seeded
from undrift.problems.neural import oracle
from undrift.problems.neural.cuda_graph import Captured, LossForm, capture

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
METHODS = [
    FedAvg(lr=0.1),
    FedSpeed(lr=0.1, server_dual="all"),
    Scaffold(lr=0.1),
    FedDyn(lr=0.1),
    FedACG(lr=0.1),
]
SETTING = {"epochs": 1, "batch": 32, "cohort": 3}


@pytest.mark.parametrize("scope", ["task", "reference"])
def test_five_methods_one_after_another_are_all_recorded(scope):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for method in METHODS:
            task = problem(precision="bf16").to(torch.float32, torch.device("cuda"))
            training = {"weight_decay": 1e-3, "clip": 10.0, "clip_scope": scope}
            engine = Simulate(method, task, **SETTING, training=training)
            after(3, engine)
            recordings = list(task.placed.captured.values())
            assert all(one.compiled and one.steps for one in recordings) and recordings
            assert bool(engine.x.isfinite().all())


@pytest.fixture
def eager_collection():
    before = gc.get_threshold()
    gc.set_threshold(10, 1, 1)
    yield
    gc.set_threshold(*before)


def recording(junk=0):
    def prepare(x):
        garbage = [[] for _ in range(junk)]
        for one in garbage:
            one.append(one)
        return (x,)

    x = torch.ones(2, 4, device="cuda")
    arranged = Arrangement(Layout(("y",), ((4,),)), {})

    def loss(weights, x):
        return (weights["y"] * x).square().sum()

    made = Captured(prepare, LossForm(loss, arranged), (x,), torch.ones_like(x), "stacked")
    made.cycle = made  # only a collection of garbage frees it
    return made


def test_no_older_graph_is_freed_while_another_is_captured(eager_collection):
    for _ in range(5):
        newer = recording(junk=1000)
    torch.cuda.synchronize()
    twos = torch.full((2, 4), 2.0, device="cuda")
    assert torch.equal(newer(twos, newer.inputs), 2 * twos)


def test_what_was_recorded_is_given_back():
    task = problem().to(torch.float32, torch.device("cuda"))
    engine = Simulate(FedAvg(lr=0.1), task, **SETTING)
    engine.run_round()
    assert task.placed.captured
    engine.problem.release()
    assert not task.placed.captured
    engine.run_round()
    assert bool(engine.x.isfinite().all()) and task.placed.captured


@pytest.fixture(params=["streams", "stacked"])
def way(request, monkeypatch):
    """Whichever is faster."""

    def only(prepare, forms, *given, **options):
        return capture(prepare, {request.param: forms[request.param]}, *given, **options)

    monkeypatch.setattr(oracle, "capture", only)


@pytest.fixture
def kernels():
    from undrift.models import group_norm_kernels

    return group_norm_kernels


def gradient():
    """In bf16 of a network with group norms, what was recorded, and how often it warned."""
    with seeded(0):
        first = [nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(2, 16), nn.ReLU()]
        last = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10)]
        net = nn.Sequential(*first, BasicBlock(16, 32, 2, 2), BasicBlock(32, 32, 1, 4), *last)
    task = problem(net, precision="bf16").to(torch.float32, torch.device("cuda"))
    batches = Simulate(FedAvg(lr=0.1), task, steps=1, batch=32).batches
    y = task.start().to(task.device, task.dtype).repeat(6, 1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        found = task.at().grad(y, *batches.draw(range(6), 0, 0))
    (recorded,) = task.placed.captured.values()
    return found, recorded, sum("compiled" in str(warning.message) for warning in said)


def test_our_kernels_give_the_numbers_of_torchs(way, kernels, monkeypatch):
    used = []
    right = kernels.backward
    monkeypatch.setattr(kernels, "backward", lambda *given: used.append(1) or right(*given))
    found, recorded, warned = gradient()
    assert recorded.compiled and used and warned == 0
    used.clear()
    monkeypatch.setattr(oracle, "TRITON", False)
    expected, recorded, warned = gradient()
    assert recorded.compiled and not used and warned == 0
    assert (found - expected).norm() <= 0.1 * expected.norm()
    assert not torch.equal(found, expected)


def test_wrong_kernels_are_not_used(way, kernels, monkeypatch):
    right = kernels.backward

    def wrong(slope, *given):
        right(-slope, *given)

    monkeypatch.setattr(kernels, "backward", wrong)
    found, recorded, warned = gradient()
    assert recorded.compiled and warned == 1
    monkeypatch.setattr(oracle, "TRITON", False)
    expected, _, _ = gradient()
    assert (found - expected).norm() <= 0.05 * expected.norm()
