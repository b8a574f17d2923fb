"""Early stopping, the best model, and callbacks that see the model."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli.stopping import after, rows

import undrift as ud
from undrift.cli import main
from undrift.cli import run as verb
from undrift.core.stopping import EarlyStopping, Waiting
from undrift.records.folder import BadFolder, Folder
from undrift.runs import run_experiment
from undrift.spec.errors import BadSpec

FEDAVG = ud.FedAvg(lr=0.05)
NOISY = {"rounds": 60, "steps": 5, "batch": 2, "clients": 4, "rows": 8}
"""Mini-batches: the loss goes up and down."""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def bare(run):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.history.rows]


def stops_at(values, patience, delta=0.0, larger=False):
    """The position of the row that ends a run, by NumPy: patience rows after the best so far."""
    signed = np.asarray(values) * (1 if larger else -1)
    best, at = signed[0], 0
    for k in range(1, len(signed)):
        if signed[k] > best + delta:
            best, at = signed[k], k
        if k - at == patience:
            return k
    return None


@pytest.mark.parametrize(
    ("metric", "patience", "delta"),
    [("gap", 3, 0.0), ("loss", 5, 0.0), ("loss", 2, 0.05), ("distance", 1, 0.0)],
)
def test_a_run_ends_where_patience_does(metric, patience, delta):
    whole = ud.run(FEDAVG, "least-squares", **NOISY)
    end = stops_at(whole.history[metric], patience, delta)
    assert end is not None and end < 60
    rule = EarlyStopping(metric=metric, patience=patience, min_delta=delta)
    for engine in ("simulate", "wire"):
        run = ud.run(FEDAVG, "least-squares", engine=engine, **NOISY, callbacks=rule)
        assert (run.status, run.history.last["round"]) == ("early", end)
        if engine == "simulate":
            assert bare(run) == bare(whole)[: end + 1]


def test_numbers_that_are_not_finite_are_never_better():
    rule, seen = EarlyStopping(metric="f1", mode="max", patience=2), Waiting()
    for round, value in enumerate([math.nan, 0.5, math.nan, math.inf, -math.inf]):
        seen.see(rule, {"round": round, "f1": value})
        if value != math.inf:
            assert seen.over(rule) == (value == -math.inf and seen.rows >= 2)
    assert seen.round == 3


def test_a_target_ends_a_run():
    gaps = ud.run(FEDAVG, "least-squares", **NOISY).history["gap"]
    goal = float(np.sort(gaps)[30])
    run = ud.run(
        FEDAVG,
        "least-squares",
        **NOISY,
        callbacks=ud.EarlyStopping(**{"metric": "gap", "target": goal}),
    )
    assert run.status == "reached"
    assert run.history.last["round"] == int(np.argmax(gaps <= goal))


@pytest.mark.parametrize(("metric", "better"), [("accuracy", 0.96), ("loss", 0.94)])
def test_a_number_that_equals_the_target_has_reached_it(metric, better):
    rule = EarlyStopping(metric=metric, target=0.95)
    assert [rule.reached(metric, v) for v in (0.95, better, 1.9 - better)] == [True, True, False]


SPEC = """\
name = "mine"
rounds = 60
steps = 5
batch = 2
[stop]
patience = 4
[problem]
name = "least-squares"
clients = 4
rows = 8
[[method]]
name = "FedAvg"
lr = 0.05
[[method]]
name = "Scaffold"
lr = 0.05
"""


@pytest.mark.parametrize("rounds", [3, 5, 9])
def test_a_run_that_is_cut_off_ends_where_it_would_have(tmp_path, monkeypatch, capsys, rounds):
    (tmp_path / "spec.toml").write_text(SPEC)
    assert main(["run", "spec.toml", "--out", "whole"]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(verb, "Stop", after(rounds))
        assert main(["run", "spec.toml", "--checkpoint", "0"]) == 130
    assert main(["resume", "mine"]) == 0
    assert "continues from round" in capsys.readouterr().err
    assert rows("runs/mine") == rows("whole/mine")
    mine, whole = (Folder(tmp_path / f / "mine").outcomes() for f in ("runs", "whole"))
    assert mine == whole and {outcome.status for outcome in mine} == {"early"}


@pytest.mark.whole
def test_several_processes_and_engines_end_alike(tmp_path, capsys):
    (tmp_path / "spec.toml").write_text(SPEC)
    assert main(["run", "spec.toml", "--out", "whole"]) == 0
    assert main(["run", "spec.toml", "--out", "jobs", "--jobs", "2"]) == 0
    assert rows("jobs/mine") == rows("whole/mine")
    code = "import sys; from undrift.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["run", "spec.toml", "--out", "ranks", "--engine", "distributed", "--workers", "2"]
    done = subprocess.run([sys.executable, "-c", code, *words], env=os.environ, timeout=300)
    assert done.returncode == 0
    ends = {
        out: [(row["label"], row["round"]) for row in rows(f"{out}/mine")]
        for out in ("whole", "ranks")
    }
    assert ends["ranks"] == ends["whole"]


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ("[stop]\n", 5),
        ("[stop]\npatience = 0\n", 6),
        ("[stop]\npatience = 3\nmetric = 'acuracy'\nmode = 'max'\n", 7),
        ("[stop]\npatience = 3\nmetric = 'norm'\n", 5),
        ("[stop]\npatience = 3\nrows = 2\n", 7),
        ("best = 'accuracy'\n", 5),
        ("[best]\nmode = 'max'\n", 6),
    ],
)
def test_what_a_spec_has_wrong_is_told_with_its_line(tmp_path, table, line):
    (tmp_path / "spec.toml").write_text(SPEC.replace("[stop]\npatience = 4\n", table))
    with pytest.raises(BadSpec) as error:
        ud.run_spec(tmp_path / "spec.toml")
    assert [complaint.line for complaint in error.value.complaints] == [line]


@pytest.mark.parametrize("save", [None, "runs/mine"])
def test_the_best_model_is_the_one_that_was_measured_best(save):
    models = []
    looking = [lambda moment: models.append(moment.x), ud.Goal(metric="distance")]
    setting = {"callbacks": looking, **NOISY}
    run = ud.run(FEDAVG, "least-squares", save=save, **setting)
    best = int(np.argmin(run.history["distance"]))
    assert (run.best.round, run.best.metric) == (best, "distance")
    assert run.best.value == run.history["distance"][best]
    assert torch.equal(run.best.x, models[best]) and not torch.equal(run.best.x, run.x)
    if save:
        again = ud.run(FEDAVG, "least-squares", save=save, **setting)
        assert torch.equal(again.best.x, models[best]) and len(models) == 61
        assert (again.best.round, again.best.value) == (run.best.round, run.best.value)


def test_a_callback_sees_the_run_and_adds_numbers_to_its_rows():
    seen = []

    def norm(moment):
        seen.append((moment.label, moment.seed, moment.round, moment.row["loss"]))
        assert moment.row["gap"] == moment.engine.problem.metrics(moment.x)["gap"]
        moment.x.zero_()  # a copy
        return {"norm": moment.x.norm(), "count": np.int64(moment.round)}

    def twice(moment):
        return {"twice": 2 * moment.row["norm"]}

    setting = {"rounds": 4, "every": 2, "steps": 3, "clients": 4}
    runs = ud.run(
        FEDAVG, "quadratic", seed=[0, 1], save="runs/mine", **setting, callbacks=[norm, twice]
    )
    plain = ud.run(FEDAVG, "quadratic", **setting)
    assert [(label, seed, round) for label, seed, round, _ in seen] == [
        ("FedAvg", seed, round) for seed in (0, 1) for round in (0, 2, 4)
    ]
    for run in runs.values():
        added = {"norm", "count", "twice"}
        kept = [{k: v for k, v in row.items() if k not in added} for row in bare(run)]
        assert kept == bare(plain)
        assert list(run.history["twice"]) == [2 * v for v in run.history["norm"]]
    assert ud.load("runs/mine").records[-1]["count"] == 4


def test_a_callback_ends_a_run_once_its_row_is_recorded():
    def enough(moment):
        if moment.row["gap"] < 1:
            moment.stop("good enough")
        return {"mine": moment.round}

    setting = {"rounds": 500, "steps": 3, "clients": 4, "save": "runs/mine"}
    methods = {"slow": ud.FedAvg(lr=0.001), "fast": ud.FedAvg(lr=0.05)}
    for _ in range(2):
        runs = ud.run(methods, "quadratic", callbacks=enough, **setting)
        assert [run.status for run in runs.values()] == ["early", "early"]
        slow, fast = runs.values()
        assert slow.history.last["round"] > fast.history.last["round"]
        assert slow.history["gap"][-1] < 1 <= slow.history["gap"][-2]
        assert slow.history["mine"][-1] == slow.history.last["round"]
        assert "good enough" in slow.note
    with pytest.raises(BadFolder, match="callbacks"):
        ud.run(methods, "quadratic", **setting)
    first = ud.run(FEDAVG, "quadratic", rounds=5, callbacks=lambda moment: moment.stop())
    assert first.status == "early" and first.history.last["round"] == 0


def test_a_callback_may_be_watched_by_early_stopping():
    setting = {"rounds": 50, "steps": 3, "clients": 4}
    stop = ud.EarlyStopping(metric="score", mode="max", patience=3)
    run = ud.run(
        FEDAVG, "quadratic", **setting, callbacks=[stop, lambda m: {"score": min(m.round, 5)}]
    )
    assert run.history.last["round"] == 8 and (run.best.metric, run.best.round) == ("score", 5)
    with pytest.raises(ud.BadParameters) as error:
        ud.run(FEDAVG, "quadratic", **setting, callbacks=[stop, lambda m: None])
    assert "stop.metric" in error.value.problems


def broken(round):
    def mine(moment):
        if moment.round == round:
            raise KeyError("no")
        return {"one": 1}

    return mine


def test_a_callback_that_fails_is_named_and_the_run_goes_on_from_its_checkpoint(monkeypatch):
    monkeypatch.setattr(run_experiment, "PAUSE", 0.0)
    setting = {"save": "runs/mine", **NOISY}
    with pytest.raises(ud.CallbackFailed) as error:
        ud.run(FEDAVG, "least-squares", callbacks=broken(20), **setting)
    assert (error.value.round, error.value.label, error.value.engine.round) == (20, "FedAvg", 20)
    assert error.value.callback == "broken.<locals>.mine"
    assert isinstance(error.value.__cause__, KeyError)
    calls = []
    mended = broken(-1)

    def mine(moment):
        calls.append(moment.round)
        return mended(moment)

    mine.__qualname__ = "broken.<locals>.mine"
    run = ud.run(FEDAVG, "least-squares", callbacks=mine, **setting)
    assert calls == [*range(20, 61)]
    whole = ud.run(FEDAVG, "least-squares", callbacks=mended, **NOISY)
    assert bare(run) == bare(whole) and torch.equal(run.x, whole.x)


@pytest.mark.parametrize(
    "added",
    [
        *(3, {"a b": 1.0}, {"a": "text"}, {"a": True}, {"a": [1.0, 2.0]}),
        *({"loss": 1.0}, {"seed": 1}, {"drift": 1.0}, {"left_out": 1}),
    ],
)
def test_what_no_row_can_hold_is_refused(added):
    with pytest.raises(ud.CallbackFailed) as error:
        ud.run(FEDAVG, "quadratic", rounds=1, callbacks=lambda moment: added)
    assert error.value.round == 0


def test_a_callback_returns_the_same_names_every_time():
    with pytest.raises(ud.CallbackFailed) as error:
        ud.run(FEDAVG, "quadratic", rounds=3, callbacks=lambda m: {"a": 1} if m.round < 2 else {})
    assert error.value.round == 2


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"callbacks": 3}, "callbacks"),
        ({"callbacks": EarlyStopping(metric="accuracy", patience=2)}, "stop.metric"),
        ({"callbacks": ud.Goal(metric="accuracy")}, "best.metric"),
        ({"callbacks": [EarlyStopping(patience=2), EarlyStopping(patience=3)]}, "callbacks"),
        ({"callbacks": [print, 3]}, "callbacks"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_kept(given, field):
    with pytest.raises(ud.BadParameters) as error:
        ud.run(FEDAVG, "quadratic", rounds=3, save="runs/mine", **given)
    assert set(error.value.problems) == {field}
    assert not Path("runs/mine").exists()
