"""``lr = "auto"``: below the edge, paid for, the same for every seed, and never beyond it."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import undrift as ud
from undrift.core.params import AUTO
from undrift.core.problem import Unsupported
from undrift.engines.options import FederatedOptions
from undrift.methods import registry
from undrift.problems import Quadratic
from undrift.problems.named import build
from undrift.records.folder import Folder
from undrift.report.comparison import compare, read
from undrift.report.tables import parameters
from undrift.runs.prepare import Setup, resolved
from undrift.sweeps import auto
from undrift.theory import fedcet

QUADRATIC = build("quadratic", clients=6, dim=4, L=30.0)
UNLIKE = build("quadratic", clients=8, dim=6, L=30.0)
TOML = """
name = "mine"
rounds = 16
steps = 2
[problem]
name = "quadratic"
clients = 4
[[method]]
name = "Scaffold"
lr = "auto"
"""


@pytest.mark.parametrize("L", [1e-4, 1.0, 3e5])
def test_gradient_descent_stays_below_two_over_L_and_near_the_best(L):
    """With eigenvalues from L/20 to L the best step is 2/(L + L/20), the edge 2/L."""
    A = np.diag([1.0, 0.3, 0.05]) * L
    problem = Quadratic(np.stack([A, A]), np.ones((2, 3)) * L)
    found = auto.find(lambda step: ud.GD(lr=step), problem, 200)
    assert found.step < 2 / L <= found.edge
    assert found.step >= 2 / (1.05 * L) / 2
    assert found.step <= 0.71 * found.edge


def test_every_method_has_a_step_that_can_be_found():
    fields = {name: cls.step_field for name, cls in registry.items()}
    others = {name: field for name, field in fields.items() if field != "lr"}
    assert others == {
        "DANE": "lam", "FedPDVR": "eta", "FedRed": "eta", "FedRedDual": "eta", "SONATA": "beta",
        "SVRP": "eta",
    }  # fmt: skip
    assert ud.FedAvg(lr=AUTO).open_fields() == []
    assert ud.FedAvg(lr=AUTO).open_fields(AUTO) == ["lr"]


def test_what_it_spent_is_in_the_ledger_from_row_0_on():
    given = {"rounds": 16, "steps": 3}
    run = ud.run(ud.Scaffold(lr="auto"), QUADRATIC, **given)
    plain = ud.run(run.method, QUADRATIC, **given)
    assert torch.equal(run.x, plain.x)
    setup = Setup(steps=3)
    task = resolved("x", ud.Scaffold(lr="auto"), QUADRATIC, setup, 16, 1).settled
    assert task.spent > 0 and task.method == run.method
    before = [row["gradients"] for row in plain.history.rows]
    assert [row["gradients"] for row in run.history.rows] == [task.spent + n for n in before]
    assert run.history.rows[0]["vectors"] == 0


def test_no_seed_decides_it():
    problem = build("least-squares", clients=5)
    given = {"rounds": 12, "steps": 2, "batch": 3, "cohort": 3}
    runs = ud.run(ud.FedAvg(lr="auto"), problem, seed=[0, 7], **given)
    first, second = runs.values()
    assert first.method == second.method
    assert first.history.rows[0]["gradients"] == second.history.rows[0]["gradients"]
    assert not torch.equal(first.x, second.x)


@pytest.mark.parametrize("engine", ["simulate", "wire"])
def test_engines_find_the_same(engine):
    run = ud.run(ud.FedLin(lr="auto"), QUADRATIC, rounds=10, steps=2, engine=engine)
    assert run.method == ud.run(ud.FedLin(lr="auto"), QUADRATIC, rounds=10, steps=2).method
    assert run.status == "done"


def test_a_proximal_weight_is_one_over_the_step():
    run = ud.run(ud.DANE(lam="auto"), QUADRATIC, rounds=20)
    found = auto.find(lambda step: ud.DANE(lam=1 / step), QUADRATIC, 20)
    assert run.method.lam == 1 / found.step
    assert run.history.last["gap"] < 1e-9


def test_what_theory_sets_follows_the_step():
    run = ud.run(ud.FedCET(lr="auto", c="theory"), QUADRATIC, rounds=16, steps=2)
    assert run.method.c == fedcet.weight(QUADRATIC.constants.mu, run.method.lr)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        (ud.FedRed(eta="auto", lam="theory", p="theory"), {}),
        (ud.FedAvgM(lr="auto", beta=0.9), {}),
        (ud.FedACG(lr="auto"), {"cohort": 3}),
        (ud.FedDyn(lr="auto"), {"cohort": 3}),
        (ud.Scaffold(lr="auto"), {"cohort": 3}),
        (ud.Mime(lr="auto"), {}),
    ],
    ids=lambda v: type(v).__name__,
)
def test_the_run_that_follows_does_not_diverge(method, given):
    """FedRed's clients part from rounding errors on, which its loss shows after 25 rounds."""
    runs = ud.run(method, UNLIKE, rounds=60, steps=5, seed=[1, 2], **given)
    for run in runs.values():
        assert run.status == "done"
        assert run.history.last["gap"] < run.history.rows[0]["gap"]


