"""The seams of an engine: orders, sites, judgement and reductions."""

import dataclasses

import numpy as np
import pytest
import torch
from tests.rounds import after
from tests.trials import trial

import undrift as ud
from undrift.check.federations import example, least_squares
from undrift.core import Message, Method, Phase, Scratch, State, Vec, registry
from undrift.core.cohort import Cohort, Sampling
from undrift.core.streams import Streams
from undrift.engines import Simulate, Wire
from undrift.engines.engine import first_point
from undrift.engines.judge import Stuck
from undrift.engines.order import Clock
from undrift.engines.work import Work, joined
from undrift.methods import (
    DANEPlus,
    FedAvg,
    FedLin,
    FedRecu,
    FedRed,
    MimeMVR,
    Scaffold,
)

PROBLEM = least_squares()


class Stacking(Method, abstract=True):
    """The server takes the median of all uploads, in the order of the clients."""

    reduction = "stack"
    lr: float = 0.05

    class Client(State):
        y: Vec
        seen: Scratch

    class Up(Message):
        y: Vec

    class Look(Phase):
        class Up(Message):
            g: Vec

        def work(self, me, got, f):
            g = f.grad(got.x)
            return me.replace(seen=g), self.Up(g=g)

        def merge(self, s, up, cohort):
            return s.replace(x=s.x - 0.01 * up.g)

    def client(self, x0):
        return self.Client(y=x0)

    def work(self, me, got, f):
        y = f.sgd(got.x, self.lr, lambda y, grad: grad(y) + 0.1 * (me.seen + me.y))
        return me.replace(y=y), self.Up(y=y)

    def merge(self, s, up, cohort):
        assert up.y.shape[0] == cohort.size
        return s.replace(x=up.y.median(0).values + 0.1 * up.y[0])


class Summing(Stacking, abstract=True):
    reduction = "sum"

    def merge(self, s, up, cohort):
        return s.replace(x=s.x + 0.1 * cohort.fraction * up.y)


CASES = {
    "FedAvg": (FedAvg(lr=0.05), {"steps": [1, 3, 2, 5, 1]}),
    "by samples": (
        FedAvg(lr=0.05),
        {"steps": 3, "aggregation": "weighted-mean", "cohort": 3, "batch": 2},
    ),
    "Scaffold": (Scaffold(lr=0.05), {"steps": [2, 1, 3, 1, 2], "cohort": 2, "batch": 3}),
    "FedLin": (FedLin(lr=0.05), {"steps": [2, 1, 3, 1, 2], "training": {"clip": 1.0}}),
    "FedRecu": (FedRecu(lr=0.02), {"steps": 3, "schedule": 0.9}),
    "one client": (DANEPlus(lam=0.5, lr=0.1, average="rand"), {"steps": 3}),
    "pick": (FedRed(eta=20.0, lam=1.0, p=0.3, average="rand"), {"steps": 3}),
    "stack": (Stacking(), {"steps": 2, "cohort": 3}),
    "sum": (Summing(), {"steps": [1, 3, 2, 5, 1], "cohort": 2}),
    "median": (FedAvg(lr=0.05), {"steps": 2, "cohort": 4, "aggregation": "median"}),
    "centred clipping": (
        MimeMVR(lr=0.05),
        {"steps": 2, "cohort": 4, "aggregation": {"name": "centred-clipping", "radius": 0.5}},
    ),
    "dropout": (Scaffold(lr=0.05), {"steps": 2, "cohort": {"size": 2, "dropout": 0.5}}),
}


def uneven(problem):
    """The same problem, whose clients say that they hold different numbers of samples."""
    twin = problem.to(problem.dtype, problem.device)
    twin.samples = [8, 3, 5, 1, 7]
    return twin


