"""What docs/choosing.md shows was measured as it says."""

import json
import math

import pytest

from benchmarks import choosing
from undrift.methods import registry
from undrift.tuning.recipes import by_step

RESULTS = json.loads(choosing.RESULTS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", registry)
@pytest.mark.parametrize("convex", [True, False])
def test_one_number_decides_every_method(name, convex):
    short, long = (by_step(name, step, 10, 30, convex) for step in (0.01, 0.1))
    assert type(short) is registry[name] and short != long
    assert not [*short.open_fields()]


def test_every_method_in_every_situation_or_a_reason():
    found = {(one["method"], one["situation"]): one for one in RESULTS["found"]}
    assert len(found) == len(RESULTS["found"])
    assert RESULTS["situations"].keys() == {s.name for s in choosing.SITUATIONS}
    for situation in choosing.SITUATIONS:
        for name in registry:
            one = found[name, situation.name]
            assert bool(one.get("refused")) == bool(choosing.refused(name, situation))
            if "round" in one:
                assert one["round"] <= situation.rounds and one["vectors"] > 0 < one["gradients"]
                assert situation.reached(one["last"]) and one["curve"][-1][0] == one["round"]


def test_a_run_ends_at_the_target_or_where_it_cannot_come():
    situation = choosing.SITUATIONS[0]
    run = choosing.trial("Scaffold", situation, 4.0)
    *before, (rounds, last) = run.curve
    assert run.reached and last <= 1e-8 < min(value for _, value in before)
    assert run.vectors == 4 * rounds and run.gradients == 10 * 10 * rounds
    stalled = choosing.trial("FedAvg", situation, 4.0, rounds=5)
    assert not stalled.reached and len(stalled.curve) == 6 and stalled.rounds == math.inf
    ranked = sorted([stalled, run], key=lambda t: t.rank(situation))
    assert ranked[0] is run


def test_what_was_measured_can_be_measured_again():
    (one,) = [
        o for o in RESULTS["found"] if (o["method"], o["situation"]) == ("FedCET", "everyone")
    ]
    again = choosing.trial("FedCET", choosing.SITUATIONS[0], one["step"])
    assert abs(again.rounds - one["round"]) <= 1 and again.vectors == 2 * again.rounds
