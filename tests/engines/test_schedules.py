"""lr over the rounds: every schedule, on every engine, in specs and in folders."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.methods.world import FED, X0, L, points, problem_of
from tests.reference import correction, papers
from tests.rounds import after
from tests.spec.texts import GOOD

import undrift as ud
import undrift.methods as um
from undrift.cli import main
from undrift.core.params import BadParameters
from undrift.core.schedules import Schedule, registry
from undrift.engines import Simulate, Wire
from undrift.spec.reader import parse

COSINE = ud.schedules.Cosine(rounds=11, last=0.2, warmup=3)
WAVE = [0.25, 0.5, 0.75] + [0.2 + 0.4 * (1 + math.cos(math.pi * k / 7)) for k in range(8)]
KINDS = {
    "constant": ({"warmup": 3}, [0.25, 0.5, 0.75, *[1.0] * 20]),
    "exponential": ({"rate": 0.9, "warmup": 1}, [0.5, *(0.9**k for k in range(20))]),
    "cosine": ({"rounds": 11, "last": 0.2, "warmup": 3}, [*WAVE, *[0.2] * 9]),
    "step": ({"every": 4, "factor": 0.5}, [0.5 ** (k // 4) for k in range(20)]),
    "listed": ({"factors": [1, 2.0, 0.5]}, [1, 2, *[0.5] * 18]),
}


def test_every_schedule_has_its_factors():
    assert KINDS.keys() == registry.keys()
    for name, (values, expected) in KINDS.items():
        found = Schedule.read({"name": name, **values})
        assert [found(k) for k in range(20)] == pytest.approx(expected[:20], rel=1e-15)
        assert found.least(20) == min(map(found, range(20)))
    at = ud.schedules.Step(at=[2, 5], factor=0.1)
    assert [at(k) for k in range(7)] == pytest.approx([1, 1, 0.1, 0.1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize("engine", [Simulate, Wire])
@pytest.mark.parametrize("given", [*KINDS, "function"])
def test_lr_follows_its_schedule(engine, given):
    if given == "function":
        expected = [1 / (1 + k) for k in range(20)]
        rule = lambda k: 1 / (1 + k)  # noqa: E731
    else:
        values, expected = KINDS[given]
        rule = {"name": given, **values}
    problem, x = problem_of(FED), X0
    machine = engine(um.FedAvg(lr=0.05), problem, steps=1, x0=torch.as_tensor(X0), schedule=rule)
    for k in range(14):
        machine.run_round()
        gradient = np.mean([h @ x - q for h, q in FED.quadratics], 0)
        x = x - 0.05 * expected[k] * gradient
        np.testing.assert_allclose(machine.x, x, atol=1e-12)


@pytest.mark.parametrize("tau", [1, 3])
def test_recursions_stay_right_as_lr_rises_and_falls(tau):
    """FedRecu and EXTRA weigh what they remember by lr, from the first round on."""
    lr, rounds = 8 / (13 * tau * L), 40
    alpha = [lr * COSINE(k) for k in range(rounds)]
    expected = papers.fedrecu_round(FED, X0, rounds, alpha=alpha, tau=tau)
    got = points(um.FedRecu(lr=lr), FED, X0, rounds, steps=tau, schedule=COSINE)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    lr, trace = 0.3 / (tau * L), []
    times = [max(t - 1, 0) if tau == 1 else t // tau for t in range((rounds + 1) * tau + 1)]
    alpha = [lr * COSINE(k) for k in times]
    correction.extra_dual(FED, X0, rounds + 1, alpha=alpha, tau=tau, trace=trace)
    path = {t: row["x"] for t, row in enumerate(trace, start=2)}
    method = um.EXTRA(lr=lr)
    engine = Simulate(method, problem_of(FED), steps=tau, x0=torch.as_tensor(X0), schedule=COSINE)
    for k in range(1, rounds + 1):
        engine.run_round()
        if (t := k * tau - (tau > 1)) in path:
            states = engine.snapshot()[0]["client.x"].numpy()
            np.testing.assert_allclose(states, path[t], rtol=0, atol=1e-11)


def test_a_number_is_an_exponential_schedule():
    method, problem = um.FedRecu(lr=0.02), problem_of(FED)
    a, b = (
        Simulate(method, problem, steps=3, **rates)
        for rates in ({"schedule": 0.9}, {"schedule": ud.schedules.Exponential(rate=0.9)})
    )
    after(20, a, b)
    torch.testing.assert_close(a.x, b.x, rtol=1e-13, atol=1e-13)
    assert a.identity == b.identity


def test_a_round_that_did_not_count_does_not_move_the_schedule():
    plan = [{"kind": "nan", "since": 2, "until": 4}]
    given = {"steps": 2, "schedule": COSINE}
    faulty = Simulate(um.FedRecu(lr=0.02), problem_of(FED), faults=plan, **given)
    clean = Simulate(um.FedRecu(lr=0.02), problem_of(FED), **given)
    after(8, clean)
    after(10, faulty)
    assert faulty.ledger.skipped == 2
    torch.testing.assert_close(faulty.x, clean.x, rtol=0, atol=1e-13)


def test_what_is_wrong_with_a_schedule_is_told():
    def wrong(**given):
        with pytest.raises(BadParameters) as found:
            ud.run(um.FedAvg(lr=0.1), "quadratic", rounds=5, **given)
        return found.value.problems

    for bad in ("cosin", 3, ud.schedules.Cosine):
        assert [*wrong(schedule=bad)] == ["schedule"]
    assert [*wrong(schedule={"name": "cosine"})] == ["schedule.rounds"]
    for bad in (0.0, -1.0, math.nan, math.inf, "a", None, True):
        text = wrong(schedule=lambda k, bad=bad: bad if k == 3 else 1.0)["schedule"]
        assert "round 3" in text and repr(bad) in text
    assert [*wrong(schedule=0.0)] == [*wrong(schedule=2)] == ["schedule"]
    assert [*wrong(schedule=ud.schedules.Exponential(rate=1e-100))] == ["schedule"]
    with pytest.raises(BadParameters) as found:
        Simulate(um.FedRed(eta=1, lam=1, p=0.5), problem_of(FED), schedule=COSINE)
    assert [*found.value.problems] == ["schedule"]
    for make in (
        lambda: ud.schedules.Step(),
        lambda: ud.schedules.Step(every=2, at=[3]),
        lambda: ud.schedules.Cosine(rounds=3, warmup=2),
        lambda: ud.schedules.Listed(factors=[]),
        lambda: ud.schedules.Listed(factors=[1, 0]),
    ):
        with pytest.raises(BadParameters):
            make()
    with pytest.raises(BadParameters) as found:
        Simulate(um.FedAvg(lr=0.1), problem_of(FED), schedule=lambda k: 0).run_round()
    assert "round 0" in found.value.problems["schedule"]


TABLE = 'schedule = { name = "cosine", rounds = 20, warmup = 2 }\n'


def test_a_spec_has_schedules_for_all_or_for_one():
    spec = parse(TABLE + GOOD.replace("lr = 0.01", "lr = 0.01\nschedule = 'constant'"))
    first, second = spec.entries
    assert first.options.schedule == ud.schedules.Cosine(rounds=20, warmup=2)
    assert second.options.schedule == ud.schedules.Constant()
    again = parse(spec.toml())
    assert again.identity == spec.identity and again.entries[0].options == first.options
    flags = ["schedule.last=0.5", "method.FedAvg.schedule=constant"]
    changed = parse(TABLE + GOOD, flags=flags)
    assert changed.entries[0].options.schedule.last == 0.5
    assert changed.entries[1].options.schedule == ud.schedules.Constant()
    assert parse(GOOD).identity != spec.identity
    assert "schedule" not in parse(GOOD).document()


def test_a_function_is_kept_by_its_factors(tmp_path):
    def call(rule, **more):
        given = {"rounds": 6, "steps": 2, "save": tmp_path / "run", "schedule": rule}
        return ud.run(um.Scaffold(lr=0.02), "quadratic", **given, **more)

    run = call(lambda k: 1 / (1 + k))
    plain = ud.run(
        um.Scaffold(lr=0.02), "quadratic", rounds=6, steps=2, schedule=lambda k: 1 / (1 + k)
    )
    assert torch.equal(run.x, plain.x)
    assert torch.equal(call(lambda k: (1 + k) ** -1).x, run.x)  # the same factors: nothing to do
    with pytest.raises(ValueError, match="another run"):
        call(lambda k: 0.5)
    spec = ud.load(tmp_path / "run").spec
    factors = [1 / (1 + k) for k in range(6)]
    assert spec["schedule"] == {"name": "listed", "warmup": 0, "factors": factors}
    assert main(["resume", str(tmp_path / "run")]) == 0
    with pytest.raises(BadParameters) as found:
        ud.run(
            um.FedAvg(lr=0.1), "quadratic", rounds=20_000, save=tmp_path / "b", schedule=lambda k: 1
        )
    assert [*found.value.problems] == ["schedule"] and not (tmp_path / "b").exists()


def test_schedules_load_no_torch():
    code = (
        "import sys, undrift as ud; ud.schedules.Cosine(rounds=5)(3); "
        "print({'torch', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_least_factor_is_looked_for_behind_the_warm_up():
    listed = ud.schedules.Listed(factors=[1.0, 1e-300], warmup=2)
    assert listed.least(2) == pytest.approx(1 / 3) and listed.least(3) == 1e-300
