"""A Flower run that carries our messages, from the side of the server.

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
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from undrift.federate import server_app
from undrift.federate.app import CONNECTION, write_app, write_connection
from undrift.federate.pipe import Closed, Pipe, listen
from undrift.federate.processes import QUIET, Process, module, script, searched, tool
from undrift.flower.exchange import Lost, Reply
from undrift.flower.exchange import NoFederation as NoFederation

START = 90.0
"""Seconds that a Flower run may take to start."""


@dataclasses.dataclass(frozen=True)
class Address:
    """Where a SuperLink is, and how it is reached."""

    place: str
    """HOST:PORT."""
    ca: Path | None = None
    """The certificate of who signed the SuperLink's; ``None``: in plain text."""
    secret: Path | None = None
    """What allows to run ServerApps, if the SuperLink asks for it."""

    @property
    def host(self) -> str:
        return self.place.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.place.rpartition(":")[2])

    def flags(self) -> list[str]:
        """For Flower's commands."""
        return ["--insecure"] if self.ca is None else ["--root-certificates", str(self.ca)]

    def answers(self) -> bool:
        """Whether somebody listens there."""
        try:
            with socket.create_connection((self.host.strip("[]"), self.port), 2):
                return True
        except OSError:
            return False


def checked(text: str) -> Address:
    """HOST:PORT. Raises :class:`NoFederation`."""
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 65536) or "/" in host:
        raise NoFederation(f"{text!r} is no address: HOST:PORT, as 10.0.0.5:8000")
    return Address(text)


def tls(address: Address, key: Path | None, ca: Path | None, secret: Path | None = None) -> Address:
    """The address with the certificate that it is checked by; refused in plain text from afar."""
    if ca is None and key is not None:
        ca = key.with_name("ca.crt")
    for file in (key, ca, secret):
        if file is not None and not file.is_file():
            raise NoFederation(f"{file}: there is no such file; undrift federate keys makes one")
    if not loopback(address) and (ca is None or key is None):
        raise NoFederation(
            f"{address.place} is not of this machine alone, so that others could listen or pose as "
            "a client: undrift federate keys makes certificates and keys; give them to federate "
            "with --keys FOLDER, to join with --key FILE"
        )
    return dataclasses.replace(address, ca=ca, secret=secret)


def loopback(address: Address) -> bool:
    """Whether a SuperLink is on this machine."""
    return address.host.strip("[]") in ("127.0.0.1", "localhost", "::1")


