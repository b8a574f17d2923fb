"""What a search finds is what single runs would have shown."""

import dataclasses

import numpy as np
import pytest

import undrift as ud
from undrift.problems.named import build
from undrift.sweeps.search import Search

PROBLEM = build("quadratic", clients=6, dim=4)


def gap(method, rounds, **given):
    return ud.run(method, PROBLEM, rounds=rounds, **given).history.last["gap"]


def test_the_best_of_a_grid_is_that_of_single_runs():
    grid = [float(lr) for lr in np.geomspace(0.01, 0.2, 8)]
    found = Search(ud.Scaffold(lr=0.1), PROBLEM, 40, steps=4).tune({"lr": grid}, extend=False)
    ends = {lr: gap(ud.Scaffold(lr=lr), 40, steps=4) for lr in grid}
    assert found.method.lr == min(ends, key=ends.get)
    assert found.column == "gap"
    values = {dict(one.setting)["lr"]: one.value for one in found.tried if one.status == "done"}
    for lr, value in values.items():
        assert value == pytest.approx(ends[lr], rel=1e-6)


def test_a_grid_goes_on_until_the_best_is_inside():
    small = Search(ud.FedAvg(lr=0.1), PROBLEM, 20).tune({"lr": [1e-4, 4e-4]})
    lr = small.method.lr
    assert not small.edges and min(small.grid["lr"]) < lr < max(small.grid["lr"])
    large = Search(ud.FedAvg(lr=0.1), PROBLEM, 20).tune({"lr": [5.0, 20.0]})
    assert not large.edges and large.method.lr < 5


def test_the_worse_half_is_given_up_and_costs_less():
    grid = {"lr": [0.001 * 2**k for k in range(8)]}
    found = Search(ud.FedAvg(lr=0.1), PROBLEM, 80, steps=2).tune(grid, extend=False)
    rounds = sorted(one.rounds for one in found.tried)
    assert rounds == [10, 10, 10, 10, 20, 20, 40, 80]
    assert found.gradients == sum(rounds) * 2 * PROBLEM.clients


def test_seeds_are_tried_alike_and_counted():
    noisy = build("quadratic", clients=6, dim=4, noise=0.5)
    search = Search(ud.FedAvg(lr=0.1), noisy, 16, seeds=[7, 8], steps=2)
    found = search.tune({"lr": [0.02, 0.05]}, extend=False)
    assert {(dict(one.setting)["lr"], one.seed) for one in found.tried} == {
        (lr, seed) for lr in (0.02, 0.05) for seed in (7, 8)
    }


def test_a_target_is_reached_first_by_the_best():
    goal = ud.EarlyStopping(metric="gap", target=1e-3)
    grid = {"lr": [0.01, 0.03, 0.1]}
    found = Search(ud.Scaffold(lr=0.1), PROBLEM, 80, goal, steps=2).tune(grid, extend=False)
    first = {dict(one.setting)["lr"]: one.reached for one in found.tried}
    reached = {lr: round for lr, round in first.items() if round is not None}
    assert found.method.lr == min(reached, key=reached.get)


def test_what_a_method_does_not_have_is_refused():
    with pytest.raises(ud.BadParameters) as error:
        Search(ud.FedAvg(lr=0.1), PROBLEM, 4).tune({"momentum": [0.1]})
    assert "momentum" in error.value.problems


def test_two_hyper_parameters_are_a_product():
    found = Search(ud.FedProx(lr=0.1, mu=0.1), PROBLEM, 8).tune(
        {"lr": [0.01, 0.1], "mu": [0.1, 1.0]}, extend=False
    )
    assert len({one.setting for one in found.tried}) == 4
    assert dataclasses.asdict(found.method)["mu"] in (0.1, 1.0)
