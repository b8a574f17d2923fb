import dataclasses
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import undrift as ud
from undrift.check.battery import failures
from undrift.core import BadParameters, Constants, Message, Method, Positive, Vec
from undrift.methods import registry
from undrift.theory import fedcet, has_rule, prescribe, rules, steps

STRONG = Constants(L=10.0, mu=0.4, L_mean=8.0, mu_mean=0.5, delta_A=3.0, delta_B=4.0)
CONVEX = Constants(L=10.0, mu=0.0, L_mean=8.0, mu_mean=0.0, delta_A=3.0, delta_B=4.0)
NONCONVEX = Constants(L=10.0, mu=-2.0, L_mean=8.0, mu_mean=-1.0, delta_A=3.0, delta_B=4.0)
SEARCHED = fedcet.search(0.4, 10.0, 5)
EXACT, RAND = {"solver": "exact"}, {"average": "rand"}
RULES = {name: set(cls.prescribed) for name, cls in registry.items() if "prescribed" in vars(cls)}
REQUIRED = {"FedProx": {"mu": 1.0}, "FedLinTopK": {"k_server": 2}}
"""What has no rule and no default."""


def ask(name, constants, *, steps=5, fraction=1.0, batch=None, **fields):
    """All fields that have a rule and are not given are left to theory."""
    known = {f.name for f in dataclasses.fields(registry[name])}
    given = {field: value for field, value in fields.items() if field in known}
    left = dict.fromkeys(RULES[name], "theory")
    method = registry[name](**{**left, **REQUIRED.get(name, {}), **given})
    return prescribe(method, constants, steps=steps, fraction=fraction, batch=batch)


