"""Divergence is seen in time, however seldom rows are measured."""

import math

import pytest
from tests.trials import trial

from undrift.core.stopping import Alarm
from undrift.engines import Simulate
from undrift.methods import FedAvg
from undrift.problems.named import made
from undrift.runs import trial as measuring

CASES = {
    "quadratic": ({}, 0.9),
    "slowly": ({}, None),
    "least-squares": ({}, 0.5),
    "logistic": ({}, 1000.0),
    "softmax-synthetic": ({}, 1e5),
}


def ended(name, every):
    given, lr = CASES[name]
    problem = made("quadratic" if name == "slowly" else name, **given).build()
    steps = 1 if name == "slowly" else 5
    lr = 2.02 / problem.constants.L_mean if lr is None else lr
    going = trial(Simulate(FedAvg(lr=lr), problem, steps=steps), 20_000, every)
    return going.train(), going.engine.round


@pytest.mark.parametrize("name", CASES)
def test_divergence_is_seen_at_most_two_rounds_late(name):
    status, first = ended(name, 1)
    assert status == "diverged"
    for every in (7, 1000):
        later, round = ended(name, every)
        assert later == "diverged" and first <= round <= first + 2


def test_looks_are_few_where_nothing_is_wrong(monkeypatch):
    problem = made("quadratic").build()
    engine, looks = Simulate(FedAvg(lr=0.02), problem, steps=5), []
    going = trial(engine, 1000, 1000)
    whole = measuring.measure
    monkeypatch.setattr(measuring, "measure", lambda *of: looks.append(engine.round) or whole(*of))
    assert going.train() == "done" and len(looks) < 20


def test_a_start_at_the_optimum_is_no_reason_to_call_a_run_diverged():
    alarm = Alarm.first({"loss": 0.4, "gap": 0.0, "grad_norm": 1e-9})
    assert not alarm.look({"loss": 0.41, "gap": 0.01, "grad_norm": 1e-4}, 0.1)
    assert alarm.look({"loss": math.nan, "grad_norm": 0.0}, 0.1)
    assert alarm.look({"loss": 500.0, "gap": 499.6, "grad_norm": 1e-4}, 0.1)


@pytest.mark.parametrize("accuracy", ["accuracy", "train_accuracy"])
def test_the_loss_of_a_classifier_has_a_ceiling_with_and_without_test_samples(accuracy):
    alarm = Alarm.first({"loss": 1.1, accuracy: 0.3})
    assert not alarm.look({"loss": 900.0, accuracy: 0.3}, 0.1)
    assert alarm.look({"loss": 2000.0, accuracy: 0.3}, 0.1)
