"""Methods and seeds join a folder: what is there stays, and only the others are run."""

import json
from pathlib import Path

import pytest

import undrift as ud
from undrift.cli import main
from undrift.core import Cohort, Method, Positive, State, Vec
from undrift.core.struct import Message
from undrift.records import journal
from undrift.records.folder import BadFolder, Folder

SETTING = {"problem": "logistic", "rounds": 6, "steps": 2, "batch": 8, "every": 2}
ONE = {"avg": ud.FedAvg(lr=0.1)}
TWO = {"first": ud.Scaffold(lr=0.1), **ONE}


def rows(folder, *without):
    """What was recorded, but for some methods, and for seals, in which lines before are."""
    found = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    rows = [row for row in found if row["label"] not in without]
    return [{key: value for key, value in row.items() if key != "seal"} for row in rows]


def timeless(folder):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows(folder)]


def models(folder):
    return {path.name: path.read_bytes() for path in (folder / "models").iterdir()}


def test_a_folder_that_grew_has_what_one_run_has(tmp_path):
    grown, whole = tmp_path / "grown", tmp_path / "whole"
    first, before = ud.run(ONE, save=grown, **SETTING), rows(grown)
    ud.run(TWO, save=grown, **SETTING)
    runs = ud.run(TWO, save=grown, seeds=[2, 0], **SETTING)
    expected = ud.run(TWO, save=whole, seeds=[2, 0], **SETTING)
    assert [*runs] == [*expected] and len(runs) == 4
    assert timeless(grown) == timeless(whole) and models(grown) == models(whole)
    assert (grown / "spec.toml").read_text().replace("grown", "whole") == (
        whole / "spec.toml"
    ).read_text()
    assert [row for row in rows(grown, "first") if row["seed"] == 0] == before
    assert (first["avg"].x == runs["avg", 0].x).all()


@pytest.mark.parametrize(
    ("methods", "changed"),
    [
        ({"avg": ud.FedAvg(lr=0.2), "first": ud.Scaffold(lr=0.1)}, {}),
        ({"first": ud.Scaffold(lr=0.1)}, {}),
        (TWO, {"steps": 3}),
        (TWO, {"rounds": 8}),
        (TWO, {"seeds": [1]}),
    ],
)
def test_other_changes_are_refused(tmp_path, methods, changed):
    ud.run(ONE, save=tmp_path / "r", **SETTING)
    before = rows(tmp_path / "r")
    with pytest.raises(BadFolder, match="holds another run"):
        ud.run(methods, save=tmp_path / "r", **SETTING | changed)
    assert rows(tmp_path / "r") == before and Folder(tmp_path / "r").complete


class Cut(Exception):
    pass


@pytest.mark.parametrize("moment", range(6))
def test_cut_short_at_any_moment_nothing_is_lost(tmp_path, monkeypatch, moment):
    place, left = tmp_path / "r", [moment]
    ud.run(ONE, save=place, **SETTING)
    before = rows(place)

    def counted(function):
        def call(*given, **options):
            if left[0] == 0:
                raise Cut
            left[0] -= 1
            return function(*given, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "write", counted(journal.Journal.write))
        patch.setattr(Path, "unlink", counted(Path.unlink))
        with pytest.raises(Cut):
            ud.run(TWO, save=place, **SETTING)
    recorded = Folder(place).record()
    assert [row["round"] for row in recorded.rows if row["label"] == "avg"] == [0, 2, 4, 6]
    assert [outcome.label for outcome in recorded.outcomes][:1] == ["avg"]
    ud.run(TWO, save=place, **SETTING)
    assert rows(place, "first") == before and len(rows(place)) == 2 * len(before)


@pytest.mark.parametrize(
    ("name", "was", "now"),
    [
        ("metrics.jsonl", '"round": 4', '"round": 5'),
        ("summary.json", '"status": "done"', '"status": "diverged"'),
        ("spec.toml", "batch = 8", "batch = 4"),
    ],
)
def test_a_changed_folder_does_not_grow(tmp_path, name, was, now):
    ud.run(ONE, save=tmp_path / "r", **SETTING)
    file = tmp_path / "r" / name
    file.write_text(file.read_text().replace(was, now))
    before = {path.name: path.read_bytes() for path in (tmp_path / "r").glob("*.*")}
    assert now.encode() in before[name]
    with pytest.raises(BadFolder):
        ud.run(TWO, save=tmp_path / "r", **SETTING)
    assert {path.name: path.read_bytes() for path in (tmp_path / "r").glob("*.*")} == before


def own(factor):
    class Mine(Method, register=False):
        """Steps of a certain length.

        Args:
            lr: the step.
        """

        lr: Positive

        class Server(State):
            x: Vec

        class Client(State):
            pass

        class Down(Message):
            x: Vec

        class Up(Message):
            dx: Vec

        def work(self, me, got, f):
            return me, self.Up(dx=-factor * self.lr * f.grad(got.x))

        def merge(self, s, up, cohort: Cohort):
            return self.Server(x=s.x + up.dx)

    return Mine(lr=0.1)


def test_code_may_be_added_but_not_changed(tmp_path):
    ud.run({"mine": own(1.0)}, save=tmp_path / "r", **SETTING)
    runs = ud.run({"mine": own(1.0), **TWO}, save=tmp_path / "r", **SETTING)
    assert len(runs) == 3
    again = ud.run({"mine": own(1.0), **TWO}, save=tmp_path / "r", **SETTING)
    assert (again["mine"].x == runs["mine"].x).all()
    with pytest.raises(BadFolder, match="another"):
        ud.run({"mine": own(2.0), **TWO, "more": ud.GD(lr=0.1)}, save=tmp_path / "r", **SETTING)
    assert Folder(tmp_path / "r").complete


SPEC = """\
name = "grows"
rounds = 6
steps = 2
[problem]
name = "quadratic"
clients = 4
[[method]]
name = "FedAvg"
lr = 0.01
"""


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_spec_with_another_method_adds_it(tmp_path, monkeypatch, capsys, jobs):
    monkeypatch.chdir(tmp_path)
    Path("grows.toml").write_text(SPEC)
    assert main(["run", "grows.toml"]) == 0
    before = rows(tmp_path / "runs/grows")
    Path("grows.toml").write_text(SPEC + '[[method]]\nname = "Scaffold"\nlr = "theory"\n')
    capsys.readouterr()
    assert main(["run", "grows.toml", "--jobs", jobs]) == 0
    assert "1 of 2 are done" in capsys.readouterr().err
    assert rows(tmp_path / "runs/grows", "Scaffold") == before
    assert "# Scaffold: lr =" in Path("runs/grows/spec.toml").read_text()
    assert main(["run", "grows.toml"]) == 0
    assert "holds this run already" in capsys.readouterr().err


def test_a_method_that_is_gone_is_one_difference(tmp_path):
    ud.run(TWO, save=tmp_path / "r", **SETTING)
    with pytest.raises(BadFolder) as refused:
        ud.run(ONE, save=tmp_path / "r", **SETTING | {"steps": 3})
    assert refused.value.changed == "steps was 2 and is 3; method.first was given and is not set"