ETA = 0.999 * (5**0.5 - 1) / 40
HAND = [
    (
        "FedPD",
        STRONG,
        {},
        {"eta": ETA, "lr": 1 / (5 * (10 + 1 / ETA))},
    ),  # of f_i + |y - x|^2/(2 eta)
    ("FedPD", STRONG, {"eta": 0.1, "p": 0.5}, {"lr": 1 / 100}),
    ("FedPDVR", NONCONVEX, {}, {"eta": 0.999 / 150, "gamma": 1 / 30}),  # no variance: Q alone
    (
        "FedPDVR",
        STRONG,
        {"batch": 5},
        {"eta": 0.999 / 180, "gamma": 1 / 36},
    ),  # Q + sqrt(Q I/B) = 5 + 1
    ("FedPDVR", STRONG, {"batch": 5, "I": 9}, {"eta": 0.999 / 240, "gamma": 1 / 48}),  # 5 + 3
    ("FedPDVR", STRONG, {"batch": 5, "eta": 0.01, "p": 0.5}, {"gamma": 0.05 / 0.999}),
    ("GD", STRONG, {}, {"lr": 1 / 8}),
    ("GD", Constants(L=10.0), {}, {"lr": 1 / 10}),
    ("FedAvg", NONCONVEX, {}, {"lr": 1 / 50}),
    ("FedProx", CONVEX, {"mu": 2.0}, {"lr": 1 / 60}),
    ("FedRecu", STRONG, {}, {"lr": 8 / 650}),
    ("FedRecu", CONVEX, {}, {"lr": 8 / 650}),
    ("FedRecu", NONCONVEX, {}, {"lr": 8 / 850}),
    ("FedRecu", Constants(L=10.0), {}, {"lr": 8 / 850}),
    ("FedRecu", CONVEX, {"batch": 7}, {"lr": 0.999 / 300}),
    ("FedRecu", NONCONVEX, {"batch": 7}, {"lr": 0.999 / 650}),
    ("FedCET", STRONG, {}, {"lr": SEARCHED, "c": 0.4 / (0.8 * SEARCHED + 8)}),
    ("FedCET", STRONG, {"lr": 0.5}, {"c": 0.4 / 8.4}),
    ("FedCET", STRONG, {"c": 0.01}, {"lr": SEARCHED}),
    ("EXTRA", NONCONVEX, {}, {"lr": 1 / 100}),
    ("Scaffold", CONVEX, {}, {"lr": 1 / 4050}),
    ("Scaffold", CONVEX, {"fraction": 0.001, "server_lr": 2.0}, {"lr": 1 / 8100}),
    ("Scaffold", CONVEX, {"server_lr": 0.5}, {"lr": 1 / 4050}),
    ("Scaffold", STRONG, {"fraction": 0.5}, {"lr": 1 / 4050}),
    ("Scaffold", STRONG, {"fraction": 0.003}, {"lr": 1e-4}),
    ("Scaffold", STRONG, {"fraction": 0.003, "server_lr": 2.0}, {"lr": 5e-5}),
    ("Scaffold", NONCONVEX, {"fraction": 1 / 8, "server_lr": 2.0}, {"lr": 1 / 9600}),
    ("FedLin", CONVEX, {}, {"lr": 1 / 500}),
    ("FedLin", NONCONVEX, {}, {"lr": 1 / 1300}),
    ("FedLinTopK", CONVEX, {"k_client": 3}, {"lr": 1 / 500}),
    ("FedTrack", STRONG, {}, {"lr": 1 / 900}),
    ("Scaffnew", STRONG, {}, {"lr": 1 / 10, "p": 0.2}),
    ("Scaffnew", STRONG, {"lr": 0.025}, {"p": 0.1}),
    ("Scaffnew", STRONG, {"lr": 100.0}, {"p": 1.0}),
    ("DANE", CONVEX, {}, {"lam": 3.0}),
    ("DANEPlus", STRONG, {}, {"lam": 6.0, "lr": 1 / 16, "mu": 0.4}),
    ("DANEPlus", STRONG, {"lam": 2}, {"lr": 1 / 12, "mu": 0.4}),
    ("DANEPlus", STRONG, RAND, {"lam": 8.0, "lr": 1 / 18, "mu": 0.4}),
    ("DANEPlus", NONCONVEX, {}, {"lam": 8.0, "lr": 1 / 18, "mu": 0.0}),
    ("DANEPlus", Constants(L=10.0, delta_B=4.0), {}, {"lam": 8.0, "lr": 1 / 18, "mu": 0.0}),
    ("DANEPlusDual", STRONG, {}, {"lam": 2.0, "m": 2.0, "lr": 1 / 12, "mu": 0.4}),
    ("DANEPlusDual", STRONG, {"lam": 5.0}, {"m": 5.0, "lr": 1 / 15, "mu": 0.4}),
    ("DANEPlusDual", STRONG, {"m": 5.0}, {"lam": 5.0, "lr": 1 / 15, "mu": 0.4}),
    ("FedRed", STRONG, {}, {"eta": 10.0, "lam": 3.0, "p": 3.2 / 9.8}),
    (
        "FedRed",
        STRONG,
        {"solver": "gd", "average": "avg"},
        {"eta": 10.0, "lam": 3.0, "p": 3.2 / 9.8},
    ),
    ("FedRed", STRONG, {"eta": 20}, {"lam": 3.0, "p": 3.2 / 19.8}),
    ("FedRed", STRONG, {"lam": 5.0}, {"eta": 10.0, "p": 5.2 / 9.8}),
    ("FedRed", STRONG, {"lam": 20.0}, {"eta": 20.4, "p": 1.0}),
    ("FedRed", STRONG, {"eta": 2.0}, {"lam": 3.0, "p": 1.0}),
    ("FedRed", STRONG, {"p": 0.05}, {"eta": 10.0, "lam": 3.0}),
    ("FedRed", STRONG, {"batch": 7}, {"eta": 20.0, "lam": 3.0, "p": 3.2 / 19.8}),
    ("FedRed", CONVEX, {}, {"eta": 10.0, "lam": 3.0, "p": 0.3}),
    ("FedRed", STRONG, RAND, {"eta": 60.0, "lam": 4.0, "p": 0.4}),
    ("FedRed", NONCONVEX, {}, {"eta": 60.0, "lam": 4.0, "p": 0.4}),
    ("FedRed", NONCONVEX, {"eta": 7.0}, {"lam": 4.0, "p": 0.4}),
    ("FedRed", STRONG, EXACT, {"eta": 20.0, "lam": 3.0, "p": 3.2 / 20.2}),
    ("FedRed", STRONG, {**EXACT, "eta": 30.0}, {"lam": 3.0, "p": 3.2 / 30.2}),
    ("FedRed", STRONG, {**EXACT, "lam": 30.0}, {"eta": 30.0, "p": 1.0}),
    ("FedRed", NONCONVEX, EXACT, {"eta": 20.0, "lam": 4.0, "p": 0.2}),
    ("FedRed", NONCONVEX, {**EXACT, "lam": 6.0}, {"eta": 24.0, "p": 0.25}),
    ("FedRed", STRONG, {**EXACT, **RAND}, {"eta": 20.0, "lam": 4.0, "p": 0.2}),
    ("FedRedDual", CONVEX, {}, {"eta": 10.0, "lam": 3.0, "p": 0.3, "m": 3.0}),
    ("FedRedDual", CONVEX, {"p": 0.05, "lam": 0.0}, {"eta": 10.0, "m": 0.5}),
]


