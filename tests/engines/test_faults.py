"""Bad clients, drop-outs and late uploads: who is left out, and that nothing else changes."""

import math

import numpy as np
import pytest
import torch

from undrift.check.federations import example, least_squares
from undrift.core import registry
from undrift.core.faults import Fault, Faults, Judging
from undrift.core.method import WrongForm
from undrift.core.params import BadParameters
from undrift.core.streams import Streams
from undrift.engines import Simulate, Wire
from undrift.engines.judge import Diverged, Stuck
from undrift.methods import FedAvg, FedLin, Scaffold

PROBLEM = least_squares()
BAD = 3
PARTIAL = sorted(name for name, m in registry.items() if m.participation == "partial")
FULL = sorted(name for name, m in registry.items() if m.participation == "full")
WORK = {"nan": {"kind": "nan"}, "inf": {"kind": "inf"}, "huge": {"kind": "scale", "factor": 1e30}}


def ran(kind, method, rounds=6, **setting):
    engine = kind(method, PROBLEM, steps=2, **setting)
    for _ in range(rounds):
        engine.run_round()
    return engine


def states(engine):
    return engine.snapshot()[0]


def same(one, other):
    mine, theirs = states(one), states(other)
    assert mine.keys() == theirs.keys()
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


def sound(engine):
    return all(bool(v.isfinite().all()) for v in states(engine).values())


def phases(method):
    return Simulate(method, PROBLEM, steps=2).clock.plan(0, 0).phases


@pytest.mark.covering
@pytest.mark.parametrize("kind", [Simulate, Wire])
@pytest.mark.parametrize("fault", WORK)
@pytest.mark.parametrize("name", PARTIAL)
def test_a_bad_client_is_left_out_as_if_it_had_not_been_asked(name, fault, kind):
    method = example(registry[name], PROBLEM.constants)
    exchanges = phases(method)
    for phase in range(len(exchanges)):
        bad = {**WORK[fault], "clients": [BAD], "phase": phase, "since": 1}
        spoiled = ran(kind, method, faults=[bad])
        refused = {one.round for one in spoiled.rejections}
        assert sound(spoiled) and {one.client for one in spoiled.rejections} <= {BAD}
        if all(exchange.who == "cohort" for exchange in exchanges):
            assert refused == set(range(1, 6)) and not spoiled.ledger.skipped
        masks = [
            {"kind": "drop-before", "clients": [BAD], "since": round, "until": round + 1}
            for round in sorted(refused)
        ]
        assert same(spoiled, ran(kind, method, faults=masks)), f"phase {phase}"


@pytest.mark.parametrize("kind", [Simulate, Wire])
@pytest.mark.parametrize("name", FULL)
def test_a_round_that_needs_everybody_is_skipped_at_its_start(name, kind):
    method = example(registry[name], PROBLEM.constants)
    for phase in range(len(phases(method))) if method.repeats() else [None]:
        bad = {"kind": "nan", "phase": phase, "since": 2, "until": 4}
        engine = ran(kind, method, rounds=2, faults=[bad])
        before = {name: v.clone() for name, v in states(engine).items()}
        counted = {one.round for one in engine.rejections}
        engine.run_round()
        engine.run_round()
        after = states(engine)
        assert counted == set() and engine.ledger.skipped == 2 and engine.round == 4
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)
        engine.run_round()
        assert engine.ledger.skipped == 2 and sound(engine)


@pytest.mark.parametrize("name", FULL)
def test_skipped_rounds_are_no_rounds_to_a_method(name):
    """Where nothing is drawn, a run with skipped rounds is the run without them, bit for bit.

    Where something is, another round has other coins.
    """
    method = example(registry[name], PROBLEM.constants)
    decay = 0.9 if hasattr(method, "lr") else None
    plain = ran(Simulate, method, rounds=5, schedule=decay)
    bad = {"kind": "drop-after", "clients": [BAD], "until": 3}
    delayed = ran(Simulate, method, rounds=8, schedule=decay, faults=[bad])
    assert delayed.ledger.skipped == 3
    assert plain.streams.used or same(plain, delayed)


@pytest.mark.parametrize("name", [*PARTIAL[::4], *FULL[::4]])
def test_if_all_are_bad_the_run_ends_with_sound_states(name):
    method = example(registry[name], PROBLEM.constants)
    setting = {"faults": [{"kind": "nan", "since": 2}], "judge": {"patience": 3}}
    engine = ran(Simulate, method, rounds=2, **setting)
    before = {name: v.clone() for name, v in states(engine).items()}
    with pytest.raises(Stuck) as stuck:
        for _ in range(10):
            engine.run_round()
    assert stuck.value.rounds == 4 and stuck.value.last and engine.round == 6
    assert all(torch.equal(before[name], v) for name, v in states(engine).items())


