"""What a seed varies: chosen, said, and not run where there is nothing to vary."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from tests.cli.stopping import after

from undrift.cli import main
from undrift.cli import run as verb
from undrift.core.streams import Streams
from undrift.engines.checkpoint import Shelf
from undrift.problems.named import Images
from undrift.records.folder import Folder
from undrift.runs import experiment
from undrift.runs.trial import RunPlace, Trial
from undrift.spec.errors import BadSpec
from undrift.spec.reader import parse

NET = """\
name = "net"
rounds = 2
batch = 8
seed = [0, 3]
[problem]
name = "images"
train = 60
test = 20
model = "linear"
clients = 3
[[method]]
name = "FedAvg"
lr = 0.1
"""
SURE = """\
name = "sure"
rounds = 6
seed = [4, 0, 2]
[problem]
name = "quadratic"
clients = 4
dim = 3
[[method]]
name = "FedAvg"
lr = 0.05
[[method]]
name = "Scaffnew"
lr = 0.05
p = 0.5
[[method]]
name = "Scaffold"
lr = 99.0
"""


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verb, "draw", lambda *about: None)  # takes longer than the run


def problems(text, *flags):
    ready = experiment.make(parse(text, flags=flags))
    return [ready.at(seed)[0].problem for seed in ready.seeds]


def same(one, other, split=True, start=True):
    parts = len(one.parts) == len(other.parts) and all(map(np.array_equal, one.parts, other.parts))
    return parts == split and torch.equal(one.start(), other.start()) == start


def test_each_part_of_chance_can_be_varied_alone():
    one, other = problems(NET)
    assert one is other
    assert same(*problems(NET, 'vary=["start"]'), start=False)
    assert same(*problems(NET, 'vary=["split"]'), split=False)
    assert same(*problems(NET, 'vary=["draws", "split", "start"]'), split=False, start=False)


def test_a_varied_problem_is_that_of_its_seed():
    """As if the problem's own seed had been set by hand; what is not varied stays that of the
    problem.
    """
    flags = ['vary=["split", "start"]']
    assert same(
        problems(NET, *flags)[1],
        Images(train=60, test=20, model="linear", clients=3, seed=3).build(),
    )
    start = problems(NET, 'vary=["start"]', "problem.seed=5")
    assert same(start[1], problems(NET, "problem.seed=5")[0], start=False)
    assert same(
        start[1], Images(train=60, test=20, model="linear", clients=3, seed=5, start_seed=3).build()
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (["vary=[]"], "one or more"),
        (['vary=["draws", "draws"]'], "different"),
        (['vary=["weights"]'], "'split'"),
        (['vary=["start"]'], "draws and split"),
    ],
)
def test_what_cannot_be_varied_is_refused(change, reason):
    with pytest.raises(BadSpec, match="vary") as refused:
        parse(SURE, flags=change)
    assert reason in str(refused.value)


def test_one_client_has_no_split_to_vary():
    with pytest.raises(BadSpec, match="seeds decide draws and start"):
        parse(NET, flags=['vary=["split"]', "problem.clients=1"])


def test_a_problem_that_some_seed_cannot_build_is_told_before_anything_is_run(monkeypatch):
    build = Images.build

    def picky(self, objective=None):
        if self.split_seed == 3:
            raise ValueError("a client has no samples")
        return build(self)

    monkeypatch.setattr(Images, "build", picky)
    with pytest.raises(BadSpec, match="seed 3: a client has no samples"):
        experiment.make(parse(NET, flags=['vary=["split"]']))


def test_streams_know_whether_they_were_used():
    streams = Streams(0)
    move = streams.along("batches")
    assert not streams.used
    move(0, 0, 0)
    assert streams.used
    other = Streams(0)
    other.at("cohort")
    assert other.used


def ends(path):
    return {(o.label, o.seed): o for o in Folder(path).outcomes()}


def test_what_no_seed_changes_is_run_once(tmp_path, capsys):
    (tmp_path / "spec.toml").write_text(SURE)
    assert main(["run", "spec.toml"]) == 0
    out = capsys.readouterr().out
    found, rows = ends(tmp_path / "runs/sure"), Folder(tmp_path / "runs/sure").rows()
    seeds = {
        label: {row["seed"] for row in rows if row["label"] == label}
        for label in ("FedAvg", "Scaffnew")
    }
    assert seeds == {"FedAvg": {4}, "Scaffnew": {4, 0, 2}}
    assert [found["FedAvg", seed].same_as for seed in (4, 0, 2)] == [None, 4, 4]
    assert [found["Scaffold", seed].status for seed in (4, 0, 2)] == ["diverged"] * 3
    assert {found["FedAvg", seed].model for seed in (4, 0, 2)} == {found["FedAvg", 4].model}
    assert len({found["Scaffnew", seed].model for seed in (4, 0, 2)}) == 3
    table = {
        line.split()[0]: line.split()
        for line in out.splitlines()
        if line.startswith(("FedAvg ", "Scaffnew "))
    }
    assert table["FedAvg"][1] == "1" and table["Scaffnew"][1] == "3"
    assert (
        "no seed changes it: FedAvg, Scaffold" in out
        and "seeds vary random draws (same data)" in out
    )
    assert main(["report", "sure"]) == 0
    page = (tmp_path / "runs/sure/report.html").read_text()
    text = page[page.index('id="results-table"') :]
    assert "no seed changes it" in text and "random draws (same data)" in text
    capsys.readouterr()
    main(["compare", "sure", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert {m["label"]: (m["seeds"], m["seeded"]) for m in answer["methods"]}["FedAvg"] == (
        1,
        False,
    )


def test_the_seeds_that_are_left_out_give_what_they_would_have_given(tmp_path):
    """Run by themselves, they are bit-equal."""
    (tmp_path / "spec.toml").write_text(SURE)
    main(["run", "spec.toml"])
    main(["run", "spec.toml", "-s", "seed=[2]", "--out", "alone"])
    together, alone = ends(tmp_path / "runs/sure"), ends(tmp_path / "alone/sure")
    assert {key: outcome.model for key, outcome in alone.items()} == {
        (label, 2): together[label, 2].model for label in ("FedAvg", "Scaffnew", "Scaffold")
    }


@pytest.mark.parametrize("rounds", [4, 8, 14])
def test_that_nothing_was_drawn_survives_a_stop(tmp_path, monkeypatch, rounds):
    (tmp_path / "spec.toml").write_text(SURE)
    main(["run", "spec.toml", "--out", "whole"])
    monkeypatch.setattr(verb, "Stop", after(rounds))
    codes = [main(["run", "spec.toml"])]
    while codes[-1] == 130 and len(codes) < 40:
        codes.append(main(["resume", "sure"]))
    assert len(codes) > 1 and codes[-1] == 0
    assert ends(tmp_path / "runs/sure") == ends(tmp_path / "whole/sure")


def test_something_that_was_drawn_before_a_stop_is_not_forgotten(tmp_path):
    """Even if nothing is drawn after it."""
    spec = parse(SURE)
    ready, folder = experiment.make(spec), Folder(tmp_path / "sure")
    folder.start(spec, {})
    for used in (True, False):
        folder.rounds.clear()
        shelf = Shelf(tmp_path, f"state-{used}", "mine")
        place, task = RunPlace(folder, shelf), dataclasses.replace(ready.tasks[1], rounds=6)
        before = Trial(task, 4, 4, place)
        before.engine.run_round()
        assert before.engine.streams.used
        before.engine.streams.used = used
        before.keep()
        folder.rounds["metrics.jsonl", ("Scaffnew", 4)] = [0, 1]
        again = Trial(task, 4, 4, place)
        assert again.engine.round == 1 and again.engine.streams.used == used