@pytest.mark.parametrize("name, constants, given, by_hand", HAND)
def test_value(name, constants, given, by_hand):
    assert ask(name, constants, **given) == pytest.approx(by_hand, rel=1e-12)


def test_every_rule_has_a_hand_value():
    assert {(name, field) for name, _, _, values in HAND for field in values} == {
        (name, field) for name, fields in RULES.items() for field in fields
    }


def test_only_what_is_left_to_theory_comes_back():
    method = ud.FedRed(eta=3.0, lam="theory", p=0.5, reset_local=True)
    assert prescribe(method, STRONG, steps=5) == {"lam": 3.0}
    assert prescribe(ud.FedAvg(lr=0.1), Constants(), steps=5) == {}


def test_exact_gradients_and_everyone_by_default():
    nonconvex = {"constants": NONCONVEX, "steps": 5}
    assert prescribe(ud.Scaffold(lr="theory"), **nonconvex) == {"lr": pytest.approx(1 / 1200)}
    assert prescribe(ud.FedRecu(lr="theory"), **nonconvex) == {"lr": pytest.approx(8 / 850)}


def test_has_rule():
    assert has_rule(ud.FedRed, "eta") and has_rule(ud.FedCET, "c")
    assert not has_rule(ud.FedRed, "m") and not has_rule(ud.Scaffold, "server_lr")


@pytest.mark.parametrize("method, field", [
    (ud.Scaffold(lr=0.1, server_lr="theory"), "server_lr"),
    (ud.FedProx(lr="theory", mu="theory"), "mu"),
    (ud.FedAvgM(lr="theory", beta=0.5), "lr"),
])  # fmt: skip
def test_no_rule(method, field):
    with pytest.raises(BadParameters) as error:
        prescribe(method, STRONG, steps=5)
    assert error.value.owner == type(method).__name__
    assert error.value.problems == {field: f"no theory prescribes {field}: give it as a number"}


@pytest.fixture
def own():
    """A user's method with a rule, one that builds on it, and a subclass without either."""

    class Own(Method):
        """Averaging, with steps of its own.

        Args:
            lr: eta_l, the local step size.
            server_lr: eta_g, the server's step size.
        """

        title, paper = "Averaging with steps of its own", "unpublished"
        prescribed = rules(
            lr=lambda method, known: steps.fedavg(known.L, known.steps),
            server_lr=lambda method, known: 1 + method.lr,
        )

        lr: Positive
        server_lr: Positive = 1.0

        class Up(Message):
            dy: Vec

        def work(self, me, got, f):
            return me, self.Up(dy=f.sgd(got.x, self.lr) - got.x)

        def merge(self, s, up, cohort):
            return self.Server(x=s.x + self.server_lr * up.dy)

    class Other(Own):
        """A subclass: another recursion."""

    yield Own, Other
    for cls in (Own, Other):
        del registry[cls.__name__]


