"""Run folders: what is on disk, when, and what is refused."""

import json
import math
import os

import pytest
from pyarrow import parquet

from undrift.runs.environment import environment
from undrift.runs.folder import FILES, BadFolder, Folder, Outcome
from undrift.runs.spec import parse

SPEC = """\
name = "mine"
rounds = 2
[problem]
name = "quadratic"
[[method]]
name = "FedAvg"
lr = 0.1
"""
ROW = {"label": "FedAvg", "method": "FedAvg", "seed": 0, "round": 0, "vectors": 0, "gradients": 0, "gap": 1.0}


@pytest.fixture
def spec():
    return parse(SPEC)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "runs" / "mine")


def finished(folder, spec):
    folder.start(spec, {"python": "3"}, ["FedAvg: lr = 0.1 (theory)"])
    folder.append(ROW)
    folder.append(ROW | {"round": 1, "gap": math.inf})
    folder.log("hello")
    folder.finish([Outcome("FedAvg", "FedAvg", 0, "done", {"lr": 0.1})])


def test_a_finished_run(folder, spec):
    assert folder.state(spec) == "new"
    finished(folder, spec)
    assert folder.state(spec) == "same"
    assert {f.name for f in folder.path.iterdir()} == set(FILES) - {"gap.png", "accuracy.png", "loss.png"}
    assert folder.document() == spec.document()
    assert folder.file("spec.toml").read_text().startswith("# FedAvg: lr = 0.1 (theory)\n")
    assert folder.rows() == [ROW, ROW | {"round": 1, "gap": None}]
    assert parquet.read_table(folder.file("metrics.parquet")).to_pylist() == folder.rows()
    assert folder.outcomes() == [Outcome("FedAvg", "FedAvg", 0, "done", {"lr": 0.1})]
    assert "hello" in folder.file("log.txt").read_text()


def test_rows_are_on_disk_at_once_and_valid_json(folder, spec):
    folder.start(spec, {}, [])
    folder.append(ROW | {"gap": math.nan})
    (line,) = folder.file("metrics.jsonl").read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["gap"] is None
    assert folder.state(spec) == "unfinished"
    assert folder.outcomes() == []


def test_another_spec_is_another_run(folder, spec):
    finished(folder, spec)
    assert folder.state(parse(SPEC, flags=["rounds=3"])) == "other"
    assert folder.state(parse(SPEC, flags=["rounds=2"])) == "same"


def test_starting_again_forgets_the_old_run_and_nothing_else(folder, spec):
    finished(folder, spec)
    folder.file("notes.md").write_text("mine")
    folder.start(spec, {}, [])
    assert {f.name for f in folder.path.iterdir()} == {"environment.json", "spec.toml", "notes.md"}


def test_a_last_line_cut_short_is_left_out_but_damage_is_told(folder, spec):
    finished(folder, spec)
    metrics = folder.file("metrics.jsonl")
    whole = metrics.read_text()
    metrics.write_text(whole + '{"label": "Fed')
    assert len(folder.rows()) == 2
    for damage in ("garbage\n", "[1, 2]\n", '{"label": 3, "seed": 0, "round": 1, "vectors": 0, "gradients": 0}\n'):
        metrics.write_text(whole + damage)
        with pytest.raises(BadFolder, match=r"metrics.jsonl:3: not a row"):
            folder.rows()
    folder.file("summary.json").write_text("{")
    with pytest.raises(BadFolder, match=r"summary.json cannot be read"):
        folder.outcomes()


def test_what_is_not_a_run_is_left_alone(folder, spec, tmp_path):
    folder.path.mkdir(parents=True)
    folder.file("thesis.tex").write_text("precious")
    with pytest.raises(BadFolder, match="something else than a run"):
        folder.state(spec)
    with pytest.raises(BadFolder, match="is not the folder of a run"):
        folder.rows()
    (tmp_path / "elsewhere").mkdir()
    link = Folder(tmp_path / "runs" / "link")
    link.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadFolder, match="is not a folder"):
        link.state(spec)
    (tmp_path / "runs" / "file").write_text("")
    with pytest.raises(BadFolder, match="is not a folder"):
        Folder(tmp_path / "runs" / "file").state(spec)


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
    assert found["undrift"] and found["torch"] and found["python"] and found["cpus"] and found["device"] == "cpu"
    text = json.dumps(found)
    assert os.uname().nodename not in text
    assert os.path.expanduser("~") not in text and os.getcwd() not in text
