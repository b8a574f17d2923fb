"""Weight decay, clipping, decay of lr, data weights, sampling."""

import copy

import numpy as np
import pytest
import torch
from tests.rounds import after
from tests.spec.texts import CONVEX

import undrift as ud
from undrift.check.federations import least_squares, quadratic
from undrift.core import BadParameters
from undrift.core.cohort import Sampling
from undrift.core.streams import Streams
from undrift.engines import Simulate, Wire
from undrift.methods import (
    FedAvg,
    FedCM,
    FedDyn,
    FedLin,
    FedRecu,
    FedSpeed,
    Scaffold,
    ScaffoldM,
)
from undrift.problems import Quadratic
from undrift.runs.prepare import lay_out
from undrift.spec.reader import parse

EVERY = pytest.mark.parametrize("engine", [Simulate, Wire])


def gradients(problem, y):
    return problem.at(None).grad(y)


def clipped(v, most):
    return v * (most / np.maximum(np.linalg.norm(v, axis=-1, keepdims=True), most))


@EVERY
def test_clip_then_decay_on_the_task_gradient(engine):
    problem = quadratic()
    machine = engine(FedAvg(lr=0.01), problem, steps=3, training={"clip": 5.0, "weight_decay": 0.1})
    machine.run_round()
    y = np.zeros((problem.clients, problem.dim))
    for _ in range(3):
        g = gradients(problem, torch.as_tensor(y)).numpy()
        y = y - 0.01 * (clipped(g, 5.0) + 0.1 * y)
    assert np.allclose(machine.x, y.mean(0), atol=1e-13)
    assert not np.allclose(machine.x, 0)


@EVERY
@pytest.mark.parametrize(
    "method", [FedLin(lr=0.01), Scaffold(lr=0.01, option="I")], ids=lambda m: type(m).__name__
)
def test_gradients_outside_steps_are_clipped_as_in_task(engine, method):
    """Those at x, before or after the steps, are clip(g_i(x)) + decay x; steps clip g_i(y) - c_i +
    c as a whole.
    """
    problem = quadratic()
    lr, most, decay = 0.01, 4.0, 0.1
    machine = engine(
        method,
        problem,
        steps=3,
        training={"clip": most, "clip_scope": "whole", "weight_decay": decay},
    )
    x, c = np.zeros(problem.dim), np.zeros((problem.clients, problem.dim))
    for _ in range(3):
        machine.run_round()
        y = np.tile(x, (problem.clients, 1))
        fresh = clipped(gradients(problem, torch.as_tensor(y)).numpy(), most) + decay * y
        c = fresh if isinstance(method, FedLin) else c
        for _ in range(3):
            g = gradients(problem, torch.as_tensor(y)).numpy()
            y = y - lr * (clipped(g - c + c.mean(0), most) + decay * y)
        x, c = y.mean(0), fresh
    assert np.allclose(machine.x, x, atol=1e-12)


def test_only_the_reference_scope_moves_the_fixed_point():
    """At FedDyn's x* nothing is left to clip but, in that scope, alpha x*; above the clip it pulls
    models to zero.
    """
    problem = quadratic()
    best, alpha = problem.optimum, 0.5
    clip = 0.5 * alpha * float(best.norm())

    def end(scope):
        machine = Simulate(
            FedDyn(lr=0.02, alpha=alpha),
            problem,
            steps=5,
            x0=best,
            training={"clip": clip, "clip_scope": scope},
        )
        after(3000, machine)
        return machine.x

    assert torch.allclose(end("whole"), best, atol=1e-9)
    assert end("reference").norm() < 0.9 * best.norm()


@pytest.mark.parametrize("scope", ["task", "whole", "reference"])
@pytest.mark.parametrize(
    "method",
    [FedCM(lr=0.02, alpha=0.2), ScaffoldM(lr=0.02, gamma=0.06, beta=0.2)],
    ids=["FedCM", "ScaffoldM"],
)
def test_decay_outside_of_a_mixture_counts_as_often_as_the_gradient_is_thinned(method, scope):
    """A mixture s g + (1 - s) m with the last move m is at rest where s g + decay x = 0."""
    curvature, linear, decay = np.array([1.0, 3.0]), np.array([1.0, -2.0]), 0.1
    machine = Simulate(
        method,
        Quadratic(np.tile(curvature, (2, 1)), np.tile(linear, (2, 1))),
        steps=3,
        training={"clip": 100.0, "clip_scope": scope, "weight_decay": decay},
    )
    after(1500, machine)
    pull = decay if scope == "task" else decay / 0.2
    assert np.allclose(machine.x, linear / (curvature + pull), rtol=0, atol=1e-9)


def test_recursions_see_treated_gradients_everywhere():
    """FedRecu and FedLin stay one recursion under weight decay: it is part of every gradient."""
    problem = quadratic()
    a, b = (
        Simulate(cls(lr=0.01), problem, steps=4, training={"weight_decay": 0.3})
        for cls in (FedRecu, FedLin)
    )
    after(10, a, b)
    assert torch.allclose(a.x, b.x, atol=1e-11)


def uneven(problem, samples):
    """The problem with clients that hold different numbers of samples."""
    twin = copy.copy(problem)
    twin.samples = samples
    return twin