def test_a_run_that_was_killed_pays_once(tmp_path):
    def watch(moment):
        if moment.row["round"] == kill_at:
            raise KeyboardInterrupt

    save = ud.Save(tmp_path / "run", checkpoint=0)
    given = {"rounds": 12, "steps": 2, "callbacks": [watch], "save": save}
    kill_at = 7
    with pytest.raises(KeyboardInterrupt):
        ud.run(ud.Scaffold(lr="auto"), QUADRATIC, **given)
    kill_at = -1
    run = ud.run(ud.Scaffold(lr="auto"), QUADRATIC, **given)
    whole = ud.run(ud.Scaffold(lr="auto"), QUADRATIC, rounds=12, steps=2)
    assert run.method == whole.method and torch.equal(run.x, whole.x)
    spent = [row["gradients"] for row in whole.history.rows]
    assert [row["gradients"] for row in run.history.rows] == spent
    again = ud.run(ud.Scaffold(lr="auto"), QUADRATIC, **given)
    assert again.method == whole.method


def test_specs_and_overrides_take_the_word(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text(TOML)
    run = ud.run_spec(spec, save=tmp_path / "run")["Scaffold", 0]
    spec.write_text(TOML.replace('"auto"', "0.1"))
    assert ud.run_spec(spec, overrides=["method.lr=auto"])["Scaffold", 0].method == run.method
    folder = Folder(tmp_path / "run")
    assert folder.outcomes()[0].values["lr"] == run.method.lr
    assert folder.document()["method"][0]["lr"] == "auto"


def test_more_rounds_would_find_another_step(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text(TOML)
    ud.run_spec(spec, save=tmp_path / "run")
    with pytest.raises(Exception, match="another"):
        ud.run_spec(spec, save=tmp_path / "run", overrides=["rounds=20"])


def test_reports_show_what_was_found(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text(TOML)
    ud.run_spec(spec, save=tmp_path / "run")
    (found,) = compare(read([Folder(tmp_path / "run")]))
    ((cell,),) = [
        [row[k] for k, name in enumerate(sheet.head) if name == "hyper-parameters"]
        for sheet in [parameters(found.summaries, found.settings)]
        for row in sheet.rows
    ]
    assert str(getattr(cell, "text", cell)).startswith(
        f"lr (auto) = {found.outcomes[0].values['lr']:.4g}"
    )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ud.FedAvg(lr=0.1, server_lr="auto"), "server_lr = 'auto'"),
        (lambda: ud.FedPD(lr=0.1, eta="auto"), "eta = 'auto'"),
        (lambda: ud.FedRed(lr="auto", eta=1.0, lam=1.0, p=1.0), "lr"),
    ],
)
def test_other_numbers_do_not_take_the_word(make, text):
    with pytest.raises((ud.BadParameters, TypeError), match=text):
        make()


class Noise(ud.Method, register=False):
    """Without any step."""

    sigma: float


def test_a_method_without_a_step_refuses_the_word():
    with pytest.raises(ud.BadParameters, match="sigma = 'auto'"):
        Noise(sigma="auto")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"engine": FederatedOptions()}, "give it as a number"),
        ({"schedule": ud.schedules.Listed(factors=[0.5, 2.0])}, "factors above 1"),
    ],
    ids=["federation", "schedule"],
)
def test_what_short_runs_cannot_find_is_refused(given, text):
    with pytest.raises(ValueError, match=text):
        resolved("x", ud.FedAvg(lr="auto"), QUADRATIC, Setup(**given), 2, 1)


