"""The recipe of a run folder: one that was changed is not taken for what was run."""

import json
from pathlib import Path

import pytest
from tests.records.older import unseal

import undrift as ud
from undrift.records.folder import BadFolder, Folder
from undrift.report.comparison import read

METHOD = """
import undrift as ud
from steps import SHORTER


class Mine(ud.FedAvg, register=False):
    pass
"""
SPEC = {
    "name": "q",
    "rounds": 3,
    "steps": 2,
    "problem": {"name": "quadratic", "clients": 2, "dim": 3},
    "method": [{"name": "FedAvg", "lr": 0.02}],
}


def by_spec(folder):
    ud.run_spec(SPEC, save=folder)


def by_call(folder):
    problem = ud.problems.build("quadratic", clients=2, dim=3)
    ud.run(ud.FedAvg(lr=0.02), problem, rounds=3, steps=2, save=folder)


def with_files(folder):
    Path("mine.py").write_text(METHOD)
    Path("steps.py").write_text("SHORTER = 0.5\n")
    Path("s.toml").write_text(
        'name = "q"\nrounds = 3\nsteps = 2\n[problem]\nname = "quadratic"\nclients = 2\n'
        '[[method]]\nfile = "mine.py"\nname = "Mine"\nlr = 0.02\n'
    )
    ud.run_spec("s.toml", save=folder)


def refused(folder):
    """All readers refuse it."""
    for reader in (ud.load, lambda path: read([Folder(path)])):
        with pytest.raises(BadFolder, match=r"spec\.toml"):
            reader(folder)


@pytest.mark.parametrize("make", [by_spec, by_call, with_files])
def test_a_changed_spec_is_found(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "q"
    make(folder)
    kept = ud.load(folder)
    file = folder / "spec.toml"
    text = file.read_text()
    for before, after in (
        ("lr = 0.02", "lr = 0.03"),
        ("rounds = 3", "rounds = 4"),
        ("rounds = 3", 'rounds = "x"'),
        ("rounds = 3", "rounds = 2026-01-01"),
        ("clients = 2", "clients = 3"),
        ("[[method]]", "[method]"),
    ):
        assert before in text
        file.write_text(text.replace(before, after))
        refused(folder)
    file.write_text(f"# a remark\n{text}")
    assert ud.load(folder).records == kept.records


@pytest.mark.parametrize("name", ["mine.py", "steps.py"])
def test_changed_code_is_found(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with_files(tmp_path / "q")
    (tmp_path / "q" / name).write_text(f"{(tmp_path / name).read_text()}\nlr = 2\n")
    refused(tmp_path / "q")
    (tmp_path / "q" / name).unlink()
    refused(tmp_path / "q")


def test_an_older_folder_has_no_digest_and_is_read(tmp_path):
    folder = tmp_path / "q"
    by_spec(folder)
    unseal(folder)
    file = folder / "environment.json"
    about = json.loads(file.read_text())
    del about["spec"]
    file.write_text(json.dumps(about))
    assert len(ud.load(folder).records) == 4
