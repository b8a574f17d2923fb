"""A process that trains for another one: ``python -m undrift.runs.worker``, see ``runs.jobs``."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import torch

from undrift.core.faults import Rejection
from undrift.records.folder import Folder, Outcome, Row
from undrift.runs.environment import deterministic
from undrift.runs.events import Event, Message, to_json
from undrift.runs.experiment import make
from undrift.spec.reader import load


class Channel:
    """The pipes to the process that hands out work; this process ends when that one does."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # what a method prints is no message
        self.asked = False
        self.orders: SimpleQueue[Message | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        Thread(target=self._read, daemon=True).start()

    def send(self, message: Message) -> None:
        try:
            self._out.write(json.dumps(message) + "\n")
            self._out.flush()
        except BrokenPipeError:
            os._exit(1)

    def emit(self, event: Event) -> None:
        self.send(to_json(event))

    def wait(self, what: str, **about: object) -> None:
        """Have something done to the folder, and wait until it is."""
        self.send({"wait": what, **about})
        self._done.get()

    def _read(self) -> None:
        for line in sys.stdin:
            if not line.endswith("\n"):  # cut short by the other one's death
                break
            message = json.loads(line)
            if "stop" in message:
                self.asked = True
                self.orders.put(None)
            elif "done" in message:
                self._done.put(None)
            else:
                self.orders.put(message)
        os._exit(1)  # nobody is left to write the rows; files are written whole


class Relay(Folder):
    """The folder of a run as a worker has it: another process writes the journal."""

    def __init__(self, path: Path, channel: Channel):
        super().__init__(path)
        self.channel = channel

    def append(self, row: Row, clients: Row | None = None) -> None:
        """The row travels as an event."""

    def leave_out(self, label: str, seed: int, rejections: Sequence[Rejection]) -> None:
        """Rejections travel as an event too."""

    def settle(self) -> None:
        self.channel.wait("settle")

    def keep(self, label: str, seed: int, last: int) -> None:
        self.channel.wait("keep", label=label, seed=seed, last=last)

    def ended(self, outcome: Outcome) -> None:
        self.channel.wait("ended", outcome=dataclasses.asdict(outcome))


def main() -> int:
    """Run what is handed out until there is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel()
    try:
        work(channel)
    except BaseException:
        channel.send({"error": traceback.format_exc()})
        return 1
    return 0


def work(channel: Channel) -> None:
    start = channel.orders.get()
    if start is None:
        return
    torch.set_num_threads(start["threads"])
    if start["deterministic"]:
        deterministic()
    relay = Relay(Path(start["folder"]), channel)
    store = start["store"]  # the folder may have been made with another one
    flags = [] if store == "auto" else [f"engine.store={store}"]
    spec = load(relay.file("spec.toml"), flags)
    experiment = make(spec)
    while (order := channel.orders.get()) is not None:
        label, seed = order["run"]
        relay.rounds = {name: {(label, seed): rounds} for name, rounds in order["rounds"].items()}
        for _ in experiment.run(relay, channel.emit, channel, start["pause"], [(label, seed)]):
            pass


if __name__ == "__main__":
    sys.exit(main())