def test_a_method_of_ones_own_has_rules(own):
    method = own[0](lr="theory", server_lr="theory")
    assert prescribe(method, STRONG, steps=5) == pytest.approx({"lr": 1 / 50, "server_lr": 1.02})
    run = ud.run(method, "quadratic", rounds=20, steps=5)
    assert run.method.lr == pytest.approx(1 / (5 * run.problem.constants.L))
    assert run.history.last["gap"] < run.history.rows[0]["gap"]
    assert failures(own[0]) == {}


def test_rules_are_not_inherited(own):
    assert has_rule(own[0], "lr") and not has_rule(own[1], "lr")
    with pytest.raises(BadParameters, match="no theory prescribes lr"):
        prescribe(own[1](lr="theory"), STRONG, steps=5)


@pytest.mark.parametrize("name, constants, given, needs", [
    ("GD", Constants(), {}, "needs L, which the problem does not know"),
    ("FedRecu", Constants(mu=1.0), {}, "needs L, which"),
    ("FedAvg", Constants(L=0.0), {}, "needs L > 0, but the problem has L = 0"),
    ("FedCET", Constants(L=1.0), {}, "needs mu, which"),
    ("FedCET", CONVEX, {}, "needs mu > 0, but the problem has mu = 0"),
    ("FedCET", CONVEX, {"lr": 0.1}, "needs mu > 0"),
    ("Scaffnew", NONCONVEX, {}, "needs mu > 0, but the problem has mu = -2"),
    ("DANEPlusDual", CONVEX, {}, "needs mu > 0"),
    ("DANE", Constants(L=1.0, mu=0.1), {}, "needs delta_A, which"),
    ("DANE", Constants(L=1.0, delta_A=0.1), {}, "needs mu, which"),
    ("DANE", NONCONVEX, {}, "needs mu >= 0, but the problem has mu = -2"),
    ("DANEPlus", Constants(L=1.0, mu=0.1, delta_B=1.0), {}, "needs delta_A, which"),
    ("FedRed", Constants(L=1.0, mu=-0.1, delta_A=1.0), {}, "needs delta_B, which"),
])  # fmt: skip
def test_missing_constant(name, constants, given, needs):
    with pytest.raises(BadParameters) as error:
        ask(name, constants, **given)
    (text,) = error.value.problems.values()
    assert needs in text and text.endswith(": give it as a number")


def test_the_complaint_is_about_the_field_whose_rule_fails():
    with pytest.raises(BadParameters) as error:
        prescribe(ud.FedRed(eta=2.0, lam="theory", p="theory"), Constants(L=1.0, mu=0.0), steps=5)
    assert error.value.problems == {
        "lam": "theory for lam needs delta_A, which the problem does not know: give it as a number"
    }


def test_a_constant_that_is_not_needed_may_be_missing():
    assert ask("DANEPlus", Constants(L=10.0, mu=0.4), lam=2.0)["lr"] == pytest.approx(1 / 12)
    assert ask("FedRed", Constants(L=10.0, mu=0.4), lam=3.0)["p"] == pytest.approx(3.2 / 9.8)
    assert ask("DANE", Constants(mu=0.0, delta_A=2.0)) == {"lam": 2.0}


