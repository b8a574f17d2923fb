"""Settings side by side are those one by one: model, costs, and how they end."""

import dataclasses

import numpy as np
import pytest
import torch
from tests.problems.test_neural_cuda import dropping
from tests.problems.test_neural_cuda import problem as drawing

import undrift as ud
from undrift.check.federations import example
from undrift.core.method import Method
from undrift.engines.engine import Engine, Simulate
from undrift.engines.judge import Diverged
from undrift.engines.memory import SPARE
from undrift.methods import registry
from undrift.problems import Quadratic
from undrift.problems.named import build
from undrift.sweeps import sweep as sweep_module
from undrift.sweeps.sweep import Sweep, SweepEngine

QUADRATIC = build("quadratic", clients=6, dim=4)
LEAST = build("least-squares", clients=6)
SOFTMAX = build("softmax-synthetic", clients=6)
UNEVEN = build("softmax-synthetic", clients=12, sizes="lognormal", samples=2, l2=0.0)
ONE_BY_ONE = {
    ("CELGD", "beta"): "Boolean",
    ("FedSpeed", "alpha"): "Boolean",
    ("FedPD", "p"): "scalar",
    ("FedPDVR", "p"): "scalar",
    ("FedRed", "p"): "scalar",
    ("FedRedDual", "p"): "scalar",
    ("Scaffnew", "p"): "scalar",
    ("SVRP", "p"): "Boolean",
    ("FedLinTopK", "lr"): "sparse",
}
"""What a method decides by, and what has another size in each setting, is not stacked."""


def settings(method: Method, name: str) -> list[Method]:
    value = getattr(method, name) or 0.1
    return [dataclasses.replace(method, **{name: share * value}) for share in (1.0, 0.9, 0.7)]


def fields() -> list[tuple[str, str]]:
    return [
        (name, field)
        for name, cls in sorted(registry.items())
        for field, value in vars(example(cls, QUADRATIC.constants)).items()
        if isinstance(value, float)
    ]


def alone(method: Method, problem: ud.Problem, rounds: int, **given: object) -> Engine:
    engine = Simulate(method, problem, **given)
    for _ in range(rounds):
        engine.run_round()
    return engine


def expect_same(
    methods: list[Method], problem: ud.Problem, rounds: int = 4, tolerance=1e-12, **given: object
) -> Sweep:
    sweep = Sweep(methods, problem, **given)
    for _ in range(rounds):
        sweep.run_round()
    for t, method in enumerate(methods):
        one = alone(method, problem, rounds, **given)
        assert torch.dist(sweep.x(t), one.x) <= tolerance * one.x.norm()
        assert sweep.ledger(t) == one.ledger
        assert problem.metrics(sweep.x(t)) == pytest.approx(
            one.metrics(), rel=1e3 * tolerance, abs=tolerance
        )
    return sweep


@pytest.mark.parametrize(("name", "field"), fields())
def test_every_number_of_every_method_can_be_a_column(name, field):
    method = example(registry[name], QUADRATIC.constants)
    sweep = expect_same(settings(method, field), QUADRATIC, steps=3)
    assert bool(sweep.alone) == ((name, field) in ONE_BY_ONE)
    assert ONE_BY_ONE.get((name, field), "") in sweep.why


@pytest.mark.parametrize("problem", [QUADRATIC, LEAST, SOFTMAX], ids=lambda p: type(p).__name__)
@pytest.mark.parametrize(
    "given",
    [
        {"cohort": 3},
        {"steps": [1, 2, 3] * 2},
        {"training": {"clip": 0.5, "weight_decay": 0.01}},
        {"training": {"clip": 0.5, "clip_scope": "whole"}},
        {"training": {"clip": 0.5, "clip_scope": "reference", "weight_decay": 0.1}},
        {"schedule": 0.9},
        {"aggregation": "weighted-mean"},
        {"training": {"optimiser": "momentum"}},
        {"training": {"optimiser": "adamw"}},
    ],
    ids=str,
)
@pytest.mark.parametrize("cls", [ud.FedAvg, ud.FedProx])
def test_options_are_those_of_a_run(problem, given, cls):
    more = {"mu": 0.1} if cls is ud.FedProx else {}
    methods = [cls(lr=lr, **more) for lr in (0.001, 0.004, 0.008)]
    assert not expect_same(methods, problem, **({"steps": 3} | given)).alone


@pytest.mark.parametrize(
    "given",
    [
        {"steps": 3, "batch": 4, "cohort": 3},
        {"epochs": 2, "batch": 5},
        {"steps": 3, "batch": 2, "training": {"accumulate": 2}},
    ],
    ids=str,
)
@pytest.mark.parametrize("problem", [LEAST, SOFTMAX], ids=lambda p: type(p).__name__)
def test_all_settings_draw_the_same_samples(problem, given):
    methods = [ud.Scaffold(lr=lr) for lr in (0.001, 0.004)]
    assert not expect_same(methods, problem, **given).alone


@pytest.mark.parametrize("batch", [None, 4])
def test_clients_one_of_whom_has_most_samples_are_stacked(batch):
    assert UNEVEN.held.wasteful
    expect_same([ud.FedLin(lr=lr) for lr in (0.001, 0.004)], UNEVEN, 2, steps=2, batch=batch)


