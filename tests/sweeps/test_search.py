"""What a search finds is what single runs would have shown."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import undrift as ud
from undrift.core.stopping import USUALLY, Goal
from undrift.problems.named import build
from undrift.sweeps.search import Search

PROBLEM = build("quadratic", clients=6, dim=4)


def search(method, problem, rounds, goal=USUALLY, seeds=(0,), **options):
    def make(setting, problem):
        return dataclasses.replace(method, **setting)

    return Search(make, dict.fromkeys(seeds, problem), rounds, goal, **options)


def gap(method, rounds, **given):
    return ud.run(method, PROBLEM, rounds=rounds, **given).history.last["gap"]


def test_the_best_of_a_grid_is_that_of_single_runs():
    grid = [float(lr) for lr in np.geomspace(0.01, 0.2, 8)]
    found = search(ud.Scaffold(lr=0.1), PROBLEM, 40, steps=4).tune({"lr": grid}, extend=False)
    ends = {lr: gap(ud.Scaffold(lr=lr), 40, steps=4) for lr in grid}
    assert found.method.lr == min(ends, key=ends.get)
    assert found.column == "gap"
    values = {dict(one.setting)["lr"]: one.value for one in found.tried if one.status == "done"}
    for lr, value in values.items():
        assert value == pytest.approx(ends[lr], rel=1e-6)


def test_a_grid_goes_on_until_the_best_is_inside():
    small = search(ud.FedAvg(lr=0.1), PROBLEM, 20).tune({"lr": [1e-4, 4e-4]})
    lr = small.method.lr
    assert not small.open_ends and min(small.grid["lr"]) < lr < max(small.grid["lr"])
    large = search(ud.FedAvg(lr=0.1), PROBLEM, 20).tune({"lr": [5.0, 20.0]})
    assert not large.open_ends and large.method.lr < 5


def test_the_worse_half_is_given_up_and_costs_less():
    grid = {"lr": [0.001 * 2**k for k in range(8)]}
    found = search(ud.FedAvg(lr=0.1), PROBLEM, 80, steps=2, halve=True).tune(grid, extend=False)
    rounds = sorted(one.rounds for one in found.tried)
    assert rounds == [20, 20, 20, 20, 40, 40, 80, 80]
    assert found.gradients == sum(rounds) * 2 * PROBLEM.clients


def test_seeds_are_tried_alike_and_counted():
    noisy = build("quadratic", clients=6, dim=4, noise=0.5)
    tried = search(ud.FedAvg(lr=0.1), noisy, 16, seeds=[7, 8], steps=2)
    found = tried.tune({"lr": [0.02, 0.05]}, extend=False)
    assert {(dict(one.setting)["lr"], one.seed) for one in found.tried} == {
        (lr, seed) for lr in (0.02, 0.05) for seed in (7, 8)
    }


def test_a_target_is_reached_first_by_the_best():
    goal = ud.EarlyStopping(metric="gap", target=1e-3)
    grid = {"lr": [0.01, 0.03, 0.1]}
    found = search(ud.Scaffold(lr=0.1), PROBLEM, 80, goal, steps=2).tune(grid, extend=False)
    first = {dict(one.setting)["lr"]: one.reached for one in found.tried}
    reached = {lr: round for lr, round in first.items() if round is not None}
    assert found.method.lr == min(reached, key=reached.get)


def test_what_a_method_refuses_is_no_setting_of_it():
    found = search(ud.FedAvgM(lr=0.1, beta=0.1), PROBLEM, 8).tune(
        {"beta": [0.3, 0.9, 2.7]}, extend=False
    )
    status = {dict(one.setting)["beta"]: one.status for one in found.tried}
    assert status[2.7] == "refused" and "refused" not in (status[0.3], status[0.9])
    assert found.best["beta"] < 1


def test_the_largest_value_that_a_method_allows_is_an_end():
    found = search(ud.FedAvgM(lr=0.1, beta=0.1), PROBLEM, 8).tune(
        {"lr": [0.001, 0.002], "beta": [0.3, 0.9]}
    )
    assert found.best["beta"] == 0.9 and found.open_ends == ["beta"]
    assert max(found.grid["lr"]) > found.best["lr"] > 0.002


def test_several_seeds_are_one_setting_by_their_means():
    noisy = build("quadratic", clients=6, dim=4, noise=0.5)
    goal = ud.EarlyStopping(metric="gap", target=0.5)
    tried = search(ud.FedAvg(lr=0.1), noisy, 40, goal, seeds=[1, 2, 3], steps=2)
    found = tried.tune({"lr": [0.01, 0.05, 9.0]}, extend=False)
    for one in found.means:
        own = [run for run in found.tried if run.setting == one.setting]
        rounds = [run.reached for run in own]
        assert len(own) == 3 and one.reached == (None if None in rounds else np.mean(rounds))
        assert one.value == pytest.approx(np.mean([run.value for run in own]), nan_ok=True)
    assert [one.status for one in found.means] == ["done", "done", "diverged"]
    assert found.result.reached == min(one.reached for one in found.means if one.reached)


def test_steps_and_cohorts_are_tried_too():
    grid = {"lr": [0.02, 0.05], "steps": [1, 4], "cohort": [3, 6]}
    found = search(ud.FedAvg(lr=0.1), PROBLEM, 8).tune(grid, extend=False)
    assert found.settings == 8 and found.best["cohort"] in (3, 6)
    spent = {one.setting: one.gradients for one in found.tried}
    assert all(spent[s] == 8 * dict(s)["steps"] * dict(s)["cohort"] for s in spent)
    for one in found.tried:
        how = dict(one.setting)
        method = ud.FedAvg(lr=how.pop("lr"))
        assert one.value == pytest.approx(gap(method, 8, **how), rel=1e-9)


def test_a_search_ends_when_its_gradients_are_spent():
    grid = {"lr": [0.01, 0.02, 0.04]}
    found = search(ud.FedAvg(lr=0.1), PROBLEM, 400, gradients=200).tune(grid)
    assert {one.status for one in found.tried} == {"given up"} and found.open_ends == ["lr"]
    assert 200 <= found.gradients < 400


def test_what_is_known_is_not_run_again(monkeypatch):
    heard = []
    grid = {"lr": [0.001, 0.002]}
    first = search(ud.FedAvg(lr=0.1), PROBLEM, 20, heard=heard.append).tune(grid)
    assert heard[-1] == first.tried and len(heard) > 1
    again = search(ud.FedAvg(lr=0.1), PROBLEM, 20, known=heard[0])
    monkeypatch.setattr(again, "_race", lambda settings, *_: pytest.fail(f"ran {settings}"))
    again.run([one.setting for one in heard[0]])
    whole = search(ud.FedAvg(lr=0.1), PROBLEM, 20, known=first.tried)
    monkeypatch.setattr(whole, "_race", lambda settings, *_: pytest.fail(f"ran {settings}"))
    assert whole.tune(grid).best == first.best


def test_two_hyper_parameters_are_a_product():
    found = search(ud.FedProx(lr=0.1, mu=0.1), PROBLEM, 8).tune(
        {"lr": [0.01, 0.1], "mu": [0.1, 1.0]}, extend=False
    )
    assert len({one.setting for one in found.tried}) == 4
    assert dataclasses.asdict(found.method)["mu"] in (0.1, 1.0)


def test_what_steers_a_round_is_not_run_side_by_side(monkeypatch):
    from undrift.sweeps import search as searching

    stacks = []

    class Seen(searching.Sweep):
        def __init__(self, methods, *given, **options):
            super().__init__(methods, *given, **options)
            stacks.append(self)

    monkeypatch.setattr(searching, "Sweep", Seen)
    grid = {"lr": [0.02, 0.05], "p": [0.25, 0.5]}
    method = ud.Scaffnew(lr=0.1, p=0.5)
    found = search(method, PROBLEM, 8, apart=method.steering).tune(grid, extend=False)
    assert found.settings == 4 and [len(one.methods) for one in stacks] == [2, 2]
    assert all(one.why == "" and not one.alone for one in stacks)


def test_test_samples_do_not_choose_a_setting():
    digits = build("images", data="digits", clients=4, model="mlp", hidden=4)
    found = search(ud.FedAvg(lr=0.1), digits, 2, batch=10).tune({"lr": [0.1, 0.4]}, extend=False)
    assert found.column == "train_accuracy" and found.by == "train_accuracy after 2 rounds"
    for one in found.tried:
        run = ud.run(ud.FedAvg(lr=dict(one.setting)["lr"]), digits, rounds=2, batch=10)
        samples = digits.client_metrics(run.x)["accuracy"]
        assert one.value == pytest.approx(float(samples.mean()), rel=1e-6)
    with pytest.raises(ud.BadParameters, match="train_top5"):
        search(ud.FedAvg(lr=0.1), digits, 2, Goal(metric="top5"))
    parts = [np.arange(30), np.arange(30, 60)]
    data = torch.randn(60, 3), torch.arange(60) % 2
    own = ud.Neural(nn.Linear(3, 2), data, parts, test=0.2)
    assert search(ud.FedAvg(lr=0.1), own, 2).column == "accuracy"
