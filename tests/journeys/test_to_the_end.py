"""Every engine from a spec to a report, killed on the way, and runs on several hosts."""

import json
import re

import numpy as np
import pytest
from safetensors.torch import load_file

SPEC = """\
name = "mine"
rounds = {rounds}
every = 5
steps = 3
batch = 4
cohort = 4
[problem]
name = "logistic"
clients = 7
[[method]]
name = "Scaffold"
lr = 0.05
[[method]]
name = "FedAvg"
lr = 0.05
"""
ENGINES = {
    "simulate": "--engine simulate",
    "wire": "--engine wire",
    "distributed": "--engine distributed --workers 2",
}
LONG = 400


def write(typed, rounds=10):
    (typed.folder / "spec.toml").write_text(SPEC.format(rounds=rounds), encoding="utf-8")


def rows(folder):
    """What was measured, without the seconds that it took."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    found = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
    return sorted(found, key=lambda row: (row["label"], row["seed"]))


def same(mine, theirs):
    """The same rows; of losses the last digits may be others on another engine."""
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert value == (
                other[name] if isinstance(value, str) else pytest.approx(other[name], 1e-9)
            )


def looked_at(typed):
    """What is done with a finished run."""
    said = typed("undrift compare runs/mine")
    assert re.search(r"Scaffold .* all rounds run", said) and "unfinished" not in said
    typed("undrift report runs/mine")
    assert (typed.folder / "runs/mine/report.html").stat().st_size > 1e6
    typed("undrift export runs/mine Scaffold -o last.safetensors")
    assert load_file(typed.folder / "last.safetensors")


def test_several_processes_end(typed):
    """By the command line, with the numbers of one process."""
    write(typed)
    said = typed("undrift run spec.toml --engine distributed --workers 2")
    assert said.count("all rounds run") >= 2
    typed("undrift run spec.toml --out alone")
    same(rows(typed.folder / "runs/mine"), rows(typed.folder / "alone/mine"))


@pytest.mark.parametrize(
    "engine",
    [
        "simulate",
        pytest.param("wire", marks=pytest.mark.slow),
        pytest.param("distributed", marks=pytest.mark.slow),
    ],
)
def test_run_kill_resume_compare_report_export(engine, typed):
    write(typed, LONG)
    run, kept = (
        f"undrift run spec.toml --checkpoint 0 {ENGINES[engine]}",
        typed.folder / "runs/mine",
    )
    typed.kill_once(run, lambda: len([*kept.glob("checkpoints/*.safetensors")]) > 1)
    before = len(rows(kept))
    typed(f"undrift resume runs/mine {ENGINES[engine]}")
    assert before < len(rows(kept))
    looked_at(typed)
    typed("undrift run spec.toml --out alone")
    same(rows(kept), rows(typed.folder / "alone/mine"))


PROGRAM = """\
import os, pathlib
import undrift as ud

place = pathlib.Path("host" + os.environ["GROUP_RANK"])
place.mkdir(exist_ok=True)
os.chdir(place)
runs = ud.run([ud.Scaffold(lr=0.05), ud.FedAvg(lr=0.05)], "logistic", clients=7, rounds=6, steps=2,
              batch=3, engine="distributed", save=SAVE)
for key, run in runs.items():
    print("found", key, run.status, len(run.history.rows), repr(float(run.x.norm())), run.best)
"""


@pytest.mark.slow
@pytest.mark.parametrize("save", ["None", "'mine'"])
def test_two_hosts_get_the_result(save, typed):
    """Two loopback addresses stand for two hosts without a shared disk."""
    program = PROGRAM.replace("SAVE", save)
    (typed.folder / "program.py").write_text(program, encoding="utf-8")
    port = 29500 + np.random.default_rng().integers(2000)
    words = f"--nnodes 2 --nproc-per-node 1 --master-addr 127.0.0.2 --master-port {port} program.py"
    first = typed.start(f"torchrun --node-rank 0 {words}")
    second = typed(f"torchrun --node-rank 1 {words}")
    out, errors = first.communicate(timeout=240)
    assert first.returncode == 0, errors
    mine, theirs = (re.findall("found.*", text) for text in (out, second))
    assert len(mine) == 2 and mine == theirs
    assert all("done 7" in line for line in mine)
    assert (typed.folder / "host0/mine").is_dir() == (save != "None")
    assert not (typed.folder / "host1/mine").exists()


@pytest.mark.slow
def test_torchrun_by_the_command_line(typed):
    write(typed)
    said = typed("torchrun --nproc-per-node 3 -m undrift run spec.toml --engine distributed")
    assert "all rounds run" in said
    looked_at(typed)


def test_a_journey_that_hangs_is_noticed(typed):
    """The harness itself: a command that does not end fails its journey, and is gone."""
    with pytest.raises(pytest.fail.Exception, match="did not end in 1 s"):
        typed("python -c 'import time; time.sleep(100)'", limit=1)
    assert typed.running[-1].poll() is not None
