"""``run`` from a spec to a folder and a table."""

import json
import re
import tomllib

import pytest
from tests.cli.conftest import told

import undrift as ud
from undrift.core.problem import Unsupported
from undrift.records.folder import Folder
from undrift.runs.prepare import Task


def outcome(capsys, *words):
    return told(capsys, "run", *words)


def test_a_run_leaves_a_folder_and_a_table(place, drawn, capsys):
    code, out, err = outcome(capsys, "spec.toml", "-s", "seed=[0, 1]", "-s", "cohort=3")
    assert code == 0
    assert {f.name for f in (place / "runs/mine").iterdir()} == {
        "spec.toml", "environment.json", "metrics.jsonl", "metrics.parquet", "summary.json",
        "log.txt", "gap.png", "models", "checkpoints",
    }  # fmt: skip
    rows = Folder(place / "runs/mine").rows()
    assert len(rows) == 2 * 2 * 13
    assert {(row["label"], row["seed"]) for row in rows} == {
        (label, seed) for label in ("FedAvg", "SCAFFOLD") for seed in (0, 1)
    }
    assert "SCAFFOLD" in out and "final gap" in out and "round" not in err.splitlines()[0]
    assert "SCAFFOLD seed 1  all rounds run" in err and "Kept in runs/mine" in err


def test_what_is_recorded_is_what_the_library_computes(place, capsys):
    outcome(capsys, "spec.toml", "-s", "every=5")
    rows = [row for row in Folder(place / "runs/mine").rows() if row["label"] == "SCAFFOLD"]
    run = ud.run(ud.Scaffold(lr=0.02), "quadratic", clients=4, dim=5, rounds=12, steps=3, every=5)
    assert [row["round"] for row in rows] == [0, 5, 10, 12] == list(run.history["round"])
    assert [row["gap"] for row in rows] == list(run.history["gap"])


def test_results_as_json(place, capsys):
    code, out, _ = outcome(capsys, "spec.toml", "--json", "-s", "target=1e-2", "-s", "rounds=200")
    answer = json.loads(out)
    fedavg, scaffold = answer["methods"]
    assert code == 0 and answer["target"] == 1e-2 and answer["folder"] == "runs/mine"
    assert fedavg["rounds"] is None and fedavg["status"] == "all rounds run"
    assert scaffold["status"] == "target reached" and scaffold["final"] <= 1e-2
    spent = [scaffold[name] / scaffold["rounds"] for name in ("vectors", "gradients")]
    assert scaffold["rounds"] < 200 and spent == [4, 12]
    assert answer["runs"][0]["values"] == {"lr": 0.02, "server_lr": 1.0}


def test_theory_sets_what_is_left_to_it(place, capsys):
    outcome(capsys, "spec.toml", "-s", "method.lr=theory")
    folder = Folder(place / "runs/mine")
    text = folder.file("spec.toml").read_text()
    assert isinstance(folder.outcomes()[1].values["lr"], float)
    assert tomllib.loads(text)["method"][1]["lr"] == "theory"


def test_the_same_spec_is_not_run_twice(place, capsys):
    _, first, _ = outcome(capsys, "spec.toml")
    before = (place / "runs/mine/metrics.jsonl").stat().st_mtime_ns
    code, again, err = outcome(capsys, "spec.toml")
    assert code == 0 and again == first and "holds this run already" in err
    assert (place / "runs/mine/metrics.jsonl").stat().st_mtime_ns == before
    assert outcome(capsys, "spec.toml", "--overwrite")[0] == 0
    assert (place / "runs/mine/metrics.jsonl").stat().st_mtime_ns > before


