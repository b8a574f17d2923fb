"""Interrupted runs end as if they had never stopped."""

import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from tests.cli.stopping import after, rows

from undrift.check.federations import example, quadratic
from undrift.cli import main
from undrift.cli import run as verb
from undrift.core.method import registry
from undrift.core.params import values
from undrift.records.folder import Folder
from undrift.runs import experiment
from undrift.runs.prepare import Task
from undrift.spec.reader import parse

MANY = """\
name = "mine"
rounds = 40
steps = 3
every = 3
batch = 2
seed = [3, 4]
schedule = 0.99
[cohort]
size = 4
dropout = 0.3
[problem]
name = "least-squares"
clients = 6
rows = 8
[[method]]
name = "Scaffold"
lr = 0.02
[[method]]
name = "Mime"
lr = 0.02
beta = 0.5
rounds = 31
[[method]]
name = "FedAvg"
lr = 9.0
"""
FAULTY = (
    MANY
    + """\
[[faults]]
kind = "drop-before"
rate = 0.2
[[faults]]
kind = "drop-after"
rate = 0.1
[[faults]]
kind = "stale"
clients = [1]
rate = 0.5
[[faults]]
kind = "nan"
clients = [3]
since = 5
"""
)


def kill(place, times, seed, spec=MANY):
    (place / "spec.toml").write_text(spec)
    script = Path(__file__).with_name("kill_at_random.py")
    done = subprocess.run(
        [sys.executable, str(script), str(times), str(seed)],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def test_killed_at_random_instants(tmp_path):
    assert kill(tmp_path, 10, seed=0) >= 1


@pytest.mark.whole
def test_killed_at_random_instants_while_clients_fail(tmp_path):
    """Who was left out is compared as well."""
    assert kill(tmp_path, 10, seed=2, spec=FAULTY) >= 1
    found = Folder(tmp_path / "whole/mine").record().left_out
    assert len({row["reason"] for row in found}) > 2


@pytest.mark.slow
def test_killed_at_two_hundred_random_instants(tmp_path):
    assert kill(tmp_path, 200, seed=1) >= 5


@pytest.fixture
def stopping(monkeypatch):
    """Stop every run after so many rounds; ``None`` lets it run."""

    return lambda rounds: monkeypatch.setattr(verb, "Stop", after(rounds))


def whole(spec):
    """What a run without a break measures and ends with."""
    main(["run", spec, "--out", "whole"])
    return rows("whole/mine"), Folder(Path("whole/mine")).outcomes()


@pytest.fixture
def many(place, capsys):
    (place / "spec.toml").write_text(MANY)
    expected = whole("spec.toml")
    capsys.readouterr()
    return place / "runs/mine", expected


@pytest.mark.parametrize(
    "again", [["resume", "mine"], ["run", "spec.toml"]], ids=lambda words: words[0]
)
def test_killed_between_the_mark_of_the_end_and_tidying_up(many, again, monkeypatch):
    path, (expected, outcomes) = many
    with monkeypatch.context() as killed, pytest.raises(Killed):
        killed.setattr(Folder, "tidy", die)
        main(["run", "spec.toml"])
    assert (path / "checkpoints/outcomes.jsonl").exists() and (path / "summary.json").exists()
    assert main(again) == 0
    assert left(path) == [31, 40]
    assert rows(path) == expected and Folder(path).outcomes() == outcomes


class Killed(BaseException):
    """Nobody catches it."""


def left(path):
    """Rounds of the checkpoints of a finished run, and nothing else is beside them."""
    return sorted({int(file.stem.split("-")[2]) for file in (path / "checkpoints").iterdir()})


def die(folder, **_):
    if (folder.path / "summary.json").exists():
        raise Killed


def test_a_run_stopped_every_few_rounds(many, capsys, stopping):
    path, (expected, outcomes) = many
    stopping(8)
    codes = [main(["run", "spec.toml"])]
    while codes[-1] == 130 and len(codes) < 60:
        assert all(row in expected for row in rows(path))
        codes.append(main(["resume", "mine"]))
    assert len(codes) > 15 and codes[-1] == 0
    assert rows(path) == expected and Folder(path).outcomes() == outcomes
    assert left(path) == [31, 40]
    assert "undrift resume runs/mine" in capsys.readouterr().err


def test_every_method_goes_on_where_it_stopped(place, capsys):
    """The drift of the last local models too, which no checkpoint holds."""
    constants = quadratic().constants
    chosen = {name: values(example(cls, constants)) for name, cls in registry.items()}
    tables = [
        {"name": name, **{k: v for k, v in own.items() if v is not None}}
        for name, own in chosen.items()
    ]
    document = {
        "name": "mine",
        "rounds": 5,
        "steps": 2,
        "problem": {"name": "quadratic", "clients": 5, "dim": 4},
    }
    ready = experiment.make(parse(tomli_w.dumps(document | {"method": tables})))
    one, other = Folder(place / "one"), Folder(place / "other")
    for folder in (one, other):
        folder.start(ready.recipe, {})
    outcomes = [result.outcome for result in ready.run(one)]
    for k, outcome in enumerate(outcomes):
        ends = [again(ready, k, other) for _ in range(5)]
        assert ends[-1] == outcome and [end.status for end in ends[:-1]] == ["stopped"] * 4, (
            outcome.label
        )
    assert rows(one.path) == rows(other.path)


def again(ready, k, folder):
    """One more round of the k-th method, as a new process would run it."""
    folder.close()
    folder.resume()
    label = ready.tasks[k].label
    stop = after(2)()  # one look before the method, one before its first round
    return next(ready.run(folder, stop=stop, only=[(label, 0)])).outcome


def test_what_is_finished_is_not_redone(many, capsys, stopping, monkeypatch):
    path, (expected, _) = many
    stopping(45)
    assert main(["run", "spec.toml"]) == 130
    assert [o.label for o in Folder(path).outcomes()] == ["Scaffold"]
    stopping(None)
    made = []
    engine = Task.engine
    monkeypatch.setattr(Task, "engine", lambda self, seed: made.append(seed) or engine(self, seed))
    capsys.readouterr()
    assert main(["run", "spec.toml"]) == 0
    assert len(made) == 5 and rows(path) == expected
    err = capsys.readouterr().err
    assert "1 of 6 are done" in err and "Mime, seed 3: continues from round 3 of 31" in err


def checkpoints(path):
    return sorted(
        (path / "checkpoints").glob("*.safetensors"), key=lambda f: int(f.stem.split("-")[-1])
    )


def damage(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def test_a_damaged_checkpoint_is_passed_over(many, capsys, stopping):
    path, (expected, _) = many
    stopping(20)
    main(["run", "spec.toml", "--checkpoint", "0"])
    assert [f.name for f in checkpoints(path)] == ["0-3-18.safetensors", "0-3-19.safetensors"]
    damage(checkpoints(path)[-1])
    stopping(None)
    capsys.readouterr()
    assert main(["resume", "runs/mine"]) == 0
    err = capsys.readouterr().err
    assert "0-3-19.safetensors: damaged" in err and "continues from round 18" in err
    assert rows(path) == expected


def test_a_run_without_a_checkpoint_says_where_it_begins(many, capsys, stopping):
    path, (expected, _) = many
    stopping(20)
    main(["run", "spec.toml"])
    for file in checkpoints(path):  # as where a kill came before the first of them
        file.unlink()
    stopping(None)
    capsys.readouterr()
    assert main(["run", "spec.toml"]) == 0
    told = "Scaffold, seed 3: without a checkpoint, begins anew from round 0 of 40"
    assert told in capsys.readouterr().err and rows(path) == expected


def test_rows_that_are_lost_are_measured_again(many, capsys, stopping):
    """A checkpoint is good only with the rows before it; a line cut short is none."""
    path, (expected, _) = many
    stopping(20)
    main(["run", "spec.toml", "--checkpoint", "0"])
    metrics = path / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[:-1]) + lines[-1][:30])
    stopping(None)
    assert main(["resume", "runs/mine"]) == 0
    assert "the rows recorded before it are not all there" in capsys.readouterr().err
    assert rows(path) == expected


def test_finished_and_missing_runs(many, capsys):
    main(["run", "spec.toml"])
    capsys.readouterr()
    assert main(["resume", "mine"]) == 0
    out, err = capsys.readouterr()
    assert "holds this run already" in err and "Scaffold" in out
    for name, words in (("mne", "did you mean mine?"), ("whole", "no spec.toml")):
        with pytest.raises(SystemExit) as end:
            main(["resume", name])
        assert end.value.code == 2 and words in capsys.readouterr().err


def test_two_processes_do_not_share_a_folder(many, capsys, stopping):
    path, _ = many
    stopping(5)
    main(["run", "spec.toml"])
    before = (path / "metrics.jsonl").read_bytes()
    other = Folder(path)
    other.resume()
    for words in (["resume", "mine"], ["run", "spec.toml"], ["run", "spec.toml", "--overwrite"]):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 2 and "in use" in capsys.readouterr().err
    assert (path / "metrics.jsonl").read_bytes() == before
    other.close()
    assert main(["resume", "mine"]) == 130