def test_a_step_too_long_ends_in_divergence_with_the_last_sound_model():
    engine = Simulate(Scaffold(lr=1e150), PROBLEM, steps=3)
    with pytest.raises(Diverged) as diverged:
        for _ in range(10):
            engine.run_round()
    assert diverged.value.round <= 3 and sound(engine)


def test_hidden_states_are_judged_as_well():
    """A client whose memory is not finite is left out although its upload is sound."""

    class Hiding(Scaffold, register=False):
        def work(self, me, got, f):
            new, up = super().work(me, got, f)
            rows = torch.as_tensor(f.members).reshape(-1, 1) == BAD
            c = torch.where(rows if new.c.dim() == 2 else rows[0], math.nan, new.c)
            return new.replace(c=c), up

    for kind in (Simulate, Wire):
        engine = ran(kind, Hiding(lr=0.05), rounds=3)
        masked = [{"kind": "drop-before", "clients": [BAD]}]
        assert sound(engine) and {one.client for one in engine.rejections} == {BAD}
        assert same(engine, ran(kind, Scaffold(lr=0.05), rounds=3, faults=masked))


def test_a_client_drops_out_of_a_phase_that_draws_it_alone():
    """CELGD asks a cohort first, and then one client of all."""
    method = example(registry["CELGD"], PROBLEM.constants)
    plain = Simulate(method, PROBLEM, steps=2, cohort=2)
    for round in range(20):
        cohort, walker = (plain.clock.at(round, k).cohort.members.tolist() for k in range(2))
        if not set(walker) & set(cohort):
            break
    gone = {"kind": "drop-before", "clients": [*walker], "since": round, "until": round + 1}
    engine = ran(Simulate, method, round + 1, cohort=2, faults=[gone])
    assert [one.client for one in engine.rejections] == [*walker] and engine.ledger.skipped == 1


@pytest.mark.parametrize("fault", WORK)
def test_the_reason_is_the_first_that_was_found(fault):
    engine = ran(Simulate, FedAvg(lr=0.05), faults=[{**WORK[fault], "clients": [BAD]}])
    reasons = [one.reason for one in engine.rejections]
    word = "median" if fault == "huge" else "not finite"
    assert reasons and all(word in reason for reason in reasons)


@pytest.mark.parametrize("kind", ["stale", "late", "drop-before", "drop-after", "flip", "nan"])
def test_a_run_with_faults_continues_from_a_snapshot(kind):
    fault = {"kind": kind, "rate": 0.4}
    setting = {"steps": 2, "cohort": 3, "faults": [fault]}
    whole, left, right = (Simulate(Scaffold(lr=0.05), PROBLEM, **setting) for _ in range(3))
    for _ in range(12):
        whole.run_round()
    for _ in range(5):
        left.run_round()
    right.restore(*left.snapshot())
    for _ in range(7):
        right.run_round()
    assert same(whole, right) and whole.ledger == right.ledger


def test_stale_clients_send_their_last_upload_again():
    fault = {"kind": "stale", "clients": [BAD], "since": 1}
    engine = Simulate(FedAvg(lr=0.05), PROBLEM, steps=2, faults=[fault])
    first = engine.collect(engine.order(), engine.method.send(engine.server))
    engine.run_round()
    order = engine.order()
    now = engine.collect(order, engine.method.send(engine.server))
    sent = engine.faulty.spoil(order, now)
    name = engine.method.Up.vectors[0]
    assert torch.equal(getattr(sent.up, name)[BAD], getattr(first.up, name)[BAD])
    assert torch.equal(getattr(sent.up, name)[:BAD], getattr(now.up, name)[:BAD])


def test_faults_are_a_pure_function_of_seed_round_client_and_phase():
    plan = [Fault(kind="nan", rate=0.5), Fault(kind="flip", share=0.5, since=2, until=9)]
    one, other = (Faults(plan, Streams(7), 20) for _ in range(2))
    everyone = np.arange(20)
    seen = {(r, p): one.at(r, p, everyone) for r in range(12) for p in range(2)}
    for (r, p), struck in reversed(seen.items()):
        assert other.at(r, p, everyone) == struck
        assert other.at(r, p, everyone[::2]).items() <= struck.items()
    counts = [len(struck) for struck in seen.values()]
    assert 5 < np.mean(counts) < 18 and len(set(counts)) > 3
    assert Faults(plan, Streams(8), 20).at(0, 0, everyone) != seen[0, 0] != seen[0, 1]