class Session:
    """Flower runs on a SuperLink, one after another; use it as a context.

    ``revive`` starts the SuperLink again if it has ended, where that is in our hands.
    """

    def __init__(
        self,
        address: Address,
        tell: Callable[[str], None],
        revive: Callable[[], None] = lambda: None,
    ):
        self.address, self.tell, self._revive = address, tell, revive
        self.home = Path(tempfile.mkdtemp(prefix="undrift-"))
        self.runs: list[str] = []
        """The numbers of the Flower runs."""
        self.keys: dict[str, str] = {}
        self._listener = listen(self.home / "server.sock")
        self._executor: Process | None = None
        self._pipe: Pipe | None = None
        write_app(self.home / "app")
        write_connection(self.home / "flower", address.place, address.ca)
        words = [*module("no_sent_code"), "flwr-serverapp", str(self.home / "flower")]
        script(self.home / "bin", "flwr-serverapp", words)
        self._environment = {
            "FLWR_HOME": str(self.home / "flower"),
            "PATH": searched(self.home / "bin"),
            server_app.SOCKET: str(self.home / "server.sock"),
        }

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def open(self) -> None:
        """Start a Flower run. Raises :class:`NoFederation`."""
        self.hang_up()
        if not self.address.answers():
            raise NoFederation(
                f"there is no SuperLink at {self.address.place}: start one there, or try "
                "undrift federate SPEC --local 3"
            )
        if self._executor is None or self._executor.code is not None:
            command = [tool("flower-superexec"), *self.address.flags()]
            command += ["--runtime-api-address", self.address.place]
            if self.address.secret is not None:
                command += ["--superexec-auth-secret-file", str(self.address.secret)]
            log = self.home / "superexec.log"
            self._executor = Process(command, log, self._environment, self.home)
        self.runs.append(self._submit())
        until = time.monotonic() + START
        self._listener.settimeout(0.5)
        while self._pipe is None:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                if self._executor.code is not None or time.monotonic() > until:
                    raise NoFederation(self._why_no_run()) from None
                continue
            connection.settimeout(START)
            pipe = Pipe(connection)
            try:
                if pipe.receive().table["run"] == self.runs[-1]:
                    self._pipe = pipe
                    continue
            except Closed:
                pass
            pipe.close()  # of a run that is over

    def register(self, keys: Sequence[Path]) -> None:
        """Have the SuperLink let in the nodes with these public keys; some may be known already."""
        for key in keys:
            command = [tool("flwr"), "supernode", "register", str(key), CONNECTION]
            done = self._flwr([*command, "--format", "json"])
            with suppress(ValueError, KeyError):
                self.keys[str(json.loads(done.stdout)["node-id"])] = key.stem

    def renew(self, patience: float = 600.0) -> None:
        """Start another Flower run in the place of one that has ended."""
        self.hang_up()
        self.tell("The Flower run has ended; starting another to continue.")
        until, told = time.monotonic() + patience, ""
        while True:
            try:
                self._revive()
                return self.open()
            except NoFederation as error:
                if time.monotonic() > until:
                    raise
                if str(error) != told:
                    told = str(error)
                    self.tell(told)
            time.sleep(1)

    def nodes(self) -> list[str]:
        """The nodes that are online."""
        return list(self._ask({"do": "nodes"})[0]["nodes"])

    def push(
        self, node: str, kind: str, table: Mapping[str, Any], content: bytes, ttl: float, group: str
    ) -> str | None:
        """Send a message; its number, ``None`` if the SuperLink does not take it."""
        order = {"do": "push", "node": node, "kind": f"{kind}.undrift", "ttl": ttl, "group": group}
        found: str | None = self._ask({**order, "letter": table}, content)[0]["id"]
        return found or None

    def pull(self, ids: Sequence[str]) -> list[Reply]:
        """The replies that have come to these messages."""
        if not ids:
            return []
        table, content = self._ask({"do": "pull", "ids": [*ids]})
        replies, at = [], 0
        for one in table["replies"]:
            if "error" in one:
                replies.append(Reply(one["id"], {}, error=one["error"]))
                continue
            size = one["size"]
            replies.append(Reply(one["id"], one["letter"], content[at : at + size]))
            at += size
        return replies

    def hang_up(self) -> None:
        """End the Flower run."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def close(self) -> None:
        self.hang_up()
        if self._executor is not None:
            time.sleep(0.5)  # the ServerApp tells the SuperLink that it has ended
            self._executor.end()
        self._listener.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def _ask(self, table: Mapping[str, Any], content: bytes = b"") -> tuple[dict[str, Any], bytes]:
        if self._pipe is None:
            raise Lost("the Flower run is over")
        try:
            found = self._pipe.ask(table, content)
        except (Closed, TimeoutError) as error:
            self.hang_up()
            raise Lost(str(error)) from None
        return found.table, found.content

    def _submit(self) -> str:
        """Have Flower start a run; its number."""
        command = [tool("flwr"), "run", str(self.home / "app"), CONNECTION, "--format", "json"]
        done = self._flwr(command)
        try:
            return str(json.loads(done.stdout)["run-id"])
        except (ValueError, KeyError):
            why = " ".join((done.stderr or done.stdout).split())[-300:]
            raise NoFederation(
                f"the SuperLink at {self.address.place} takes no run: {why}"
            ) from None

    def _flwr(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **QUIET, **self._environment}
        try:
            return subprocess.run(
                command, env=environment, capture_output=True, encoding="utf-8", timeout=START
            )
        except subprocess.TimeoutExpired:
            text = f"the SuperLink at {self.address.place} did not answer in {START:.0f} s"
            raise NoFederation(text) from None

    def _why_no_run(self) -> str:
        log = (self.home / "superexec.log").read_text(encoding="utf-8", errors="replace")
        last = " ".join(log.split()[-40:])
        return (
            f"the Flower run at {self.address.place} did not start here: the SuperLink has to run "
            f"with --isolation process. Flower's last words: {last}"
        )
