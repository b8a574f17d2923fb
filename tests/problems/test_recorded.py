"""What is recorded on a GPU, recorded without one: a graph is work that is done again."""

import math
import warnings

import pytest
import torch
from torch import nn

from tests.problems.test_neural_cuda import dropping, problem
from tests.rounds import after
from undrift.engines import Simulate
from undrift.engines import compile as fused
from undrift.engines.local import Stacked
from undrift.methods import FedACG, FedAvg, FedProx, FedSpeed, Scaffold
from undrift.models.convolutions import convolutions_as_products
from undrift.problems.neural import cuda_graph, oracle
from undrift.problems.neural.cuda_graph import Captured
from undrift.sweeps.sweep import Sweep

METHODS = [
    FedAvg(lr=0.1),
    FedProx(lr=0.1, mu=0.1),
    FedSpeed(lr=0.1, server_dual="all"),
    Scaffold(lr=0.1),
    FedACG(lr=0.1, lam=0.85, beta=0.5),
]


class Again:
    def __init__(self, work):
        self.work, self.inside, self.out = work, fused._now.__dict__.get("grad"), work()

    def replay(self):
        fused._now.grad = self.inside
        for mine, new in zip(self.out or (), self.work() or (), strict=True):
            mine.copy_(new)


@pytest.fixture
def recording(monkeypatch):
    """The recordings that were made."""
    torch.compiler.reset()
    made = []

    def capture(prepare, forms, inputs, y, launched, *, compiled, autocast):
        made.append(Captured(prepare, forms["stacked"], inputs, y, "stacked"))
        return made[-1]

    def record(self, work):
        again = Again(work)
        return again, again.out

    def recorded(self, y, *batch):
        inputs = self._inputs(y, *batch)
        captured = self._capture(y, inputs)
        captured.load(inputs)
        return captured

    def compiles(self, x):
        self._recording = self._recorded(x)
        return True

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(Captured, "record", record)
    monkeypatch.setattr(oracle, "capture", capture)
    monkeypatch.setattr(oracle.NeuralOracle, "recorded", recorded)
    monkeypatch.setattr(fused, "_kernels", lambda step, examples: step)
    monkeypatch.setattr(Stacked, "_compiles", compiles)
    yield made
    torch.compiler.reset()


def end(method, scope):
    task = problem(dropping(), stacked=True).to(torch.float64, torch.device("cpu"))
    setting = {
        "epochs": 1,
        "batch": 32,
        "cohort": 3,
        "schedule": 0.9,
        "training": {"weight_decay": 1e-3, "clip": 0.1, "clip_scope": scope},
    }
    engine = (Sweep if isinstance(method, list) else Simulate)(method, task, **setting)
    after(3, engine)
    return engine


@pytest.mark.covering(3)
@pytest.mark.parametrize("scope", ["task", "reference", "whole"])
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_recorded_steps_are_those_of_the_method(method, scope, recording, monkeypatch):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fast = end(method, scope)
    assert not [w for w in said if "not compiled" in str(w.message)]
    assert recording and all(len(one.steps) == 1 for one in recording)
    monkeypatch.undo()
    plain = end(method, scope)
    torch.testing.assert_close(fast.x, plain.x, rtol=1e-10, atol=1e-12)
    assert fast.ledger == plain.ledger


