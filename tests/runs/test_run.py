"""What a finished run in Python offers."""

import dataclasses
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import nn

import undrift as ud
from undrift.check.federations import quadratic, quadratics
from undrift.core import Unsupported
from undrift.problems.quadratic import Quadratic
from undrift.runs.results import History, Run, Runs


@pytest.fixture(scope="module")
def convex():
    return ud.run(ud.FedAvg(lr=0.02), quadratic(), rounds=2, steps=2)


@pytest.fixture(scope="module")
def network():
    small = {"clients": 4, "train": 60, "test": 20, "model": "mlp", "hidden": 4}
    return ud.run(ud.FedAvg(lr=0.1), "images", rounds=2, batch=8, **small)


@pytest.fixture(autouse=True)
def no_figures():
    yield
    plt.close("all")


def test_what_is_drawn_is_what_the_problem_measures(convex, network):
    drawn = convex.plot().lines[0].get_ydata()
    assert drawn.tolist() == convex.history["gap"].tolist()
    assert (
        network.plot().lines[0].get_ydata().tolist() == (100 * network.history["accuracy"]).tolist()
    )
    rows = History([{"round": 0, "loss": 2.0}, {"round": 1, "loss": 1.0}])
    bare = Run(convex.method, convex.problem, convex.engine, rows, "done")
    assert bare.plot().lines[0].get_ydata().tolist() == [2, 1]
    assert network.plot("loss", x="vectors").get_xlabel().startswith("vectors")


def test_a_column_that_was_not_recorded(network):
    for columns in (("gap", "round"), ("loss", "gap")):
        with pytest.raises(KeyError) as caught:
            network.plot(*columns)
        assert all(name in str(caught.value) for name in ("gap", "accuracy", "loss", "vectors_up"))
    assert plt.get_fignums() == []


def test_a_run_in_one_line(convex, network):
    gap = convex.history.last["gap"]
    assert repr(convex).startswith("Run(FedAvg(lr=0.02")
    for part in (
        "Quadratic(4 clients, dim 3)",
        "done",
        "round=2",
        f"gap={gap:.4g}",
        "vectors=4",
    ):
        assert part in repr(convex)
    assert "Neural(4 clients" in repr(network) and "accuracy=" in repr(network)
    for run in (convex, network):
        assert "\n" not in repr(run) and "0x" not in repr(run) and "bytes_up" not in repr(run)


class Line(Quadratic):
    """A network with one weight matrix, as ``module`` of a problem is asked for it."""

    def module(self, x):
        net = nn.Linear(self.dim, 1, bias=False)
        net.weight.data = x.reshape(1, -1)
        return net


def test_the_trained_network(convex):
    run = ud.run(ud.FedAvg(lr=0.02), Line(*quadratics()), rounds=2, steps=2)
    net = run.module()
    assert isinstance(net, nn.Module) and torch.equal(net.weight[0], convex.x)
    with torch.no_grad():
        net.weight.zero_()
    assert torch.equal(run.x, convex.x) and run.x.any()
    with pytest.raises(Unsupported, match="Quadratic is not a network"):
        convex.module()


def test_a_run_that_diverged_or_was_stopped_has_no_final_gap_in_the_table():
    methods = {"sound": ud.FedAvg(lr=0.01), "wild": ud.FedAvg(lr=1e200)}
    found = ud.run(methods, "quadratic", rounds=3, steps=2)
    assert found["wild", 0].status == "diverged"
    stopped = dataclasses.replace(found["sound", 0], status="stopped")
    runs = Runs({**found, ("cut", 0): stopped})
    head, _, *lines = (re.split(r"\s{2,}", line) for line in runs.table().splitlines())
    ends = {line[0]: line[head.index("final gap")] for line in lines[:3]}
    assert float(ends["sound"]) > 0 and ends["wild"] == ends["cut"] == "-"


def test_a_method_that_no_seed_changes_has_the_rows_of_one():
    given = {"rounds": 2, "clients": 4, "seed": [0, 1, 2], "cohort": 2}
    runs = ud.run({"still": ud.FedAvg(lr=0.01)}, "quadratic", rounds=2, seed=[0, 1, 2])
    assert len(runs) == 3 and [row["seed"] for row in runs.records] == [0, 0, 0]
    drawn = ud.run({"drawn": ud.FedAvg(lr=0.01)}, "least-squares", **given)
    assert {row["seed"] for row in drawn.records} == {0, 1, 2}


def test_differences_seed_by_seed():
    methods = {"A": ud.FedAvg(lr=1e-3), "B": ud.FedAvg(lr=2e-3), "wild": ud.FedAvg(lr=1e200)}
    given = {"rounds": 5, "steps": 2, "clients": 4}
    noisy = ud.run(methods, "least-squares", batch=2, seed=[0, 1, 2], **given)
    found = noisy.against("A", target=1e9)
    ends = [noisy["B", k].history["gap"][-1] - noisy["A", k].history["gap"][-1] for k in range(3)]
    half = 4.302652729696142 * np.std(ends, ddof=1) / np.sqrt(3)  # of Student's t, from a table
    final = found["B"].final
    assert final.seeds == 3 and final.mean == pytest.approx(np.mean(ends))
    assert (final.high - final.mean, final.mean - final.low) == pytest.approx((half, half))
    assert found["wild"].final.mean is None and found["B"].rounds.mean == 0
    head, _, b, wild, *_ = found.table().splitlines()
    assert head.startswith("against A") and b.split()[1] == "3" and " - " in wild
    still = ud.run(methods, "least-squares", seed=[0, 1, 2], **given)
    assert still["A", 2].same_as == 0
    only = still.against("A")["B"].final
    assert (only.seeds, only.low) == (1, None) and only.mean is not None
    with pytest.raises(KeyError, match="A, B, wild"):
        still.against("C")


def test_tables_say_what_those_of_the_terminal_say(tmp_path):
    methods, images = [ud.FedAvg(lr=0.1)], {"name": "images", "clients": 2, "train": 40, "test": 20}
    runs = ud.run(methods, images, rounds=1, batch=8, seed=[0, 1], save=tmp_path / "r")
    assert "accuracy and loss: at the end, on the test samples" in runs.table()
    assert "seeds vary random draws (same split, same first weights)" in runs.table()
