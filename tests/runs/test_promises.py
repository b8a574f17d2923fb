"""Theorems' bounds beside measured curves, and why there is none."""

import json
import re

import numpy as np
import pytest
import torch
from torch import nn

import undrift as ud
from undrift.plots.columns import BOUND_OF
from undrift.records.folder import BadFolder, Folder
from undrift.report.comparison import compare, read
from undrift.report.html import page
from undrift.runs.promises import bounds_of, recorded

PROMISING = {
    "GD": ud.GD(lr="theory"),
    "FedRecu": ud.FedRecu(lr="theory"),
    "FedRecu, short": ud.FedRecu(lr=0.001),
    "DANE": ud.DANE(lam="theory"),
    "DANE, held back": ud.DANE(lam=50.0),
    "DANEPlus": ud.DANEPlus(lam="theory", lr="theory", mu="theory", solver="exact"),
    "Scaffnew": ud.Scaffnew(lr="theory", p="theory"),
    "Scaffnew, often": ud.Scaffnew(lr="theory", p=0.9),
    "FedRed": ud.FedRed(eta="theory", lam="theory", p="theory"),
}
PROBLEMS = [
    {"clients": 6, "dim": 5, "heterogeneity": 0.2},
    {"clients": 3, "dim": 8, "heterogeneity": 1.0, "L": 40.0, "seed": 1},
    {"clients": 4, "dim": 2, "heterogeneity": 0.0, "seed": 2},
]


def promised(run):
    return bounds_of([(run.label, run.method, run.problem, run.options, run.history.rows)])


@pytest.mark.parametrize("parameters", PROBLEMS)
@pytest.mark.parametrize("label", PROMISING)
def test_no_curve_is_above_its_bound(label, parameters):
    problem = ud.problems.build("quadratic", **parameters)
    runs = ud.run({label: PROMISING[label]}, problem, rounds=25, steps=3, seed=[0, 1])
    for run in runs.values():
        (rows, without), gaps = promised(run), run.history["gap"]
        assert without == [] and len(rows) == 25
        bounds = np.array([row["gap"] for row in rows])
        assert (gaps[1:] <= bounds + 1e-12 * gaps[0]).all()
        assert bounds[-1] < bounds[0] or bounds[0] == 0
        assert {row[BOUND_OF] for row in rows} == {label}
        assert all("loss" not in row and "drift" not in row for row in rows)


def test_a_bound_is_sharp_where_all_curvatures_are_equal():
    """Then one step of length 1/L is enough, and the bound knows it."""
    problem = ud.problems.build("quadratic", clients=3, dim=4, mu=2.0, L=2.0)
    rows = promised(ud.run(ud.GD(lr="theory"), problem, rounds=3))[0]
    assert [row["gap"] for row in rows] == pytest.approx([0, 0, 0], abs=1e-12)


QUADRATIC = {"problem": "quadratic", "clients": 4, "dim": 3}
THEORY = ud.FedRecu(lr="theory")
NONE = {
    "too long a step": (ud.FedRecu(lr=0.1), {}, "needs lr <= 0.02051, not 0.1"),
    "too small a weight": (ud.DANE(lam=0.01), {}, "needs lam >= "),
    "part of the clients": (ud.FedAvg(lr=0.01), {"cohort": 2}, "no theorem on"),
    "inexact": (ud.DANEPlus(lam=9.0, lr=0.05), {}, "needs solver = exact"),
    "other p": (ud.FedRed(eta=20.0, lam=6.0, p=0.9), {}, "needs p <= "),
    "noise": (THEORY, {"noise": 0.1}, "its theorem is not about noise"),
    "schedule": (THEORY, {"schedule": 0.99}, "not about schedule"),
    "decay": (THEORY, {"training": {"weight_decay": 0.1}}, "not about training"),
    "not strong": (ud.Scaffnew(lr=0.05, p=0.3), {"mu": 0.0}, "needs mu > 0"),
}


@pytest.mark.parametrize("case", NONE)
def test_no_bound_is_drawn_where_its_theorem_does_not_hold(case):
    method, more, reason = NONE[case]
    run = ud.run(method, **QUADRATIC, rounds=2, steps=3, **more)
    rows, (why,) = promised(run)
    assert rows == [] and why.startswith("No bound for ") and reason in why


