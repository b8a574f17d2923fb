"""Ctrl-C while a run is under way."""

import os
import signal
import subprocess
import sys
import time

import pytest

from undrift.runs.folder import Folder

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
    assert "Go on: undrift resume runs/mine" in err
    assert [row["round"] for row in rows] == [3 * k for k in range(len(rows))]
    reached = newest(place)
    assert rows[-1]["round"] <= reached < rows[-1]["round"] + 3
    for words in (("resume", "mine"), ("run", "spec.toml", *FLAGS)):
        before = len(folder.rows())
        process = started(place, *words, rows=before + 5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130 and f"FedAvg, seed 0: goes on from round {reached}" in err
        rows = folder.rows()
        assert len(rows) > before and [row["round"] for row in rows] == [3 * k for k in range(len(rows))]
        assert {row["label"] for row in rows} == {"FedAvg"}
        reached = newest(place)


def newest(place):
    """The round of the newest checkpoint."""
    return max(int(file.stem.split("-")[-1]) for file in (place / "runs/mine/checkpoints").glob("*.safetensors"))


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
