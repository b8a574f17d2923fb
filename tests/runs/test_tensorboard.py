"""What TensorBoard is told is what is recorded."""

from pathlib import Path

import pytest
from tests.cli.stopping import after

from undrift.cli import main
from undrift.cli import run as verb
from undrift.records.folder import Folder
from undrift.records.models import stem
from undrift.runs import tensorboard as tensorboard_rows

SPEC = """\
name = "mine"
rounds = 6
steps = 3
seed = [0, 1]
cohort = 3
[problem]
name = "quadratic"
clients = 4
dim = 5
[[method]]
name = "FedAvg"
lr = 0.02
[[method]]
name = "Scaffold"
label = "SCAFFOLD, ours"
lr = 0.02
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path


def recorded(label, seed, column, path="runs/mine"):
    rows = [
        row for row in Folder(Path(path)).rows() if (row["label"], row["seed"]) == (label, seed)
    ]
    return [(row["round"], row[column]) for row in rows if column in row]


LABELS = ("FedAvg", "SCAFFOLD, ours")


@pytest.fixture
def tensorboard():
    return pytest.importorskip("tensorboard", reason="tensorboard is not installed")


def scalars(label, seed, column, path="runs/mine"):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(f"{path}/tensorboard/{stem(LABELS.index(label), label)}/seed-{seed}")
    found.Reload()
    return [(event.step, event.value) for event in found.Scalars(column)]


def close(points):
    return [(step, pytest.approx(value, rel=1e-6)) for step, value in points]


def test_tensorboard_has_every_row(place, tensorboard):
    assert main(["run", "spec.toml", "--log", "tensorboard"]) == 0
    for label in LABELS:
        for seed in (0, 1):
            for column in ("gap", "drift", "bytes_up", "gradients"):
                assert scalars(label, seed, column) == close(recorded(label, seed, column))
    assert len(scalars("FedAvg", 0, "gap")) == 7


def test_a_run_that_was_interrupted_is_told_whole(place, tensorboard, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(verb, "Stop", after(9))
        assert main(["run", "spec.toml", "--log", "tensorboard"]) == 130
    assert main(["resume", "mine", "--log", "tensorboard"]) == 0
    for label in LABELS:
        for seed in (0, 1):
            assert scalars(label, seed, "gap") == close(recorded(label, seed, "gap"))


def test_a_run_that_is_replaced_leaves_nothing(place, tensorboard):
    main(["run", "spec.toml", "--log", "tensorboard"])
    main(["run", "spec.toml", "--overwrite", "-s", "rounds=2"])
    assert not list((place / "runs/mine").rglob("events.out.tfevents.*"))


def test_a_missing_package_is_named_with_its_extra(place, monkeypatch, capsys):
    monkeypatch.setattr(tensorboard_rows, "find_spec", lambda wanted: None)
    with pytest.raises(SystemExit) as end:
        main(["run", "spec.toml", "--log", "tensorboard"])
    out, err = capsys.readouterr()
    assert end.value.code == 2 and out == "" and not (place / "runs").exists()
    assert "undrift[tensorboard]" in err
