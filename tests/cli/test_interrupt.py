"""Ctrl-C, SIGTERM and SIGHUP: while a run is under way, and in its first seconds."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from undrift.cli.stop import Stop
from undrift.records.folder import Folder

FLAGS = ["-s", "rounds=10000000", "-s", "every=3"]


def started(place, *words, rows=20):
    """A run that would take hours, once it has recorded some rows."""
    process = subprocess.Popen(
        [sys.executable, "-m", "undrift", *(words or ("run", "spec.toml", *FLAGS))],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    metrics = place / "runs/mine/metrics.jsonl"
    deadline = time.monotonic() + 90
    while not (metrics.exists() and metrics.read_text().count("\n") > rows):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)
    return process


def test_once_finishes_the_round_and_the_run_goes_on_later(place):
    process = started(place)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    folder = Folder(place / "runs/mine")
    rows = folder.rows()
    assert process.returncode == 130 and out == ""
    assert "Stopping after this round" in err and f"Kept: {len(rows)} rows" in err
    assert "undrift resume runs/mine" in err
    assert [row["round"] for row in rows] == [3 * k for k in range(len(rows))]
    reached = newest(place)
    assert rows[-1]["round"] <= reached < rows[-1]["round"] + 3
    for words in (("resume", "mine"), ("run", "spec.toml", *FLAGS)):
        before = len(folder.rows())
        process = started(place, *words, rows=before + 5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert f"FedAvg, seed 0: continues from round {reached}" in err
        rows = folder.rows()
        assert len(rows) > before and [row["round"] for row in rows] == [
            3 * k for k in range(len(rows))
        ]
        assert {row["label"] for row in rows} == {"FedAvg"}
        reached = newest(place)


@pytest.mark.covering(1)
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_what_batch_systems_and_terminals_send_does_what_ctrl_c_does(place, name, code):
    process = started(place)
    process.send_signal(getattr(signal, name))
    _, err = process.communicate(timeout=30)
    rows = Folder(place / "runs/mine").rows()
    assert process.returncode == code and "undrift resume runs/mine" in err
    assert rows[-1]["round"] <= newest(place) < rows[-1]["round"] + 3


def newest(place):
    """The round of the newest checkpoint."""
    return max(
        int(file.stem.split("-")[-1])
        for file in (place / "runs/mine/checkpoints").glob("*.safetensors")
    )


def test_twice_stops_now(place):
    process = started(place)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert time.monotonic() - began < 10
    assert Folder(place / "runs/mine").rows()


def test_the_handler_asks_first_and_then_insists():
    before = signal.getsignal(signal.SIGINT)
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


EARLY = """
import signal, sys
from undrift import cli
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
answer = cli.answer

def ready(words):
    print("ready", file=sys.stderr, flush=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    return answer(words)

cli.answer = ready
sys.exit(cli.main(sys.argv[1:]))
"""


def interrupted_after(place, seconds):
    """A run that would take hours, interrupted so soon after it has begun to listen."""
    words = [sys.executable, "-c", EARLY, "run", "spec.toml", *FLAGS, "--overwrite"]
    process = subprocess.Popen(words, cwd=place, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline() == "ready\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=40)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"after {seconds} s it went on: {process.communicate()}") from None
    assert process.returncode == 130, (seconds, err)
    assert "Traceback" not in err and "Exception ignored" not in err and "spec.toml:" not in err, (
        seconds,
        err,
    )


@pytest.mark.covering(2)
@pytest.mark.parametrize("part", range(12))
def test_ctrl_c_in_the_first_seconds_is_never_lost(place, part):
    """While Python imports torch, or anything else, and while the problem is built."""
    interrupted_after(place, 0.2 * part + random.Random(part).uniform(0, 0.2))


@pytest.mark.slow
def test_ctrl_c_at_a_hundred_instants(place):
    instants = random.Random(0)
    for _ in range(100):
        interrupted_after(place, instants.uniform(0, 3))


IMPORTED = "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)\n"
DESTROYED = """
import os, signal, time
from undrift.cli.stop import Interrupt

class Interrupted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

with Interrupt():
    Interrupted()
    time.sleep(60)
"""


@pytest.mark.parametrize(
    "code",
    ["from undrift.cli.stop import Interrupt\nwith Interrupt():\n    import slow", DESTROYED],
    ids=["import", "destructor"],
)
def test_where_python_may_lose_an_exception_the_process_ends(code, tmp_path):
    (tmp_path / "slow.py").write_text(IMPORTED)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 143 and done.stderr == "Interrupted.\n"


def test_nohup_is_heeded():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stop() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.asked
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_is_gone_is_no_error():
    code = (
        "import os, signal\nfrom undrift.cli.stop import Stop\nos.close(2)\nwith Stop() as stop:\n"
    )
    code += (
        "    os.kill(os.getpid(), signal.SIGHUP)\n    print('on')\nprint('on')\nos._exit(stop.code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 129


LONG = """\
name = "long"
rounds = 10000000
[problem]
name = "quadratic"
[[method]]
name = "FedAvg"
lr = 0.01
[[method]]
name = "Scaffold"
lr = 0.01
"""


@pytest.mark.whole
def test_jobs_stop_with_the_one_who_started_them(tmp_path):
    """SIGTERM goes to one process alone, unlike Ctrl-C."""
    (tmp_path / "long.toml").write_text(LONG)
    process = subprocess.Popen(
        [sys.executable, "-m", "undrift", "run", "long.toml", "--jobs", "2"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    parts, deadline = tmp_path / "runs/long/checkpoints/parts", time.monotonic() + 90
    try:
        while not any(rows.stat().st_size for rows in parts.glob("*/metrics.jsonl")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143 and "undrift resume" in err and "Traceback" not in err
