"""The process of a node that trains: it has torch, the data and the states of one client.

It answers what the ClientApp hands over, one message after another: ``hello`` (what this client
has), ``start`` (the first point), ``work`` and ``evaluate``. It runs the installed undrift, and
methods of files that its owner has put on this machine, never code that came with a message.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from undrift import __version__
from undrift._threads import cores
from undrift.core.params import hints
from undrift.core.problem import Problem
from undrift.engines.format import dump, parse
from undrift.engines.node import Node, OneOf
from undrift.federate.node_config import TROUBLE, Place, salted
from undrift.federate.pipe import Closed, Pipe, listen
from undrift.federate.spec_job import ONCE, Job, Wrong, told
from undrift.flower.network import FROZEN, Described, known
from undrift.flower.orders import Untold, answered, read
from undrift.flower.parcel import Parcel
from undrift.problems.own import own
from undrift.runs.prepare import build, placed
from undrift.spec.schema import Entry, Spec

MOST = 2**16
"""Bytes of the head of tensors in a message."""


class Worker:
    """Answers messages."""

    def __init__(self, place: Place):
        self.place = place
        self._once: dict[str, Any] = {}
        """What it was told once, and messages name by a digest."""
        self._spec: tuple[str, Spec] | None = None
        self._problems: dict[object, Problem] = {}
        self._node: tuple[str, Node] | None = None
        self._data: str | None = None
        """The digest of this client's data, once it was computed, if the problem has one."""
        self._told = ""
        """The trouble that the owner of this node knows of already."""
        self._do: dict[str, Callable[[Parcel], Parcel]] = {
            "hello": self.hello,
            "start": self.start,
            "work": self.work,
            "evaluate": self.evaluate,
        }

    def answer(self, asked: Parcel) -> Parcel:
        """The reply to a message; what goes wrong is a reply too, and a line of the log.

        The server learns which node it is, and no path of this machine.
        """
        found = answered(lambda: self._do[str(asked.table["do"])](self._whole(asked)))
        if "error" not in found.table:
            self._told = ""
            return found
        text = found.table["error"]
        if text != self._told or found.table["lasting"]:  # what may pass is asked for again soon
            self._told = text
            print(TROUBLE + text, flush=True)
        for folder in (self.place.data, self.place.states, self.place.methods):
            if folder is not None and folder.is_absolute():
                text = text.replace(f"{folder}{os.sep}", "").replace(f"{folder}", "its folder")
        return Parcel({**found.table, "error": text, "node": self.place.name})

    def _whole(self, asked: Parcel) -> Parcel:
        """A message with what this node was told before."""
        if "told" not in asked.table:
            self._once = {name: asked.table[name] for name in ONCE}
        elif told(*self._once.values()) != asked.table["told"]:
            raise Untold
        return asked._replace(table={**asked.table, **self._once})

    def hello(self, asked: Parcel) -> Parcel:
        """What a server may know of this client."""
        job = Job.read(asked.table)
        spec = self._read(job)
        problem = self._problem(spec, spec.entries[0], job)
        about: dict[str, object] = {"name": self.place.name, "version": __version__}
        if self.place.part is not None:
            if not self.place.part < problem.clients:
                raise Wrong(f"there is no client {self.place.part} of {problem.clients}")
            return Parcel(about | {"part": self.place.part, "digest": self._digest(job)})
        about |= {"samples": problem.samples[0], "dim": problem.dim, "digest": self._digest(job)}
        about |= {"dtype": str(problem.dtype).removeprefix("torch."), "note": problem.note}
        about |= {"remembers": problem.remembers, "differentiates": problem.differentiates}
        about |= {"metric_samples": problem.metric_samples}
        about |= {"classes": [*problem.class_names]}
        if (state := known(problem)) is not None:
            about["network"] = Described.of(state).table()
        if asked.table.get("constants"):
            about |= {"L": problem.cheap_constants.L, "mu": problem.cheap_constants.mu}
        return Parcel(about)

    def start(self, asked: Parcel) -> Parcel:
        """The first point and, if it is asked for, what of the network is frozen."""
        job = Job.read(asked.table)
        spec = self._read(job)
        problem = self._problem(spec, spec.entries[0], job)
        found = {"x": problem.start().cpu()}
        if asked.table.get("frozen") and (state := known(problem)) is not None:
            found |= {FROZEN + name: v for name, v in state.frozen.items()}
        return Parcel({}, dump(found))

    def work(self, asked: Parcel) -> Parcel:
        """One phase."""
        job = Job.read(asked.table)
        self._compare(asked, job)
        answer = self._at(job).do(read(asked.table, job.client, asked.content))
        return Parcel({"gradients": answer.gradients, "drawn": answer.drawn}, answer.frame)

    def evaluate(self, asked: Parcel) -> Parcel:
        """What this client adds to the metrics: sums, or those of its own data."""
        job = Job.read(asked.table)
        self._compare(asked, job)
        spec = self._read(job)
        problem = self._problem(spec, job.entry(spec), job)
        x = parse(asked.content, MOST)["x"].to(problem.device)
        if self.place.part is not None:
            sums = problem.partial_metrics(x, torch.tensor([self.place.part]).numpy())
            return Parcel({}, dump({name: v.cpu().contiguous() for name, v in sums.items()}))
        hidden = ("gap", "distance", "grad_norm")  # of this client alone, which say nothing of f
        metrics = {k: v for k, v in problem.metrics(x).items() if k not in hidden}
        about: dict[str, object] = {"metrics": metrics, "samples": problem.samples[0]}
        about["weights"] = {name: problem.weight_of(name) for name in metrics}
        if spec.per_client:
            alone = problem.client_metrics(x)
            about["alone"] = {name: float(v) for name, v in alone.items()}
            about["of"] = problem.own_samples
        return Parcel(about)

    def _compare(self, asked: Parcel, job: Job) -> None:
        """Refuse to go on with other data than the run began with, where that is known."""
        if asked.table.get("data") not in (None, self._digest(job)):
            raise Wrong(
                "its data are not those that the run began with: put them back, or begin anew with "
                "undrift federate --overwrite"
            )

    def _digest(self, job: Job) -> str | None:
        """Of this client's data, before the samples of others are known, if the problem has one."""
        spec = self._read(job)
        if self._data is None:
            first = dataclasses.replace(job, samples=())
            self._data = self._problem(spec, spec.entries[0], first).digest()
            if self._data is not None and self.place.part is None:
                self._data = salted(self._data, self.place.states)
        return self._data

    def _at(self, job: Job) -> Node:
        """The client of a run, with its states."""
        if self._node is None or self._node[0] != job.key:
            spec = self._read(job)
            entry = job.entry(spec)
            problem = OneOf(self._problem(spec, entry, job), job.client, job.samples)
            setting = {k: v for k, v in spec.setting(entry).items() if k not in _SERVERS}
            self._node = (
                job.key,
                Node(job.method(entry), problem, self.place.states, setting, job.draws),
            )
        return self._node[1]

    def _read(self, job: Job) -> Spec:
        """The spec of a job, with the files of methods that lie on this machine."""
        if self._spec is None or self._spec[0] != job.spec:
            self._spec = job.spec, job.parsed(self.place.methods)
            self._problems.clear()
            self._node = self._data = None
        return self._spec[1]

    def _problem(self, spec: Spec, entry: Entry, job: Job) -> Problem:
        """The problem of an entry's objective: that of everybody, or of this client's own data."""
        among = job.samples if self.place.part is None else ()
        key = entry.objective, tuple(among)
        if key not in self._problems:
            kind = spec.problem
            if self.place.data is not None and "folder" in hints(type(kind)):
                kind = dataclasses.replace(kind, folder=str(self.place.data))  # type: ignore[type-var]
            dtype, device = spec.dtype, self.place.device
            if self.place.part is None:
                self._problems[key] = placed(own(kind, entry.objective, among), dtype, device)
            else:
                self._problems[key] = build(kind, entry.objective, dtype, device)
        return self._problems[key]


_SERVERS = ("dtype", "device", "engine")
"""Settings that are none of a client's business."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("socket", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--states", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--part", type=int)
    parser.add_argument("--methods", type=Path)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", 0)) or cores()))
    place = Place(args.name, args.states, args.data, args.part, args.methods, args.device)
    worker = Worker(place)
    with listen(args.socket) as listener:
        while True:
            connection, _ = listener.accept()
            with Pipe(connection) as pipe:
                try:
                    pipe.send(*worker.answer(pipe.receive()))
                except Closed:
                    continue


if __name__ == "__main__":
    main()
