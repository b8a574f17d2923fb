"""With all that theory prescribes left to it, methods descend for any number of local steps."""

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.options import RunOptions
from undrift.engines import Simulate
from undrift.methods import registry
from undrift.problems.logistic import Logistic
from undrift.problems.named import build
from undrift.problems.quadratic import Quadratic
from undrift.runs.api import resolve

ROUNDS = 40
RULES = {name: cls.prescribed for name, cls in registry.items() if "prescribed" in vars(cls)}
GIVEN = {"FedProx": {"mu": 0.5}, "FedLinTopK": {"k_server": 2}}
"""What has no rule and no default."""


def logistic(l2, seed, clients=4, rows=12, dim=3):
    """Each client labels by a direction of its own."""
    rng = np.random.default_rng(seed)
    features, directions = rng.normal(size=(clients, rows, dim)), rng.normal(size=(clients, dim))
    labels = np.sign(np.einsum("nrd,nd->nr", features, directions))
    parts = np.arange(clients * rows).reshape(clients, rows)
    return Logistic(features.reshape(-1, dim), labels.reshape(-1), list(parts), l2=l2)


PROBLEMS = {
    "quadratic, condition 5": build("quadratic", clients=5, dim=4, mu=1.0, L=5.0, seed=0),
    "quadratic, condition 50": build("quadratic", clients=3, dim=3, mu=0.1, L=5.0, seed=1),
    "logistic, l2 0.1": logistic(0.1, seed=0),
    "logistic, l2 0.01": logistic(0.01, seed=1),
}


def gaps(method, problem, steps):
    engine = Simulate(method, problem, steps=steps)
    yield problem.metrics(engine.x)["gap"]
    for _ in range(ROUNDS):
        engine.run_round()
        yield problem.metrics(engine.x)["gap"]


@pytest.mark.covering(7)
@pytest.mark.parametrize("steps", [1, 2, 4, 10])
@pytest.mark.parametrize("name", sorted(RULES))
def test_the_gap_falls(name, steps):
    """By a hundredth at least, as much as FedCET's steps allow, and it is never above the start."""
    open_method = registry[name](**dict.fromkeys(RULES[name], "theory"), **GIVEN.get(name, {}))
    if name == "EXTRA" and steps > 6:
        with pytest.raises(ValueError, match="at most 6"):
            resolve(open_method, PROBLEMS["logistic, l2 0.1"], RunOptions(steps=steps))
        return
    for label, problem in PROBLEMS.items():
        first, *later = gaps(resolve(open_method, problem, RunOptions(steps=steps)), problem, steps)
        assert max(later) < first and later[-1] < 0.99 * first, (
            label,
            first,
            max(later),
            later[-1],
        )


@pytest.mark.parametrize("name", sorted(RULES))
def test_weight_decay_is_curvature(name, decay=10.0):
    """On quadratics with weight decay, theory is that of quadratics with so much more curvature."""
    open_method = registry[name](**dict.fromkeys(RULES[name], "theory"), **GIVEN.get(name, {}))
    plain = PROBLEMS["quadratic, condition 5"]
    bent = Quadratic(plain.H + decay * torch.eye(plain.dim), plain.q)
    found = resolve(
        open_method, plain, RunOptions(steps=4, training=ud.Training(weight_decay=decay))
    )
    want = resolve(open_method, bent, RunOptions(steps=4))
    for field in RULES[name]:
        assert getattr(found, field) == pytest.approx(getattr(want, field), rel=1e-9)


@pytest.mark.parametrize("method", [ud.GD, ud.FedAvg])
def test_runs_with_much_weight_decay_converge(method):
    """To the minimiser of f + (decay/2)|x|^2, at a gap that is not zero: it is that of f."""
    problem = Quadratic(np.ones((3, 2)) * [1.0, 0.5], np.eye(3, 2))
    run = ud.run(method(lr="theory"), problem, rounds=100, training={"weight_decay": 10.0})
    want = problem.q.mean(0) / (torch.tensor([1.0, 0.5]) + 10.0)
    assert run.status == "done" and torch.allclose(run.x, want, atol=1e-12)
    gap = problem.metrics(want)["gap"]
    assert run.history.last["gap"] == pytest.approx(gap) and gap > 0.1


@pytest.mark.parametrize("schedule", [lambda k: 5.0 if k == 3 else 1.0, [1.0, 1.0, 1.0, 1.5]])
def test_no_schedule_takes_lr_above_theory(schedule):
    if isinstance(schedule, list):
        schedule = ud.schedules.Listed(factors=schedule)
    setting = {"rounds": 4, "schedule": schedule}
    with pytest.raises(ValueError, match="factors above 1, which take lr beyond"):
        ud.run(ud.GD(lr="theory"), "quadratic", **setting)
    assert ud.run(ud.GD(lr="theory"), "quadratic", **setting | {"rounds": 3}).status == "done"
    assert ud.run(ud.GD(lr=0.01), "quadratic", **setting).status == "done"


def test_the_size_of_mini_batches_reaches_the_rules():
    problem = PROBLEMS["logistic, l2 0.1"]
    method = registry["FedPDVR"](eta="theory", gamma="theory", I=9)
    known = 0.999 / (3 * problem.constants.L)
    assert resolve(method, problem, RunOptions(steps=4)).eta == pytest.approx(known / 4)
    assert resolve(method, problem, RunOptions(steps=4, batch=4)).eta == pytest.approx(
        known / 7
    )  # Q + sqrt(Q I/B) = 4 + 3


def test_mini_batches_of_all_samples_are_exact():
    problem, method = PROBLEMS["logistic, l2 0.1"], registry["FedRecu"](lr="theory")
    most = max(problem.samples)
    exact, whole, drawn = (
        resolve(method, problem, RunOptions(steps=4, batch=batch)).lr
        for batch in (None, most, most - 1)
    )
    assert exact == whole > 3 * drawn
