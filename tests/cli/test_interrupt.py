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
    out, err = process.communicate(timeout=120)
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
        _, err = process.communicate(timeout=120)
        assert process.returncode == 130
        assert f"FedAvg, seed 0: continues from round {reached}" in err
        rows = folder.rows()
        assert len(rows) > before and [row["round"] for row in rows] == [
            3 * k for k in range(len(rows))
        ]
        assert {row["label"] for row in rows} == {"FedAvg"}
        reached = newest(place)


def newest(place):
    """The round of the newest checkpoint."""
    return max(
        int(file.stem.split("-")[-1])
        for file in (place / "runs/mine/checkpoints").glob("*.safetensors")
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_and_the_second_insists(number):
    before = signal.getsignal(number)
    with Stop() as stop:
        os.kill(os.getpid(), number)
        assert stop.asked and stop.code == 128 + number
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


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


IMPORTED = "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)\n"
DESTROYED = """
import os, signal, time
from undrift.cli.stop import Stop

class Interrupted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

with Stop(None):
    Interrupted()
    time.sleep(60)
"""


@pytest.mark.parametrize(
    "code",
    ["from undrift.cli.stop import Stop\nwith Stop(None):\n    import slow", DESTROYED],
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
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
