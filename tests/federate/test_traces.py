"""What a federation leaves on its machine, and who can read it; real parts, each a process."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")

from undrift.federate.session import free_port

SPEC = """\
name = "mine"
rounds = 1000
[problem]
name = "least-squares"
clients = 2
[[method]]
name = "Scaffold"
lr = 0.001
"""


def open_to_others(folder):
    found = [folder, *folder.rglob("*")]
    return [path for path in found if path.exists() and path.stat().st_mode & 0o077]


def databases(folder):
    return [*folder.rglob("superlink.db*")]


def until(holds, seconds=120):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture
def short():
    """A folder for temporary files: paths of sockets must be short."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.whole
@pytest.mark.thorough
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.whole)]
)
def test_nobody_else_reads_a_federation_and_it_cleans_up(tmp_path, short, number):
    """Also when it is killed, and where files are readable by default."""
    (tmp_path / "spec.toml").write_text(SPEC)
    words = [sys.executable, "-m", "undrift", "federate", "spec.toml", "--local", "2"]
    log, nodes = tmp_path / "log", tmp_path / "runs" / "mine" / "nodes"
    with log.open("wb") as out:
        environment = {**os.environ, "TMPDIR": str(short), "OMP_NUM_THREADS": "1"}
        federate = subprocess.Popen(
            words, cwd=tmp_path, env=environment, stdout=out, stderr=out, umask=0o022
        )
    try:
        until(lambda: federate.poll() is not None or [*nodes.rglob("*.safetensors")])
        assert federate.poll() is None, log.read_text()
        assert databases(short) and open_to_others(nodes) == []
        homes = short.glob("undrift-*")  # Flower has others for a moment, while it unpacks an app
        assert [home.stat().st_mode & 0o777 for home in homes] == [0o700] * 3
    finally:
        federate.send_signal(number)
        federate.wait(60)
    until(lambda: not [*short.iterdir()], 30)
    assert open_to_others(nodes) == []


@pytest.mark.thorough
def test_sigterm_ends_waiting_for_nodes(tmp_path, short):
    (tmp_path / "spec.toml").write_text(SPEC)
    words = [sys.executable, "-m", "undrift", "federate", "spec.toml", "--listen"]
    with subprocess.Popen(
        [*words, f"127.0.0.1:{free_port()}"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(short)},
        stderr=subprocess.PIPE,
        umask=0o022,
        encoding="utf-8",
    ) as federate:
        lines = iter(federate.stderr.readline, "")
        assert any("0 of 2 clients have joined" in line for line in lines)
        assert databases(short) and open_to_others(tmp_path / "runs" / "mine" / "superlink") == []
        federate.terminate()
        assert federate.wait(30) == 128 + signal.SIGTERM
    assert not databases(short)
