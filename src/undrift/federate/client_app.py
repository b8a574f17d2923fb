"""The ClientApp: it hands every message to the worker of its node, and loads no torch."""

from __future__ import annotations

import os
import time

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from undrift.federate.pipe import Closed, Pipe
from undrift.flower.parcel import Parcel
from undrift.flower.wire import packed, unpacked

SOCKET = "UNDRIFT_FLOWER_WORKER"
"""The environment variable with the path of the worker's socket."""
PATIENCE = 60.0
"""Seconds to wait for a worker that is being started."""

app = ClientApp()


@app.query("undrift")
@app.train("undrift")
@app.evaluate("undrift")
def answer(message: Message, context: Context) -> Message:
    """The worker's reply."""
    found = asked(unpacked(message.content))
    return Message(packed(found.table, found.content), reply_to=message)


def asked(letter: Parcel) -> Parcel:
    """What the worker says; a worker that is away for long, or dies over it, is an error."""
    path = os.environ.get(SOCKET)
    if path is None:
        raise RuntimeError("this SuperNode was not started by undrift join")
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with Pipe.to(path) as pipe:
                return pipe.ask(letter.table, letter.content)
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > until:
                raise Closed("the worker of this node is not there") from None
            time.sleep(0.05)
