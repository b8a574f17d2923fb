"""The process of a node that trains: it has torch, the data and the states of one client.

It answers what the ClientApp hands over, one packet after another: ``hello`` (what this client
has), ``start`` (the first point), ``work`` and ``evaluate``. It runs the installed undrift, and
methods of files that its owner has put on this machine, never code that came with a message.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from undrift import __version__
from undrift._files import drawn_once
from undrift._threads import cores
from undrift.core.params import hints
from undrift.core.problem import Problem
from undrift.engines.messages.format import dump, parse
from undrift.engines.messages.packet import Packet
from undrift.engines.node import Node, OneOf
from undrift.federate.node import NodeConfig
from undrift.federate.pipe import Pipe, listen
from undrift.flower.network import described, known
from undrift.flower.reply import reply, told
from undrift.problems.by_file import own
from undrift.runs.prepare import placed
from undrift.spec.reader import parse as parse_spec
from undrift.spec.schema import Entry, Spec

MOST = 2**16
"""Bytes of the head of tensors in a message."""
SERVERS = ("dtype", "device", "engine")
"""Settings that only the server has."""


class ClientWorker:
    """Answers messages; ``tell`` reaches the owner of the node."""

    def __init__(self, config: NodeConfig, tell: Callable[[str], object] = print):
        self.config, self.tell = config, tell
        self._sent: list[object] = []
        self.spec: Spec
        """What the server has sent, and the spec that it makes."""
        self._samples: tuple[int, ...] = ()
        """Of every client, once the server has told."""
        self._problems: dict[object, Problem] = {}
        self._node: tuple[list[object], Node] | None = None
        """The client of one run, and what of a message has made it that."""
        self._data: str | None = None
        """The digest of this client's data, once it was computed, if the problem has one."""
        self._trouble = ""
        """What the owner of this node knows of already."""

    def answer(self, asked: Packet) -> Packet:
        """The reply to a message; what goes wrong is a reply too.

        The server learns which node it is, and no path of this machine.
        """
        found = reply(lambda: self._do(asked))
        if "error" not in found.table:
            self._trouble = ""
            return found
        text = found.table["error"]
        # What may pass is asked for again soon, and told once.
        if text != self._trouble or found.table["lasting"]:
            self._trouble = text
            self.tell(f"This node cannot do what the server asks: {text}")
        for folder in (self.config.data, self.config.states, self.config.methods):
            if folder is not None and folder.is_absolute():
                text = text.replace(f"{folder}{os.sep}", "").replace(f"{folder}", "its folder")
        return Packet({**found.table, "error": text, "node": self.config.name})

    def _do(self, asked: Packet) -> Packet:
        asked, once = told(asked, self.config.states / "told.json")
        given = json.loads(once)
        # Samples of others are known later than the spec, and change nothing that was read of it.
        if self._sent != (sent := [given["spec"], given["files"]]):
            self.spec = sent_spec(given["spec"], given["files"], self.config.methods)
            self._sent = sent
            self._problems.clear()
            self._node = self._data = None
        self._samples = tuple(given["samples"])
        known = {"hello": self.hello, "start": self.start}
        return {**known, "work": self.work, "evaluate": self.evaluate}[asked.table["do"]](asked)

    def hello(self, asked: Packet) -> Packet:
        """What a server may know of this client."""
        problem, part = self._problem(self.spec.entries[0], ()), self.config.part
        about: dict[str, object] = {
            "name": self.config.name,
            "version": __version__,
            "digest": self._digest(),
        }
        if part is not None:
            if part >= problem.clients:
                raise ValueError(f"there is no client {part} of {problem.clients}")
            return Packet({**about, "part": part})
        state = known(problem)
        about |= {
            "samples": problem.samples[0],
            "dim": problem.dim,
            "dtype": str(problem.dtype).removeprefix("torch."),
            "differentiates": problem.differentiates,
            "classes": [*problem.class_names],
            "metric_samples": problem.metric_samples,
            "network": None if state is None else described(state),
        }
        if asked.table["constants"]:
            about |= {"L": problem.cheap_constants.L, "mu": problem.cheap_constants.mu}
        return Packet(about)

    def start(self, asked: Packet) -> Packet:
        """The first point, of a network as its state dict."""
        problem = self._problem(self.spec.entries[0], self._samples)
        state = known(problem)
        return Packet({}, dump(state.initial if state else {"x": problem.start().cpu()}))

    def work(self, asked: Packet) -> Packet:
        """One phase."""
        # Before any work: states of a client that has other data now would be no error, but wrong.
        entry, problem = self._asked_for(asked)
        table = asked.table
        run = [table[name] for name in ("told", "label", "values", "seed", "client")]
        round, last = table["tag"][0] + 1, table["tag"][:2] == [entry.rounds - 1, 0]
        if last or self._node is None or self._node[0] != run:
            self.tell(
                f"Run {self.spec.name}: {entry.label}, seed {table['seed']}, round {round} of "
                f"{entry.rounds}{', the last' if last else ''}, as client {table['client']}."
            )
        if self._node is None or self._node[0] != run:
            one = OneOf(problem, table["client"], self._samples)
            own = {k: v for k, v in self.spec.setting(entry).items() if k not in SERVERS}
            method = dataclasses.replace(entry.method, **table["values"])
            self._node = run, Node(method, one, self.config.states, own, table["seed"])
        return self._node[1].do(asked)

    def evaluate(self, asked: Packet) -> Packet:
        """The metrics of this client's own data."""
        _, problem = self._asked_for(asked)
        x = parse(asked.content, MOST)["x"].to(problem.device)
        hidden = ("gap", "distance", "grad_norm")  # of this client alone, which say nothing of f
        metrics = {k: v for k, v in problem.metrics(x).items() if k not in hidden}
        weights = {name: problem.weight_of(name) for name in metrics}
        return Packet({"metrics": metrics, "samples": problem.samples[0], "weights": weights})

    def _asked_for(self, asked: Packet) -> tuple[Entry, Problem]:
        """The method of a message and its problem, with the data that the run began with."""
        if asked.table["data"] not in (None, self._digest()):
            raise ValueError(
                "its data or its folder of states are not those that the run began with: put them "
                "back, or have the coordinator begin anew with undrift federate --overwrite"
            )
        entry = {entry.label: entry for entry in self.spec.entries}[asked.table["label"]]
        return entry, self._problem(entry, self._samples)

    def _digest(self) -> str | None:
        """Of this client's data, before the samples of others are known, if the problem has one."""
        if self._data is None:
            self._data = self._problem(self.spec.entries[0], ()).digest()
            if self._data is not None and self.config.part is None:
                # With a number that stays here: who has the digest cannot try out what data it is.
                salt = drawn_once(self.config.states / "salt", 32)
                self._data = hashlib.sha256(f"{salt} {self._data}".encode()).hexdigest()
        return self._data

    def _problem(self, entry: Entry, samples: Sequence[int]) -> Problem:
        """The problem of a method's objective: that of everybody, or of this client's own data."""
        among = tuple(samples) if self.config.part is None else ()
        key = entry.objective, among
        if key not in self._problems:
            kind, config = self.spec.problem, self.config
            if config.data is not None and "folder" in hints(type(kind)):
                kind = dataclasses.replace(kind, folder=str(config.data))  # type: ignore[type-var]
            made = own(kind, *key) if config.part is None else kind.build(entry.objective)
            self._problems[key] = placed(made, self.spec.dtype, config.device)
        return self._problems[key]


