"""Methods and seeds of a spec in several processes.

This process keeps the folder: it hands out the work and writes every row, outcome and message. The
workers (:mod:`undrift.runs.worker`) train, and write only their own checkpoints and models. A
worker waits until its rows are on disk before it keeps a checkpoint, and stops when this process
dies.

Numbers do not depend on how many processes there are: each computes with as many threads as a
single one would, since sums of floating-point numbers can depend on that.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread

import torch

from undrift.records.folder import Folder, Outcome
from undrift.records.rows import Key
from undrift.runs.events import (
    Crowded,
    Died,
    Emit,
    Ended,
    LeftOut,
    Measured,
    Message,
    from_json,
)
from undrift.runs.experiment import Experiment, MethodResult
from undrift.runs.trial import StopSignal

PATIENCE = 0.2
"""Seconds between looks at whether to stop."""


class Worker:
    """A process that runs one method with one seed after another."""

    def __init__(self, start: Message, inbox: SimpleQueue[tuple[Worker, Message | None]]):
        self.process = subprocess.Popen(  # a group of its own, which no terminal interrupts
            [sys.executable, "-m", "undrift.runs.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"},
            process_group=0 if os.name == "posix" else None,
        )
        self.key: Key | None = None
        """What it is running."""
        self.error = ""
        self._inbox = inbox
        self.send(start)
        Thread(target=self._read, daemon=True).start()

    def send(self, message: Message) -> None:
        assert self.process.stdin
        with suppress(OSError):  # it is dead, as the end of its output tells
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.endswith("\n"):  # not cut short by its death
                self._inbox.put((self, json.loads(line)))
        self._inbox.put((self, None))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                with suppress(OSError):  # what was not sent is lost
                    pipe.close()


@dataclasses.dataclass
class Shared:
    """An experiment whose methods and seeds several workers share."""

    experiment: Experiment
    folder: Folder
    emit: Emit
    stop: StopSignal | None
    jobs: int

    def __post_init__(self) -> None:
        self.ended = {outcome.key: outcome for outcome in self.folder.outcomes()}
        self.waiting = [key for key in self.experiment.order if key not in self.ended]
        self.drawn: set[str] = set()
        """Labels of which a first seed is known to draw at random."""
        self.inbox: SimpleQueue[tuple[Worker, Message | None]] = SimpleQueue()
        self.workers: list[Worker] = []
        self.stopping = False

    def run(self, pause: float) -> Iterator[MethodResult]:
        """Run what is left to run; results come as they end."""
        yield from map(MethodResult, self.ended.values())
        start = {
            "folder": str(self.folder.path),
            "store": self.experiment.tasks[0].setup.own.get("store", "auto"),
            "pause": pause,
            "threads": torch.get_num_threads(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        }
        self._crowded()
        try:
            self.workers = [
                Worker(start, self.inbox) for _ in range(min(self.jobs, len(self.waiting)))
            ]
            while self.workers and (self.waiting or any(w.key for w in self.workers)):
                yield from self._hand_out()
                yield from self._hear()
        finally:
            for worker in self.workers:
                worker.end()

    def _crowded(self) -> None:
        """Say so if there are more threads than cores."""
        with self.experiment.threads():
            threads = torch.get_num_threads()
        cores = os.cpu_count() or 1
        jobs = min(self.jobs, len(self.waiting))
        if threads > 1 and threads * jobs > cores:
            self.emit(Crowded(jobs, threads, cores))

    def _hand_out(self) -> Iterator[MethodResult]:
        """Give idle workers something to do; what no seed changes is not run again."""
        if self.stop and self.stop.asked and not self.stopping:
            self.stopping = True
            for worker in self.workers:
                worker.send({"stop": True})
        if self.stopping:
            self.waiting.clear()
        for key in list(self.waiting):
            if twin := self.experiment.twin(*key, self.ended):
                self.waiting.remove(key)
                self.folder.ended(twin)
                self.emit(Ended(twin))
                yield MethodResult(twin)
        for worker in self.workers:
            ready = [key for key in self.waiting if self._ready(key)]
            if worker.key is None and ready:
                worker.key = ready[0]
                self.waiting.remove(worker.key)
                rounds = self.folder.rounds_of(worker.key)
                worker.send({"run": worker.key, "rounds": rounds})
        if not any(worker.key for worker in self.workers):  # what is left waits for a dead worker
            self.waiting.clear()

    def _ready(self, key: Key) -> bool:
        """Whether it is known that this seed is not the same as the first one."""
        label, seed = key
        first = self.experiment.seeds[0]
        ended = self.ended.get((label, first))
        return (
            not self.experiment.alike
            or seed == first
            or label in self.drawn
            or (ended is not None and ended.seeded)
        )

    def _hear(self) -> Iterator[MethodResult]:
        """Wait a moment for a message, and act on it."""
        try:
            worker, message = self.inbox.get(timeout=PATIENCE)
        except Empty:
            return
        if message is None:
            self.workers.remove(worker)
            code = worker.process.wait()
            worker.end()
            if worker.key and not (self.stopping and code == 0):  # stopped before its first round
                self.emit(Died(*worker.key, code, worker.error))
                self.folder.log(f"{Died(*worker.key, code)}\n{worker.error}")
        elif "error" in message:
            worker.error = message["error"]
        elif "event" in message:
            event = from_json(message)
            if isinstance(event, Measured):
                about = {"label": event.label, "method": event.method, "seed": event.seed}
                self.folder.append({**about, **event.row}, event.clients)
                if event.drawn and event.seed == self.experiment.seeds[0]:
                    self.drawn.add(event.label)
            elif isinstance(event, LeftOut):
                self.folder.leave_out(event.label, event.seed, event.rejections)
            self.emit(event)
            if isinstance(event, Ended):
                worker.key = None
                yield MethodResult(event.outcome)
        else:
            self._serve(worker, message)

    def _serve(self, worker: Worker, message: Message) -> None:
        """Do to the folder what a worker asks for, and tell it once that is done."""
        match message["wait"]:
            case "settle":
                self.folder.settle()
            case "keep":
                self.folder.keep(message["label"], message["seed"], message["last"])
            case "ended":
                outcome = Outcome(**message["outcome"])
                self.folder.ended(outcome)
                self.ended[outcome.key] = outcome
        worker.send({"done": True})
