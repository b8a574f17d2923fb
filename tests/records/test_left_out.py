"""Who was left out and why is recorded once for each time, whatever happens in between."""

import json
from collections import Counter

import pytest
from tests.cli.stopping import after, rows
from tests.trials import trial

import undrift as ud
from undrift.check.federations import least_squares
from undrift.core.faults import Rejection
from undrift.engines import Simulate
from undrift.methods import FedAvg
from undrift.records.folder import Folder
from undrift.records.rows import LEFT_OUT, key_of
from undrift.runs.events import LeftOut
from undrift.runs.experiment import make
from undrift.runs.run_experiment import run_in_folder
from undrift.spec.reader import parse

SPEC = """\
name = "mine"
rounds = 12
steps = 2
every = 3
seed = [0, 1]
cohort = 4
[problem]
name = "least-squares"
clients = 6
rows = 8
[[faults]]
kind = "drop-before"
rate = 0.2
since = 2
[[faults]]
kind = "late"
rate = 0.2
since = 2
[[faults]]
kind = "nan"
clients = [5]
since = 2
[[method]]
name = "Scaffold"
lr = 0.02
[[method]]
name = "FedAvg"
lr = 0.02
"""
FAULT = {"kind": "nan", "clients": [2], "since": 3}


@pytest.fixture
def whole(tmp_path):
    folder = Folder(tmp_path / "whole")
    run_in_folder(make(parse(SPEC)), folder)
    return folder


def absences(folder):
    return (folder.path / LEFT_OUT).read_bytes()


def counted(found):
    return Counter((row["label"], row["seed"]) for row in found)


def test_the_file_has_what_the_engine_rejected(whole):
    spec = parse(SPEC)
    for task in make(spec).tasks:
        for seed in spec.seeds:
            engine = task.engine(seed)
            for _ in range(12):
                engine.run_round()
            mine = [
                Rejection(row["round"], row["phase"], row["client"], row["reason"])
                for row in whole.record().left_out
                if (row["label"], row["seed"]) == (task.label, seed)
            ]
            assert mine == engine.rejections and len(mine) > 5
            assert {one.client for one in mine if one.round < 2} == set()
    last = {(row["label"], row["seed"]): row["left_out"] for row in whole.rows()[4::5]}
    assert last == counted(whole.record().left_out)


def test_a_run_that_stops_every_few_rounds_records_the_same(whole, tmp_path):
    folder = tmp_path / "again"
    for _ in range(100):
        place = Folder(folder)
        run_in_folder(make(parse(SPEC)), place, stop=after(3)(), pause=0)
        if place.complete:
            break
        lines = absences(place) if place.file(LEFT_OUT).exists() else b""
        assert absences(whole).startswith(lines)
    assert absences(place) == absences(whole) and rows(folder) == rows(whole.path)
    assert place.outcomes() == whole.outcomes()


@pytest.mark.parametrize("kill", ["after a line", "within a line"])
def test_what_came_after_the_checkpoint_is_recorded_once(kill, whole, tmp_path):
    """As after a kill: clients left out of rounds that no checkpoint has, a line cut short."""
    place = Folder(tmp_path / "again")
    run_in_folder(make(parse(SPEC)), place, stop=after(8)(), pause=0)
    assert place.record().left_out and place.file("checkpoints").exists()
    at = place.record().left_out[-1] | {"round": 9}
    line = f"{json.dumps(at)}\n".encode()
    with place.file(LEFT_OUT).open("ab") as file:
        file.write(line if kill == "after a line" else line[:20])
    run_in_folder(make(parse(SPEC)), Folder(place.path))
    assert absences(place) == absences(whole) and rows(place.path) == rows(whole.path)


def test_a_checkpoint_is_passed_over_if_lines_are_missing(whole, tmp_path):
    place = Folder(tmp_path / "again")
    run_in_folder(make(parse(SPEC)), place, stop=after(9)(), pause=0)
    lines = absences(place).splitlines(keepends=True)
    place.file(LEFT_OUT).write_bytes(b"".join(lines[1:]))
    told = []
    run_in_folder(make(parse(SPEC)), Folder(place.path), emit=lambda event: told.append(event))
    assert any("passed over" in str(event) for event in told)
    assert absences(place) == absences(whole) and rows(place.path) == rows(whole.path)


@pytest.mark.whole
def test_several_processes_record_the_same(whole, tmp_path):
    place = Folder(tmp_path / "again")
    run_in_folder(make(parse(SPEC)), place, jobs=2)
    assert sorted(place.rows(LEFT_OUT), key=key_of) == sorted(whole.rows(LEFT_OUT), key=key_of)
    assert rows(place.path) == rows(whole.path)


def test_a_run_in_python_has_them_with_and_without_a_folder(tmp_path):
    told = []
    setting = {"rounds": 6, "faults": [FAULT], "every": 4}
    run = ud.run(FedAvg(lr=0.02), "quadratic", **setting, callbacks=ud.Events(told.append))
    assert [(one.round, one.client) for one in run.left_out] == [(3, 2), (4, 2), (5, 2)]
    assert [len(e.rejections) for e in told if isinstance(e, LeftOut)] == [1, 1, 1]
    assert run.engine.rejections == [] and run.history.last["left_out"] == 3
    kept = ud.run(FedAvg(lr=0.02), "quadratic", save=tmp_path / "a", **setting)
    read = ud.run(FedAvg(lr=0.02), "quadratic", save=tmp_path / "a", **setting)
    assert kept.left_out == read.left_out == run.left_out and read.engine is None
    own = ud.run(FedAvg(lr=0.02), least_squares(), save=tmp_path / "b", **setting)
    assert [one.round for one in own.left_out] == [3, 4, 5]
    again = ud.run(FedAvg(lr=0.02), least_squares(), save=tmp_path / "b", **setting)
    assert again.left_out == own.left_out


def test_a_run_that_is_stuck_tells_why_and_has_a_last_row():
    everyone = [{"kind": "drop-after", "since": 2}]
    run = ud.run(
        FedAvg(lr=0.02), "quadratic", rounds=50, every=20, faults=everyone, judge={"patience": 3}
    )
    assert run.status == "stuck" and run.left_out[-1].reason in run.note
    assert run.history.last["round"] == 6 and run.history.last["skipped"] == 4
    assert run.history["gap"][-1] < run.history["gap"][0]
    assert {one.round for one in run.left_out} == {2, 3, 4, 5}


def test_a_trial_empties_the_list_of_its_engine():
    engine = Simulate(FedAvg(lr=0.02), least_squares(), faults=[{"kind": "nan", "clients": [1]}])
    told, longest = [], []

    def hear(rejections):
        told.extend(rejections)
        longest.append(len(rejections))

    assert trial(engine, 9, 3, leave_out=hear).train() == "done"
    assert len(told) == 9 and max(longest) == 1 and engine.rejections == []
