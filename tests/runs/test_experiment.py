"""One path for every run: what it tells, and that stops and processes change no number."""

import ast
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.cli.stopping import Soon, rows

import undrift
from undrift.cli import main
from undrift.core.cohort import Sampling
from undrift.methods.fedavg import FedAvg
from undrift.records.folder import Folder
from undrift.records.journal import PARTS
from undrift.runs import events, jobs
from undrift.runs.experiment import make
from undrift.runs.prepare import usual_every
from undrift.runs.run_experiment import run_in_folder
from undrift.spec.reader import load, parse

SPEC = """\
name = "mine"
rounds = 6
steps = 2
every = 3
seed = [3, 4]
[problem]
name = "quadratic"
clients = 4
dim = 5
[[method]]
name = "Scaffnew"
lr = 0.02
p = 0.5
[[method]]
name = "Scaffold"
label = "SCAFFOLD"
lr = 0.02
[[method]]
name = "FedAvg"
lr = 0.02
"""
"""Only the first method draws at random."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path


def carried_out(path, stop=None, spec=SPEC, **how):
    heard = []
    run_in_folder(make(parse(spec)), Folder(path), emit=heard.append, stop=stop, **how)
    return heard


def kinds(heard):
    return [type(event).__name__ for event in heard]


def models(path):
    return {file.name: file.read_bytes() for file in (path / "models").iterdir()}


def same(one, other):
    """The same rows, outcomes and models."""
    assert rows(one) == rows(other)
    assert Folder(one).outcomes() == Folder(other).outcomes()
    assert models(one) == models(other)


def test_events_come_in_order(tmp_path):
    heard = carried_out(tmp_path / "one")
    once = ["Began", *["Measured"] * 3, "Ended"]
    assert kinds(heard) == [*once * 4, "Ended", "Ended"]  # two have no other seed
    began, first, *_, third, last = heard[:5]
    assert began == events.Began("Scaffnew", 3, 6) and first.row["round"] == 0
    assert third.row["round"] == 6 and third.drawn and last.outcome.status == "done"
    assert heard[-2].outcome.same_as == 3


def test_a_stopped_run_is_taken_up_where_it_was(tmp_path):
    carried_out(tmp_path / "whole")
    heard = carried_out(tmp_path / "cut", stop=type("Then", (Soon,), {"rounds": 12})())
    assert not Folder(tmp_path / "cut").complete and heard[-1].outcome.status == "stopped"
    heard = carried_out(tmp_path / "cut")
    assert kinds(heard)[:3] == ["Notice", "Began", "Notice"] and "1 of 6" in str(heard[0])
    same(tmp_path / "whole", tmp_path / "cut")


def test_several_processes_give_the_same_bits(place, capsys):
    assert main(["run", "spec.toml", "--out", "one"]) == 0
    assert main(["run", "spec.toml", "--out", "several", "--jobs", "2"]) == 0
    same(place / "one/mine", place / "several/mine")
    left = {file.name for file in (place / "one/mine").iterdir()}
    assert left == {file.name for file in (place / "several/mine").iterdir()}


def test_a_process_that_dies_is_told_and_its_work_can_be_continued(tmp_path):
    """The method kills its own process in a round, once."""
    (tmp_path / "mine.py").write_text(
        "import os, pathlib\n"
        "import undrift as ud\n"
        "class Mine(ud.FedAvg):\n"
        '    """A method."""\n'
        "    def work(self, me, got, f):\n"
        f"        mark = pathlib.Path({str(tmp_path / 'mark')!r})\n"
        "        if f.round == 4 and not mark.exists():\n"
        "            mark.touch()\n"
        "            os._exit(9)\n"
        "        return super().work(me, got, f)\n"
    )
    text = SPEC.replace('name = "FedAvg"', 'name = "Mine"\nfile = "mine.py"')
    (tmp_path / "spec.toml").write_text(text)
    heard, folder = [], Folder(tmp_path / "run")
    run_in_folder(make(load(tmp_path / "spec.toml")), folder, emit=heard.append, jobs=2, pause=0)
    (died,) = [event for event in heard if isinstance(event, events.Notice)]
    assert died.warning and not folder.complete
    again = []
    run_in_folder(make(load(tmp_path / "spec.toml")), Folder(folder.path), emit=again.append)
    assert Folder(folder.path).complete and any("continues from" in str(event) for event in again)
    run_in_folder(make(load(tmp_path / "spec.toml")), Folder(tmp_path / "whole"))
    same(tmp_path / "whole", folder.path)


def test_a_process_ends_with_the_one_that_started_it_in_the_middle_of_a_round(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import os, pathlib, time\n"
        "import undrift as ud\n"
        "class Mine(ud.FedAvg):\n"
        '    """A method."""\n'
        "    def work(self, me, got, f):\n"
        f"        pathlib.Path({str(tmp_path)!r}, f'pid-{{os.getpid()}}').touch()\n"
        "        time.sleep(100)\n"
    )
    text = SPEC.replace('name = "FedAvg"', 'name = "Mine"\nfile = "mine.py"')
    (tmp_path / "spec.toml").write_text(text)
    words = [sys.executable, "-m", "undrift", "run", "spec.toml", "--jobs", "3"]
    command = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and not (marks := [*tmp_path.glob("pid-*")]):
            time.sleep(0.1)
    finally:
        command.kill()
        command.wait()
    pid = int(marks[0].name.removeprefix("pid-"))
    while time.monotonic() < until and alive(pid):
        time.sleep(0.1)
    assert not alive(pid)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_pool_of_the_callers_is_used(place):
    assert main(["run", "spec.toml", "--out", "one"]) == 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, context) as pool:
        runs = undrift.run_spec("spec.toml", save="several/mine", jobs=pool)
    assert {run.status for run in runs.values()} == {"done"}
    same(place / "one/mine", place / "several/mine")


def test_what_a_job_has_recorded_is_read_before_and_after_it_is_gathered(tmp_path):
    row = {"label": "a", "method": "A", "round": 0, "vectors": 0, "gradients": 0, "gap": math.inf}
    folder = Folder(tmp_path)
    for seed in (0, 1):
        folder.append(row | {"seed": seed})
    before = folder.rows()
    parts = folder.split({("a", 1): "0-1"})
    assert folder.rows() == before and parts["a", 1].rows() == before[1:]
    folder.append(row | {"seed": 1})  # as if the move had been cut short
    parts["a", 1].append(row | {"seed": 1, "round": 1})
    assert len(folder.rows()) == 3
    folder.gather()
    assert len(folder.rows()) == 3 and not folder.file(PARTS).exists()


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_stops_every_process_and_each_keeps_its_checkpoint(place):
    long = ["-s", "rounds=100000", "-s", "every=100000"]
    words = [sys.executable, "-m", "undrift", "run", "spec.toml", "--jobs", "2", *long]
    command = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while time.monotonic() < until and len(rows_so_far("runs/mine")) < 2:
        time.sleep(0.2)
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=120)
    assert command.returncode == 130, err
    stems = {file.stem.rpartition("-")[0] for file in Path("runs/mine/checkpoints").glob("*")}
    assert len(stems & {"0-3", "1-3", "2-3"}) == 2, err


def rows_so_far(path):
    return Folder(Path(path)).rows()


def test_the_architecture_lists_every_file_of_the_room():
    page = (Path(__file__).parents[2] / "docs/architecture.md").read_text(encoding="utf-8")
    files = {file.name for file in Path(jobs.__file__).parent.glob("[!_]*.py")}
    assert files <= {*re.findall(r"`(\w+\.py)`", page)}


def test_the_walk_from_a_spec_file_to_the_method_is_short(place, monkeypatch):
    """At most twelve functions are on the stack between the command and a phase's ``work``."""
    walks, work = [], FedAvg.work

    def watched(self, me, got, f):
        frame, names = sys._getframe(1), []
        while frame is not None:
            module, code = frame.f_globals.get("__name__", ""), frame.f_code
            if module.startswith("undrift.") and "<" not in code.co_name:
                names.append(f"{module.removeprefix('undrift.')}.{code.co_qualname}")
            frame = frame.f_back
        walks.append(names[::-1])
        return work(self, me, got, f)

    monkeypatch.setattr(FedAvg, "work", watched)
    assert main(["run", "spec.toml", "-s", "rounds=1"]) == 0
    walk = walks[0][walks[0].index("cli.run.main") :]  # which reads the spec
    assert len(walk) <= 12, walk
    page = (Path(__file__).parents[2] / "docs/architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\d+\. `([\w.]+)`", page, re.MULTILINE)
    assert listed == walk


def test_only_a_trial_loops_over_rounds():
    source = Path(undrift.__file__).parent
    calls = []
    for file in [*source.glob("runs/*.py"), *source.glob("cli/*.py"), *source.glob("report/*.py")]:
        nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        loops = [node for node in nodes if isinstance(node, ast.For | ast.While)]
        for node in (inside for loop in loops for inside in ast.walk(loop)):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "run_round":
                calls.append(file.name)
    assert calls == ["trial.py"]


@pytest.mark.parametrize(
    ("clients", "each", "cohort", "every"),
    [
        (10, 10, 1, 1),
        (20_000, 10, 10, 50),
        (20_000, 5, 10, 1),
        (20_000, 10, 400, 5),
        (200, 1000, None, 1),
    ],
)
def test_rows_are_rare_where_they_cost_most_of_a_run(clients, each, cohort, every):
    """By numbers that neither methods nor longer runs change."""
    problem = SimpleNamespace(clients=clients, samples=[each] * clients, metric_samples="train")
    assert usual_every(problem, cohort and Sampling(cohort)) == every
    problem.metric_samples = "test"
    assert usual_every(problem, cohort and Sampling(cohort)) == 1
