"""Ctrl-C while a run is under way."""

import os
import signal
import subprocess
import sys
import time

import pytest

from undrift.runs.folder import Folder

FLAGS = ["-s", "rounds=10000000", "-s", "every=3"]


def started(place):
    """A run that would take hours, once it has recorded some rows."""
    process = subprocess.Popen(
        [sys.executable, "-m", "undrift", "run", "spec.toml", *FLAGS],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    metrics = place / "runs/mine/metrics.jsonl"
    deadline = time.monotonic() + 90
    while not (metrics.exists() and metrics.read_text().count("\n") > 20):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)
    return process


def test_once_finishes_the_round_and_keeps_what_was_measured(place):
    process = started(place)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    rows = Folder(place / "runs/mine").rows()
    assert process.returncode == 130 and out == ""
    assert "Stopping after this round" in err and f"Kept: {len(rows)} rows" in err and "--overwrite" in err
    assert [row["round"] for row in rows[:-1]] == [3 * k for k in range(len(rows) - 1)]
    assert 0 < rows[-1]["round"] - rows[-2]["round"] <= 3
    assert {row["label"] for row in rows} == {"FedAvg"}
    again = subprocess.run(
        [sys.executable, "-m", "undrift", "run", "spec.toml", *FLAGS], cwd=place, capture_output=True, text=True
    )
    assert again.returncode == 2 and "unfinished" in again.stderr


def test_twice_stops_now(place):
    process = started(place)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert time.monotonic() - began < 10
    assert Folder(place / "runs/mine").rows()


def test_the_handler_asks_first_and_then_insists(capsys):
    from undrift.cli.experiment import Stop

    before = signal.getsignal(signal.SIGINT)
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
