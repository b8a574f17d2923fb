"""Run folders: what is on disk, when, and what is refused."""

import json
import math
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from pyarrow import parquet

from undrift.records.folder import FILES, BadFolder, Folder, Outcome
from undrift.runs.environment import environment
from undrift.runs.events import Measured
from undrift.runs.experiment import make
from undrift.runs.run_experiment import run_in_folder
from undrift.spec.reader import parse

SPEC = """\
name = "mine"
rounds = 2
[problem]
name = "quadratic"
[[method]]
name = "FedAvg"
lr = 0.1
"""
ROW = {
    "label": "FedAvg",
    "method": "FedAvg",
    "seed": 0,
    "round": 0,
    "vectors": 0,
    "gradients": 0,
    "gap": 1.0,
}


@pytest.fixture
def spec():
    return parse(SPEC)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "runs" / "mine")


def finished(folder, spec):
    folder.start(spec, {"python": "3"})
    folder.append(ROW)
    folder.append(ROW | {"round": 1, "gap": math.inf})
    folder.log("hello")
    folder.finish([Outcome("FedAvg", "FedAvg", 0, "done", {"lr": 0.1})])


def test_a_finished_run(folder, spec):
    assert folder.state(spec) == "new"
    finished(folder, spec)
    assert folder.state(spec) == "same"
    later = {"models", "gap.png", "accuracy.png", "loss.png", "partition.json", "report.html"}
    later |= {"left_out.jsonl", "clients.jsonl", "checkpoints"}
    assert {f.name for f in folder.path.iterdir()} == set(FILES) - later
    assert folder.document() == spec.document()
    assert folder.rows() == [ROW, ROW | {"round": 1, "gap": None}]
    assert parquet.read_table(folder.file("metrics.parquet")).to_pylist() == folder.rows()
    assert folder.outcomes() == [Outcome("FedAvg", "FedAvg", 0, "done", {"lr": 0.1})]
    assert "hello" in folder.file("log.txt").read_text()


def test_files_of_somebody_else_are_left_alone(folder, spec):
    folder.path.mkdir(parents=True)
    folder.file("notes.md").write_text("mine")
    assert folder.state(spec) == "new"
    folder.file("report.html").write_text("mine")
    with pytest.raises(BadFolder, match=r"report\.html"):
        folder.state(spec)


def test_who_holds_what_is_there_before_the_recipe(folder, spec, monkeypatch):
    """A run with a recipe is continued, and what was not written before it never is."""
    written = []
    monkeypatch.setattr(Folder, "write", lambda self, name, content: written.append(name))
    folder.start(spec, {}, {"classes": ["a"], "counts": [[1]]})
    assert written == ["partition.json", "environment.json", "spec.toml"]


def test_rows_are_on_disk_at_once_and_valid_json(folder, spec):
    folder.start(spec, {})
    row = ROW | {"label": "inf", "gap": math.nan, "loss": -math.inf}
    folder.append(row, {"round": 0, "of": "test", "loss": [1.0, math.inf, math.nan]})
    for name in ("metrics.jsonl", "clients.jsonl"):
        (line,) = folder.file(name).read_text().splitlines()
        json.loads(line, parse_constant=pytest.fail)
    assert folder.rows() == [row | {"gap": None, "loss": None}]
    assert folder.record().clients[0]["loss"] == [1.0, None, None]
    assert folder.state(spec) == "unfinished"
    assert folder.outcomes() == []


def test_another_spec_is_another_run(folder, spec):
    finished(folder, spec)
    assert folder.state(parse(SPEC, flags=["rounds=3"])) == "other"
    assert folder.state(parse(SPEC, flags=["rounds=2"])) == "same"


def test_starting_again_forgets_the_old_run_and_nothing_else(folder, spec):
    finished(folder, spec)
    folder.file("notes.md").write_text("mine")
    folder.start(spec, {})
    assert {f.name for f in folder.path.iterdir()} == {"environment.json", "spec.toml", "notes.md"}


def test_a_last_line_cut_short_is_left_out_but_damage_is_told(folder, spec):
    finished(folder, spec)
    metrics = folder.file("metrics.jsonl")
    whole = metrics.read_text()
    metrics.write_text(whole + '{"label": "Fed')
    assert len(folder.rows()) == 2
    for damage in (
        "garbage\n",
        "[1, 2]\n",
        '{"label": 3, "seed": 0, "round": 1, "vectors": 0, "gradients": 0}\n',
    ):
        metrics.write_text(whole + damage)
        with pytest.raises(BadFolder, match=r"metrics.jsonl:3: "):
            folder.rows()
    folder.file("summary.json").write_text("{")
    with pytest.raises(BadFolder, match=r"summary.json cannot be read"):
        folder.outcomes()


def test_a_failed_write_leaves_no_part_of_a_file(folder, spec, monkeypatch):
    finished(folder, spec)
    before = folder.file("spec.toml").read_text()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="No space"):
        folder.write("spec.toml", "half")
    assert folder.file("spec.toml").read_text() == before
    assert not [f for f in folder.path.iterdir() if f.name.startswith(".")]


def test_the_environment_names_versions_and_nobody():
    found = environment()
    assert (
        found["undrift"]
        and found["torch"]
        and found["python"]
        and found["cpus"]
        and found["device"] == "cpu"
    )
    text = json.dumps(found)
    assert os.uname().nodename not in text
    assert os.path.expanduser("~") not in text and os.getcwd() not in text


