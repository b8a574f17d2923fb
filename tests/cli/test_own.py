"""``new`` and ``check``, and a method of one's own in a spec."""

import json

import pytest
from tests.cli.conftest import told
from tests.cli.stopping import after

from undrift import methods
from undrift.check import CHECKS
from undrift.cli import run as verb
from undrift.core.method import registry
from undrift.records.folder import Folder

OWN = """\
[[method]]
file = "mine.py"
name = "Mine"
lr = 0.02
"""


@pytest.fixture(autouse=True)
def unchanged():
    # Loads them, whatever ran before.
    known = {name: getattr(methods, name) for name in methods.__all__}
    yield
    assert registry == known


def test_a_new_file_passes_every_check_and_the_next_command_is_said(place, capsys):
    code, out, err = told(capsys, "new", "method", "Mine", "--out", "deep/er")
    assert code == 0 and out == "deep/er/mine.py\n" and "undrift check deep/er/mine.py" in err
    code, out, err = told(capsys, "check", "deep/er/mine.py")
    assert code == 0 and "file = 'mine.py', name = 'Mine'" in err
    lines = out.splitlines()
    assert lines[0] == "Mine" and lines[-1] == f"{len(CHECKS)} checks passed, 0 failed"
    assert [line.split()[:2] for line in lines[1:-1]] == [["passed", f"{name}:"] for name in CHECKS]


def test_names_that_cannot_be_taken(place, capsys):
    told(capsys, "new", "method", "Mine")
    before = (place / "mine.py").read_text()
    for name in ("Mine", "mine", "FedAvg", "../A"):
        assert told(capsys, "new", "method", name)[:2] == (2, "")
    assert (place / "mine.py").read_text() == before
    assert told(capsys, "new", "objectives", "Mine")[0] == 2
    (place / "file").write_text("")
    code, _, err = told(capsys, "new", "method", "Other", "--out", "file")
    assert code == 1 and "file" in err


def test_what_stops_several_checks_is_said_once(place, capsys):
    told(capsys, "new", "method", "Mine")
    text = (place / "mine.py").read_text()
    (place / "mine.py").write_text(text.replace("def work(", "def wrok("))
    code, out, _ = told(capsys, "check", "mine.py")
    assert code == 1 and out.count("Mine has no work: write work(self, me, got, f)") == 1
    assert [line.split()[:2] for line in out.splitlines()[1:-1]] == [
        ["FAILED", "purity:"],
        ["passed", "documented:"],
    ]
    assert out.endswith("1 check passed, 12 failed (others as these)\n")


@pytest.mark.parametrize("name", ["spec.toml", "none.py"])
def test_what_is_no_python_file_is_told_what_to_give(place, capsys, name):
    (place / "spec.toml").write_text("rounds = 1\n")
    code, _, err = told(capsys, "check", name)
    assert code == 2 and err == f"{name}: no Python file; a spec is tried by undrift run --check\n"


def test_what_is_wrong_is_said_in_words(place, capsys):
    told(capsys, "new", "method", "Mine")
    text = (place / "mine.py").read_text()
    (place / "mine.py").write_text(text.replace("grad(y) - me.c + got.c", "grad(y) + me.c - got.c"))
    code, out, _ = told(capsys, "check", "mine.py")
    assert code == 1
    failed = [line.split()[1] for line in out.splitlines() if line.startswith("  FAILED")]
    assert {"affine:", "exactness:"} <= set(failed) and "errors grow from round to round" in out
    code, out, err = told(capsys, "check", "mine.py", "--json")
    assert code == 1 and set(json.loads(out)["Mine"]) == {name.rstrip(":") for name in failed}
    assert "  FAILED  affine" in err
    (place / "mine.py").write_text(text.replace("y = f.sgd", "y = undefined; y = f.sgd"))
    code, out, _ = told(capsys, "check", "mine.py")
    assert code == 1 and "it stops with NameError" in out and "passed  documented" in out


def test_every_method_of_a_file_is_checked(place, capsys):
    told(capsys, "new", "method", "Mine")
    text = (place / "mine.py").read_text()
    (place / "mine.py").write_text(text + "\n\nclass Other(Mine):\n    exact = False\n")
    code, out, _ = told(capsys, "check", "mine.py", "--json")
    answer = json.loads(out)
    assert code == 1 and answer["Mine"] == {} and set(answer["Other"]) == {"exactness"}


def test_files_that_cannot_be_loaded(place, capsys):
    code, out, err = told(capsys, "check", "nothing.py")
    assert code == 2 and out == "" and err.startswith("nothing.py: no Python file")
    (place / "bad.py").write_text("x = 1\ny = 1 / 0\n")
    code, out, err = told(capsys, "check", "bad.py")
    assert code == 2 and out == "" and err == "bad.py:2: ZeroDivisionError: division by zero\n"


