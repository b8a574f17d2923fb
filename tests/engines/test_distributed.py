"""Several processes share a run: as in one, bit for bit, whatever becomes of them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.engines.on_ranks import launch

import undrift
from undrift.cli import main
from undrift.core.aggregation import MEAN, Median
from undrift.core.params import BadParameters
from undrift.engines.options import DistributedOptions
from undrift.engines.ranks import told
from undrift.records.folder import Folder
from undrift.spec.reader import parse
from undrift.spec.schema import normal

SPEC = """\
name = "mine"
rounds = {rounds}
every = 5
steps = 3
batch = 4
cohort = 4
seed = [0, 1]
[problem]
name = "logistic"
clients = 7
[[method]]
name = "Scaffold"
lr = 0.05
"""


def held_against_simulate(ranks, *words):
    found = launch(ranks, *words)
    for out, errors, code in found:
        assert code == 0, errors
        assert json.loads(out.splitlines()[-1])["wrong"] == {}
    assert json.loads(found[0][0].splitlines()[-1])["cases"] > 60


@pytest.mark.covering(1)
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_are_one_process(ranks):
    held_against_simulate(ranks, "2")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_way_to_run_is_the_same_on_many_ranks(ranks):
    held_against_simulate(ranks, "20", "all")


def test_a_rank_says_whom_it_waits_for_and_gives_up():
    found = launch(2, module="tests.engines.apart", timeout=60)
    for k, (out, errors, code) in enumerate(found):
        assert code == 3, errors
        assert "a process of the run is gone" in out
        assert re.search(rf"rank {k} has waited [12] s at .* for rank {1 - k}, which is", errors)
    assert "is at broadcast 3" in found[0][1] and "is at sum 3" in found[1][1]


# -- the command line


def command(folder, *words, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "undrift", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        **options,
    )


def done(folder, *words, timeout=120, **options):
    process = command(folder, *words, **options)
    out, errors = process.communicate(timeout=timeout)
    return process.returncode, out, errors


def rows(folder):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in Folder(folder).rows()]


def children(pid):
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [*map(int, found.read_text(encoding="utf-8").split())]


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """The rows of one process."""
    folder = tmp_path_factory.mktemp("usual")
    (folder / "spec.toml").write_text(SPEC.format(rounds=200), encoding="utf-8")
    undrift.run_spec(folder / "spec.toml", save=folder / "mine")
    return rows(folder / "mine")


@pytest.mark.whole
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["a rank dies", pytest.param("Ctrl-C", marks=pytest.mark.slow)])
def test_a_run_is_broken_off_and_continued_by_one_process(how, usual, tmp_path, monkeypatch):
    (tmp_path / "spec.toml").write_text(SPEC.format(rounds=200), encoding="utf-8")
    run = tmp_path / "runs/mine"
    words = ("run", "spec.toml", "--engine", "distributed", "--workers", "2", "--checkpoint", "0")
    process = command(tmp_path, *words)
    until = time.monotonic() + 100
    while not [*run.glob("checkpoints/*.safetensors")] and time.monotonic() < until:
        time.sleep(0.02)
    ranks = children(process.pid)
    began = time.monotonic()
    if how == "Ctrl-C":
        process.send_signal(signal.SIGINT)
    else:
        os.kill(ranks[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert time.monotonic() - began < 100  # 10 on a machine that has nothing else to do
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)
    assert process.returncode == (130 if how == "Ctrl-C" else 1), errors
    assert "undrift resume runs/mine" in errors
    assert len(rows(run)) < len(usual)
    monkeypatch.chdir(tmp_path)
    assert main(["resume", "mine", "--engine", "simulate"]) == 0
    for mine, theirs in zip(rows(run), usual, strict=True):  # parts of a loss are added in order
        assert mine == {
            k: v if isinstance(v, str) else pytest.approx(v, 1e-12) for k, v in theirs.items()
        }


@pytest.mark.parametrize(
    ("words", "environment", "text"),
    [
        (["--workers", "2"], {}, "simulate"),
        (["--engine", "distributed"], {}, "--workers N"),
        (["--engine", "distributed", "--workers", "8"], {}, "7 clients"),
        (["--engine", "distributed", "--workers", "2", "--jobs", "2"], {}, "--jobs"),
        ([], {"RANK": "0", "WORLD_SIZE": "2"}, "--engine distributed"),
    ],
)
def test_bad_input_is_answered_before_anything_is_made(words, environment, text, tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC.format(rounds=5), encoding="utf-8")
    env = os.environ | environment
    code, out, errors = done(tmp_path, "run", "spec.toml", *words, env=env)
    assert (code, out) == (2, "")
    assert text in errors and "Traceback" not in errors
    assert [file.name for file in tmp_path.iterdir()] == ["spec.toml"]


# -- what needs no second process


ENVIRONMENT = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


@pytest.mark.parametrize("wrong", [{"WORLD_SIZE": ""}, {"MASTER_PORT": "x"}])
def test_what_a_launcher_says_is_checked(wrong, monkeypatch):
    monkeypatch.delenv("UNDRIFT_RENDEZVOUS", raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert told()["RANK"] == 1
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadParameters) as caught:
        told()
    assert set(caught.value.problems) == {"workers"}


def test_an_engine_without_processes_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(BadParameters) as caught:
        undrift.run(undrift.FedAvg(lr=0.1), "quadratic", rounds=1, engine="distributed")
    assert set(caught.value.problems) == {"engine"}


def test_the_engine_is_not_part_of_what_a_run_is():
    spec = SPEC.format(rounds=5)
    one = parse(spec)
    many = parse(spec + '[engine]\nname = "distributed"\nworkers = 3\ncollect = "sums"\n')
    assert one.identity == many.identity and normal(one.document()) == normal(many.document())
    assert one.identity != parse(spec + '[engine]\nname = "wire"\n').identity
    assert re.search(r"workers = 3", many.toml())


def test_what_several_processes_cannot_do_is_said_at_its_place():
    rows, sums = DistributedOptions(), DistributedOptions(collect="sums")
    assert rows.refuse(2, 2, Median(), ["nan"]) == {}
    assert set(rows.refuse(3, 2, MEAN, None)) == {"engine.workers"}
    assert set(sums.refuse(2, 2, Median(), None)) == {"engine.collect"}
    assert set(sums.refuse(2, 2, MEAN, ["nan"])) == {"engine.collect"}
