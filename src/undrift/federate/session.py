"""A SuperLink of Flower's on this machine, and Flower runs on it that carry our messages.

A run of Flower's does not survive its ServerApp or its SuperLink. A session does: it starts again
what has ended, and another run, and says so.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from undrift._files import write_whole
from undrift.engines.messages.packet import Packet
from undrift.federate import apps
from undrift.federate.pipe import Pipe, listen
from undrift.federate.supervise import Process, end_all, module, script, within
from undrift.flower import compat
from undrift.flower.compat import Lost, NoFederation

START = 90.0
"""Seconds that a SuperLink or a Flower run may take to start, and a ServerApp to answer."""
ENDING = 10.0
"""Seconds that a node or a SuperLink may take to end, until its folder or port is free."""
PATIENCE = 600.0
"""Seconds in which a Flower run that has ended has to be replaced."""
HERE = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE = ("0.0.0.0", "[::]")


class SuperLinkAddress(NamedTuple):
    """Where a SuperLink is, and how it is reached."""

    host: str
    port: int
    ca: Path | None = None
    """The certificate that the SuperLink's is checked by; ``None``: in plain text."""

    @classmethod
    def read(cls, text: str, key: Path | None) -> SuperLinkAddress:
        """HOST:PORT, for who has this private key. Raises :class:`NoFederation`."""
        host, _, port = text.rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 65536) or "/" in host:
            raise NoFederation(f"{text!r} is no address: HOST:PORT, as 10.0.0.5:8000")
        if key is None and host not in HERE:
            raise NoFederation(
                f"{text} is not of this machine alone, so that others could listen or pose as a "
                "client: undrift federate keys makes a certificate and keys; give them to federate "
                "with --keys FOLDER, to join with --key FILE"
            )
        ca = None if key is None else key.with_name("ca.crt")
        for file in (key, ca):
            if file is not None and not file.is_file():
                raise NoFederation(
                    f"{file}: there is no such file; who runs the server has it from "
                    "undrift federate keys"
                )
        return cls(host, int(port), ca)

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"

    def answers(self) -> bool:
        """Whether somebody listens there."""
        with suppress(OSError), socket.create_connection((self.host.strip("[]"), self.port), 2):
            return True
        return False