def test_a_norm_bound_is_a_multiple_of_the_median():
    fault = {"kind": "scale", "factor": 50.0, "clients": [BAD]}
    out = ran(Simulate, FedAvg(lr=0.05), rounds=1, faults=[fault], judge={"norm": 10.0})
    kept = ran(Simulate, FedAvg(lr=0.05), rounds=1, faults=[fault], judge={"norm": "off"})
    usual = ran(Simulate, FedAvg(lr=0.05), rounds=1, faults=[fault])
    assert [one.client for one in out.rejections] == [BAD]
    assert kept.rejections == usual.rejections == [] and torch.equal(kept.x, usual.x)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"kind": "none"}, "faults.0.kind"),
        ({}, "faults.0.kind"),
        ({"kind": "nan", "rate": 2.0}, "faults.0.rate"),
        ({"kind": "nan", "clients": [0], "share": 0.1}, "faults.0.share"),
        ({"kind": "nan", "clients": [5]}, "faults.0.clients"),
        ({"kind": "nan", "colour": 1}, "faults.0.colour"),
        (["nan"], "faults.0"),
        ("nan", "faults"),
        (3, "faults"),
    ],
)
def test_wrong_plans_are_refused_by_field(given, field):
    with pytest.raises(BadParameters) as refused:
        Simulate(FedAvg(lr=0.1), PROBLEM, faults=[given] if isinstance(given, dict) else given)
    assert field in refused.value.problems


def test_wrong_judging_is_refused_by_field():
    wrong = {"judge.norm": {"norm": 0.0}, "judge.patience": {"patience": -1}, "judge": 3}
    for field, given in wrong.items():
        with pytest.raises(BadParameters) as refused:
            Simulate(FedAvg(lr=0.1), PROBLEM, judge=given)
        assert field in refused.value.problems
    assert Judging(norm="off").norm == "off"


class Crooked(Scaffold, register=False):
    """Uploads vectors of another size, and once of another type."""

    def work(self, me, got, f):
        new, up = super().work(me, got, f)
        return new, up.map(lambda v: v[..., :-1] if f.round else v.float())


@pytest.mark.parametrize(("kind", "rows"), [(Simulate, [5, 4]), (Wire, [4])])
def test_a_vector_of_another_form_is_the_methods_mistake(kind, rows):
    engine = kind(Crooked(lr=0.05), PROBLEM)
    for round, got in enumerate([f"float32 {rows}", f"float64 {[*rows[:-1], 3]}"]):
        engine.round = round
        with pytest.raises(WrongForm) as wrong:
            engine.run_round()
        said = f"Crooked.work gives dy as torch.{got}, not as torch.float64 {rows}"
        assert str(wrong.value) == said
    assert not engine.rejections


def test_if_no_frame_arrives_rounds_are_skipped(monkeypatch):
    engine = Wire(FedAvg(lr=0.05), PROBLEM, judge={"patience": 0})
    monkeypatch.setattr(engine.site, "carry", lambda frame: b"")
    with pytest.raises(Stuck):
        engine.run_round()
    assert torch.equal(engine.x, engine.x0) and engine.ledger.left_out == 5


@pytest.mark.parametrize("base", [Scaffold, FedLin])
def test_a_server_that_is_not_finite_leaves_the_round_undone(base):
    class Failing(base, register=False):
        def merge(self, s, up, cohort):
            new = super().merge(s, up, cohort)
            return new.replace(x=new.x * math.nan) if cohort.round == 2 else new

    engine = ran(Simulate, Failing(lr=0.05), rounds=2)
    before = {name: v.clone() for name, v in states(engine).items()}
    with pytest.raises(Diverged):
        engine.run_round()
    after = states(engine)
    assert engine.round == 2 and before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_round_that_begins_again_sends_the_uploads_of_the_round_before_again():
    stale = {"kind": "stale", "clients": [1], "since": 1}
    again = {"kind": "nan", "clients": [BAD], "since": 1, "phase": 1}
    masked = {"kind": "drop-before", "clients": [BAD], "since": 1}
    method = example(registry["Mime"], PROBLEM.constants)
    assert method.participation == "partial" and len(phases(method)) == 2
    spoiled = ran(Simulate, method, faults=[stale, again])
    assert same(spoiled, ran(Simulate, method, faults=[stale, masked]))
