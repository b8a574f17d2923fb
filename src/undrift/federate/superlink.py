"""A whole federation on this machine, to try one: a SuperLink and its nodes."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from pathlib import Path

from undrift.federate.node import ENDING, free_port
from undrift.federate.processes import Process, searched, tool
from undrift.federate.session import Address
from undrift.flower.exchange import NoFederation

START = 60.0


class SuperLink:
    """Flower's SuperLink, until :meth:`end`; started again if it ends before."""

    def __init__(self, folder: Path, address: Address | None = None, keys: Path | None = None):
        self.folder, self.keys, self._home = folder, keys, folder / "superlink"
        self.address = address or Address(f"127.0.0.1:{free_port()}")
        self._alone()
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

    def _alone(self) -> None:
        """Refuse a port that has a listener, whose nodes and runs would be taken for ours; one that
        is just ending is waited for.
        """
        until = time.monotonic() + ENDING
        while self.here.answers():
            if time.monotonic() > until:
                raise NoFederation(
                    f"something listens at {self.here.place} already: give --listen another port, "
                    "or join a SuperLink that runs there with --superlink"
                )
            time.sleep(0.1)

    @property
    def here(self) -> Address:
        """Its address from this machine."""
        everywhere = self.address.host in ("0.0.0.0", "[::]", "::")
        place = f"127.0.0.1:{self.address.port}" if everywhere else self.address.place
        return dataclasses.replace(self.address, place=place)

    @property
    def log(self) -> Path:
        return self.folder / "superlink.log"

    def look(self) -> None:
        """Start it again if it has ended."""
        if self._process.code is not None:
            self._process = self._start()

    def end(self) -> None:
        self._process.end()

    def _start(self) -> Process:
        command = [tool("flower-superlink"), "--isolation", "process"]
        command += ["--host", self.address.host, "--port", str(self.address.port)]
        command += ["--disable-runtime-dependency-installation"]
        command += ["--database", str(self._home / "superlink.db")]
        if self.keys is None:
            command += ["--insecure"]
        else:
            for flag, name in (
                ("ca-certfile", "ca.crt"),
                ("certfile", "server.pem"),
                ("keyfile", "server.key"),
            ):
                command += [f"--ssl-{flag}", str(self.keys / name)]
            command += ["--enable-supernode-auth"]
            command += ["--superexec-auth-secret-file", str(self.keys / "secret")]
        home = {"FLWR_HOME": str(self._home), "PATH": searched()}
        return Process(command, self.log, home, self._home)


class Local:
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

    @property
    def address(self) -> Address:
        return self.link.address

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *error: object) -> None:
        for node in self.nodes:
            node.hang_up()
        for node in self.nodes:
            node.end()
        self.link.end()
