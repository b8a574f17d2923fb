"""A run's identity has its data, its spec and its rows."""

import json
import shutil

import numpy as np
import pytest
from tests.cli.stopping import after, rows
from tests.records.older import unseal

from undrift.cli import main
from undrift.cli import run as verb
from undrift.records.folder import ENDED, Folder
from undrift.runs import experiment, keep

SPEC = """\
name = "mine"
rounds = 10
batch = 4
[problem]
name = "logistic"
data = "own"
folder = "data"
clients = 3
[[method]]
name = "FedAvg"
lr = 0.5
[[method]]
name = "Scaffold"
lr = 0.5
[[method]]
name = "FedProx"
lr = 0.5
mu = 0.1
"""


def table(place, seed):
    """An svmlight file."""
    rng = np.random.default_rng(seed)
    lines = [
        f"{'+1' if k % 2 else '-1'} " + " ".join(f"{j + 1}:{rng.normal():.4f}" for j in range(4))
        for k in range(40)
    ]
    (place / "data").mkdir(exist_ok=True)
    (place / "data/own").write_text("\n".join(lines) + "\n")


@pytest.fixture
def stopped(place, monkeypatch):
    """A run whose first method has ended and whose second has not."""
    monkeypatch.setattr(verb, "draw", lambda *about: None)  # takes longer than the run
    (place / "spec.toml").write_text(SPEC)
    table(place, 0)
    assert main(["run", "spec.toml", "--out", "whole"]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(verb, "Stop", after(16))
        assert main(["run", "spec.toml"]) == 130
    assert [o.label for o in Folder(place / "runs/mine").outcomes()] == ["FedAvg"]
    return place


def told(capsys, *words):
    capsys.readouterr()
    try:
        code = main(words)
    except SystemExit as end:
        code = end.code
    return code, capsys.readouterr().err


def content(path):
    return {f: f.read_bytes() for f in path.rglob("*") if f.is_file()}


def whole(place):
    """The run ended as the one that nothing was done to."""
    one, other = Folder(place / "whole/mine"), Folder(place / "runs/mine")
    assert sorted(map(str, rows(one.path))) == sorted(map(str, rows(other.path)))
    assert one.outcomes() == other.outcomes()
    return True


@pytest.mark.parametrize(
    "words", [["resume", "mine"], ["run", "spec.toml"]], ids=lambda words: words[0]
)
def test_other_data_are_refused_and_nothing_is_lost(stopped, capsys, words):
    table(stopped, 1)
    before = content(stopped / "runs")
    code, err = told(capsys, *words)
    assert code == 2 and "other data" in err and content(stopped / "runs") == before
    table(stopped, 0)
    assert told(capsys, *words)[0] == 0 and whole(stopped)


def test_a_finished_run_on_other_data_is_another_run(stopped, capsys):
    words = ["run", "spec.toml", "--out", "whole"]
    code, err = told(capsys, *words)
    assert code == 0 and "holds this run already" in err
    table(stopped, 1)
    before = content(stopped / "whole")
    code, err = told(capsys, *words)
    assert (
        code == 2
        and "other data" in err
        and "--overwrite" in err
        and content(stopped / "whole") == before
    )
    (stopped / "data/own").unlink()
    code, err = told(capsys, *words)
    assert code == 0 and "cannot be" in err
    table(stopped, 1)
    assert told(capsys, *words, "--overwrite")[0] == 0


def test_a_checkpoint_on_other_data_is_not_taken(stopped, capsys):
    """Not even if somebody writes the digest by hand."""
    table(stopped, 1)
    with pytest.raises(SystemExit):
        main(["resume", "mine"])
    file = stopped / "runs/mine/environment.json"
    found = json.loads(file.read_text())
    found["data"] = experiment.make(experiment_spec(stopped)).data
    file.write_text(json.dumps(found))
    code, err = told(capsys, "resume", "mine")
    assert code == 0 and "passed over" in err and "FedAvg, seed 0: its rows" in err
    assert "metrics.jsonl:1: " in err and "continues from" not in err


def experiment_spec(place):
    from undrift.spec.reader import load

    return load(place / "spec.toml")


def test_an_older_folder_goes_on_and_says_that_data_were_not_compared(stopped, capsys, monkeypatch):
    """Without digests, proofs and the best model, as older versions wrote them."""
    shutil.rmtree(stopped / "runs")
    begin = keep.begin

    def older(folder, ready):
        begin(folder, ready)
        new = ("spec", "data", "sealed")
        found = {k: v for k, v in folder.environment.items() if k not in new}
        folder.write("environment.json", json.dumps(found))

    with monkeypatch.context() as patch:
        patch.setattr(keep, "begin", older)
        patch.setattr(verb, "Stop", after(16))
        main(["run", "spec.toml"])
    unseal(stopped / "runs/mine")
    ended = stopped / "runs/mine" / ENDED
    lines = [json.loads(line) for line in ended.read_text().splitlines()]
    new = ("files", "best", "seeded", "same_as")
    ended.write_text(
        "".join(
            json.dumps({k: v for k, v in line.items() if k not in new}) + "\n" for line in lines
        )
    )
    code, err = told(capsys, "resume", "mine")
    assert code == 0 and "no digest" in err and "Scaffold, seed 0: continues from round" in err
    assert "run again" not in err
    assert sorted(map(str, rows("runs/mine"))) == sorted(map(str, rows("whole/mine")))


def test_a_swapped_spec_is_refused(stopped, capsys):
    spec = stopped / "runs/mine/spec.toml"
    mine = spec.read_text()
    spec.write_text(mine.replace("lr = 0.5", "lr = 0.25"))
    before = content(stopped / "runs")
    code, err = told(capsys, "resume", "mine")
    assert code == 2 and "spec.toml" in err and content(stopped / "runs") == before
    spec.write_text(mine)
    assert told(capsys, "resume", "mine")[0] == 0 and whole(stopped)


def digit(lines):
    k = next(k for k, line in enumerate(lines) if '"FedAvg"' in line and '"round": 5' in line)
    head, _, tail = lines[k].partition('"loss": 0.')
    lines[k] = f'{head}"loss": 0.{(int(tail[3]) + 1) % 10}{tail[1:]}'
    return lines


DAMAGE = {
    "a digit": digit,
    "a row less": lambda lines: lines[:4] + lines[5:],
    "a row twice": lambda lines: [*lines[:4], lines[3], *lines[4:]],
    "none": lambda lines: [],
    "of another run": lambda lines: [line.replace('"FedAvg"', '"FedOther"') for line in lines],
    "of another seed": lambda lines: [line.replace('"seed": 0', '"seed": 9') for line in lines],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_rows_of_what_had_ended_are_not_lost(stopped, capsys, damage):
    metrics = stopped / "runs/mine/metrics.jsonl"
    metrics.write_text("".join(damage(metrics.read_text().splitlines(keepends=True))))
    code, err = told(capsys, "resume", "mine")
    assert (
        code == 0
        and "FedAvg, seed 0: its rows, outcome or model have been changed" in err
        and whole(stopped)
    )


@pytest.mark.parametrize(
    "change", [('"done"', '"diverged"'), ('"model": "', '"model": "0'), ('"proof"', '"prof"')]
)
def test_a_changed_outcome_is_run_again(stopped, capsys, change):
    ended = stopped / "runs/mine" / ENDED
    ended.write_text(ended.read_text().replace(*change))
    code, err = told(capsys, "resume", "mine")
    assert code == 0 and "outcomes.jsonl:1: " in err and whole(stopped)


def test_a_model_that_is_gone_is_made_again(stopped, capsys):
    for file in (stopped / "runs/mine/models").iterdir():
        file.unlink()
    code, err = told(capsys, "resume", "mine")
    assert code == 0 and "have been changed" in err and whole(stopped)
    ours = {f.name: f.read_bytes() for f in (stopped / "runs/mine/models").iterdir()}
    assert ours == {f.name: f.read_bytes() for f in (stopped / "whole/mine/models").iterdir()}
