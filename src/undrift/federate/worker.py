"""The process of a node that trains: it has torch, the data and the states of one client.

It answers what the ClientApp hands over, one packet after another: ``hello`` (what this client
has), ``start`` (the first point), ``work`` and ``evaluate``. It runs the installed undrift, and
methods of files that its owner has put on this machine, never code that came with a message.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
from collections.abc import Callable
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
from undrift.federate.spec_job import ONCE, Job, digest
from undrift.flower.network import FROZEN, described, known
from undrift.flower.reply import Untold, reply
from undrift.problems.by_file import own
from undrift.runs.prepare import placed
from undrift.spec.schema import Entry, Spec

MOST = 2**16
"""Bytes of the head of tensors in a message."""
SERVERS = ("dtype", "device", "engine")
"""Settings that only the server has."""


class ClientWorker:
    """Answers messages; ``tell`` reaches the owner of the node."""

    def __init__(self, config: NodeConfig, tell: Callable[[str], object] = print):
        self.config, self.tell = config, tell
        self._once: dict[str, Any] = {}
        """What it was told once, and later messages leave out."""
        self._spec: tuple[str, Spec] | None = None
        self._problems: dict[object, Problem] = {}
        self._node: tuple[str, Node] | None = None
        self._data: str | None = None
        """The digest of this client's data, once it was computed, if the problem has one."""
        self._told = ""
        """The trouble that the owner of this node knows of already."""

    def answer(self, asked: Packet) -> Packet:
        """The reply to a message; what goes wrong is a reply too.

        The server learns which node it is, and no path of this machine.
        """
        found = reply(lambda: self._do(asked))
        if "error" not in found.table:
            self._told = ""
            return found
        text = found.table["error"]
        # What may pass is asked for again soon, and told once.
        if text != self._told or found.table["lasting"]:
            self._told = text
            self.tell(f"This node cannot do what the server asks: {text}")
        for folder in (self.config.data, self.config.states, self.config.methods):
            if folder is not None and folder.is_absolute():
                text = text.replace(f"{folder}{os.sep}", "").replace(f"{folder}", "its folder")
        return Packet({**found.table, "error": text, "node": self.config.name})

    def _do(self, asked: Packet) -> Packet:
        table = asked.table
        known = {"hello": self.hello, "start": self.start}
        do = {**known, "work": self.work, "evaluate": self.evaluate}[table["do"]]
        if table.keys() >= {*ONCE}:
            self._once = {name: table[name] for name in ONCE}
        elif digest(self._once) != table["told"]:
            raise Untold
        return do(asked, Job.read({**table, **self._once}))

    def hello(self, asked: Packet, job: Job) -> Packet:
        """What a server may know of this client."""
        problem, part = self._problem(job), self.config.part
        about: dict[str, object] = {"name": self.config.name, "version": __version__}
        about["digest"] = self._digest(job)
        if part is not None:
            if part >= problem.clients:
                raise ValueError(f"there is no client {part} of {problem.clients}")
            return Packet({**about, "part": part})
        about |= {"samples": problem.samples[0], "dim": problem.dim}
        about |= {"dtype": str(problem.dtype).removeprefix("torch.")}
        about |= {"differentiates": problem.differentiates, "classes": [*problem.class_names]}
        about |= {"metric_samples": problem.metric_samples, "network": None}
        if (state := known(problem)) is not None:
            about["network"] = described(state)
        if asked.table["constants"]:
            about |= {"L": problem.cheap_constants.L, "mu": problem.cheap_constants.mu}
        return Packet(about)

    def start(self, asked: Packet, job: Job) -> Packet:
        """The first point and what of the network is frozen."""
        problem = self._problem(job)
        found, state = {"x": problem.start().cpu()}, known(problem)
        if state is not None:
            found |= {FROZEN + name: v for name, v in state.frozen.items()}
        return Packet({}, dump(found))

    def work(self, asked: Packet, job: Job) -> Packet:
        """One phase."""
        # Before any work: states of a client that has other data now would be no error, but wrong.
        self._compare(asked, job)
        key = digest(vars(job))
        if self._node is None or self._node[0] != key:
            entry = self._entry(job)
            problem = OneOf(self._problem(job), job.client, job.samples)
            setting = self._read(job).setting(entry)
            own = {name: value for name, value in setting.items() if name not in SERVERS}
            method = dataclasses.replace(entry.method, **job.values)
            self._node = key, Node(method, problem, self.config.states, own, job.draws)
        return self._node[1].do(asked)

    def evaluate(self, asked: Packet, job: Job) -> Packet:
        """The metrics of this client's own data."""
        self._compare(asked, job)
        problem = self._problem(job)
        x = parse(asked.content, MOST)["x"].to(problem.device)
        hidden = ("gap", "distance", "grad_norm")  # of this client alone, which say nothing of f
        metrics = {k: v for k, v in problem.metrics(x).items() if k not in hidden}
        about: dict[str, object] = {"metrics": metrics, "samples": problem.samples[0]}
        about["weights"] = {name: problem.weight_of(name) for name in metrics}
        if self._read(job).per_client:
            alone = problem.client_metrics(x)
            about["alone"] = {name: float(v) for name, v in alone.items()}
            about["of"] = problem.own_samples
        return Packet(about)

    def _compare(self, asked: Packet, job: Job) -> None:
        """Refuse to go on with other data than the run began with, where that is known."""
        if asked.table["data"] not in (None, self._digest(job)):
            raise ValueError(
                "its data are not those that the run began with: put them back, or begin anew with "
                "undrift federate --overwrite"
            )

    def _digest(self, job: Job) -> str | None:
        """Of this client's data, before the samples of others are known, if the problem has one."""
        first = self._read(job).entries[0].label
        if self._data is None:
            before = dataclasses.replace(job, label=first, samples=())
            self._data = self._problem(before).digest()
            if self._data is not None and self.config.part is None:
                # With a number that stays here: who has the digest cannot try out what data it is.
                salt = drawn_once(self.config.states / "salt", 32)
                self._data = hashlib.sha256(f"{salt} {self._data}".encode()).hexdigest()
        return self._data

    def _read(self, job: Job) -> Spec:
        """The spec of a job, with the files of methods that lie on this machine."""
        if self._spec is None or self._spec[0] != job.spec:
            self._spec = job.spec, job.parsed(self.config.methods)
            self._problems.clear()
            self._node = self._data = None
        return self._spec[1]

    def _entry(self, job: Job) -> Entry:
        return {entry.label: entry for entry in self._read(job).entries}[job.label]

    def _problem(self, job: Job) -> Problem:
        """The problem of a method's objective: that of everybody, or of this client's own data."""
        spec, objective = self._read(job), self._entry(job).objective
        among = job.samples if self.config.part is None else ()
        key = objective, tuple(among)
        if key not in self._problems:
            kind, dtype, device = spec.problem, spec.dtype, self.config.device
            if self.config.data is not None and "folder" in hints(type(kind)):
                kind = dataclasses.replace(kind, folder=str(self.config.data))  # type: ignore[type-var]
            if self.config.part is None:
                self._problems[key] = placed(own(kind, objective, among), dtype, device)
            else:
                self._problems[key] = placed(kind.build(objective), dtype, device)
        return self._problems[key]


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
        print(text, file=owner, flush=True)


if __name__ == "__main__":
    main()
