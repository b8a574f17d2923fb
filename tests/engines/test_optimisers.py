"""Local optimisers: which methods permit them, and that their steps are what they say."""

import dataclasses

import numpy as np
import pytest
import torch
from tests.methods.world import FED, UNEVEN, X0, problem_of
from tests.rounds import after
from tests.spec.texts import GOOD, refused

import undrift as ud
import undrift.methods as um
from undrift.check.federations import STEPS, example, least_squares, quadratic, uneven
from undrift.core.method import Method
from undrift.core.optimisers import Optimiser, registry
from undrift.core.params import BadParameters
from undrift.engines import Simulate, Wire
from undrift.report.tables import MethodSetting
from undrift.runs.prepare import lay_out
from undrift.spec.reader import parse

EVERY = pytest.mark.parametrize("engine", [Simulate, Wire])
VARIANTS = {**{name: {} for name in um.__all__}, "Scaffold I": {"option": "I"}}


def made(name, constants, **more):
    return example(um.registry[name.split()[0]], constants, **VARIANTS[name], **more)


PERMITTED = [name for name in VARIANTS if not made(name, quadratic().constants).needs_sgd]


# -- which methods permit it --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Shorter(Optimiser):
    """SGD with a part of lr, of which the method knows nothing."""

    name = "shorter"

    part: float = 0.5

    def begin(self, lr):
        return lambda y, g: y - self.part * lr * g


@pytest.mark.parametrize("name", VARIANTS)
def test_a_method_permits_it_where_lr_is_for_its_steps_alone(name, monkeypatch):
    """Half as long steps of twice the lr are the same run, unless lr is used for anything else: to
    read a displacement as a sum of gradients, or in steps of the method's own.
    """
    monkeypatch.setattr(Method, "refuse_optimiser", lambda self, local: [])
    problem = least_squares()
    method = made(name, problem.constants)
    if not hasattr(method, "lr"):
        assert method.needs_sgd
        return
    given = uneven(method, problem.clients, batch=3)
    usual = Simulate(method, problem, **given)
    double = dataclasses.replace(method, lr=2 * method.lr)
    halved = Simulate(double, problem, **given, training={"optimiser": Shorter()})
    after(4, usual, halved)
    same = torch.allclose(usual.x, halved.x, rtol=1e-12, atol=1e-13)
    assert same == (not method.needs_sgd)


def test_those_that_do_not_permit_it_say_why_and_what_to_do():
    for name in VARIANTS:
        method = made(name, quadratic().constants)
        reasons = method.refuse_optimiser(ud.AdamW())
        assert [reason.field for reason in reasons] == ["training.optimiser"] * bool(
            method.needs_sgd
        )
        assert all(method.needs_sgd in reason.text for reason in reasons)
    with pytest.raises(BadParameters) as found:
        Simulate(um.Scaffold(lr=0.1), quadratic(), training={"optimiser": "momentum"})
    assert [*found.value.problems] == ["training.optimiser"]

    class Mine(um.FedAvg, register=False):
        needs_sgd = Method.needs_sgd

    assert Mine(lr=0.1).refuse_optimiser(ud.Momentum())


# -- the steps, written out in NumPy ------------------------------------------------------------


def momentum(g, y, memory, lr, beta=0.9, nesterov=False):
    memory["m"] = beta * memory.get("m", 0) + g
    return y - lr * (g + beta * memory["m"] if nesterov else memory["m"])