def test_noise_is_the_same_in_all_settings():
    methods = [ud.FedAvg(lr=lr) for lr in (0.01, 0.04)]
    assert not expect_same(methods, build("quadratic", noise=1.0), steps=3).alone


def small_network() -> ud.Problem:
    return build("images", data="digits", clients=4, model="mlp", hidden=8)


def augmented() -> ud.Problem:
    """A network with dropout, on images that are augmented."""
    return drawing(dropping())


@pytest.mark.parametrize("together", [None, 4], ids=["all rows", "four rows"])
@pytest.mark.parametrize("make", [small_network, augmented])
@pytest.mark.parametrize("cls", [ud.FedAvg, ud.Scaffold, ud.FedSpeed])
def test_networks_are_stacked(cls, make, together):
    problem = make().to(torch.float64, torch.device("cpu"))
    problem.together = together
    more = {"lam": 10.0, "rho": 0.1} if cls is ud.FedSpeed else {}
    methods = [cls(lr=lr, **more) for lr in (0.02, 0.05)]
    assert not expect_same(methods, problem, rounds=2, steps=2, batch=10, cohort=3).alone


def test_settings_that_memory_would_not_do_for_run_in_several_stacks(monkeypatch):
    work = Simulate(ud.Scaffold(lr=0.1), QUADRATIC).memory
    room = 5 * work.states + 2.5 * work.work
    monkeypatch.setattr(sweep_module, "SMALL", 0)
    monkeypatch.setattr(sweep_module, "free", lambda *_: room / (1 - SPARE))
    methods = [ud.Scaffold(lr=lr) for lr in (0.01, 0.02, 0.03, 0.04, 0.05)]
    found = expect_same(methods, QUADRATIC, steps=3)
    assert [some for some, _ in found.stacks] == [[0, 1], [2, 3], [4]]
    found.keep([1, 2, 4])
    found.run_round()
    assert [some for some, _ in found.stacks] == [[1], [2], [4]]
    for t in (1, 2, 4):
        one = alone(methods[t], QUADRATIC, 5, steps=3)
        assert torch.dist(found.x(t), one.x) <= 1e-12 * one.x.norm()


def test_a_stack_that_runs_out_of_memory_is_halved(monkeypatch):
    ordinary = SweepEngine.commit

    def scarce(self, *given):
        if len(self.methods) > 2:
            raise torch.OutOfMemoryError("no memory")
        ordinary(self, *given)

    monkeypatch.setattr(SweepEngine, "commit", scarce)
    methods = [ud.Scaffold(lr=lr) for lr in (0.01, 0.02, 0.03, 0.04, 0.05)]
    found = expect_same(methods, QUADRATIC, steps=3)
    assert [some for some, _ in found.stacks] == [[0, 1], [2], [3, 4]] and not found.alone


@pytest.mark.parametrize("cohort", [None, 7])
def test_settings_that_diverge_leave_the_others_alone(cohort):
    problem, given = build("quadratic"), {"steps": 5, "cohort": cohort}
    methods = [ud.Scaffold(lr=lr) for lr in (0.01, 50.0, 0.05, 5.0)]
    sweep = Sweep(methods, problem, **given)
    for _ in range(40):
        sweep.run_round()
    assert sweep.stacked == [0, 2]
    for t in (0, 2):
        one = alone(methods[t], problem, 40, **given)
        assert torch.dist(sweep.x(t), one.x) <= 1e-12 * one.x.norm()
    for t in (1, 3):
        with pytest.raises(Diverged) as found:
            alone(methods[t], problem, 40, **given)
        assert str(sweep.failed[t]) == str(found.value)


@pytest.mark.parametrize(
    "given",
    [{"faults": [{"kind": "nan", "share": 0.2}]}, {"aggregation": "geometric-median"}],
    ids=str,
)
def test_what_looks_at_whole_uploads_runs_one_by_one(given):
    sweep = expect_same([ud.FedAvg(lr=lr) for lr in (0.01, 0.05)], QUADRATIC, steps=3, **given)
    assert sorted(sweep.alone) == [0, 1]
    assert sweep.why


def test_a_setting_with_a_refused_client_goes_on_without_it():
    """With the larger step alone one client goes far off in its first round."""
    A = np.ones((6, 1, 1))
    A[2] = 30.0
    problem = Quadratic(A, np.ones((6, 1)))
    methods = [ud.FedAvg(lr=lr) for lr in (0.001, 0.5)]
    given = {"steps": 8, "cohort": 5, "judge": {"norm": 10.0}}
    sweep = expect_same(methods, problem, rounds=6, **given)
    assert list(sweep.alone) == [1]
    assert sweep.ledger(1).left_out > 0 == sweep.ledger(0).left_out


def test_a_setting_that_cannot_run_is_refused_by_its_field():
    with pytest.raises(ud.BadParameters) as error:
        Sweep([ud.FedRecu(lr=0.1), ud.FedRecu(lr=0.2)], QUADRATIC, cohort=2)
    assert "cohort" in error.value.problems