class Session(AbstractContextManager["Session"]):
    """Flower runs on a SuperLink, one after another; use it as a context.

    It carries packets as a :class:`GridCarrier` does: the ServerApp of the run has one, and does
    what is asked of this one. ``keys`` is a folder of ``undrift federate keys``.
    """

    def __init__(
        self,
        folder: Path,
        address: SuperLinkAddress,
        keys: Path | None,
        tell: Callable[[str], None],
    ):
        here = "127.0.0.1" if address.host in EVERYWHERE else address.host
        self.folder, self.address, self.tell = folder, address._replace(host=here), tell
        # Nodes and runs of another listener would be taken for ours; one that is just ending is
        # waited for.
        if not within(ENDING, lambda: not self.address.answers()):
            raise NoFederation(
                f"something listens at {self.address.place} already: give --listen another port"
            )
        self.home = home = Path(tempfile.mkdtemp(prefix="undrift-"))
        self._listener = listen(home / "server.sock")
        self._listener.settimeout(0.5)
        self._pipe: Pipe | None = None
        # Only who has this number may run ServerApps of the SuperLink, and so read uploads.
        write_whole(home / "secret", secrets.token_bytes(32))
        compat.write_app(home / "app")
        compat.write_connection(home / "flower", self.address.place, address.ca)
        words = [*module("no_sent_code"), str(home / "flower"), compat.SERVER_APP]
        script(home / "bin", compat.SERVER_APP, words)
        self._environment = compat.environment(home / "flower", home / "bin")
        self._environment[apps.FEDERATE] = str(home / "server.sock")
        self._commands = {
            "superlink": compat.superlink(address.host, address.port, home, keys),
            "superexec": compat.executor(self.address.place, address.ca, home),
        }
        self._processes: dict[str, Process] = {}
        self._keys = sorted(keys.glob("*.pub")) if keys else []
        self.key_names: dict[str, str] = {}
        """The names of nodes' keys, by node."""

    def __exit__(self, *error: object) -> None:
        self.hang_up()
        end_all([*self._processes.values()])
        self._listener.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def open(self) -> None:
        """Start a Flower run, and what has ended of what it needs. Raises :class:`NoFederation`."""
        self.hang_up()
        link, here = self._running("superlink"), self.address
        within(START, lambda: link.code is not None or here.answers())
        if link.code is not None or not here.answers():
            raise NoFederation(f"the SuperLink did not start: {link.last_words()}")
        executor = self._running("superexec")
        for key in self._keys:
            with suppress(NoFederation):  # a SuperLink that was started again knows it already
                self.key_names[self._flwr(compat.register(key), "node-id")] = key.stem
        self._keys.clear()
        # ServerApps of runs that are over may still connect: only the one that names this run is
        # ours.
        run = self._flwr(compat.run(self.home / "app"), "run-id")
        until = time.monotonic() + START
        while self._pipe is None:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                if executor.code is None and time.monotonic() < until:
                    continue
                raise NoFederation(
                    f"the Flower run did not start. Flower's last words: {executor.last_words()}"
                ) from None
            pipe = Pipe(connection, START)
            with suppress(OSError):
                if pipe.receive().table["run"] == run:
                    self._pipe = pipe
                    return
            pipe.close()

    def renew(self) -> None:
        """Start another Flower run in the place of one that has ended."""
        self.tell("The Flower run has ended; starting another to continue.")
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self.open()
            except NoFederation as error:
                if time.monotonic() > until:
                    raise
                self.tell(f"{error}. Trying again.")
            time.sleep(2)

    def nodes(self) -> list[str]:
        """The nodes that are online."""
        return list(self._ask(Packet({"do": "nodes"})).table["nodes"])

    def push(self, node: str, packet: Packet, ttl: float) -> str | None:
        """Send a packet; its number, ``None`` if the SuperLink does not take it."""
        table = {"do": "push", "node": node, "ttl": ttl, "table": packet.table}
        return self._ask(Packet(table, packet.content)).table["id"] or None

    def pull(self, ids: Sequence[str]) -> dict[str, Packet]:
        """The replies that have come to these packets."""
        found = self._ask(Packet({"do": "pull", "ids": [*ids]})).table["ids"] if ids else ()
        return {id: self._ask() for id in found}

    def hang_up(self) -> None:
        """End the Flower run."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _ask(self, packet: Packet | None = None) -> Packet:
        """What the ServerApp says next, after it has been sent a packet."""
        if self._pipe is None:
            raise Lost("the Flower run is over")
        # A request and its reply are one after the other, without numbers: once a reply was missed
        # the next one would be taken for it, and so every error of the pipe ends the run.
        try:
            if packet is not None:
                self._pipe.send(packet)
            return self._pipe.receive()
        except OSError as error:
            self.hang_up()
            raise Lost(str(error)) from None

    def _running(self, name: str) -> Process:
        """A process of Flower's; started if it has ended, or never was."""
        if name not in self._processes or self._processes[name].code is not None:
            log = self.folder / f"{name}.log"
            self._processes[name] = Process(self._commands[name], log, self._environment, self.home)
        return self._processes[name]

    def _flwr(self, command: Sequence[str], field: str) -> str:
        """Have Flower do something; a field of what it says of it."""
        try:
            done = subprocess.run(
                command,
                env=os.environ | self._environment,
                capture_output=True,
                encoding="utf-8",
                timeout=START,
            )
            return str(json.loads(done.stdout)[field])
        except subprocess.TimeoutExpired:
            raise NoFederation(f"the SuperLink did not answer in {START:.0f} s") from None
        except (ValueError, KeyError):
            why = " ".join((done.stderr or done.stdout).split())[-300:]
            raise NoFederation(f"the SuperLink gives no {field}: {why}") from None


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def local_nodes(
    folder: Path, address: SuperLinkAddress, clients: int, data: Sequence[Path] = ()
) -> Iterator[None]:
    """So many nodes on this machine, each client K of what everybody can build; with several
    folders of data each has its own.
    """
    nodes = list[Process]()
    threads = str(max(1, (os.cpu_count() or 1) // max(1, clients)))
    try:
        for part in range(clients):
            states = folder / f"node-{part}"
            command = [
                sys.executable,
                "-m",
                "undrift",
                "join",
                "--superlink",
                address.place,
                "--states",
                str(states),
                *(["--part", str(part)] if len(data) < 2 else []),
                *(["--data", str(data[part % len(data)])] if data else []),
            ]
            nodes.append(Process(command, states.with_suffix(".log"), {"OMP_NUM_THREADS": threads}))
        yield
    finally:
        end_all(nodes)