def adamw(g, y, memory, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = memory["t"] = memory.get("t", 0) + 1
    memory["m"] = beta1 * memory.get("m", 0) + (1 - beta1) * g
    memory["v"] = beta2 * memory.get("v", 0) + (1 - beta2) * g**2
    mean, square = memory["m"] / (1 - beta1**t), memory["v"] / (1 - beta2**t)
    return y - lr * weight_decay * y - lr * mean / (np.sqrt(square) + eps)


LOCAL = {
    "momentum": ({}, momentum),
    "nesterov": ({"name": "momentum", "beta": 0.7, "nesterov": True}, momentum),
    "adamw": ({}, adamw),
    "adam": ({"name": "adamw", "beta1": 0.8, "beta2": 0.9, "eps": 0.1, "weight_decay": 0}, adamw),
}
LR = 0.03
LOCALLY = pytest.mark.parametrize("local", LOCAL)


def table(local):
    values, _ = LOCAL[local]
    return {"name": local, **values}


def trained(local, i, x, steps, correction=0.0, prox=0.0):
    """Client i's last point from x, along its gradient plus a correction and a proximal term."""
    values, rule = LOCAL[local]
    own = {key: value for key, value in values.items() if key != "name"}
    (h, q), y, memory = FED.quadratics[i], x, {}
    for _ in range(steps):
        y = rule(h @ y - q + correction + prox * (y - x), y, memory, LR, **own)
    return y


def gradient(i, x):
    h, q = FED.quadratics[i]
    return h @ x - q


def fedavg(local, rounds, steps, prox=0.0):
    x = X0
    for _ in range(rounds):
        x = np.mean([trained(local, i, x, k, prox=prox) for i, k in enumerate(steps)], 0)
        yield x


def scaffold(local, rounds, steps):
    x, c = X0, np.zeros((FED.N, FED.d))
    for _ in range(rounds):
        mean = c.mean(0)
        ends = [trained(local, i, x, k, mean - c[i]) for i, k in enumerate(steps)]
        c = np.stack([gradient(i, x) for i in range(FED.N)])
        x = np.mean(ends, 0)
        yield x


def feddyn(local, rounds, steps, alpha=0.7):
    x, d = X0, np.zeros((FED.N, FED.d))
    for _ in range(rounds):
        ends = np.stack([trained(local, i, x, k, -d[i], alpha) for i, k in enumerate(steps)])
        d = d - alpha * (ends - x)
        x = ends.mean(0) - d.mean(0) / alpha
        yield x


WRITTEN_OUT = {
    "FedAvg": (um.FedAvg(lr=LR), fedavg),
    "FedProx": (um.FedProx(lr=LR, mu=0.6), lambda *given: fedavg(*given, prox=0.6)),
    "Scaffold": (um.Scaffold(lr=LR, option="I"), scaffold),
    "FedDyn": (um.FedDyn(lr=LR, alpha=0.7), feddyn),
}


@EVERY
@LOCALLY
@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_a_run_is_the_one_written_out(engine, local, name):
    method, written = WRITTEN_OUT[name]
    given = {"steps": UNEVEN, "x0": torch.as_tensor(X0), "training": {"optimiser": table(local)}}
    machine = engine(method, problem_of(FED), **given)
    for x in written(local, 6, UNEVEN):
        machine.run_round()
        np.testing.assert_allclose(machine.x, x, rtol=0, atol=1e-12)
    assert np.abs(x - X0).max() > 0.1


@EVERY
@LOCALLY
@pytest.mark.parametrize("scope", ["task", "whole", "reference"])
def test_clipping_and_the_proximal_term_come_before_the_optimiser(engine, local, scope):
    """And so does weight decay, but for AdamW, which has its own."""
    mu, most, decay = 0.6, 3.0, 0.0 if "adam" in local else 0.2

    def clipped(v):
        return v * min(1, most / np.linalg.norm(v))

    def followed(i, x, y):
        g = gradient(i, y)
        if scope == "task":
            return clipped(g) + decay * y + mu * (y - x)
        if scope == "whole":
            return clipped(g + mu * (y - x)) + decay * y
        return clipped(g - mu * x) + (decay + mu) * y

    values, rule = LOCAL[local]
    own = {key: value for key, value in values.items() if key != "name"}
    train = {"clip": most, "clip_scope": scope, "weight_decay": decay, "optimiser": table(local)}
    given = {"steps": 4, "x0": torch.as_tensor(X0), "training": train}
    machine, x = engine(um.FedProx(lr=LR, mu=mu), problem_of(FED), **given), X0
    for _ in range(4):
        machine.run_round()
        ends = []
        for i in range(FED.N):
            y, memory = x, {}
            for _ in range(4):
                y = rule(followed(i, x, y), y, memory, LR, **own)
            ends.append(y)
        x = np.mean(ends, 0)
        np.testing.assert_allclose(machine.x, x, rtol=0, atol=1e-12)


# -- what follows for methods -------------------------------------------------------------------


@pytest.mark.parametrize("name", PERMITTED)
def test_without_memory_momentum_is_sgd_and_engines_agree(name):
    problem = least_squares()
    method = made(name, problem.constants)
    given = {**uneven(method, problem.clients, batch=3), "x0": torch.ones(problem.dim)}
    usual, none = (
        Simulate(method, problem, **given, training={"optimiser": v})
        for v in (None, ud.Momentum(0.0))
    )
    pairs = [
        [kind(method, problem, **given, training={"optimiser": v}) for kind in (Simulate, Wire)]
        for v in ("momentum", "adamw")
    ]
    after(5, usual, none, *pairs[0], *pairs[1])
    torch.testing.assert_close(usual.x, none.x, rtol=1e-12, atol=1e-13)
    for fast, slow in pairs:
        torch.testing.assert_close(fast.x, slow.x, rtol=0, atol=1e-12)
        assert fast.ledger == slow.ledger == usual.ledger
        # What clients did, not what the server made of it, which may be the same.
        assert not torch.allclose(fast.ends, usual.ends, atol=1e-3)


EXACT = [name for name in PERMITTED if um.registry[name.split()[0]].exact]


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", EXACT)
def test_momentum_keeps_exact_methods_exact_and_adamw_does_not(name):
    """Momentum is linear in what it follows, which is 0 at the optimum. AdamW divides by its size:
    its first step of a round is as long as lr, however near the optimum is.
    """
    problem = quadratic()

    def distance(local):
        engine = Simulate(
            made(name, problem.constants), problem, steps=STEPS, training={"optimiser": local}
        )
        found = []
        while len(found) < 4000 and (not found or found[-1] > 1e-8):
            engine.run_round()
            found.append(float((engine.x - problem.optimum).norm()))
        return found[-1]

    assert distance(ud.Momentum(0.5)) <= 1e-8
    assert distance(ud.AdamW(weight_decay=0)) > 1e-5


def test_reports_do_not_call_adamw_exact():
    method = {"name": "FedLin", "label": "a"}
    momentum = {"training": {"optimiser": {"name": "momentum", "beta": 0.9}}}
    adamw = {"training": {"optimiser": {"name": "adamw"}}}
    assert not MethodSetting(method, {}).biased
    assert not MethodSetting(method | momentum, {}).biased
    assert MethodSetting(method | adamw, {}).biased
    assert MethodSetting(method, adamw).biased


# -- where it is said ---------------------------------------------------------------------------


def test_what_is_wrong_is_told():
    def wrong(**given):
        with pytest.raises(BadParameters) as found:
            ud.run(um.FedAvg(lr=0.1), "quadratic", rounds=2, **given)
        return found.value.problems

    for bad in ("adam", 3, ud.AdamW):
        assert [*wrong(training={"optimiser": bad})] == ["training.optimiser"]
    for name in ("adamw", "momentum"):
        assert [*wrong(training={"optimiser": {"name": name, "beta": 1}})] == [
            "training.optimiser.beta"
        ]
    assert [*wrong(training={"optimiser": "adamw", "weight_decay": 0.1})] == [
        "training.weight_decay"
    ]
    for make in (lambda: ud.Momentum(1.0), lambda: ud.AdamW(eps=0), lambda: ud.AdamW(beta2=-1)):
        with pytest.raises(BadParameters):
            make()


def test_theory_knows_the_lr_of_sgd_alone():
    method = um.FedProx(lr="theory", mu=0.1)
    with pytest.raises(ValueError, match="theory"):
        ud.run(method, "quadratic", rounds=2, training={"optimiser": "momentum"})
    text = GOOD.replace('name = "scaffold"', 'name = "fedprox"\nmu = 0.1')
    found = []
    lay_out(parse(text + '[training.optimiser]\nname = "adamw"\n'), 0, found)
    assert [one.path for one in found] == [("method", 0, "lr")]


def test_a_spec_has_it_for_all_or_for_one():
    text = GOOD.replace('name = "scaffold"', 'name = "fedprox"\nmu = 0.1')
    spec = parse(
        text.replace("lr = 0.01", "lr = 0.01\ntraining.optimiser = 'adamw'")
        + '[training.optimiser]\nname = "momentum"\n'
    )
    first, second = spec.entries
    assert [e.options.training.optimiser for e in (first, second)] == [ud.Momentum(), ud.AdamW()]
    again = parse(spec.toml())
    assert (
        again.identity == spec.identity
        and again.entries[1].options.training.optimiser == ud.AdamW()
    )
    flags = ["training.optimiser=adamw", "training.optimiser.beta2=0.9"]
    assert {entry.options.training.optimiser for entry in parse(text, flags=flags).entries} == {
        ud.AdamW(beta2=0.9)
    }
    (one,) = refused(GOOD + '[training.optimiser]\nname = "momentum"\n')
    assert one.path == ("training", "optimiser") and one.line == len(GOOD.splitlines()) + 1
    (one,) = refused(text + '[training.optimiser]\nname = "adamw"\nbeta = 1\n')
    assert one.path == ("training", "optimiser", "beta") and one.line == len(text.splitlines()) + 3
    assert "training" not in parse(GOOD).document()
    for kind in registry.values():
        assert Optimiser.read(kind.name) == kind()
