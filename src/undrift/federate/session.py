"""SuperLinks, and Flower runs on them that carry our messages, from the side of the server.

A run of Flower's does not survive its ServerApp or its SuperLink. A session does: it starts another
run when that happens, and says so.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

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
"""Seconds to wait until a SuperLink is back."""


class SuperLinkAddress(NamedTuple):
    """Where a SuperLink is, and how it is reached."""

    place: str
    """HOST:PORT."""
    ca: Path | None = None
    """The certificate of who signed the SuperLink's; ``None``: in plain text."""
    secret: Path | None = None
    """What allows to run ServerApps, if the SuperLink asks for it."""

    @classmethod
    def read(cls, text: str) -> SuperLinkAddress:
        """HOST:PORT. Raises :class:`NoFederation`."""
        host, _, port = text.rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 65536) or "/" in host:
            raise NoFederation(f"{text!r} is no address: HOST:PORT, as 10.0.0.5:8000")
        return cls(text)

    @property
    def host(self) -> str:
        return self.place.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.place.rpartition(":")[2])

    def answers(self) -> bool:
        """Whether somebody listens there."""
        try:
            with socket.create_connection((self.host.strip("[]"), self.port), 2):
                return True
        except OSError:
            return False

    def secured(
        self, key: Path | None, ca: Path | None, secret: Path | None = None
    ) -> SuperLinkAddress:
        """With the certificate that it is checked by; refused in plain text from afar."""
        if ca is None and key is not None:
            ca = key.with_name("ca.crt")
        for file in (key, ca, secret):
            if file is not None and not file.is_file():
                raise NoFederation(f"{file}: there is no such file; undrift federate keys makes it")
        here = self.host.strip("[]") in ("127.0.0.1", "localhost", "::1")
        if not here and (ca is None or key is None):
            raise NoFederation(
                f"{self.place} is not of this machine alone, so that others could listen or pose "
                "as a client: undrift federate keys makes certificates and keys; give them to "
                "federate with --keys FOLDER, to join with --key FILE"
            )
        return self._replace(ca=ca, secret=secret)


