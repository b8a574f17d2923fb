"""Whatever has ``submit`` runs the jobs of a run, and no number depends on it."""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

import undrift as ud
from undrift.core.params import BadParameters
from undrift.records.folder import Folder

SPEC = """\
name = "mine"
rounds = 4
steps = 2
seed = [0, 1]
[problem]
name = "quadratic"
clients = 4
dim = 5
[[method]]
name = "Scaffnew"
lr = 0.02
p = 0.5
[[method]]
name = "FedAvg"
lr = 0.02
"""
PAGE = (Path(__file__).parents[2] / "docs/cluster.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)
    return tmp_path


def rows(folder):
    found = sorted(Folder(Path(folder)).rows(), key=lambda r: (r["label"], r["seed"], r["round"]))
    return [{name: value for name, value in row.items() if name != "seconds"} for row in found]


class Answered:
    """Like a future, and none of the standard library's."""

    def __init__(self, value):
        self.value = value

    def done(self):
        return True

    def result(self):
        return self.value

    def cancel(self):
        return False


class Inline:
    """An executor by its ``submit`` alone, whose workers have threads of their own as Dask's do."""

    def __init__(self):
        self.asked = []

    def submit(self, call, *given):
        os.environ["OMP_NUM_THREADS"] = "1"
        self.asked.append(given[1:])
        return Answered(call(*given))


def test_what_only_has_submit_will_do(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    ud.run_spec("spec.toml", save="one")
    pool = Inline()
    runs = ud.run_spec("spec.toml", save="mine", jobs=pool)
    assert rows("mine") == rows("one") and {run.status for run in runs.values()} == {"done"}
    assert pool.asked == [("Scaffnew", 0), ("FedAvg", 0), ("Scaffnew", 1)]
    assert Folder(Path("mine")).outcomes() == Folder(Path("one")).outcomes()
    # A job takes the threads of the process that asked for it, not those of its worker.
    assert "OMP_NUM_THREADS" not in os.environ


def test_threads_take_turns():
    ud.run_spec("spec.toml", save="one")
    with ThreadPoolExecutor(3) as pool:
        ud.run_spec("spec.toml", save="mine", jobs=pool)
    assert rows("mine") == rows("one")


class Lost(Exception):
    """What an executor says of a worker that is gone."""


def test_a_worker_that_is_lost_ends_the_call_and_the_same_call_continues():
    class Losing(Inline):
        def submit(self, call, *given):
            if given[1:] != ("FedAvg", 0):
                return super().submit(call, *given)
            found = Answered(None)
            found.result = lambda: (_ for _ in ()).throw(Lost())
            return found

    with pytest.raises(Lost):
        ud.run_spec("spec.toml", save="mine", jobs=Losing())
    assert not Folder(Path("mine")).complete
    ud.run_spec("spec.toml", save="mine", jobs=Inline())
    ud.run_spec("spec.toml", save="one")
    assert rows("mine") == rows("one")


def test_a_call_takes_jobs_with_its_folder():
    methods = {"new": ud.Scaffnew(lr=0.02, p=0.5), "avg": ud.FedAvg(lr=0.02)}
    how = {"rounds": 4, "steps": 2, "seed": [0, 1], "clients": 4, "dim": 5}
    pool = Inline()
    runs = ud.run(methods, "quadratic", save=ud.Save("mine", jobs=pool), **how)
    alone = ud.run(methods, "quadratic", **how)
    assert len(pool.asked) == 3 and [*runs] == [*alone]
    for key, run in runs.items():
        assert run.history["gap"].tolist() == alone[key].history["gap"].tolist()
        assert (run.x == alone[key].x).all()


def test_jobs_that_cannot_be_are_refused():
    problem = ud.problems.Quadratic([[1.0, 2.0]], [[1.0, 1.0]])
    with pytest.raises(BadParameters, match="a problem by name") as caught:
        ud.run(ud.FedAvg(lr=0.1), problem, rounds=2, save=ud.Save("mine", jobs=2))
    assert caught.value.problems.keys() == {"save.jobs"} and not Path("mine").exists()
    for wrong in (0, "2", 1.5):
        with pytest.raises(BadParameters, match="number >= 1 or ExecutorLike"):
            ud.Save("mine", jobs=wrong)


def same_rows():
    assert rows("runs/mine") == rows("one") != []


def block(title, kind="python"):
    """The code under a heading of the page."""
    section = PAGE.partition(f" {title}\n")[2].partition("\n#")[0] if kind == "python" else PAGE
    return re.search(rf"^```{kind}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]


@pytest.mark.parametrize(
    ("title", "needs"),
    [
        ("Gather", "undrift"),
        ("loky", "loky"),
        ("Dask", "distributed"),
        ("Ray", "ray"),
        ("submitit", "submitit"),
        ("mpi4py", "mpi4py"),
    ],
)
def test_the_page_about_clusters_runs_as_it_stands(place, title, needs):
    if find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    words = [sys.executable, "mine.py"]
    if needs == "mpi4py":
        if shutil.which("mpiexec") is None:
            pytest.skip("there is no mpiexec")
        words = ["mpiexec", "-n", "3", sys.executable, "-m", "mpi4py.futures", "mine.py"]
    ud.run_spec("spec.toml", save="one")
    if needs == "undrift":
        exec(compile(block(title), "docs/cluster.md", "exec"), {})
        same_rows()
        return
    Path("mine.py").write_text(block(title))
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    same_rows()


@pytest.mark.skipif(os.name != "posix", reason="a shell")
def test_the_script_for_slurm_runs_in_a_loop(place, capsys):
    """Slurm's variables are set by the loop that the page shows."""
    (place / "parts.sh").write_text(block("Parts", "sh"))
    (place / "undrift").write_text(f'#!/bin/sh\nexec {sys.executable} -m undrift "$@"\n')
    (place / "undrift").chmod(0o755)
    (loop,) = re.findall(r"`(for k in .*? done; wait)`", PAGE, re.DOTALL)
    gather = re.search(r"^\$ (undrift gather .*)$", PAGE, re.MULTILINE)[1]
    path = f"{place}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", f"{loop}\n{gather}"],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "Kept in runs/mine." in done.stderr, done.stderr
    ud.run_spec("spec.toml", save="one")
    assert rows("runs/mine") == rows("one")