@EVERY
def test_clients_may_count_by_their_samples(engine):
    problem = uneven(quadratic(), [1, 2, 3, 10])
    machine = engine(FedAvg(lr=0.01), problem, cohort=3, aggregation="weighted-mean", seed=1)
    machine.run_round()
    members = Sampling(3).draw(Streams(1), 0, 4).members
    weights = np.array([1, 2, 3, 10])[members]
    g = gradients(problem, torch.zeros(4, problem.dim, dtype=torch.float64)).numpy()[members]
    assert np.allclose(machine.x, -0.01 * (weights @ g) / weights.sum(), atol=1e-13)
    with pytest.raises(
        ValueError, match="Scaffold is defined for means of clients that count alike"
    ):
        engine(Scaffold(lr=0.1), problem, aggregation="weighted-mean")


@EVERY
def test_samples_that_count_already_do_not_count_twice(engine):
    """Logistic's f is the mean over all samples, so its clients count by theirs."""
    rng = np.random.default_rng(0)
    X, parts = rng.normal(size=(12, 2)), np.split(np.arange(12), [2, 5])
    pooled = ud.problems.Logistic(X, np.sign(X[:, 0]), parts, l2=0.1)
    with pytest.raises(BadParameters, match="mean over all samples already: leave out"):
        engine(FedAvg(lr=0.1), pooled, aggregation="weighted-mean")
    with pytest.raises(BadParameters, match="mean over all samples already: leave out"):
        ud.run(FedAvg(lr="theory"), pooled, rounds=1, aggregation="weighted-mean")


@pytest.mark.parametrize("given", [{"batch": 4}, {"batch": 4, "epochs": 2}], ids=str)
def test_there_are_no_mini_batches_without_samples(given):
    text = "this Quadratic has no samples to draw mini-batches from: leave out batch"
    with pytest.raises(BadParameters, match=text):
        ud.run(FedAvg(lr=0.02), "quadratic", rounds=1, **given)
    with pytest.raises(BadParameters, match=text):
        Simulate(FedAvg(lr=0.02), quadratic(), **given)
    complaints = []
    lines = "".join(f"{name} = {value}\n" for name, value in given.items())
    lay_out(parse(lines + CONVEX.replace("steps = 3\n", "")), 0, complaints)
    assert [found.path for found in complaints] == [("batch",)] and text in complaints[0].text


def test_bernoulli_cohorts_vary_in_size_and_are_never_empty():
    sampling = Sampling(2, sampling="bernoulli")
    sizes = [sampling.draw(Streams(0), r, 10).size for r in range(3000)]
    assert min(sizes) == 1 and max(sizes) > 4
    expected = 2 / (1 - 0.8**10)  # conditioned on not being empty
    assert abs(np.mean(sizes) - expected) < 0.1


def test_pools_renew_and_dropouts_leave():
    sampling = Sampling(3, pool=5, renew=10)
    seen = []
    for k in range(20):
        rounds = range(10 * k, 10 * k + 10)
        drawn = [sampling.draw(Streams(0), r, 50).members.tolist() for r in rounds]
        seen.append({i for members in drawn for i in members})
    assert all(len(pool) <= 5 for pool in seen)
    assert len(set().union(*seen)) > 30
    sizes = [Sampling(4, dropout=0.5).draw(Streams(0), r, 8).size for r in range(2000)]
    assert min(sizes) == 1 and abs(np.mean(sizes) - (2 + 1 / 16)) < 0.1


@pytest.mark.parametrize("sampling", ["fixed", "bernoulli"])
def test_the_one_that_stays_when_all_drop_out_is_drawn(sampling):
    drawn = [Sampling(3, sampling, dropout=0.99).draw(Streams(0), r, 4) for r in range(4000)]
    alone = np.concatenate([cohort.members for cohort in drawn if cohort.size == 1])
    assert np.abs(np.bincount(alone, minlength=4) / len(alone) - 0.25).max() < 0.03


def test_impossible_samplings_are_refused():
    with pytest.raises(BadParameters, match="dropout"):
        Sampling(3, dropout=1.0)
    assert [refusal.field for refusal in Sampling(3, pool=9).refuse(5)] == ["cohort.pool"]
    assert "candidates of the pool" in Sampling(3, pool=2).refuse(5)[0].text
    with pytest.raises(ValueError, match="needs every client"):
        Simulate(FedRecu(lr=0.1), least_squares(), cohort=Sampling(5, dropout=0.1))


def test_engines_agree_with_all_options_together():
    problem = least_squares()
    setting = {
        "steps": [1, 3, 2, 2, 1],
        "batch": 3,
        "schedule": 0.99,
        "cohort": Sampling(3, sampling="bernoulli", dropout=0.2),
        "training": {"clip": 2.0, "clip_scope": "reference", "weight_decay": 0.01},
    }
    for method in (FedSpeed(lr=0.02), Scaffold(lr=0.02), FedDyn(lr=0.02)):
        fast, slow = Simulate(method, problem, **setting), Wire(method, problem, **setting)
        after(50, fast, slow)
        assert float((fast.x - slow.x).abs().max()) < 1e-12
        assert fast.ledger == slow.ledger