def test_engines_by_themselves_find_nothing():
    with pytest.raises(ud.BadParameters, match="lr must be set"):
        ud.Simulate(ud.FedAvg(lr="auto"), QUADRATIC)


def network(**given):
    torch.manual_seed(0)
    x = torch.randn(60, 3)
    y = (x.sum(1) > 0).long()
    parts = [np.arange(k, 40, 4) for k in range(4)]
    return ud.Neural(nn.Linear(3, 2), (x[:40], y[:40]), parts, **given), (x[40:], y[40:])


def test_test_samples_have_no_say():
    """Labels of test samples are turned round: the step is the same."""
    _, (x, y) = network()
    found = [
        ud.run(ud.FedAvg(lr="auto"), network(test=(x, labels))[0], rounds=8, batch=5).method
        for labels in (y, 1 - y)
    ]
    assert found[0] == found[1]
    own, _ = network(test=[(x[k::4], y[k::4]) for k in range(4)])
    with pytest.raises(Unsupported, match="train_metrics"):
        ud.run(ud.FedAvg(lr="auto"), own, rounds=8)


def test_no_step_at_all_is_an_error():
    class Worse(ud.FedAvg, register=False):
        def merge(self, s, up, cohort):
            return self.Server(x=s.x + 1e9 + 0 * up.dy)

    with pytest.raises(Unsupported, match="with every step"):
        ud.run(Worse(lr="auto"), QUADRATIC, rounds=4)


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_short_runs_work_too(rounds):
    run = ud.run(ud.FedAvg(lr="auto"), QUADRATIC, rounds=rounds, steps=2)
    assert run.history.last["gap"] < run.history.rows[0]["gap"]


def made_up(first, curves, rounds):
    """Short runs of which there are these curves, by rung."""
    runs = object.__new__(auto.ShortRuns)
    race = object.__new__(auto.Race)
    race.curves = curves
    runs.first, runs.most, runs.races, runs.edge = first, 100 * abs(first), [race], math.inf
    return runs


def test_losses_may_be_negative():
    """The same run with its loss lowered by a constant is drawn on in its own units."""
    curve = [(0, 1.0), (4, 0.5), (8, 0.25)]
    runs = made_up(1.0, {0: curve}, 8)
    assert runs.badness(curve, None) == (math.inf, math.log(0.25))
    assert runs.badness(curve, 16)[1] == pytest.approx(math.log(1 / 16))
    lower = [(t, v - 2) for t, v in curve]
    assert runs.badness(lower, 16)[1] == pytest.approx(0.25 - 2 - 0.5)
    rising = [(0, 1.0), (4, 0.25), (8, 0.5)]
    assert runs.badness(rising, 16)[1] == pytest.approx(math.log(0.5))
    assert made_up(-1.0, {0: lower}, 8).steady(0, 8, 16)


def test_who_came_close_is_compared_by_when():
    runs = made_up(1.0, {}, 8)
    early, late = [(0, 1.0), (4, 1e-9), (8, 1e-9)], [(0, 1.0), (4, 1e-7), (8, 1e-15)]
    assert runs.badness(early, None)[0] == 4
    assert runs.badness(early, None) < runs.badness(late, None) < (math.inf, -100.0)


@pytest.mark.parametrize(
    ("early", "late", "steady"),
    [
        (0.2, 0.1, True),
        (0.1, 0.2, True),  # 2 ** 3 times as much in as many rounds again
        (0.1, 2.0, False),  # 20 ** 3 times
        (1e-12, 1e-4, False),  # from rounding errors on
        (1e-18, 1e-17, True),  # rounding errors themselves
    ],
)
def test_what_grows_too_fast_for_the_rest_of_the_rounds_is_not_taken(early, late, steady):
    curve = [(0, 1.0), (12, early), (24, late)]
    assert made_up(1.0, {5: curve}, 24).steady(5, 24, 48) is steady
