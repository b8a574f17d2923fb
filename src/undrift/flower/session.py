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
from typing import Any, NamedTuple

from undrift.flower import relay
from undrift.flower.app import CONNECTION, write_app, write_connection
from undrift.flower.pipe import Closed, Pipe, listen
from undrift.flower.processes import QUIET, Process, module, script, searched, tool

START = 90.0
"""Seconds that a Flower run may take to start."""
LOOK = 0.2
"""Seconds between looks for replies."""


class NoFederation(RuntimeError):
    """There is no SuperLink, or it does not do what is needed; the message says what to do."""


class Lost(ConnectionError):
    """The Flower run has ended: its messages are gone."""


class Reply(NamedTuple):
    """What came back of a message."""

    id: str
    table: Mapping[str, Any]
    content: bytes = b""
    error: str = ""


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
        words = [*module("guard"), "flwr-serverapp", str(self.home / "flower")]
        script(self.home / "bin", "flwr-serverapp", words)
        self._environment = {
            "FLWR_HOME": str(self.home / "flower"),
            "PATH": searched(self.home / "bin"),
            relay.SOCKET: str(self.home / "server.sock"),
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
