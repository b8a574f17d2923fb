"""One node: a worker that trains, Flower's SuperNode that carries messages, and who minds them.

A SuperNode that was killed is refused for up to a minute when it comes back, and ends each time; a
worker may die over a message. Both are started again here until the owner of the node stops it.
"""

from __future__ import annotations

import math
import re
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from undrift._files import hold, release
from undrift.federate import client_app, clientapp_stub
from undrift.federate.node_config import TROUBLE, Place
from undrift.federate.processes import Process, module, script, searched, tool
from undrift.federate.session import Address
from undrift.flower.exchange import NoFederation
from undrift.flower.node_name import node_name

PROBE = 20.0
"""Seconds after which a node that hears nothing looks who is there, and in which language."""
HOPELESS = ("[code: 2001]", "CERTIFICATE_VERIFY_FAILED")
"""What Flower says to a node without a key, and of a certificate that others signed."""
UNKNOWN = "[code: 2004]"
"""What it says to a key that is not registered, and to a node that was just killed."""
ENDING = 10.0
"""Seconds that a node may take to end."""
LOOK = 0.2
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Stops(Protocol):
    @property
    def asked(self) -> bool: ...


class Joined:
    """A node, from when it is entered until it is left.

    If it is not let in at all it tries again for ``patience`` seconds. Without a key, where one is
    needed, or with the certificate of others it gives up at once.
    """

    def __init__(
        self,
        address: Address,
        folder: Path,
        place: Place,
        key: Path | None,
        tell: Callable[[str], None],
        patience: float = math.inf,
    ):
        self.address, self.folder, self.key, self.tell = address, folder, key, tell
        self.patience = patience
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._held = _hold(folder)
            name = place.name or node_name(folder)
        except OSError as error:
            why = error.strerror or error
            raise NoFederation(
                f"{folder}: {why}: no states can be kept there; give another folder, --states"
            ) from None
        self.place = place._replace(name=name, states=folder / "states")
        self._home = Path(tempfile.mkdtemp(prefix="undrift-"))
        self._began = time.monotonic()
        self._ever_in, self._probe = False, True
        self._read, self._read_at, self._told, self._next = 0, 0, "", 0.0
        self._log = folder / "supernode.log"
        self._log.unlink(missing_ok=True)
        self._worker_log = folder / "worker.log"
        self._heard = self._worker_log.stat().st_size if self._worker_log.exists() else 0
        self._environment = self._prepare()
        self._launcher = self._start_launcher()
        self._worker = self._start_worker()
        self._supernode = self._start_supernode()

    def __enter__(self) -> Joined:
        return self

    def __exit__(self, *error: object) -> None:
        every = (self._supernode, self._launcher, self._worker)
        for process in every:
            process.hang_up()
        for process in every:
            process.end()
        release(self.folder, self._held)

    def stay(self, stop: Stops) -> None:
        """Keep the node alive until it is stopped. Raises :class:`NoFederation`."""
        while not stop.asked:
            self.look()
            time.sleep(LOOK)

    def look(self) -> None:
        """Start again what has ended."""
        self._hear()
        self._hear_worker()
        if not self._ever_in and self._probe and time.monotonic() - self._began > PROBE:
            self._probe = False
            if not self.address.answers():
                self.tell(f"Nobody answers at {self.address.place} yet. Trying on.")
            if self.address.ca is None and _speaks_tls(self.address):
                raise NoFederation(
                    f"{self.address.place} lets in by TLS alone: give this node's key, --key FILE"
                )
        if self._worker.code is not None:
            self.tell(f"The worker ended ({self._worker.code}); starting it again.")
            self._worker = self._start_worker()
        if self._launcher.code is not None:
            self._launcher = self._start_launcher()
        now = time.monotonic()
        if self._supernode.code is None or now < self._next:
            return
        why = self._last_words()
        hopeless = any(mark in why for mark in HOPELESS) or now - self._began > self.patience
        if not self._ever_in and hopeless:
            raise NoFederation(f"{self.address.place} did not let this node in: {why}")
        if why != self._told:
            self._told = why
            self.tell(f"The SuperNode ended: {why}. Trying again.")
        self._next = now + 2.0
        self._read_at = len(
            COLOURS.sub("", self._log.read_text(encoding="utf-8", errors="replace"))
        )
        self._supernode = self._start_supernode()

    def _hear(self) -> None:
        """Notice when the SuperLink lets the node in."""
        if self._log.exists() and self._log.stat().st_size > self._read:
            with self._log.open(encoding="utf-8", errors="replace") as file:
                file.seek(self._read)
                text = file.read()
                self._read = file.tell()
            if "SuperNode ID:" in text:
                if not self._ever_in or self._told:
                    self.tell(f"Joined {self.address.place} as {self.place.name}.")
                self._ever_in, self._told = True, ""

    def _hear_worker(self) -> None:
        """Say why the worker could not do what it was asked."""
        if not self._worker_log.exists() or self._worker_log.stat().st_size <= self._heard:
            return
        with self._worker_log.open("rb") as file:
            file.seek(self._heard)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._heard += len(whole + newline)
        for line in whole.decode(errors="replace").splitlines():
            if line.startswith(TROUBLE):
                self.tell(f"This node {line}")

    def _last_words(self) -> str:
        """Why the SuperNode ended, as far as it said so."""
        text = COLOURS.sub("", self._log.read_text(encoding="utf-8", errors="replace"))
        _, found, words = text[self._read_at :].rpartition("ERROR")
        if not found:
            return f"it was killed or broke off (exit code {self._supernode.code})"
        words = " ".join(words.partition("For more information")[0].lstrip(" :").split())[:300]
        if UNKNOWN in words:
            words += (
                " (its key is not registered, the SuperLink is not ready yet, or this node was "
                "killed less than a minute ago)"
            )
        return words

    def _prepare(self) -> dict[str, str]:
        """A home for Flower, and a ``flwr-clientapp`` that has the launcher do it."""
        commands = self._home / "bin"
        words = [
            sys.executable,
            "-I",
            "-S",
            clientapp_stub.__file__,
            str(self._home / "launcher.sock"),
        ]
        script(commands, "flwr-clientapp", words)
        return {
            "FLWR_HOME": str(self._home / "flower"),
            "PATH": searched(commands),
            client_app.SOCKET: str(self._home / "worker.sock"),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        }

    def _start_launcher(self) -> Process:
        home = self._home
        command = [*module("launcher"), str(home / "launcher.sock"), str(home / "flower")]
        return Process(command, self.folder / "launcher.log", self._environment, home)

    def _start_worker(self) -> Process:
        command = [*module("worker"), str(self._home / "worker.sock"), *self.place.words()]
        return Process(command, self._worker_log, self._environment, self._home)

    def _start_supernode(self) -> Process:
        command = [tool("flower-supernode"), *self.address.flags()]
        command += ["--superlink", self.address.place]
        command += ["--host", "127.0.0.1", "--port", str(free_port())]
        if self.key is not None:
            command += ["--auth-supernode-private-key", str(self.key)]
        return Process(command, self._log, self._environment, self._home)


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _hold(folder: Path) -> int:
    """Have a folder alone; a node that is just ending is waited for."""
    until = time.monotonic() + ENDING
    while True:
        try:
            return hold(folder)
        except BlockingIOError:
            if time.monotonic() > until:
                raise NoFederation(
                    f"{folder} is in use by another node: a second client needs a folder of its "
                    "own, --states FOLDER"
                ) from None
            time.sleep(LOOK)


def _speaks_tls(address: Address) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        place = address.host.strip("[]"), address.port
        with socket.create_connection(place, 5) as plain, context.wrap_socket(plain):
            return True
    except OSError:
        return False
