"""Methods that need exact local minimisers, on problems that have none."""

from pathlib import Path

import pytest
import torch
from torch import nn

import undrift as ud
from undrift.core.params import BadParameters
from undrift.core.problem import Unsupported
from undrift.engines import Simulate
from undrift.problems.named import build
from undrift.runs.experiment import make
from undrift.spec.errors import BadSpec
from undrift.spec.reader import parse

X = torch.linspace(-1, 1, 40).unsqueeze(1)
NEEDING = {
    "DANE": (ud.DANE(lam=1.0), "lam = 1.0", "name"),
    "SVRP": (ud.SVRP(eta=0.1, p=0.5), "eta = 0.1\np = 0.5", "name"),
    "DANEPlus": (
        ud.DANEPlus(lam=1.0, lr=0.1, solver="exact"),
        'lam = 1.0\nlr = 0.1\nsolver = "exact"',
        "solver",
    ),
    "FedRed": (
        ud.FedRed(eta=1.0, lam=1.0, p=0.5, solver="exact"),
        'eta = 1.0\nlam = 1.0\np = 0.5\nsolver = "exact"',
        "solver",
    ),
}
CONVEX = ("quadratic", "least-squares", "logistic", "softmax-synthetic")


def network():
    return ud.Neural(nn.Linear(1, 1), (X, X), ud.data.iid(40, clients=4), loss=nn.MSELoss())


@pytest.mark.parametrize("name", NEEDING)
def test_they_are_refused_before_anything_is_kept(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadParameters) as error:
        ud.run(NEEDING[name][0], network(), rounds=2, save="runs/mine")
    field = NEEDING[name][2].replace("name", "method")
    assert [*error.value.problems] == [field] and not Path("runs").exists()


@pytest.mark.parametrize("name", NEEDING)
def test_a_spec_is_told_the_method(name):
    _, values, field = NEEDING[name]
    spec = parse(
        'name = "mine"\nrounds = 2\n[problem]\nname = "images"\ndata = "digits"\nclients = 4\n'
        f'train = 40\ntest = 20\n[[method]]\nname = "FedAvg"\nlr = 0.1\n'
        f'[[method]]\nname = "{name}"\n{values}\n'
    )
    with pytest.raises(BadSpec) as error:
        make(spec)
    assert [one.path for one in error.value.complaints] == [("method", 1, field)]


@pytest.mark.parametrize("problem", CONVEX)
def test_convex_problems_have_them(problem):
    assert build(problem, clients=4).minimises
    for method, *_ in NEEDING.values():
        assert not method.refuse_problem(build(problem, clients=4))


def test_others_do_without():
    for method in (ud.DANEPlus(lam=1.0, lr=0.1), ud.FedRed(eta=1.0, lam=1.0, p=0.5)):
        assert not method.refuse_problem(network())


def test_an_engine_says_so_when_it_gets_there():
    engine = Simulate(ud.DANE(lam=1.0), network())
    with pytest.raises(Unsupported):
        engine.run_round()