def test_another_spec_of_the_same_name_is_refused(place, capsys):
    outcome(capsys, "spec.toml")
    before = (place / "runs/mine/metrics.jsonl").read_text()
    code, out, err = outcome(capsys, "spec.toml", "-s", "rounds=3")
    assert code == 2 and out == "" and "another run" in err and "--overwrite" in err
    assert (place / "runs/mine/metrics.jsonl").read_text() == before
    assert outcome(capsys, "spec.toml", "-s", "rounds=3", "--overwrite")[0] == 0
    assert outcome(capsys, "spec.toml", "-s", "rounds=4", "-s", "name=other")[0] == 0


def test_a_bad_spec_runs_nothing(place, capsys):
    text = (place / "spec.toml").read_text()
    (place / "spec.toml").write_text(
        text.replace("steps = 3", "cohort = 2").replace('"FedAvg"', '"FedRecu"')
    )
    code, out, err = outcome(capsys, "spec.toml", "-s", "method.lrr=1", "-s", "roundz=2")
    assert code == 2 and out == "" and not (place / "runs").exists()
    places = [line.partition(": ")[0] for line in err.splitlines()]
    assert places[:3] == ["-s method.lrr=1", "-s roundz=2", "spec.toml:3"] and len(places) == 4


def test_theory_that_the_problem_does_not_support_is_told_before_running(place, capsys):
    text = (
        (place / "spec.toml")
        .read_text()
        .replace('"FedAvg"\nlr = 0.02', '"Scaffnew"\nlr = 0.02\np = "theory"')
    )
    (place / "spec.toml").write_text(text)
    code, out, err = outcome(capsys, "spec.toml", "-s", "problem.mu=0.0", "-s", "problem.clients=1")
    assert code == 2 and out == "" and not (place / "runs").exists()
    assert re.search(r"^spec.toml:11: Scaffnew: theory for p needs mu > 0", err, re.MULTILINE)


def test_a_method_that_diverges_does_not_stop_the_others(place, capsys):
    text = (place / "spec.toml").read_text().replace('"FedAvg"\nlr = 0.02', '"FedAvg"\nlr = 5.0')
    (place / "spec.toml").write_text(text)
    code, out, _ = outcome(capsys, "spec.toml")
    assert code == 0
    assert re.search(r"FedAvg diverged in round \d, .* try lr = 0\.\d+", out)
    assert next(line for line in out.splitlines() if line.startswith("SCAFFOLD")).endswith(
        "all rounds run"
    )


def test_when_all_diverge_the_exit_code_says_so(place, capsys):
    code, out, _ = outcome(capsys, "spec.toml", "-s", "method.lr=5.0")
    assert code == 1 and out.count("diverged") == 4
    assert outcome(capsys, "spec.toml", "-s", "method.lr=5.0")[0] == 1


def test_a_method_the_problem_cannot_serve_fails_alone(place, capsys, monkeypatch):
    engine = Task.engine

    def picky(task, seed):
        if task.label == "FedAvg":
            raise Unsupported("there is no such minimiser")
        return engine(task, seed)

    monkeypatch.setattr(Task, "engine", picky)
    code, out, _ = outcome(capsys, "spec.toml")
    assert code == 0 and "FedAvg failed: there is no such minimiser" in out
    assert {row["label"] for row in Folder(place / "runs/mine").rows()} == {"SCAFFOLD"}


def test_when_nothing_can_be_measured(place, capsys, monkeypatch):
    def picky(*args, **kwargs):
        raise Unsupported("there is no such minimiser")

    monkeypatch.setattr(Task, "engine", picky)
    code, out, err = outcome(capsys, "spec.toml")
    assert code == 1 and out.count("failed: there is no such") == 2 and "Traceback" not in err
    folder = Folder(place / "runs/mine")
    assert folder.rows() == [] and not folder.file("checkpoints").exists()


@pytest.mark.parametrize("root", ["runs", "runs/deep/er", "/proc/x"])
def test_a_root_that_cannot_be_written_is_bad_input(place, capsys, root):
    (place / "runs").write_text("a file")
    code, out, err = outcome(capsys, "spec.toml", "--out", root)
    assert code == 2 and out == "" and f"{root}/mine: " in err and "Traceback" not in err