def test_mini_batches_and_cohorts_have_no_bound():
    problem = ud.problems.build("logistic", data="breast-cancer", clients=4)
    run = ud.run(ud.FedRecu(lr="theory"), problem, rounds=2, steps=3, batch=5)
    assert "not about batch" in promised(run)[1][0]

    class Part(ud.GD, register=False):
        participation = "partial"
        promise = ud.GD.promise

    run = ud.run(Part(lr=0.01), problem, rounds=2, cohort=2)
    assert "not about cohort" in promised(run)[1][0]


def test_a_subclass_has_no_bound_of_its_own():
    class Other(ud.GD, register=False):
        pass

    run = ud.run(Other(lr=0.01), **QUADRATIC, rounds=2)
    assert "no theorem on f(x) - f*" in promised(run)[1][0]


def test_networks_have_no_known_minimum():
    torch.manual_seed(0)
    data = torch.randn(20, 3), torch.randint(2, (20,))
    problem = ud.Neural(nn.Linear(3, 2), data, [np.arange(10), np.arange(10, 20)])
    run = ud.run(ud.GD(lr=0.01), problem, rounds=2)
    assert "needs f*, which the problem does not know" in promised(run)[1][0]


def test_bounds_from_estimates_say_so():
    class Unknown(ud.problems.Quadratic):
        constants = ud.Constants()

    hessians = np.array([np.diag([1.0, 3.0]), np.diag([2.0, 5.0])])
    known, unknown = (kind(hessians, np.ones((2, 2))) for kind in (ud.problems.Quadratic, Unknown))
    (exact, _), (found, _) = (
        promised(ud.run(ud.GD(lr=0.2), problem, rounds=5)) for problem in (known, unknown)
    )
    assert found[0]["label"] == "GD: bound (descent lemma, estimated constants)"
    near = pytest.approx([row["gap"] for row in exact], rel=0.02)
    assert [row["gap"] for row in found] == near


METHODS = {
    "GD": ud.GD(lr="theory"),
    "DANE": ud.DANE(lam="theory"),
    "FedAvg": ud.FedAvg(lr=0.01),
}


def test_curves_of_python_have_their_bounds(tmp_path):
    runs = ud.run(METHODS, **QUADRATIC, rounds=8)
    with pytest.warns(UserWarning, match="No bound for FedAvg: no theorem"):
        axes = runs.plot(bounds=True)
    lines = {line.get_label(): line for line in axes.get_lines()}
    dashed = {name: line for name, line in lines.items() if "bound" in str(name)}
    assert [*dashed] == ["GD: bound (descent lemma)", "DANE: bound (Jiang et al., (B.15))"]
    for name, line in dashed.items():
        own = lines[str(name).partition(":")[0]]
        assert line.get_linestyle() == "--" and line.get_color() == own.get_color()
        assert (line.get_ydata() >= own.get_ydata()[1:]).all()
    assert len(runs.plot("loss", bounds=True).get_lines()) == 3


def test_reports_have_bounds_with_the_values_that_were_run(tmp_path):
    ud.run(METHODS, **QUADRATIC, rounds=8, seed=[0, 1], save=tmp_path / "run")
    (found,) = compare(read([Folder(tmp_path / "run")]))
    assert found.bounds == []
    found.bounds, found.bound_notes = bounds_of(recorded(found.runs[0]))
    assert found.bound_notes == [
        "No bound for FedAvg: no theorem on f(x) - f* is written down for it."
    ]
    assert {row["seed"] for row in found.bounds} == {0}
    text = page(found)
    data = json.loads(re.search(r'id="record">(.*?)</script>', text)[1])
    series = {one["label"]: one for one in data["series"]}
    drawn = series["GD: bound (descent lemma)"]
    assert drawn["bounds"] == "GD" and series["GD"]["bounds"] is None
    assert len(drawn["seeds"]["0"]["gap"]) == 8
    assert found.bound_notes[0] in text and "theorems' bounds" in text.replace("&#39;", "'")
    from undrift.report.figures import panels

    (left, right) = panels({"run": found}).axes
    for ax in (left, right):
        assert [*ax.get_legend_handles_labels()[1]][3:] == [
            "GD: bound (descent lemma)",
            "DANE: bound (Jiang et al., (B.15))",
        ]


def test_what_only_a_program_has_is_named(tmp_path):
    problem = ud.problems.Quadratic(np.eye(2)[None].repeat(2, 0), np.ones((2, 2)))
    ud.run(ud.GD(lr=0.1), problem, rounds=2, save=tmp_path / "run")
    (found,) = compare(read([Folder(tmp_path / "run")]))
    with pytest.raises(BadFolder, match=r"runs.plot\(bounds=True\)"):
        [*recorded(found.runs[0])]
