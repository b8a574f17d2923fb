"""Estimated constants against exact ones, and against dense Hessians."""

import dataclasses

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

import undrift as ud
from undrift.problems.named import build
from undrift.sweeps import constants
from undrift.sweeps.constants import estimate, lanczos

EXACT = {
    "quadratic": ("quadratic", {"clients": 8, "dim": 6}),
    "one coordinate": ("quadratic", {"clients": 3, "dim": 1, "L": 1.5}),
    "alike": ("quadratic", {"clients": 5, "dim": 30, "seed": 3, "heterogeneity": 0.1}),
    "wide": ("quadratic", {"clients": 20, "dim": 40, "mu": 0.01, "L": 100.0, "seed": 1}),
    "least squares": ("least-squares", {"clients": 5}),
    "fedred": ("fedred", {"dim": 60}),
    "logistic": ("logistic", {"data": "breast-cancer", "clients": 4}),
    "skewed": ("logistic", {"data": "breast-cancer", "clients": 10, "beta": 0.3, "seed": 2}),
}


@pytest.mark.parametrize("case", EXACT)
def test_constants_are_those_that_problems_know(case):
    name, parameters = EXACT[case]
    problem = build(name, **parameters)
    found, known = estimate(problem), problem.constants
    for field, value in dataclasses.asdict(known).items():
        near = 0.1 if field.startswith("delta") else 0.05
        assert getattr(found.constants, field) == pytest.approx(value, rel=near), field
        assert found.errors[field] <= near * value, field
    assert found.part == ""


def samples(count):
    torch.manual_seed(0)
    return torch.randn(count, 5).double(), torch.randint(3, (count,))


def network():
    inputs, labels = samples(120)
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    return ud.Neural(net, (inputs.float(), labels), np.array_split(np.arange(120), 3))


def test_constants_of_a_network_are_those_of_dense_hessians():
    problem = network().to(torch.float64, torch.device("cpu"))
    x = problem.start().double() + 0.1
    inputs, labels = samples(120)

    def loss(y, rows):
        w, b, v, c = y.split([20, 4, 12, 3])
        out = (inputs.float().double()[rows] @ w.view(4, 5).T + b).relu() @ v.view(3, 4).T + c
        return nn.functional.cross_entropy(out, labels[rows])

    parts = np.array_split(np.arange(120), 3)
    hessians = np.stack([torch.func.hessian(loss)(x, rows).numpy() for rows in parts])
    mean, found = hessians.mean(0), estimate(problem, [x]).constants
    largest, least = (np.linalg.eigvalsh(hessians)[:, [-1, 0]]).T
    gaps = hessians - mean
    assert_allclose(found.L, np.abs([*largest, *least]).max(), rtol=0.01)
    assert_allclose(found.mu, least.min(), atol=0.01 * found.L)
    assert_allclose(found.L_mean, np.abs(np.linalg.eigvalsh(mean)).max(), rtol=0.01)
    assert_allclose(found.delta_B, np.abs(np.linalg.eigvalsh(gaps)).max(), rtol=0.01)
    square = np.linalg.eigvalsh((gaps @ gaps).mean(0)).max()
    assert_allclose(found.delta_A, np.sqrt(square), rtol=0.01)


def test_rows_that_cannot_be_extreme_are_left_out():
    rng = np.random.default_rng(0)
    scale = np.array([1.0, 10.0, 2.0, 100.0, 3.0])[:, None, None]
    drawn = scale * rng.standard_normal((5, 40, 40))
    matrices = torch.from_numpy(drawn + drawn.transpose(0, 2, 1))
    asked = list[list[int]]()

    def on(rows):
        asked.append(rows.tolist())
        return lambda v: (matrices[rows] @ v.unsqueeze(-1)).squeeze(-1)

    low, high = lanczos(on, torch.from_numpy(rng.standard_normal((5, 40))))
    known = np.linalg.eigvalsh(matrices.numpy())
    assert low[0] == pytest.approx(known.min(), rel=0.01)
    assert high[0] == pytest.approx(known.max(), rel=0.01)
    assert asked[0] == [0, 1, 2, 3, 4]
    assert asked[-1] == [3]


@pytest.mark.parametrize("given", ["quadratic", None])
def test_only_problems_have_constants(given):
    with pytest.raises(ud.BadParameters, match="give a problem itself") as caught:
        estimate(given)
    assert list(caught.value.problems) == ["problem"]


def test_gradients_that_overflow_are_refused():
    inputs = samples(20)[0] * 1e160
    parts = np.array_split(np.arange(20), 2)
    problem = ud.Neural(nn.Linear(5, 1), (inputs, inputs[:, :1]), parts, loss=nn.MSELoss())
    with pytest.raises(ud.Unsupported, match="gradients are not finite"):
        estimate(problem.to(torch.float64, torch.device("cpu")))


def test_noise_has_the_variance_that_was_asked_for():
    found = estimate(build("quadratic", noise=3.0, clients=4, dim=5), draws=400)
    assert found.noise == pytest.approx(3.0, abs=4 * found.errors["noise"])
    assert estimate(build("quadratic", clients=4, dim=5)).noise == 0


def test_of_large_data_a_part_is_taken_and_its_error_bars_are_wider(monkeypatch):
    problem = build("logistic", data="breast-cancer", clients=12, partition="iid")
    exact, whole = problem.constants, estimate(problem)
    monkeypatch.setattr(constants, "COORDINATES", problem.dim * 9)
    fewer = estimate(problem)
    assert fewer.part == ", of 9 of 12 clients and all of their samples"
    monkeypatch.setattr(constants, "WORK", problem.dim * 8 * 30)
    fewest = estimate(problem)
    assert "of 8 of 12 clients and at most 30 samples of each" in repr(fewest)
    for found in (fewer, fewest):
        for name in ("L", "L_mean", "delta_A", "delta_B"):
            value = getattr(found.constants, name)
            assert found.errors[name] > whole.errors[name]
            assert value == pytest.approx(getattr(exact, name), abs=2 * found.errors[name]), name


def test_theory_works_on_networks_and_says_that_constants_are_estimates():
    problem = network()
    with pytest.warns(UserWarning, match="estimated constants"):
        run = ud.run(ud.FedAvg(lr="theory"), problem, rounds=2, steps=5)
    found = vars(problem)["estimates"]
    assert run.method.lr == 1 / (5 * found.constants.L)
    assert run.history["gradients"][0] == found.gradients
    assert run.history["gradients"][-1] == found.gradients + 2 * 5 * 3
    assert f"L = {found.constants.L:.3g} ± " in run.note
    with pytest.raises(ud.BadParameters, match=f"mu = {found.constants.mu:g}"):
        ud.run(ud.Scaffnew(lr="theory", p="theory"), problem, rounds=2)
    with pytest.raises(ud.BadParameters, match="no theory prescribes lr"):
        ud.run(ud.FedAvgM(lr="theory", beta=0.9), network(), rounds=2)


def test_what_a_problem_knows_is_not_estimated():
    problem = build("logistic", data="breast-cancer", clients=4)
    assert ud.run(ud.GD(lr="theory"), problem, rounds=1).note == ""
    with pytest.raises(ud.BadParameters, match="6 local steps"):
        ud.run(ud.EXTRA(lr="theory"), problem, rounds=1, steps=7)
    assert "estimates" not in vars(problem)
