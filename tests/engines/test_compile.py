"""Compiled local steps are the same steps, and compiled once."""

import dataclasses
import warnings

import pytest
import torch
from tests.rounds import after
from torch._dynamo.testing import CompileCounterWithBackend

from undrift.check.federations import example, quadratic
from undrift.core.problem import OtherNumbers
from undrift.engines import Simulate, local
from undrift.engines import compile as fused
from undrift.engines.local import Gradient, Stacked
from undrift.methods import registry

STEPPING = sorted(
    name
    for name, method in registry.items()
    if any(f.name == "lr" for f in dataclasses.fields(method))
)
REFERENCE = {"training": {"clip": 3.0, "clip_scope": "reference", "weight_decay": 0.1}}
WHOLE = REFERENCE | {"training": {"clip_scope": "whole"}}


@pytest.fixture
def counter(monkeypatch):
    """Steps are compiled as on a GPU, but for what makes the kernels; a step that cannot be is an
    error.
    """
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    whole = fused.fused
    monkeypatch.setattr(local, "fused", lambda step: whole(step, backend=counter, fullgraph=True))
    monkeypatch.setattr(Stacked, "_compiles", lambda self, x: True)
    yield counter
    torch.compiler.reset()


def end(method, rounds, steps=3, **options):
    problem = quadratic()
    engine = Simulate(method, problem, steps=steps, x0=torch.ones(problem.dim), **options)
    after(rounds, engine)
    return engine


@pytest.mark.covering(12)
@pytest.mark.parametrize(
    "options",
    [{}, {"schedule": 0.9}, WHOLE, REFERENCE],
    ids=["plain", "decay", "whole", "reference"],
)
@pytest.mark.parametrize("name", STEPPING)
def test_a_compiled_step_is_the_same(name, options, counter, monkeypatch):
    method = example(registry[name], quadratic().constants)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = end(method, 3, **options)
    monkeypatch.undo()
    plain = end(method, 3, **options)
    torch.testing.assert_close(compiled.x, plain.x, rtol=1e-12, atol=1e-12)
    assert compiled.ledger == plain.ledger


class Tape:
    """A recording as on a GPU, without one: fixed buffers, and a graph that runs what it recorded
    again. Vectors are kept backwards, with zeros between their halves.
    """

    GAP = 3

    def __init__(self, y):
        self.steps, self.refused, self.grad, self.normed = {}, set(), None, False
        self.outline, self.half = y.new_empty(()).expand(y.shape), y.shape[-1] // 2
        self.y = self.arranged(y)
        self.short = self.y.clone()

    def arranged(self, v, out=None):
        gap = v.new_zeros(*v.shape[:-1], self.GAP)
        found = torch.cat([v[..., : self.half], gap, v[..., self.half :]], -1).flip(-1)
        return found if out is None else out.copy_(found)

    def restored(self, v):
        v = v.flip(-1)
        return torch.cat([v[..., : self.half], v[..., self.half + self.GAP :]], -1)

    def place(self, y):
        self.y.copy_(y)
        self.short.copy_(y)

    def parts(self, z, short=None):
        """The front is read from ``short``, which must be what was written last."""
        return [(z.clone() if short is None else short)[:, :2], z[:, 2:]]

    def norms(self, v):
        self.normed = True
        return v.square().sum(-1, keepdim=True).sqrt()

    def joined(self, parts):
        return torch.cat(parts, -1)

    def gradient(self, parts):
        g = self.arranged(self.grad(self.restored(self.joined(parts))))
        return [g[:, :2].clone(), g[:, 2:].clone()]

    def record(self, work):
        for _ in range(2):
            out = work()
        return Graph(work), out

    def check(self, found, expected):
        if not torch.allclose(found, expected, rtol=1e-9, atol=1e-12):
            raise OtherNumbers("it gives other numbers")


class Graph:
    wrong = False
    """Whether replays do something else than what was recorded."""

    def __init__(self, work):
        self.work, self.inside = work, fused._now.grad

    def replay(self):
        fused._now.grad = self.inside
        for _ in range(1 + self.wrong):
            self.work()


@pytest.fixture
def tapes(monkeypatch):
    """The recording of each cohort's shape; steps are recorded around it, their kernels not
    compiled.
    """
    torch.compiler.reset()
    tapes = {}

    def recorded(self, y):
        tape = tapes.get(len(y)) or tapes.setdefault(len(y), Tape(y))
        oracle, batch = self.f._oracle, self.batch
        tape.grad = lambda y: oracle.grad(y, *batch)
        return tape

    def compiles(self, x):
        self._recording = self._recorded(x)
        return True

    monkeypatch.setattr(fused, "_kernels", lambda step, examples: step)
    monkeypatch.setattr(Gradient, "recorded", recorded)
    monkeypatch.setattr(Stacked, "_compiles", compiles)
    yield tapes
    torch.compiler.reset()