def test_going_on_removes_what_a_crash_left_half_written(folder, spec):
    folder.start(spec, {})
    folder.append(ROW)
    folder.append(ROW | {"round": 1})
    folder.ended(Outcome("FedAvg", "FedAvg", 0, "done", {}))
    folder.log("hello")
    folder.close()
    for name in ("metrics.jsonl", "checkpoints/outcomes.jsonl", "log.txt"):
        with folder.file(name).open("a") as file:
            file.write('{"label": "Fed')
    for name in (".metrics.jsonl.0123abcd.part", "checkpoints/.0-0-5.safetensors.0123abcd.part"):
        folder.file(name).write_text("half")
    again = Folder(folder.path)
    again.resume()
    again.append(ROW | {"round": 2})
    assert [row["round"] for row in again.rows()] == [0, 1, 2]
    assert again.rounds == {("metrics.jsonl", ("FedAvg", 0)): [0, 1]}
    assert [outcome.status for outcome in again.outcomes()] == ["done"]
    assert not [f for f in again.path.rglob("*") if f.suffix == ".part"]
    assert again.file("log.txt").read_text().endswith("hello\n")


def test_rows_after_a_round_are_forgotten_and_no_others(folder, spec):
    folder.start(spec, {})
    for seed in (0, 1):
        for k in range(4):
            folder.append(ROW | {"seed": seed, "round": k, "gap": 1 / 3**k})
    folder.close()
    whole = folder.file("metrics.jsonl").read_text().splitlines()
    folder.resume()
    folder.keep("FedAvg", 1, last=1)
    assert folder.file("metrics.jsonl").read_text().splitlines() == whole[:6]
    folder.append(ROW | {"seed": 1, "round": 2})
    folder.keep("FedAvg", 0, last=3)
    assert [(row["seed"], row["round"]) for row in folder.rows()][-2:] == [(1, 1), (1, 2)]


def test_a_finished_run_has_its_last_checkpoints(folder, spec):
    folder.start(spec, {})
    folder.append(ROW)
    folder.ended(Outcome("FedAvg", "FedAvg", 0, "done", {}))
    for name in ("0-0-5", "0-0-10", "1-0-9", "1-0-5"):
        folder.file(f"checkpoints/{name}.safetensors").write_bytes(b"state")
    folder.finish([Outcome("FedAvg", "FedAvg", 0, "done", {})])
    there = {file.name for file in folder.file("checkpoints").iterdir()}
    assert there == {"0-0-10.safetensors", "1-0-9.safetensors"}
    folder.start(spec, {})
    assert not folder.file("checkpoints").exists()


def test_one_process_at_a_time(folder, spec):
    folder.start(spec, {})
    other = Folder(folder.path)
    for begin in (other.resume, lambda: other.start(spec, {})):
        with pytest.raises(BadFolder, match="in use"):
            begin()
    folder.close()
    other.resume()


def test_a_start_that_was_cut_short_is_not_in_the_way(folder, spec):
    folder.path.mkdir(parents=True)
    folder.file("environment.json").write_text("{}")
    folder.file(".spec.toml.0123abcd.part").write_text("na")
    assert folder.state(spec) == "new"
    folder.start(spec, {})
    assert {f.name for f in folder.path.iterdir()} == {"environment.json", "spec.toml"}


@pytest.mark.parametrize("instant", range(1, 11))
def test_replacing_a_run_may_be_cut_short_at_any_file(folder, spec, monkeypatch, instant):
    finished(folder, spec)
    unlink, removed = Path.unlink, []

    def cut(path, missing_ok=False):
        if path.exists():
            removed.append(path)
            if len(removed) == instant:
                raise KeyboardInterrupt
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", cut)
    with suppress(KeyboardInterrupt):
        folder.start(spec, {"python": "4"})
    monkeypatch.undo()
    folder.close()
    state = folder.state(spec)
    assert state == ("same" if instant == 1 else "unfinished")
    if state == "unfinished":
        folder.resume()
    folder.start(spec, {"python": "5"})
    assert folder.environment == {"python": "5"} and folder.outcomes() == []


LONG = """
name = "long"
rounds = 400
[problem]
name = "quadratic"
[[method]]
name = "FedAvg"
lr = 0.01
"""


@pytest.mark.parametrize("loss", ["removed", "renamed", "emptied"])
def test_a_run_whose_rows_are_lost_stops_at_its_next_checkpoint(loss, tmp_path):
    path, rounds = tmp_path / "long", []

    def emit(event):
        if isinstance(event, Measured):
            rounds.append(event.row["round"])
            if rounds[-1] == 5 and loss == "removed":
                shutil.rmtree(path)
            elif rounds[-1] == 5 and loss == "renamed":
                path.rename(tmp_path / "other")
            elif rounds[-1] == 5:
                (path / "metrics.jsonl").write_bytes(b"")

    with pytest.raises(BadFolder, match="was removed, renamed or changed while the run wrote"):
        run_in_folder(make(parse(LONG)), Folder(path), afresh=True, emit=emit, pause=0.0)
    assert rounds[-1] < 10 and path.exists() == (loss == "emptied")