@given(
    L=st.floats(1e-3, 1e3), steps=st.integers(1, 50), eta=st.just("theory") | st.floats(1e-3, 1e3)
)
def test_fedpd_steps_within_what_its_local_function_allows(L, steps, eta):
    """On the sharpest f_i, L |y|^2 / 2, plus |y - x|^2/(2 eta), K steps approach the minimiser."""
    found = ask("FedPD", Constants(L=L), steps=steps, eta=eta)
    weight = 1 / found.get("eta", eta)
    y, x = 1.0, 0.0
    for _ in range(steps):
        y -= found["lr"] * (L * y + weight * (y - x))
    assert 0 <= y < 1


@pytest.mark.parametrize("name, constants, given, field", [
    ("FedPDVR", STRONG, {"p": 0.5}, "eta"),  # its theorem skips no communication
    ("FedRed", Constants(L=1.0, mu=0.0, delta_A=0.0, delta_B=0.0), {}, "p"),  # equal clients: p = 0
    ("EXTRA", STRONG, {"steps": 7}, "lr"),
])  # fmt: skip
def test_where_theory_has_no_value(name, constants, given, field):
    with pytest.raises(BadParameters) as error:
        ask(name, constants, **given)
    assert set(error.value.problems) == {field}


# Scaling every f_i by s scales gradients by s: points move alike iff steps scale by 1/s and prox
# weights by s.
POWER = {"gamma": -1, "lr": -1, "eta": 1, "lam": 1, "m": 1, "c": 1, "mu": 1, "p": 0, "server_lr": 0}
GIVEN = {"FedProx": {"mu": 0.3}, "Scaffold": {"server_lr": 1.7}}


@given(
    name=st.sampled_from(sorted(RULES)),
    s=st.floats(1e-3, 1e3),
    mu=st.floats(0.01, 1),
    spread=st.floats(1, 100),
    share=st.floats(0.01, 0.99),
    sign=st.sampled_from([1, -1]),
    steps=st.integers(1, 6),
    fraction=st.floats(0.01, 1),
    batch=st.none() | st.integers(1, 100),
    solver=st.sampled_from(["gd", "exact"]),
    average=st.sampled_from(["avg", "rand"]),
)
def test_scale_invariance(
    name, s, mu, spread, share, sign, steps, fraction, batch, solver, average
):
    if sign < 0 and name in ("FedCET", "Scaffnew", "DANE", "DANEPlusDual"):
        sign = 1

    def constants(scale):
        L = mu * spread
        return Constants(
            L=scale * L,
            mu=scale * sign * mu,
            L_mean=scale * L * 0.9,
            delta_A=scale * share * L / 2,
            delta_B=scale * share * L,
        )

    numbers = GIVEN.get(name, {})
    power = POWER | ({"eta": -1} if name.startswith("FedPD") else {})
    scaled = {field: value * s ** power[field] for field, value in numbers.items()}
    rest = {
        "steps": steps,
        "fraction": fraction,
        "batch": batch,
        "solver": solver,
        "average": average,
    }
    before, after = (
        ask(name, constants(1.0), **rest, **numbers),
        ask(name, constants(s), **rest, **scaled),
    )
    assert before and after == pytest.approx(
        {f: v * s ** power[f] for f, v in before.items()}, rel=1e-9
    )
    assert all(v > 0 for f, v in before.items() if f != "mu") and before.get("p", 1) <= 1


def test_importing_loads_no_arrays():
    code = "import sys, undrift.theory; print({'torch', 'numpy', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", sorted(RULES))
def test_rules_name_fields_that_exist(name):
    assert RULES[name] <= {field.name for field in dataclasses.fields(registry[name])}


def test_methods_without_rules():
    """A new one is listed here, or declares its rules."""
    assert set(registry) - set(RULES) == {
        "CELGD", "FedACG", "FedADMM", "FedAdagrad", "FedAdam", "FedAvgM", "FedCM", "FedDC",
        "FedDyn", "FedSpeed", "FedYogi", "InexactDANE", "Mime", "MimeLite", "MimeMVR", "SONATA",
        "SVRP", "ScaffoldM",
    }  # fmt: skip
