"""Groups of a cohort on threads: the same numbers, whatever their size and however many threads
there are.
"""

import os
import signal
import threading
import time
from typing import ClassVar

import numpy as np
import pytest
import torch
from tests.objectives.world import CPU, DIGITS, PARTS, federation
from tests.rounds import played
from torch import nn

from undrift._threads import FEW, each, one_for_few
from undrift.core import Message, Method, State, Vec, registry
from undrift.engines import Simulate, Wire
from undrift.engines.order import Share
from undrift.methods import FedAvg, FedDyn, FedLin, FedRecu, Scaffold
from undrift.models import build
from undrift.models.net import seeded
from undrift.objectives import MOON
from undrift.problems import Neural


def mlp(together, dtype=torch.float64, **options):
    problem = Neural(build("mlp", 1, 8, 10, hidden=(9,)), DIGITS, PARTS, **options).to(dtype, CPU)
    problem.together = together
    return problem


def cnn(together, dtype=torch.float64, **options):
    problem = federation(dtype=dtype, **options)
    problem.together = together
    return problem


def stacked(together, dtype=torch.float64):
    """Several networks as one, by automatic differentiation."""
    with seeded(0):
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.Tanh(), nn.Linear(9, 10))
    problem = Neural(net, DIGITS, PARTS).to(dtype, CPU)
    assert problem.placed.stacked and problem.placed.mlp is None
    problem.together = together
    return problem


EVERY = pytest.mark.parametrize("make", [mlp, cnn, stacked])
CASES = {
    "FedAvg": (FedAvg(lr=0.1), {"cohort": 4, "batch": 3, "epochs": 2}),
    "FedAvg by samples": (
        FedAvg(lr=0.1),
        {"steps": [1, 3, 2, 5, 1, 2], "batch": 4, "aggregation": "weighted-mean"},
    ),
    "Scaffold": (
        Scaffold(lr=0.1),
        {"cohort": 4, "batch": 3, "steps": 3, "training": {"clip": 1.0, "weight_decay": 0.01}},
    ),
    "FedDyn": (FedDyn(lr=0.1, alpha=0.1), {"cohort": 3, "steps": 2}),
    "FedLin": (FedLin(lr=0.1), {"steps": [2, 1, 3, 1, 2, 1]}),
    "FedRecu": (FedRecu(lr=0.1), {"steps": 3}),
}


def all_of(machine):
    return {"x": machine.x, "ends": machine.ends, **machine.snapshot()[0]}


@pytest.mark.covering
@EVERY
@pytest.mark.parametrize("case", CASES)
def test_any_number_of_threads_gives_the_same_bits(make, case, threads):
    method, setting = CASES[case]
    found = []
    for count in (1, 2, 3):
        threads(count)
        found.append(all_of(played(method, make(2, torch.float32), Simulate, **setting)))
        assert torch.get_num_threads() == count
    for other in found[1:]:
        assert found[0].keys() == other.keys() and all(
            torch.equal(v, other[n]) for n, v in found[0].items()
        )