def test_a_spec_with_a_method_of_ones_own(place, capsys):
    told(capsys, "new", "method", "Mine")
    (place / "spec.toml").write_text((place / "spec.toml").read_text() + OWN)
    assert told(capsys, "run", "spec.toml")[0] == 0
    rows = {}
    for row in Folder(place / "runs/mine").rows():
        rows.setdefault(row["label"], []).append(row["gap"])
    assert rows["Mine"] == pytest.approx(rows["SCAFFOLD"], rel=1e-12) != rows["FedAvg"]
    assert (place / "runs/mine/mine.py").read_bytes() == (place / "mine.py").read_bytes()
    assert "holds this run already" in told(capsys, "run", "spec.toml")[2]
    (place / "mine.py").write_text((place / "mine.py").read_text() + "\n# changed\n")
    code, _, err = told(capsys, "run", "spec.toml")
    assert code == 2 and "other code" in err


NOTICED = "from pathlib import Path\nPath('executed').touch()\n"


def test_a_folder_that_brings_code_has_to_be_trusted(place, capsys, monkeypatch):
    """Nothing in it is executed before that."""
    told(capsys, "new", "method", "Mine")
    (place / "spec.toml").write_text((place / "spec.toml").read_text() + OWN)
    with monkeypatch.context() as patch:
        patch.setattr(verb, "Stop", after(30))
        code, _, err = told(capsys, "run", "spec.toml")
        assert code == 130 and "undrift resume runs/mine --trust" in err
    brought = place / "runs/mine/mine.py"
    brought.write_text(NOTICED + brought.read_text())
    before = {f: f.read_bytes() for f in (place / "runs/mine").rglob("*") if f.is_file()}
    code, out, err = told(capsys, "resume", "mine")
    assert code == 2 and out == "" and not (place / "executed").exists()
    assert "runs/mine/spec.toml" in err and "undrift resume runs/mine --trust" in err
    assert {f: f.read_bytes() for f in (place / "runs/mine").rglob("*") if f.is_file()} == before
    brought.write_text(brought.read_text().removeprefix(NOTICED))
    code, _, err = told(capsys, "resume", "mine", "--trust")
    assert code == 0 and err.splitlines()[0] == "Executes runs/mine/mine.py."
    assert told(capsys, "resume", "mine")[0] == 0  # finished: nothing to execute
    brought.write_text(NOTICED + brought.read_text())
    with pytest.warns(UserWarning, match=r"mine\.py changed"):
        assert told(capsys, "resume", "mine")[0] == 0
    assert not (place / "executed").exists()


@pytest.mark.parametrize("flags", [["--check"], []])
def test_a_run_says_which_file_it_executes_before_it_does(place, capsys, monkeypatch, flags):
    told(capsys, "new", "method", "Mine")
    (place / "mine.py").write_text(
        "import sys\nprint('here', file=sys.stderr)\n" + (place / "mine.py").read_text()
    )
    (place / "spec.toml").write_text((place / "spec.toml").read_text() + OWN + 'label = "My own"\n')
    code, _, err = told(capsys, "run", "spec.toml", *flags)
    assert code == 0 and err.splitlines()[:2] == ["Executes mine.py.", "here"]


@pytest.mark.parametrize("error", ["NameError", "SystemExit", "BaseException"])
def test_whatever_a_method_raises_it_fails_alone(place, capsys, error):
    told(capsys, "new", "method", "Mine")
    text = (place / "mine.py").read_text()
    (place / "mine.py").write_text(text.replace("y = f.sgd", f"raise {error}('no'); y = f.sgd"))
    (place / "spec.toml").write_text((place / "spec.toml").read_text() + OWN)
    code, out, err = told(capsys, "run", "spec.toml")
    line = text[: text.index("y = f.sgd")].count("\n") + 1
    assert code == 0 and f"Mine failed: {error} (mine.py:{line}): no" in out
    assert "Traceback" not in err
    ends = [o.status for o in Folder(place / "runs/mine").outcomes()]
    assert ends == ["done", "done", "failed"]


KINDS = {
    "problem": ("mine", '[problem]\nfile = "mine.py"\nname = "mine"\n'),
    "network": (
        "mine",
        '[problem]\nname = "images"\nclients = 4\n[network]\nfile = "mine.py"\nname = "mine"\n',
    ),
    "objective": (
        "Mine",
        '[objective]\nfile = "mine.py"\nname = "Mine"\n[problem]\nname = "images"\nclients = 4\n',
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_new_writes_is_checked_and_runs_in_a_spec(place, capsys, kind):
    name, text = KINDS[kind]
    code, out, err = told(capsys, "new", kind, name)
    assert code == 0 and out == "mine.py\n" and err == "Next: undrift check mine.py\n"
    code, out, err = told(capsys, "check", "mine.py", "--json")
    assert code == 0 and json.loads(out) == {name: {}} and f"[{kind}] file" in err
    method = '[[method]]\nname = "FedAvg"\nlr = 0.02\n'
    (place / "spec.toml").write_text(f'name = "new"\nrounds = 2\nbatch = 8\n{text}{method}')
    assert told(capsys, "run", "spec.toml")[0] == 0
    losses = [row["loss"] for row in Folder(place / "runs/new").rows()]
    assert len(losses) == 3 and losses[-1] < losses[0]
