"""The method that is advised is the one that a whole comparison shows to be best."""

import re

import pytest

import undrift as ud
from undrift.check.template import write
from undrift.methods import registry
from undrift.spec.errors import Origin
from undrift.spec.reader import Reader, load
from undrift.tuning.advise import advise


def spec(**changes):
    document = {
        "name": "s",
        "rounds": 24,
        "steps": 4,
        "problem": {"name": "quadratic", "clients": 5, "dim": 4},
        "method": [{"name": "FedAvg", "lr": 0.1}],
    }
    return Reader(document | changes, Origin("spec"), tune=True).spec()


@pytest.fixture(scope="module")
def found():
    return advise(spec(target=1e-3))


def test_every_method_is_tried_or_the_reason_told(found):
    assert found.entrants.keys() | found.refused.keys() == registry.keys()
    assert not found.entrants.keys() & found.refused.keys()
    cohort = advise(spec(cohort=2), heats=(1 / 8,))
    assert "GD" in cohort.refused and "FedAvg" in cohort.entrants
    none = advise(spec(), stateless=True, exchanges=1, heats=(1 / 8,))
    assert "Scaffold" in none.refused and "2 exchanges" in none.refused["FedLin"]
    assert {"FedAvg", "GD"} <= none.entrants.keys()


def test_a_method_of_ones_own_is_told_why_it_is_not_tried(tmp_path):
    write("Mine", tmp_path)
    document = {"method": [{"file": "mine.py", "name": "Mine", "lr": 0.1}]}
    document = {"name": "s", "rounds": 4, "problem": {"name": "quadratic"}} | document
    own = Reader(document, Origin(str(tmp_path / "spec")), tune=True).spec()
    found = advise(own, stateless=True, exchanges=1, heats=(1 / 8,))
    assert "tune it with undrift tune" in found.refused["Mine"] and "Mine:" in found.table().text()


def test_what_it_will_take_is_told_after_the_first_method():
    told = []
    advise(spec(rounds=4), stateless=True, exchanges=1, heard=told.append, heats=(1 / 8, 1.0))
    assert re.fullmatch(r"About [\d.]+ (s|min .*), if all take as long as \w+\.", told[0])
    assert len(told) == 3 and told[1].startswith("0.125 of the budget")


def test_the_order_is_what_they_sent_to_the_target(found):
    best = [one for one in found.entrants.values() if one.raced_with == 1]
    sent = [one.vectors for one in best if one.reached is not None]
    assert sent and sent == sorted(sent) and best[0].reached is not None


def test_what_is_said_of_the_best_is_what_a_run_shows(found):
    one = next(iter(found.entrants.values()))
    goal = ud.EarlyStopping(metric="gap", target=1e-3)
    problem = {"name": "quadratic", "clients": 5, "dim": 4}
    given = {"rounds": 40, "steps": 4, "seed": 1_000_000, "callbacks": goal, "every": 1}
    run = ud.run(one.tuned.method, problem, **given)
    last = run.history.last
    assert last["round"] <= one.reached <= last["round"] + 1
    assert last["vectors"] / last["round"] == pytest.approx(one.vectors / one.reached)


def test_files(found, tmp_path):
    found.write(tmp_path)
    again = load(tmp_path / "advised.toml")
    best = [*found.entrants][:3]
    assert [entry.label for entry in again.entries][:3] == best
    base = {entry.label: entry for entry in again.entries}["FedAvg"]
    assert base.method == found.entrants["FedAvg"].tuned.method
    assert found.entrants["FedAvg"].raced_with == 1
    assert again.entries[0].method == found.entrants[best[0]].tuned.method
    assert again.entries[0].tuned.gradients == found.entrants[best[0]].tuned.gradients
    assert (tmp_path / "pareto.png").stat().st_size > 1000
    assert "not tried" in found.table().notes[-1] if found.refused else True


def test_bounds_are_above_what_runs_with_the_steps_of_theory_need(found):
    assert {"GD", "FedRecu"} <= found.bounds.keys()
    goal = ud.EarlyStopping(metric="gap", target=1e-3)
    problem = {"name": "quadratic", "clients": 5, "dim": 4}
    for name in ("GD", "FedRecu"):
        most = found.bounds[name]
        run = ud.run(registry[name](lr="theory"), problem, rounds=most, steps=4, callbacks=goal)
        assert run.status == "reached"
    assert "by bound" in found.table().text()
    assert advise(spec(), exchanges=1, stateless=True, heats=(1 / 8,)).bounds == {}
