"""A SuperLink on this machine, alone or with its nodes, to try a federation."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

from undrift.federate.session import SuperLinkAddress
from undrift.federate.supervise import Process
from undrift.flower import compat
from undrift.flower.compat import NoFederation

START = 60.0
ENDING = 10.0
"""Seconds that a node or a SuperLink may take to end, until its folder or port is free."""


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class SuperLink:
    """Flower's SuperLink, until :meth:`end`; started again if it ends before."""

    def __init__(
        self, folder: Path, address: SuperLinkAddress | None = None, keys: Path | None = None
    ):
        self.folder, self.keys, self._home = folder, keys, folder / "superlink"
        self.address = address or SuperLinkAddress(f"127.0.0.1:{free_port()}")
        self.log = folder / "superlink.log"
        # Nodes and runs of another listener would be taken for ours; one that is just ending is
        # waited for.
        until = time.monotonic() + ENDING
        while self.here.answers():
            if time.monotonic() > until:
                raise NoFederation(
                    f"something listens at {self.here.place} already: give --listen another port, "
                    "or join a SuperLink that runs there with --superlink"
                )
            time.sleep(0.1)
        for own in (folder, self._home):  # uploads reveal what gradients reveal
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._process = self._start()
        until = time.monotonic() + START
        while not self.here.answers():
            if self._process.code is not None or time.monotonic() > until:
                words = self.log.read_text(encoding="utf-8", errors="replace").split()[-40:]
                self.end()
                raise NoFederation(f"the SuperLink did not start: {' '.join(words)}")
            time.sleep(0.1)

    @property
    def here(self) -> SuperLinkAddress:
        """Its address from this machine."""
        everywhere = self.address.host in ("0.0.0.0", "[::]", "::")
        place = f"127.0.0.1:{self.address.port}" if everywhere else self.address.place
        return self.address._replace(place=place)

    def look(self) -> None:
        """Start it again if it has ended."""
        if self._process.code is not None:
            self._process = self._start()

    def end(self) -> None:
        self._process.end()

    def _start(self) -> Process:
        command = compat.superlink(self.address.host, self.address.port, self._home, self.keys)
        return Process(command, self.log, compat.environment(self._home), self._home)


class LocalFederation:
    """A SuperLink and ``clients`` nodes, each client K of what everybody can build."""

    def __init__(self, folder: Path, clients: int, data: Path | None = None):
        self.link = SuperLink(folder)
        threads = str(max(1, (os.cpu_count() or 1) // max(1, clients)))
        self.nodes = []
        for part in range(clients):
            command = [sys.executable, "-m", "undrift", "join"]
            command += ["--superlink", self.link.address.place]
            command += ["--part", str(part), "--states", str(folder / f"node-{part}")]
            command += [] if data is None else ["--data", str(data)]
            log = folder / f"node-{part}.log"
            self.nodes.append(Process(command, log, {"OMP_NUM_THREADS": threads}))

    def __enter__(self) -> LocalFederation:
        return self

    def __exit__(self, *error: object) -> None:
        # Nodes first: they still tell the SuperLink that they leave. All of them at once, since
        # each may take seconds.
        for node in self.nodes:
            node.hang_up()
        for node in self.nodes:
            node.end()
        self.link.end()
