"""A run's identity has its data and its spec."""

import numpy as np
import pytest
from tests.cli import conftest
from tests.cli.stopping import after, rows

from undrift.cli import main
from undrift.cli import run as verb
from undrift.records.folder import Folder

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
    (place / "spec.toml").write_text(SPEC)
    table(place, 0)
    assert main(["run", "spec.toml", "--out", "whole"]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(verb, "Stop", after(16))
        assert main(["run", "spec.toml"]) == 130
    assert [o.label for o in Folder(place / "runs/mine").outcomes()] == ["FedAvg"]
    return place


def told(capsys, *words):
    code, _, err = conftest.told(capsys, *words)
    return code, err


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


def test_a_swapped_spec_is_refused(stopped, capsys):
    spec = stopped / "runs/mine/spec.toml"
    mine = spec.read_text()
    spec.write_text(mine.replace("lr = 0.5", "lr = 0.25"))
    before = content(stopped / "runs")
    code, err = told(capsys, "resume", "mine")
    assert code == 2 and "spec.toml" in err and content(stopped / "runs") == before
    spec.write_text(mine)
    assert told(capsys, "resume", "mine")[0] == 0 and whole(stopped)