def sent_spec(text: str, files: Mapping[str, str], methods: Path | None) -> Spec:
    """A spec from its TOML.

    The files that it names are looked for in ``methods``, and must be those of the server:
    ``files`` has their SHA-256 by their place relative to the spec.
    """
    for name, digest in files.items():
        if methods is None:
            raise ValueError(
                f"the spec has code of its own ({name}), and this node runs none: give the "
                "folder that has the file, undrift join --methods FOLDER"
            )
        path = methods / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise ValueError(f"{path} is not the file of the server (SHA-256 {digest[:16]}...)")

    def known(name: str) -> None:
        if name not in files:
            raise ValueError(f"the spec names {name}, and the server gave no digest of it")

    return parse_spec(text, str((methods or Path()) / "federation.toml"), code=known)


def main() -> None:
    path, config = sys.argv[1:]
    listener = listen(Path(path))
    # Warnings and tracebacks are for the log; the owner's terminal is for what it has to know.
    owner = os.fdopen(os.dup(2), "w", encoding="utf-8")
    os.dup2(1, 2)
    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", 0)) or cores()))
    worker = ClientWorker(NodeConfig.read(config), partial(_print, owner))
    while True:
        connection, _ = listener.accept()
        with closing(Pipe(connection)) as pipe, suppress(OSError):
            pipe.send(worker.answer(pipe.receive()))


def _print(owner: Any, text: str) -> None:
    with suppress(OSError):  # the terminal may be gone
        print(time.strftime("%H:%M:%S"), text, file=owner, flush=True)


if __name__ == "__main__":
    main()
