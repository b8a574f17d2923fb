"""One node: a worker that trains, Flower's SuperNode that carries messages, and a launcher.

A SuperNode that was killed is refused for up to a minute when it comes back, and ends each time; a
worker may die over a message. All are started again here until the owner of the node stops it.
Loads no torch: that is the worker's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from undrift._files import drawn_once, hold, release
from undrift.federate import apps, clientapp_stub
from undrift.federate.session import ENDING, SuperLinkAddress, free_port
from undrift.federate.supervise import Process, end_all, module, script
from undrift.flower import compat
from undrift.flower.compat import NoFederation

LOOK = 0.2
TAIL = 1 << 12
"""Bytes at the end of a SuperNode's log that are read at every look."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class NodeConfig(NamedTuple):
    """What the owner of a node has decided."""

    name: str = ""
    """Of the node; it stays the same when the node starts again."""
    states: Path = Path()
    data: Path | None = None
    part: int | None = None
    """This node is client ``part`` of a problem that everybody can build; ``None``: its data are
    its own.
    """
    methods: Path | None = None
    """The folder with the files of methods that may run here."""
    device: str = "cpu"

    def text(self) -> str:
        """For the command line of the worker."""
        return json.dumps(self._asdict(), default=str)

    @classmethod
    def read(cls, text: str) -> NodeConfig:
        table = json.loads(text)
        paths = {k: table[k] and Path(table[k]) for k in ("states", "data", "methods")}
        return cls(**table | paths)


class Joined(AbstractContextManager["Joined"]):
    """A node, from when it is entered until it is left.

    Without a key, where one is needed, or with the certificate of others it gives up at once;
    otherwise it tries to be let in until it is stopped.
    """

    def __init__(
        self,
        address: SuperLinkAddress,
        folder: Path,
        config: NodeConfig,
        key: Path | None,
        tell: Callable[[str], None],
    ):
        self.address, self.folder, self.key, self.tell = address, folder, key, tell
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._held = _hold(folder)
            name = config.name or drawn_once(folder / "name")
        except OSError as error:
            raise NoFederation(
                f"{folder}: {error.strerror or error}: no states can be kept there; give another "
                "folder, --states"
            ) from None
        self.config = config._replace(name=name, states=folder / "states")
        self._home = Path(tempfile.mkdtemp(prefix="undrift-"))
        self._log = folder / "supernode.log"
        self._next, self._told = 0.0, ""
        self._in = self._ever_in = self._lost = False
        # Flower looks for its command on the search path, and finds one that has the launcher do it
        stub = [sys.executable, "-I", "-S", clientapp_stub.__file__]
        script(self._home / "bin", compat.CLIENT_APP, [*stub, str(self._home / "launcher.sock")])
        self._environment = compat.environment(self._home / "flower", self._home / "bin")
        self._environment |= {**compat.EAGER, apps.WORKER: str(self._home / "worker.sock")}
        self._processes = {name: self._start(name) for name in ("launcher", "worker", "supernode")}
        tell(
            f"Joining {address.place}, which may take a minute. If it takes longer, nobody listens "
            "there, or one side speaks TLS and the other does not (--key FILE)."
        )

    def __exit__(self, *error: object) -> None:
        end_all([*self._processes.values()])
        shutil.rmtree(self._home, ignore_errors=True)  # a supervisor that was killed has left it
        # Only now: a node that is started again must not meet a worker that still writes states.
        release(self.folder, self._held)

    def stay(self, stopped: Callable[[], bool]) -> None:
        """Keep the node alive until it is stopped. Raises :class:`NoFederation`."""
        while not stopped():
            self.look()
            time.sleep(LOOK)

    def look(self) -> None:
        """Notice when the SuperLink lets the node in; start again what has ended."""
        now, place = time.monotonic(), self.address.place
        if not self._in and compat.LET_IN in self._logged():
            self._in, self._ever_in, self._told = True, True, ""
            self.tell(f"Joined {place} as {self.config.name}.")
        said = self._logged(TAIL)
        lost = self._in and compat.RETRYING in said.rpartition("INFO")[2]
        if lost != self._lost:
            self._lost = lost
            self.tell(
                f"{place} cannot be reached; trying on." if lost else f"Reached {place} again."
            )
        if compat.OTHER_CERTIFICATE in said:
            raise NoFederation(
                f"{place} shows another certificate than {self.address.ca}, or it has expired "
                f"({compat.OTHER_CERTIFICATE}; undrift join --check says which): ask for the new "
                "one, compare its fingerprint, and start this node again"
            )
        # The SuperNode last: it takes messages, for which worker and launcher must be there.
        for name in ("worker", "launcher"):
            if (code := self._processes[name].code) is not None:
                self.tell(f"The {name} ended ({code}); starting it again.")
                self._processes[name] = self._start(name)
        if self._processes["supernode"].code is None or now < self._next:
            return
        why = self._last_words()
        # Only before it was ever let in: one that comes back is refused for a minute by rule.
        if not self._ever_in and compat.HOPELESS in why:
            raise NoFederation(f"{place} did not let this node in: {why}")
        if why != self._told:
            self._told = why
            self.tell(f"The SuperNode ended: {why}. Trying again.")
        self._in, self._lost, self._next = False, False, now + 2.0
        self._processes["supernode"] = self._start("supernode")

    def _logged(self, last: int = 1 << 24) -> str:
        """What the SuperNode has logged since it was started, ``last`` bytes of it at most."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - last, 0))
            return COLOURS.sub("", file.read().decode(errors="replace"))

    def _last_words(self) -> str:
        """Why the SuperNode ended, as far as it said so."""
        _, found, words = self._logged().rpartition("ERROR")
        if not found:
            code = self._processes["supernode"].code
            return "the server has ended" if code == 0 else f"it was killed or broke off ({code})"
        words = " ".join(words.partition("For more information")[0].lstrip(" :").split())[:300]
        if compat.UNKNOWN_KEY in words:
            words += (
                " (its key is not registered, the SuperLink is not ready yet, or this node was "
                "killed less than a minute ago)"
            )
        return words

    def _start(self, name: str) -> Process:
        home, log, at = self._home, self.folder / f"{name}.log", self.address
        listen = [str(home / "flower"), compat.CLIENT_APP, "--listen", str(home / "launcher.sock")]
        commands = {
            "launcher": [*module("no_sent_code"), *listen],
            "worker": [*module("worker"), str(home / "worker.sock"), self.config.text()],
            "supernode": compat.supernode(at.place, at.ca, self.key, free_port()),
        }
        if name == "supernode":
            log.unlink(missing_ok=True)  # what it logs decides what is said of this start
        return Process(commands[name], log, self._environment, home, tells=name == "worker")


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