@pytest.mark.covering(3)
@EVERY
@pytest.mark.parametrize("case", CASES)
def test_groups_of_any_size_do_what_the_cohort_does(make, case, threads):
    method, setting = CASES[case]
    threads(2)
    whole, slow = (
        played(method, make(None), Simulate, **setting),
        played(method, make(None), Wire, **setting),
    )
    for together in (1, 2, 5):
        parts = played(method, make(together), Simulate, **setting)
        assert parts.ledger == whole.ledger == slow.ledger
        assert parts.drift == pytest.approx(whole.drift, rel=1e-9)
        for name, v in all_of(parts).items():
            torch.testing.assert_close(v, all_of(whole)[name], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(parts.x, slow.x, rtol=1e-10, atol=1e-12)


def test_every_group_knows_its_clients_last_models(threads):
    threads(2)
    setting = {"cohort": 4, "batch": 3, "steps": 2}
    whole, parts = (
        played(FedAvg(lr=0.1), cnn(k, objective=MOON()), Simulate, rounds=4, **setting)
        for k in (None, 1)
    )
    torch.testing.assert_close(parts.x, whole.x, rtol=1e-10, atol=1e-12)
    assert parts.snapshot()[0].keys() == whole.snapshot()[0].keys() >= {"client.previous model"}


class Failing(Method):
    """One client cannot do its work."""

    lr: float = 0.1
    unable: int = 3
    steps_taken: ClassVar[list] = []

    class Server(State):
        x: Vec

    class Down(Message):
        x: Vec

    class Up(Message):
        y: Vec

    def send(self, s):
        return self.Down(x=s.x)

    def work(self, me, got, f):
        def direction(y, grad):
            self.steps_taken.append(threading.get_ident())
            return grad(y)

        if self.unable in f.members:
            raise ArithmeticError("a client fails")
        return me, self.Up(y=f.sgd(got.x, self.lr, direction))

    def merge(self, s, up, cohort):
        return self.Server(x=up.y)


registry.pop("Failing")


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_in_a_group_is_raised_and_changes_nothing(count, threads):
    threads(count)
    before = threading.active_count()
    engine = Simulate(Failing(), mlp(1), steps=3, batch=2)
    with pytest.raises(ArithmeticError, match="a client fails"):
        engine.run_round()
    assert torch.equal(engine.x, engine.x0) and engine.round == 0 and engine.ledger.gradients == 0
    assert torch.get_num_threads() == count and threading.active_count() <= before


def test_each_keeps_the_order_and_computes_with_one_thread(threads):
    threads(3)
    together = threading.Barrier(3)
    seen = set()

    def work(k, halted):
        if k < 3:
            together.wait(10)  # three of them are under way at the same time
        seen.add(threading.get_ident())
        assert not halted()
        return k, torch.get_num_threads()

    assert each(work, list(range(7))) == [(k, 1) for k in range(7)]
    assert len(seen) == 3 and torch.get_num_threads() == 3


def test_the_others_are_told_when_one_fails(threads):
    threads(2)
    started, told = threading.Event(), []

    def work(k, halted):
        if k == 0:
            started.wait(10)
            raise KeyError("first")
        started.set()
        told.append(k)
        while not halted():
            pass
        raise RuntimeError("nobody hears this")

    with pytest.raises(KeyError, match="first"):
        each(work, list(range(50)))
    assert len(told) <= 2 and torch.get_num_threads() == 2


def test_an_interruption_is_heard_at_once(threads):
    threads(2)
    ended = []

    def work(k, halted):
        if k == 0:
            time.sleep(0.3)  # until all have been handed out
            os.kill(os.getpid(), signal.SIGINT)
        while not halted():
            time.sleep(0.01)
        ended.append(k)

    with pytest.raises(KeyboardInterrupt):
        each(work, list(range(20)))
    assert sorted(ended) == [0, 1] and torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("clients", "most", "sizes"),
    [
        (1, 1, [1]),
        (1, 9, [1]),
        (3, 1, [1, 1, 1]),
        (10, 21, [10]),
        (10, 20, [10]),
        (10, 19, [5, 5]),
        (10, 10, [5, 5]),
        (10, 9, [5, 5]),
        (10, 4, [3, 3, 4]),
    ],
)
def test_a_second_core_has_work_where_there_is_enough(clients, most, sizes):
    share = Share(None, np.arange(clients), [1] * clients, False)
    assert [rows.stop - rows.start for rows in share.groups(most)] == sizes


def test_few_numbers_are_the_work_of_one_thread(threads):
    threads(2)
    with one_for_few(torch.zeros(2, FEW // 2 - 1)):
        assert torch.get_num_threads() == 1
    with one_for_few(torch.zeros(2, FEW // 2)):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 2


def test_networks_on_a_cpu_go_in_groups():
    assert Neural(build("mlp", 1, 8, 10), DIGITS, PARTS).together == 1_000_000 // 55_010
    assert Neural(build("mlp", 1, 8, 10, hidden=(2000, 500)), DIGITS, PARTS).together == 1
    assert federation().together == 1
    assert federation(stacked=True).together is None
