"""Runs from Python: several methods and seeds, folders, and what is read from them."""

from pathlib import Path

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.check.federations import quadratic
from undrift.cli import main
from undrift.core import BadParameters
from undrift.records.folder import BadFolder, Folder
from undrift.runs import events
from undrift.spec.errors import BadSpec

METHODS = [ud.FedAvg(lr=0.02), ud.Scaffold(lr=0.02)]
SMALL = {"clients": 4, "dim": 3}
SPEC = {
    "rounds": 4,
    "steps": 2,
    "seed": [0, 1],
    "problem": {"name": "least-squares", "clients": 4, "rows": 8},
    "batch": 2,
    "method": [{"name": "FedAvg", "lr": 0.02}, {"name": "Scaffold", "label": "S", "lr": 0.02}],
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class Stopped(Exception):
    """Somebody pulls the plug."""


def stopping(round):
    """Raises when a row of this round has been recorded."""

    def hear(event):
        if isinstance(event, events.Measured) and event.row["round"] == round:
            raise Stopped

    return hear


def bare(run):
    """A history without the seconds."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.history.rows]


def test_one_method_is_a_run_and_several_are_runs():
    one = ud.run(METHODS[0], "quadratic", rounds=3, **SMALL)
    assert isinstance(one, ud.Run) and one.label == "FedAvg" and one.engine is not None
    several = ud.run(METHODS, "quadratic", rounds=3, **SMALL)
    assert list(several) == [("FedAvg", 0), ("Scaffold", 0)]
    assert bare(several["FedAvg", 0]) == bare(one) and torch.equal(several["FedAvg", 0].x, one.x)
    named = ud.run({"a": ud.FedAvg(lr=0.02), "b": ud.FedAvg(lr=0.01)}, quadratic(), rounds=2)
    assert list(named) == [("a", 0), ("b", 0)] and not torch.equal(named["a", 0].x, named["b", 0].x)
    with pytest.raises(ud.BadParameters) as refused:
        ud.run([ud.FedAvg(lr=0.02), ud.FedAvg(lr=0.01)], quadratic(), rounds=2)
    assert set(refused.value.problems) == {"method"}


def test_seeds_are_those_of_single_runs():
    setting = {"rounds": 3, "batch": 2, "clients": 4, "rows": 8}
    runs = ud.run(METHODS[0], "least-squares", seed=[5, 6], **setting)
    for seed in (5, 6):
        alone = ud.run(METHODS[0], "least-squares", seed=seed, **setting)
        assert bare(runs["FedAvg", seed]) == bare(alone)
        assert torch.equal(runs["FedAvg", seed].x, alone.x)
    same = ud.run(METHODS[0], quadratic(), rounds=2, seed=[0, 1])  # nothing is drawn
    assert torch.equal(same["FedAvg", 0].x, same["FedAvg", 1].x)
    for wrong in ({"seed": []}, {"seed": [1, 1]}, {"seed": [-1]}, {"seed": "one"}):
        with pytest.raises(ud.BadParameters) as refused:
            ud.run(METHODS[0], quadratic(), rounds=2, **wrong)
        assert set(refused.value.problems) == {"seed"}


def test_runs_as_table_and_picture():
    runs = ud.run(METHODS, quadratic(), rounds=3)
    head, _, fedavg, *_ = runs.table().splitlines()
    assert head.split()[:2] == ["method", "rounds"] and fedavg.startswith("FedAvg")
    assert ("FedAvg", 0) in runs and runs["FedAvg"] is runs["FedAvg", 0]
    assert [line.get_label() for line in runs.plot().lines] == ["FedAvg", "Scaffold"]
    assert len(runs.records) == 8 and {"label", "seed", "gap"} <= runs.records[0].keys()


def test_a_saved_run_of_a_named_problem_is_that_of_the_command_line(tmp_path):
    runs = ud.run(
        METHODS, "quadratic", rounds=4, steps=2, save="runs/mine", seed=[0], cohort=3, **SMALL
    )
    assert runs.folder == Path("runs/mine") and Folder(runs.folder).complete
    (tmp_path / "mine.toml").write_bytes((tmp_path / "runs/mine/spec.toml").read_bytes())
    assert main(["run", "mine.toml"]) == 0  # holds this run already
    assert main(["run", "mine.toml", "--out", "again"]) == 0
    one, other = Folder(Path("runs/mine")), Folder(Path("again/mine"))
    assert one.outcomes() == other.outcomes() and one.identity == other.identity
    assert main(["compare", "mine"]) == main(["report", "mine"]) == main(["resume", "mine"]) == 0


def test_the_same_call_continues_and_another_is_refused():
    setting = {"rounds": 6, "steps": 2, **SMALL}
    whole = ud.run(METHODS[1], "quadratic", **setting)
    with pytest.raises(Stopped):
        ud.run(
            METHODS[1], "quadratic", save="runs/mine", **setting, callbacks=ud.Events(stopping(3))
        )
    assert not Folder(Path("runs/mine")).complete
    done = ud.run(METHODS[1], "quadratic", save="runs/mine", **setting)
    assert bare(done) == bare(whole) and torch.equal(done.x, whole.x)
    again = ud.run(METHODS[1], "quadratic", save="runs/mine", **setting)
    assert again.engine is None and bare(again) == bare(whole) and torch.equal(again.x, whole.x)
    with pytest.raises(BadFolder, match="rounds was 6 and is 5"):
        ud.run(METHODS[1], "quadratic", save="runs/mine", **{**setting, "rounds": 5})
    replaced = ud.run(
        METHODS[1],
        "quadratic",
        **{**setting, "rounds": 5},
        save=ud.Save("runs/mine", overwrite=True),
    )
    assert replaced.history.last["round"] == 5


class Mine(ud.problems.Quadratic):
    """A problem that no spec can name."""


def mine(scale=1.0):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((4, 3, 3))
    return Mine(scale * (a @ a.transpose(0, 2, 1) + np.eye(3)), rng.standard_normal((4, 3)))


def test_ones_own_problem_is_kept_resumed_and_reported(capsys):
    setting = {"rounds": 6, "steps": 2}
    whole = ud.run(METHODS, mine(), **setting)
    with pytest.raises(Stopped):
        ud.run(METHODS, mine(), save="runs/own", **setting, callbacks=ud.Events(stopping(4)))
    with pytest.raises(SystemExit) as refused:
        main(["resume", "own"])
    assert refused.value.code == 2 and "run the same call again" in capsys.readouterr().err
    with pytest.raises(BadFolder, match="same call"):
        ud.resume("runs/own")
    with pytest.raises(BadFolder, match="other data"):
        ud.run(METHODS, mine(2.0), save="runs/own", **setting)
    with pytest.raises(BadFolder, match=r"lr was 0\.02 and is 0\.01"):
        ud.run([ud.FedAvg(lr=0.01), METHODS[1]], mine(), save="runs/own", **setting)
    runs = ud.run(METHODS, mine(), save="runs/own", **setting)
    assert list(runs) == list(whole) and all(bare(runs[key]) == bare(whole[key]) for key in whole)
    assert all(torch.equal(runs[key].x, whole[key].x) for key in whole)
    problem = ud.load("runs/own").spec["problem"]
    assert problem["python"].endswith("Mine") and (problem["clients"], problem["dim"]) == (4, 3)
    assert main(["compare", "own"]) == main(["report", "own"]) == 0


def test_a_start_and_a_target_of_ones_own_are_part_of_the_run():
    setting = {"rounds": 5, "save": "runs/x", **SMALL}
    early = ud.EarlyStopping(metric="loss", target=1e9)
    reached = ud.run(METHODS[0], "quadratic", x0=[1.0, 2.0, 3.0], **setting, callbacks=early)
    assert reached.status == "reached" and reached.history.last["round"] == 1
    for other in ({"x0": [1.0, 2.0, 4.0]}, {}):
        with pytest.raises(BadFolder, match="x0 was"):
            ud.run(METHODS[0], "quadratic", **other, **setting, callbacks=early)


@pytest.mark.parametrize("save", [None, "runs/spec"])
def test_a_spec_from_a_file_or_a_dictionary(tmp_path, save):
    runs = ud.run_spec(SPEC, save=save, overrides=["rounds=3"])
    assert list(runs) == [("FedAvg", 0), ("S", 0), ("FedAvg", 1), ("S", 1)]
    alone = ud.run(
        ud.Scaffold(lr=0.02), "least-squares", clients=4, rows=8, rounds=3, steps=2, batch=2, seed=1
    )
    assert bare(runs["S", 1]) == bare(alone)
    if save:
        file = Path(save) / "spec.toml"
        from_file = ud.run_spec(file)
        assert {k: bare(r) for k, r in from_file.items()} == {k: bare(r) for k, r in runs.items()}
    with pytest.raises(BadSpec, match="rounds"):
        ud.run_spec(SPEC | {"rounds": 0})
    with pytest.raises(ud.BadParameters) as refused:
        ud.run_spec(SPEC, jobs=2)
    assert set(refused.value.problems) == {"jobs"}


def test_a_spec_is_resumed_from_its_folder():
    with pytest.raises(Stopped):
        ud.run_spec(SPEC, save="runs/cut", on_event=stopping(3))
    cut = ud.load("runs/cut")
    assert cut.outcomes == [] and len(cut.records) == 4 and "unfinished" in repr(cut)
    runs, whole = ud.resume("runs/cut"), ud.run_spec(SPEC)
    assert all(bare(runs[key]) == bare(whole[key]) for key in whole)
    with pytest.raises(BadFolder, match="there is no such folder"):
        ud.resume("runs/nothing")


def test_what_is_read_from_a_folder():
    runs = ud.run_spec(SPEC, save="runs/spec")
    found = ud.load("runs/spec")
    assert len(found.records) == 4 * 5 and found.spec["rounds"] == 4
    assert [o.status for o in found.outcomes] == ["done"] * 4
    assert list(found.history("S", 1)["loss"]) == list(runs["S", 1].history["loss"])
    assert torch.equal(found.models["S", 1]["last"]["x"], runs["S", 1].x)
    assert set(found.models["S", 1]) == {"last", "best"}
    with pytest.raises(KeyError):
        found.history("S")
    with pytest.raises(BadFolder):
        ud.load("runs/nothing")


def test_the_trained_network_of_a_folder():
    small = {"clients": 3, "train": 60, "test": 20, "model": "linear"}
    run = ud.run(ud.FedAvg(lr=0.1), "images", rounds=2, batch=8, save="runs/net", **small)
    net, images = ud.load("runs/net").module("FedAvg"), run.problem.data.test_images[:5].float()
    assert torch.equal(net(images), run.module()(images))


def test_loggers_hear_of_a_run_from_python():
    pytest.importorskip("tensorboard")
    ud.run(METHODS[0], mine(), rounds=2, save=ud.Save("runs/own", loggers=["tensorboard"]))
    assert list(Path("runs/own/tensorboard/0-FedAvg/seed-0").glob("events.out.tfevents.*"))
    with pytest.raises(ud.BadParameters) as refused:
        ud.run(METHODS[0], mine(), rounds=2, save={"folder": "x", "loggers": ["paper"]})
    assert set(refused.value.problems) == {"save.loggers"}


def test_an_unknown_run_is_refused_with_the_runs_there_are(tmp_path):
    methods = {"SCAFFOLD": ud.FedAvg(lr=0.01)}
    setting = {"rounds": 2, "batch": 2, "seed": [3, 4]}
    runs = ud.run(methods, "least-squares", **setting, save=tmp_path / "r")
    (tmp_path / "r" / "summary.json").unlink()
    read = ud.load(tmp_path / "r")
    for found in (runs.__getitem__, lambda key: read.history(*key)):
        with pytest.raises(KeyError, match="did you mean SCAFFOLD"):
            found(("SCAFOLD", 3))
        with pytest.raises(KeyError, match="'SCAFFOLD' was run with seeds 3, 4"):
            found(("SCAFFOLD", 7))
    for found in (runs.__getitem__, read.history):
        with pytest.raises(KeyError, match="'SCAFFOLD' was run with seeds 3, 4"):
            found("SCAFFOLD")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"method": [{"name": "FedAvgg", "lr": 0.1}]}, ("method", 0, "name")),
        ({"method": [{"name": "FedAvg", "lr": "theori"}]}, ("method", 0, "lr")),
        ({"problem": {"name": "quadratic", "clientz": 3}}, ("problem", "clientz")),
        ({"problem": {"name": "logistic", "data": "no"}}, ("problem", "data")),
        ({"problem": {"name": "logistic-no"}}, ("problem", "name")),
        ({"problem": {"name": "images", "data": "no"}}, ("problem", "data")),
        ({"steps": object()}, ("steps",)),
    ],
)
def test_a_wrong_dictionary_is_blamed_by_its_keys(change, path):
    """Its user never saw the lines of a text."""
    good = {"rounds": np.int64(3), "problem": {"name": "quadratic"}}
    good["method"] = [{"name": "FedAvg", "lr": 0.05}]
    assert ud.run_spec(good)["FedAvg", 0].status == "done"
    with pytest.raises(BadSpec) as caught:
        ud.run_spec(good | change)
    (complaint,) = caught.value.complaints
    keys = "".join(f"[{key!r}]" for key in path)
    assert complaint.path == path and str(complaint).startswith(f"spec{keys}: ")


@pytest.mark.parametrize(
    ("save", "field"),
    [
        (3, ""),
        ({"folder": "a", "overwrite": "no"}, "overwrite"),
        ({"folder": "a", "loggers": "tensorboard"}, "loggers"),
        ({"folder": "a", "loggers": [1]}, "loggers"),
    ],
)
def test_wrong_arguments_about_the_folder_are_refused_by_name(save, field):
    with pytest.raises(BadParameters) as caught:
        ud.run(METHODS[0], "quadratic", rounds=2, save=save)
    assert caught.value.problems.keys() == {f"save.{field}".rstrip(".")}
    with pytest.raises(BadParameters) as caught:
        ud.run_spec(SPEC, save=save)
    assert caught.value.problems.keys() == {field}


@pytest.mark.parametrize("jobs", [0, "2", 1.5, True])
def test_wrong_numbers_of_processes_are_refused(jobs):
    with pytest.raises(BadParameters) as caught:
        ud.run_spec(SPEC, save="runs/a", jobs=jobs)
    assert caught.value.problems.keys() == {"jobs"}