@pytest.mark.covering(10)
@pytest.mark.parametrize(
    "options", [{}, REFERENCE | {"schedule": 0.9}, {"training": {"clip": 3.0, "weight_decay": 0.1}}]
)
@pytest.mark.parametrize(
    "name", ["FedAvg", "FedProx", "FedSpeed", "Scaffold", "FedLin", "FedPD", "FedCM", "FedDC"]
)
def test_a_recorded_step_is_the_same(name, options, tapes, monkeypatch):
    method = example(registry[name], quadratic().constants)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        recorded = end(method, 4, **options)
    assert tapes and all(tape.steps for tape in tapes.values())
    assert all(tape.normed for tape in tapes.values()) or "clip" not in options
    monkeypatch.undo()
    plain = end(method, 4, **options)
    torch.testing.assert_close(recorded.x, plain.x, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(recorded.ends, plain.ends, rtol=1e-12, atol=1e-12)
    assert recorded.ledger == plain.ledger


@pytest.mark.parametrize("name", ["FedAvg", "Scaffold"])
def test_recorded_steps_stop_where_a_client_has_taken_its_own(name, tapes, monkeypatch):
    method = example(registry[name], quadratic().constants)
    uneven = [1 + client % 3 for client in range(quadratic().clients)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        recorded = end(method, 4, steps=uneven, **REFERENCE)
    assert tapes and all(tape.steps for tape in tapes.values())
    monkeypatch.undo()
    plain = end(method, 4, steps=uneven, **REFERENCE)
    torch.testing.assert_close(recorded.x, plain.x, rtol=1e-12, atol=1e-12)
    assert recorded.ledger == plain.ledger


@pytest.mark.parametrize("name", ["FedAvg", "FedSpeed", "Scaffold"])
def test_a_recorded_step_that_goes_elsewhere_is_refused(name, tapes, monkeypatch):
    monkeypatch.setattr(Graph, "wrong", True)
    monkeypatch.setattr(fused, "_refused", set())
    method = example(registry[name], quadratic().constants)
    with pytest.warns(UserWarning, match="not compiled: it gives other numbers"):
        refused = end(method, 4)
    monkeypatch.undo()
    plain = end(method, 4)
    torch.testing.assert_close(refused.x, plain.x, rtol=1e-12, atol=1e-12)
    assert refused.ledger == plain.ledger


def test_a_gradient_inside_a_recorded_step_may_be_compiled_and_differentiate():
    def loss(y, x):
        return (y * x).square().sum()

    total = torch.compile(lambda y, x: torch.func.vmap(loss)(y, x).sum(), backend="aot_eager")
    x = torch.arange(6.0).view(2, 3)

    def gradient(y):
        with torch.enable_grad():
            leaf = y.detach().requires_grad_()
            return torch.autograd.grad(total(leaf, x), leaf)[0]

    fused._now.grad = gradient
    step = torch.compile(lambda y, grad: y - 0.25 * grad(y), backend="aot_eager", fullgraph=True)
    y = torch.ones(2, 3)
    with torch.no_grad():
        torch.testing.assert_close(step(y, fused._opaque), y - 0.5 * x.square())


def test_a_recorded_step_leaves_the_models_of_the_last_round_alone(tapes):
    engine = end(example(registry["FedAvg"], quadratic().constants), 1)
    before, copy = engine.ends, engine.ends.clone()
    engine.run_round()
    assert torch.equal(before, copy) and not torch.equal(before, engine.ends)


@pytest.mark.whole
def test_all_methods_in_one_process_and_each_compiled_once(counter):
    for name in STEPPING:
        method = example(registry[name], quadratic().constants)
        end(method, 2, schedule=0.9, **REFERENCE)
        before = counter.frame_count
        end(method, 4, schedule=0.9, **REFERENCE)
        assert counter.frame_count == before, name
    assert counter.frame_count >= 10


def test_a_step_that_cannot_be_compiled_runs_as_it_is():
    def awkward(y, grad):
        torch._dynamo.graph_break()
        return y - grad(y)

    step = fused.fused(awkward, backend="eager", fullgraph=True)
    y = torch.arange(3.0)
    with pytest.warns(UserWarning, match="not compiled"):
        assert torch.equal(step(y, lambda y: 2 * y), -y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(step(y, lambda y: 2 * y), -y)


def test_an_error_of_the_method_is_its_own():
    def wrong(y, grad):
        return y - grad(y)[:2] @ y

    with pytest.raises(RuntimeError, match="size"):
        fused.fused(wrong, backend="eager")(torch.ones(3), lambda y: y)