@pytest.mark.parametrize("case", CASES)
def test_clients_one_by_one_agree_with_clients_side_by_side(case):
    method, setting = CASES[case]
    problem = uneven(PROBLEM) if "aggregation" in setting else PROBLEM
    whole, wire = (kind(method, problem, seed=3, **setting) for kind in (Simulate, Wire))
    after(20, whole, wire)
    assert whole.ledger == wire.ledger
    assert whole.drift == pytest.approx(wire.drift, rel=1e-9)
    mine, theirs = whole.snapshot()[0], wire.snapshot()[0]
    assert mine.keys() == theirs.keys()
    for name in mine:
        torch.testing.assert_close(theirs[name], mine[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cohort", [1, 3, 5])
def test_a_run_moves_to_another_engine_and_back(cohort):
    setting = {"steps": 2, "batch": 3, "cohort": cohort}
    whole, wire, back = (
        kind(Stacking(), PROBLEM, **setting) for kind in (Simulate, Wire, Simulate)
    )
    whole.run_round()
    with pytest.raises(RuntimeError):
        whole.advance()
        whole.snapshot()
    whole.run_round()
    wire.restore(*whole.snapshot())
    back.restore(*wire.snapshot())
    for other in (wire, back):
        mine, theirs = whole.snapshot()[0], other.snapshot()[0]
        assert mine.keys() == theirs.keys() >= {"client.y"}
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    for engine in (whole, wire, back):
        engine.run_round()
    torch.testing.assert_close(wire.x, whole.x, rtol=1e-12, atol=1e-12)
    assert torch.equal(back.x, whole.x)


# -- orders


def clock(method, sampling, steps=(1, 2, 3, 4, 5), seed=0, **options):
    return Clock(method, list(steps), sampling, Streams(seed), **options)


def shown(order):
    members = order.cohort.members.tolist()
    return (members, order.cohort.planned, order.blocks, order.blocks_before, order.picked)


@pytest.mark.parametrize("name", ["Scaffold", "FedRed", "SVRP", "FedPD", "FedRecu"])
def test_orders_are_pure(name):
    """In any sequence, from any clock of the same seed."""
    method = example(registry[name], PROBLEM.constants)
    full = method.participation == "full"
    steps = [3] * 5 if method.equal_steps else [1, 2, 3, 4, 5]
    make = lambda: clock(method, Sampling(5 if full else 2), steps)  # noqa: E731
    first = make()
    places = [(r, k) for r in range(8) for k in range(len(first.plan(r, r).phases))]
    forwards = {place: shown(first.at(*place)) for place in places}
    other = make()
    backwards = {place: shown(other.at(*place)) for place in reversed(places)}
    assert forwards == backwards == {place: shown(make().at(*place)) for place in places}


def test_orders_say_who_and_how_long():
    orders = [
        clock(Scaffold(lr=0.1), Sampling(2), schedule=ud.schedules.Exponential(rate=0.5)).at(r, 0)
        for r in range(20)
    ]
    for order in orders:
        assert [order.cohort.members[k] + 1 for k in range(2)] == order.cohort.planned
        assert order.last and order.iterations == 5 and order.picked is None
        assert order.phase.lr == 0.1 * 0.5**order.round
        assert order.decay == (0.5 if order.round else 1.0)
    assert orders[3].following().tolist() == orders[4].cohort.members.tolist()
    with pytest.raises(AttributeError):
        orders[0].round = 3


def test_to_blocks_skipped_rounds_do_not_exist():
    """As many before round 4, of which round 1 did not count, as three rounds have."""

    class Growing(FedAvg, abstract=True):
        def blocks(self, now):
            return 1 + now.number

    found = clock(Growing(lr=0.1), Sampling(2))
    assert found.at(4, 0, (1,)).blocks_before == 1 + 2 + 3
    assert found.at(4, 0).blocks_before == 1 + 2 + 3 + 4


def test_only_those_who_are_kept():
    cohort = Cohort(np.array([1, 4, 6]), 8, 2, [10, 20, 60])
    assert (cohort.fraction, cohort.steps) == (3 / 8, 30)
    kept = cohort.without([4, 5])
    assert kept.members.tolist() == [1, 6] and (kept.fraction, kept.steps) == (2 / 8, 35)
    assert cohort.without([1, 4, 6]).size == 0


# -- sites


def test_work_is_not_kept_until_it_is_committed():
    engine = Simulate(Scaffold(lr=0.1), PROBLEM, cohort=3, steps=2)
    site, order = engine.site, engine.order()
    before = site.tensors(True)["client.c"].clone()
    first, again = (engine.collect(order, order.phase.send(engine.server)) for _ in "ab")
    assert torch.equal(first.up.dy, again.up.dy) and first.gradients == 6
    assert torch.equal(site.tensors(True)["client.c"], before) and site.ends == []
    kept = order.cohort.members[1:]
    site.commit(first.only(kept))
    changed = (site.tensors(True)["client.c"] != before).any(1)
    assert changed.nonzero().squeeze(-1).tolist() == kept.tolist() and len(site.ends[0]) == 2


@pytest.mark.parametrize("store", ["device", "file"])
def test_a_part_of_a_cohort_can_be_kept_anywhere(store):
    engine = Simulate(Scaffold(lr=0.1), PROBLEM, cohort=3, steps=2, store=store)
    engine.judge = lambda order, down, work: {int(order.cohort.members[0]): "lost"}
    truth = torch.zeros(5, PROBLEM.dim, dtype=torch.float64)
    for _ in range(6):
        order = engine.order()
        work = engine.collect(order, order.phase.send(engine.server))
        truth[order.cohort.members[1:]] = work.states["c"][1:]
        engine.run_round()
        assert torch.equal(engine.clients.c, truth)


def test_scratch_of_strangers_is_not_made_up():
    class Late(Stacking, abstract=True):
        who = "all"

    engine = Simulate(Late(), PROBLEM, cohort=2)
    with pytest.raises(ValueError, match="took no part"):
        engine.run_round()


# -- judgement


class Broken(Method, abstract=True):
    """Client 2 uploads numbers that are not finite, client 4 huge ones."""

    class Up(Message):
        y: Vec
        z: Vec

    def work(self, me, got, f):
        y = f.grad(got.x)
        members = torch.as_tensor(f.members)
        bad = (members == 2).to(y.dtype).unsqueeze(-1) * float("nan")
        z = torch.where((members == 2).unsqueeze(-1), bad, y)
        z = torch.where((members == 4).unsqueeze(-1), 1e19, z)
        return me, self.Up(y=y, z=z if y.dim() == 2 else z[0])

    def merge(self, s, up, cohort):
        seen.append((up, cohort))
        return s


seen = []


@pytest.mark.parametrize("kind", [Simulate, Wire])
def test_a_refused_client_is_out_with_all_its_vectors(kind):
    problem, x = PROBLEM, torch.ones(PROBLEM.dim, dtype=torch.float64)
    rows = problem.at(None).grad(x.expand(5, -1))
    seen.clear()
    engine = kind(Broken(), problem, x0=x)
    engine.run_round()
    (up, cohort) = seen[0]
    assert cohort.members.tolist() == [0, 1, 3] and cohort.fraction == 3 / 5
    torch.testing.assert_close(up.y, rows[[0, 1, 3]].mean(0), rtol=1e-12, atol=1e-12)
    assert [(r.round, r.phase, r.client) for r in engine.rejections] == [(0, 0, 2), (0, 0, 4)]
    assert [reason.split()[0] for *_, reason in engine.rejections] == ["z", "z"]


def test_a_client_that_fails_in_one_phase_is_out_for_the_round_only():
    engine = Simulate(Stacking(), PROBLEM, steps=2)
    engine.judge = lambda order, down, work: (
        {1: "lost"} if (order.round, order.place) == (0, 0) else {}
    )
    engine.advance()
    assert engine.order().cohort.members.tolist() == [0, 2, 3, 4]
    engine.advance()
    assert engine.round == 1 and engine.order().cohort.size == 5
    assert torch.equal(engine.clients.y[1], engine.x0)


def test_rounds_with_nobody_left_end_the_run():
    engine = Simulate(FedAvg(lr=0.1), PROBLEM, judge={"patience": 0})
    engine.judge = lambda order, down, work: dict.fromkeys(range(5), "lost")
    with pytest.raises(Stuck):
        engine.run_round()
    assert engine.ledger.skipped == 1 and torch.equal(engine.x, engine.x0)


# -- reductions


def test_works_join_and_empty_ones_vanish():
    one = Work(np.array([0]), {"c": torch.ones(1, 2)}, gradients=2, ends=[torch.ones(1, 2)])
    two = one._replace(members=np.array([3]))
    both = joined([Work(), one, Work(), two])
    assert (
        both.members.tolist() == [0, 3] and both.gradients == 4 and both.states["c"].shape == (2, 2)
    )
    assert len(joined([Work(), Work()]).members) == 0 and joined([Work(), two]) is two


# -- decisions and facts


def test_facts_stand_in_for_a_problem_where_its_data_are_elsewhere():
    facts = PROBLEM.facts
    assert facts.samples == tuple(PROBLEM.samples) and facts.constants is None
    assert torch.equal(first_point(None, facts), first_point(None, PROBLEM))
    with pytest.raises(dataclasses.FrozenInstanceError):
        facts.clients = 3


def test_ranks_decide_together_when_to_stop_and_when_to_keep():
    asked = []

    class Follower(Simulate):
        def agree(self, decision):
            asked.append(decision)
            return len(asked) > 5

    engine = Follower(FedAvg(lr=0.01), PROBLEM)
    kept = []
    going = trial(engine, 100)
    going.keep = lambda: kept.append(engine.round)
    assert going.train(pause=1e9) == "stopped"
    assert not any(asked) and engine.round == 3 and kept == [3, 3]


def test_an_engine_says_what_it_needs_before_it_is_made():
    for kind in (Simulate, Wire):
        needs = kind.needs(Scaffold(lr=0.1), PROBLEM.facts, Sampling(2), kind.Options())
        assert needs == kind(Scaffold(lr=0.1), PROBLEM, cohort=2).memory
        assert needs.states == 5 * PROBLEM.dim * 8 and needs.place == "device"
    options = Simulate.Options(store="file")
    assert Simulate.needs(Scaffold(lr=0.1), PROBLEM, Sampling(2), options).place == "file"
