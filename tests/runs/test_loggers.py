"""What TensorBoard and MLflow are told is what is recorded."""

import importlib.util
import math
from pathlib import Path

import pytest

from undrift.cli import main
from undrift.cli import run as verb
from undrift.records.folder import Folder, Outcome
from undrift.runs import loggers

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


class Stop:
    """Stops after so many rounds in all."""

    rounds = 9
    code = 130

    def __init__(self):
        self.left = self.rounds

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    @property
    def asked(self):
        self.left -= 1
        return self.left < 0


def recorded(label, seed, column, path="runs/mine"):
    rows = [
        row for row in Folder(Path(path)).rows() if (row["label"], row["seed"]) == (label, seed)
    ]
    return [(row["round"], row[column]) for row in rows if column in row]


@pytest.fixture
def tensorboard():
    return pytest.importorskip("tensorboard", reason="tensorboard is not installed")


def scalars(label, seed, column, path="runs/mine"):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(f"{path}/tensorboard/{label}/seed-{seed}")
    found.Reload()
    return [(event.step, event.value) for event in found.Scalars(column)]


def close(points):
    return [(step, pytest.approx(value, rel=1e-6)) for step, value in points]


def test_tensorboard_has_every_row(place, tensorboard):
    assert main(["run", "spec.toml", "--log", "tensorboard"]) == 0
    for label in ("FedAvg", "SCAFFOLD, ours"):
        for seed in (0, 1):
            for column in ("gap", "drift", "bytes_up", "gradients"):
                assert scalars(label, seed, column) == close(recorded(label, seed, column))
    assert len(scalars("FedAvg", 0, "gap")) == 7


def test_a_run_that_was_interrupted_is_told_whole(place, tensorboard, monkeypatch):
    monkeypatch.setattr(verb, "Stop", Stop)
    assert main(["run", "spec.toml", "--log", "tensorboard"]) == 130
    monkeypatch.setattr(Stop, "rounds", 99)
    assert main(["resume", "mine", "--log", "tensorboard"]) == 0
    for label in ("FedAvg", "SCAFFOLD, ours"):
        for seed in (0, 1):
            assert scalars(label, seed, "gap") == close(recorded(label, seed, "gap"))


def test_a_run_that_is_replaced_leaves_nothing(place, tensorboard):
    main(["run", "spec.toml", "--log", "tensorboard"])
    main(["run", "spec.toml", "--overwrite", "-s", "rounds=2"])
    assert not list((place / "runs/mine").rglob("events.out.tfevents.*"))


@pytest.mark.parametrize("name", loggers.LOGGERS)
def test_a_missing_package_is_named_with_its_extra(place, name, monkeypatch, capsys):
    whole = importlib.util.find_spec
    monkeypatch.setattr(
        loggers, "find_spec", lambda wanted: None if wanted == name else whole(wanted)
    )
    for words in (["run", "spec.toml"], ["resume", "mine"]):
        with pytest.raises(SystemExit) as end:
            main([*words, "--log", name])
        out, err = capsys.readouterr()
        assert end.value.code == 2 and out == "" and not (place / "runs").exists()
        assert (
            err
            == f"--log {name}: the package {name} is not installed; pip install 'undrift[{name}]'\n"
        )


def test_an_unknown_logger_is_refused(place, capsys):
    with pytest.raises(SystemExit) as end:
        main(["run", "spec.toml", "--log", "paper"])
    assert end.value.code == 2 and "tensorboard" in capsys.readouterr().err


class Broken(loggers.Logger):
    """Works for two rows."""

    def begin(self, label, method, seed):
        self.left = 2

    def write(self, round, numbers):
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("the server is gone")

    def end(self, outcome):
        raise ConnectionError("the server is still gone")


def test_a_logger_that_fails_is_given_up_and_the_run_goes_on(place, monkeypatch, capsys):
    monkeypatch.setitem(loggers.LOGGERS, "tensorboard", Broken)
    assert main(["run", "spec.toml", "--log", "tensorboard"]) == 0
    err = capsys.readouterr().err
    assert (
        err.count(
            "The logger tensorboard failed, and the run continues without it: the server is gone"
        )
        == 1
    )
    assert len(Folder(place / "runs/mine").rows()) == 4 * 7


class Notes(loggers.Logger):
    def begin(self, label, method, seed):
        self.told.append(("begin", label, seed))

    def write(self, round, numbers):
        self.told.append((round, numbers))

    def end(self, outcome):
        self.told.append(("end", outcome and outcome.status))


def test_rows_before_a_break_are_told_again_and_what_is_no_number_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(Notes, "told", [], raising=False)
    monkeypatch.setitem(loggers.LOGGERS, "tensorboard", Notes)
    row = {
        "label": "a",
        "method": "A",
        "seed": 0,
        "round": 0,
        "vectors": 0,
        "gradients": 0,
        "gap": 1.0,
    }
    folder = Folder(tmp_path)
    folder.append(row)
    folder.append(row | {"seed": 1})
    folder.listeners.append(log := loggers.Log(folder, ["tensorboard"], print))
    folder.append(row | {"round": 1, "gap": math.inf, "note": "x"})
    folder.append(row | {"round": 2, "gap": 0.5})
    log.ended(Outcome("other", "A", 0, "done", {}))
    folder.close()
    folder.close()
    numbers = {"vectors": 0, "gradients": 0}
    assert Notes.told == [
        ("begin", "a", 0), (0, numbers | {"gap": 1.0}), (1, numbers), (2, numbers | {"gap": 0.5}),
        ("end", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "label", ["../../x", "/etc", "..", ".", " ", "a/b", "a\\b", "\x1b[2J", "é" * 200, "x."]
)
def test_a_label_cannot_lead_out_of_the_folder(label):
    name = loggers.filename(label)
    assert "/" not in name and "\\" not in name and name.isprintable() and len(name) < 80
    assert name not in ("", ".", "..") and not name.startswith(".") and name != label
    assert loggers.filename("FedAvg, calibrated (2)") == "FedAvg, calibrated (2)"
    assert loggers.filename("a/b") != loggers.filename("a b") != loggers.filename("a?b")