@pytest.mark.parametrize("scope", ["task", "reference"])
@pytest.mark.parametrize("cls", [FedAvg, Scaffold])
def test_recorded_steps_of_settings_are_those_of_each(cls, scope, recording, monkeypatch):
    methods = [cls(lr=lr) for lr in (0.1, 0.05, 0.02)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sweep = end(methods, scope)
    assert not [w for w in said if "not compiled" in str(w.message)]
    assert recording and all(len(one.steps) == 1 for one in recording)
    assert sweep.stacked == [0, 1, 2]
    monkeypatch.undo()
    for t, method in enumerate(methods):
        plain = end(method, scope)
        torch.testing.assert_close(sweep.x(t), plain.x, rtol=1e-10, atol=1e-12)
        assert sweep.ledger(t) == plain.ledger


def test_a_recorded_gradient_is_the_plain_one(recording):
    task = problem(stacked=True).to(torch.float64, torch.device("cpu"))
    f, engine = task.at(), Simulate(FedAvg(lr=0.1), task, steps=1, batch=8)
    y = task.start().repeat(6, 1) * (1 + 0.1 * torch.rand(6, task.dim, dtype=torch.float64))
    for step in range(2):
        batch = engine.batches.draw(range(6), 0, step)
        captured = f.recorded(y, *batch)
        found = captured(y, f._inputs(y, *batch))
        torch.testing.assert_close(found, f.grad(y, *batch), rtol=1e-12, atol=1e-14)


def test_a_network_that_cannot_be_recorded_says_why_in_one_line(monkeypatch):
    def refuse(*_):
        raise RuntimeError("operation not permitted\nCompile with TORCH_USE_CUDA_DSA")

    monkeypatch.setattr(cuda_graph, "Captured", refuse)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    with pytest.warns(UserWarning) as told:
        assert cuda_graph.capture(tuple, {"streams": None}, (), *torch.zeros(2, 1)) is None
    (text,) = (str(warning.message) for warning in told)
    assert "(operation not permitted)" in text and "\n" not in text


@pytest.mark.parametrize(
    ("fastest", "broken", "made"),
    [
        (False, "", [("stacked", False), ("streams", False), ("streams", True)]),
        (True, "", [("stacked", False), ("stacked", True)]),
        (True, "stacked", [("streams", False), ("streams", True)]),
    ],
)
def test_what_is_known_to_be_fastest_is_not_measured(fastest, broken, made, monkeypatch):
    """Beside other processes streams may seem faster; they serve where nothing else can."""
    seen = []

    class Timed(Captured):
        y, autocast, graph = torch.zeros(1), None, Again(lambda: None)

        def __init__(self, prepare, form, inputs, y, way, compiled, autocast):
            self.way = way
            if way == broken:
                raise RuntimeError("no room")
            seen.append((way, compiled))

        def result(self):
            return torch.zeros(2, 3)

        def seconds(self):
            return {"streams": 1.0, "stacked": 9.0}[self.way]

        def arranged(self, v, out=None):
            return v

        def place(self, y):
            pass

        def release(self):
            pass

    monkeypatch.setattr(cuda_graph, "Captured", Timed)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    fused = cuda_graph.LossForm(None, None, fastest=fastest)
    forms = {
        "stacked": cuda_graph.LossForm(None, None, fused),
        "streams": cuda_graph.LossForm(None, None, fused._replace(fastest=False)),
    }
    given = torch.zeros(2, 3), torch.zeros(3)
    found = cuda_graph.capture(tuple, forms, (), *given, compiled=True)
    assert found.way == made[-1][0] and seen == made


@pytest.mark.parametrize(
    ("channels", "stacked", "fastest"), [(16, True, True), (16, False, False), (12, True, False)]
)
def test_the_cohort_as_one_network_is_fastest_with_our_convolutions(
    channels, stacked, fastest, monkeypatch
):
    monkeypatch.setattr(oracle, "TRITON", True)
    first = [nn.Conv2d(1, 16, 3), nn.GroupNorm(2, 16), nn.ReLU(), nn.Conv2d(16, channels, 3)]
    last = [nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, 10)]
    f = problem(nn.Sequential(*first, *last), precision="bf16").at()
    net = convolutions_as_products(f.net) if stacked else f.net
    assert f._fused(net, None).fastest == fastest


@pytest.mark.parametrize(("launched", "used"), [(1.0, False), (math.nan, True)])
def test_a_graph_with_other_numbers_than_its_network_is_not_used(launched, used, monkeypatch):
    """Unless the network itself has none: then the run is told so by its first row."""

    class Wrong(Captured):
        y, autocast, graph = torch.zeros(1), None, Again(lambda: None)

        def __init__(self, *_):
            pass

        def result(self):
            return torch.full((2, 3), math.nan)

        def seconds(self):
            return 1.0

    monkeypatch.setattr(cuda_graph, "Captured", Wrong)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    given = tuple, {"streams": None}, (), torch.zeros(2, 3), torch.full((3,), launched)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert (cuda_graph.capture(*given) is not None) == used
    assert [*map(str, told)] == [] if used else "launched by itself" in str(told[0].message)
