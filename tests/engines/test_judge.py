"""Honest clients are never refused for their length, and what cannot be honest still is."""

import numpy as np
import pytest
import torch
from tests.rounds import after

import undrift as ud
from undrift.core.params import BadParameters
from undrift.engines import Simulate
from undrift.engines.judge import Sound
from undrift.engines.work import Work
from undrift.problems import Quadratic
from undrift.problems.named import build

CLIENTS, OWN, SLOW = 10, 2, 9


@pytest.fixture(scope="module")
def one_slow():
    """Every client has coordinates of its own; one has a curvature of 0.02, the others of 10."""
    a = np.zeros((CLIENTS, CLIENTS * OWN))
    q, draw = a.copy(), np.random.default_rng(0)
    for i in range(CLIENTS):
        mine = slice(i * OWN, (i + 1) * OWN)
        a[i, mine] = 0.02 if i == SLOW else 10.0
        q[i, mine] = a[i, mine] * draw.normal(size=OWN)
    return Quadratic(a, q)


@pytest.mark.parametrize(
    ("method", "setting"),
    [
        (ud.GD(lr=0.5), {"rounds": 1500}),
        (ud.FedLin(lr=0.1), {"rounds": 400, "steps": 5}),
        (ud.FedAvg(lr=0.1), {"rounds": 400, "steps": 5}),
        (ud.Scaffold(lr=0.1), {"rounds": 400, "steps": 5}),
        (ud.FedAvg(lr=0.05), {"rounds": 400}),
    ],
)
def test_one_client_that_has_not_converged_is_not_refused(method, setting, one_slow):
    judged = ud.run(method, one_slow, every=100, **setting)
    free = ud.run(method, one_slow, every=100, judge={"norm": "off"}, **setting)
    assert judged.status == free.status == "done" and not judged.left_out
    assert torch.equal(judged.x, free.x)


@pytest.mark.parametrize(("cohort", "clients"), [(None, [0, 1, 2, 3, 4]), (2, [0])])
@pytest.mark.parametrize("method", [ud.FedAvg(lr=0.1), ud.Scaffold(lr=0.1)])
def test_clients_that_send_next_to_nothing_have_nobody_refused(method, cohort, clients):
    """Half of a cohort; whoever is honest stays."""
    tiny = [{"kind": "scale", "clients": clients, "factor": 1e-7}]
    run = ud.run(method, "logistic", rounds=30, steps=5, faults=tiny, cohort=cohort)
    assert run.status == "done" and not run.left_out


def test_a_client_that_sends_too_much_is_refused_in_cohorts_of_two():
    """Once it is known what is usual."""
    much = [{"kind": "scale", "clients": [3], "factor": 1e30, "since": 5}]
    engine = Simulate(ud.FedAvg(lr=0.1), build("logistic"), cohort=2, faults=much)
    after(60, engine)
    assert {one.client for one in engine.rejections} == {3} and engine.x.norm() < 100


def test_an_outlier_is_found():
    problem = build("quadratic", clients=6)
    engine = Simulate(ud.FedAvg(lr=0.01), problem)
    engine.run_round()
    order = engine.order()
    x = torch.ones(6, problem.dim, dtype=torch.float64)
    x[5] = 1e9
    work = Work(members=np.arange(6), senders=np.arange(6), up=order.phase.Up(dy=x))
    found = engine.soundness(order, order.phase.send(engine.server), work)
    assert [*found] == [5]


def test_a_bound_is_at_least_one():
    with pytest.raises(BadParameters) as error:
        ud.run(ud.FedAvg(lr=0.1), "quadratic", rounds=1, judge={"norm": 0.5})
    assert [*error.value.problems] == ["judge.norm"]


def test_what_is_usual_lasts(tmp_path):
    """A continued run refuses whom the uninterrupted one does."""
    much = [{"kind": "scale", "clients": [3], "factor": 1e9, "since": 5}]
    problem = build("logistic")
    engines = [Simulate(ud.FedAvg(lr=0.1), problem, cohort=2, faults=much) for _ in range(2)]
    after(5, engines[0])
    engines[1].restore(*engines[0].snapshot())
    after(30, *engines)
    assert engines[0].rejections == engines[1].rejections != []
    assert torch.equal(engines[0].x, engines[1].x)


def test_a_majority_that_grows_is_not_refused():
    order = Simulate(ud.FedAvg(lr=0.01), build("quadratic")).order()
    judge = Sound(torch.float64, 1e6)
    assert judge.scale(order, "dy", [1.0, 2.0, 3.0]) == 2.0
    assert judge.scale(order, "dy", [1.0, 2e9, 3e9]) == 2e9


def test_what_is_usual_is_saved_in_one_order():
    """Whichever upload was looked at first: the same state has the same bytes."""
    engine = Simulate(ud.FedDC(lr=0.1), build("logistic"))
    engine.run_round()
    engine.soundness.usual = dict(reversed(engine.soundness.usual.items()))
    assert list(engine.snapshot()[1]["usual"]) == ["0.dc", "0.dy"]