@dataclasses.dataclass
class Session:
    """Flower runs on a SuperLink, one after another; use it as a context.

    It carries packets as a :class:`GridCarrier` does: the ServerApp of the run has one, and does
    what is asked of this one. ``revive`` starts the SuperLink again if it has ended, where that is
    in our hands.
    """

    address: SuperLinkAddress
    tell: Callable[[str], None]
    revive: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="undrift-"))
        self._listener = listen(self.home / "server.sock")
        self._listener.settimeout(0.5)
        self._executor: Process | None = None
        self._pipe: Pipe | None = None
        flower = self.home / "flower"
        compat.write_app(self.home / "app")
        compat.write_connection(flower, self.address.place, self.address.ca)
        words = [*module("no_sent_code"), str(flower), compat.SERVER_APP]
        script(self.home / "bin", compat.SERVER_APP, words)
        self._environment = compat.environment(flower, self.home / "bin")
        self._environment[apps.FEDERATE] = str(self.home / "server.sock")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.hang_up()
        if self._executor is not None:
            time.sleep(0.5)  # the ServerApp tells the SuperLink that it has ended
            self._executor.end()
        self._listener.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def open(self) -> None:
        """Start a Flower run. Raises :class:`NoFederation`."""
        self.hang_up()
        place, ca, secret = self.address
        if not self.address.answers():
            raise NoFederation(
                f"there is no SuperLink at {place}: start one there, or try "
                "undrift federate SPEC --local 3"
            )
        if self._executor is None or self._executor.code is not None:
            command, log = compat.executor(place, ca, secret), self.home / "superexec.log"
            self._executor = Process(command, log, self._environment, self.home)
        # ServerApps of runs that are over may still connect: only the one that names this run is
        # ours.
        run, until = self._submit(), time.monotonic() + START
        while self._pipe is None:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                if self._executor.code is None and time.monotonic() < until:
                    continue
                raise NoFederation(
                    f"the Flower run at {place} did not start here: the SuperLink has to run with "
                    f"--isolation process. Flower's last words: {self._executor.last_words()}"
                ) from None
            connection.settimeout(START)
            pipe = Pipe(connection)
            with suppress(OSError):
                if pipe.receive().table["run"] == run:
                    self._pipe = pipe
                    return
            pipe.close()  # of a run that is over

    def renew(self) -> None:
        """Start another Flower run in the place of one that has ended."""
        self.hang_up()
        self.tell("The Flower run has ended; starting another to continue.")
        until, told = time.monotonic() + PATIENCE, ""
        while True:
            try:
                self.revive()
                return self.open()
            except NoFederation as error:
                if time.monotonic() > until:
                    raise
                if str(error) != told:
                    told = str(error)
                    self.tell(told)
            time.sleep(1)

    def register(self, keys: Sequence[Path]) -> dict[str, str]:
        """Have the SuperLink let in the nodes with these public keys; the key of each node.

        Of keys that it knows already, Flower does not say whose they are.
        """
        found = {}
        for key in keys:
            with suppress(ValueError, KeyError):
                done = json.loads(self._flwr(compat.register(key)).stdout)
                found[str(done["node-id"])] = key.stem
        return found

    def nodes(self) -> list[str]:
        """The nodes that are online."""
        return list(self._ask(Packet({"do": "nodes"}))["nodes"])

    def push(self, node: str, packet: Packet, ttl: float, group: str) -> str | None:
        """Send a packet; its number, ``None`` if the SuperLink does not take it."""
        table = {"do": "push", "node": node, "ttl": ttl, "group": group, "table": packet.table}
        return self._ask(Packet(table, packet.content))["id"] or None

    def pull(self, ids: Sequence[str]) -> dict[str, Packet]:
        """The replies that have come to these packets."""
        found = self._ask(Packet({"do": "pull", "ids": [*ids]}))["ids"] if ids else ()
        return {id: self._receive() for id in found}

    def hang_up(self) -> None:
        """End the Flower run."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _ask(self, packet: Packet) -> dict[str, Any]:
        # A request and its reply are one after the other, without numbers: once a reply was missed
        # the next one would be taken for it, and so every error of the pipe ends the run.
        if self._pipe is not None:
            with suppress(OSError):  # then there is nothing to receive either
                self._pipe.send(packet)
        return self._receive().table

    def _receive(self) -> Packet:
        if self._pipe is None:
            raise Lost("the Flower run is over")
        try:
            return self._pipe.receive()
        except OSError as error:
            self.hang_up()
            raise Lost(str(error)) from None

    def _submit(self) -> str:
        """Have Flower start a run; its number."""
        done = self._flwr(compat.run(self.home / "app"))
        try:
            return str(json.loads(done.stdout)["run-id"])
        except (ValueError, KeyError):
            why = " ".join((done.stderr or done.stdout).split())[-300:]
            raise NoFederation(
                f"the SuperLink at {self.address.place} takes no run: {why}"
            ) from None

    def _flwr(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self._environment}
        try:
            return subprocess.run(
                command, env=environment, capture_output=True, encoding="utf-8", timeout=START
            )
        except subprocess.TimeoutExpired:
            text = f"the SuperLink at {self.address.place} did not answer in {START:.0f} s"
            raise NoFederation(text) from None


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
        # Nodes and runs of another listener would be taken for ours; one that is just ending is
        # waited for.
        if not within(ENDING, lambda: not self.here.answers()):
            raise NoFederation(
                f"something listens at {self.here.place} already: give --listen another port, "
                "or join a SuperLink that runs there with --superlink"
            )
        for own in (folder, self._home):  # uploads reveal what gradients reveal
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._process = self._start()
        within(START, lambda: self._process.code is not None or self.here.answers())
        if self._process.code is not None or not self.here.answers():
            self.end()
            raise NoFederation(f"the SuperLink did not start: {self._process.last_words()}")

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
        log = self.folder / "superlink.log"
        return Process(command, log, compat.environment(self._home), self._home)


@contextmanager
def local_federation(folder: Path, clients: int, data: Path | None = None) -> Iterator[SuperLink]:
    """A SuperLink and ``clients`` nodes, each client K of what everybody can build."""
    link, nodes = SuperLink(folder), list[Process]()
    threads = str(max(1, (os.cpu_count() or 1) // max(1, clients)))
    try:
        for part in range(clients):
            command = [sys.executable, "-m", "undrift", "join"]
            command += ["--superlink", link.address.place]
            command += ["--part", str(part), "--states", str(folder / f"node-{part}")]
            command += [] if data is None else ["--data", str(data)]
            log = folder / f"node-{part}.log"
            nodes.append(Process(command, log, {"OMP_NUM_THREADS": threads}))
        yield link
    finally:
        # Nodes first: they still tell the SuperLink that they leave.
        end_all(nodes)
        link.end()
