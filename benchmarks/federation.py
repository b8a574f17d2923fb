"""What a phase of a federation takes, and what travels: real Flower parts on this machine.

    python -m benchmarks.federation [--rounds 6] [--weights 1000000]

A phase is warm when the worker and the launcher of every node have loaded what they need, cold when
both were just killed. Bytes are counted between one SuperNode and the SuperLink, both ways, over
rounds of FedAvg; what is declared is a model down and one up.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.faults.federation import below

from undrift.engines.federated import Accept
from undrift.engines.messages.packet import Packet
from undrift.federate.federation import FlowerFederation
from undrift.federate.session import Session, SuperLinkAddress, free_port, local_nodes
from undrift.federate.supervise import Process
from undrift.runs.experiment import make
from undrift.spec.reader import parse
from undrift.spec.schema import Spec

ROWS = """\
name = "rows"
rounds = {rounds}
every = {rounds}
[problem]
name = "least-squares"
clients = 3
rows = 8
[[method]]
name = "Scaffold"
lr = 0.01
"""
WIDE = """\
name = "wide"
rounds = {rounds}
every = 1000
[problem]
name = "images"
data = "digits"
train = 60
test = 10
model = "mlp"
hidden = {hidden}
clients = 1
[[method]]
name = "FedAvg"
lr = 0.01
"""
PARTS = ("undrift.federate.worker", "undrift.federate.no_sent_code")


class Counter:
    """Passes on what is sent to a port, and counts it."""

    def __init__(self, port: int):
        self.there, self.up, self.down = port, 0, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection(("127.0.0.1", self.there))
            for ends, way in (((near, far), "up"), ((far, near), "down")):
                threading.Thread(target=self._pass, args=(*ends, way), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, way: str) -> None:
        try:
            while piece := source.recv(1 << 16):
                setattr(self, way, getattr(self, way) + len(piece))
                target.sendall(piece)
        except OSError:
            pass
        finally:
            for end in (source, target):
                end.close()


def read(text: str) -> Spec:
    return parse(text, "spec.toml", ["engine.name=flower"])


class Timed(FlowerFederation):
    """Notes how long every phase of training took."""

    def __init__(self, session: Session, spec: Spec):
        super().__init__(session, spec, lambda text: None)
        self.seconds: list[float] = []

    def ask(self, orders: Mapping[int, Packet], accept: Accept) -> dict[int, str]:
        began = time.monotonic()
        missing = super().ask(orders, accept)
        self.seconds.append(time.monotonic() - began)
        return missing


def show(what: str, seconds: list[float]) -> None:
    print(f"{what}: {statistics.median(seconds):.2f} s a phase (most {max(seconds):.2f})")


def phases(rounds: int) -> None:
    """Seconds of warm and of cold phases."""
    folder = Path(tempfile.mkdtemp(prefix="undrift-bench-"))
    address = SuperLinkAddress("127.0.0.1", free_port())
    with Session(folder, address, None, print) as session, local_nodes(folder, address, 3):
        session.open()
        spec = read(ROWS.format(rounds=rounds))
        warm = Timed(session, spec)
        list(make(spec, warm.build).run(emit=warm.hear))
        show("warm", warm.seconds[1:])
        cold = []
        for k in range(3):
            spec = read(ROWS.format(rounds=1).replace('"rows"', f'"rows{k}"'))
            federation = Timed(session, spec)
            (result,) = make(spec, federation.build).run(emit=federation.hear)
            for pid, words in below(os.getpid()).items():
                if any(part in words for part in PARTS) and "supervise.py" not in words:
                    os.kill(pid, signal.SIGKILL)
            assert result.engine is not None
            result.engine.run_round()
            cold.append(federation.seconds[-1])
        show("cold", cold)


def size(weights: int) -> int:
    """The width of two hidden layers with about so many weights in all."""
    return round(((65 + 1 + 10) ** 2 + 4 * weights) ** 0.5 / 2 - (65 + 1 + 10) / 2)


def travelling(weights: int, rounds: int = 4) -> None:
    """Bytes between a node and the SuperLink."""
    folder = Path(tempfile.mkdtemp(prefix="undrift-bench-"))
    address = SuperLinkAddress("127.0.0.1", free_port())
    with Session(folder, address, None, print) as session, ExitStack() as stack:
        session.open()
        counter = Counter(address.port)
        words = [sys.executable, "-m", "undrift", "join", "--part", "0"]
        words += ["--superlink", f"127.0.0.1:{counter.port}", "--states", str(folder / "node")]
        stack.callback(Process(words, folder / "node.log").end)
        spec = read(WIDE.format(rounds=rounds, hidden=size(weights)))
        federation = FlowerFederation(session, spec, lambda text: None)
        (result,) = make(spec, federation.build).run(emit=federation.hear)
        engine = result.engine
        assert engine is not None
        time.sleep(4)
        down, up = counter.down, counter.up
        declared = engine.problem.dim * engine.x0.element_size()
        for _ in range(rounds):
            engine.run_round()
        time.sleep(1)
        found = (counter.down - down) / rounds, (counter.up - up) / rounds
    for way, bytes in zip(("down", "up"), found, strict=True):
        more = 100 * (bytes / declared - 1)
        print(f"{way}: {bytes:,.0f} bytes a round, {declared:,} declared ({more:+.2f} %)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--weights", type=int, default=1_000_000)
    args = parser.parse_args()
    phases(args.rounds)
    travelling(args.weights)


if __name__ == "__main__":
    main()
