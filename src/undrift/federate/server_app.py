"""The ServerApp: it carries messages for the process that runs the federation, and loads no torch.

That process listens at the socket named in the environment; a Flower run ends when it hangs up.
"""

from __future__ import annotations

import os
from typing import Any

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from undrift.federate.pipe import Closed, Pipe
from undrift.flower.parcel import Parcel
from undrift.flower.wire import packed, unpacked

SOCKET = "UNDRIFT_FLOWER_SERVER"
"""The environment variable with the path of the socket."""

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Serve until the other process hangs up."""
    path = os.environ.get(SOCKET)
    if path is None:
        raise RuntimeError(
            "this SuperLink runs ServerApps itself: start it with --isolation process, so that "
            "undrift federate can run its own"
        )
    with Pipe.to(path) as pipe:
        pipe.send({"run": str(context.run_id)})
        while True:
            try:
                order = pipe.receive()
            except Closed:
                return
            table, content = _ACTIONS[order.table["do"]](grid, order)
            pipe.send(table, content)


def _nodes(grid: Grid, order: Parcel) -> Parcel:
    return Parcel({"nodes": [str(node) for node in grid.get_node_ids()]})


def _push(grid: Grid, order: Parcel) -> Parcel:
    """One message to one node."""
    table = order.table
    message = Message(
        content=packed(table["letter"], order.content),
        dst_node_id=int(table["node"]),
        message_type=table["kind"],
        ttl=table["ttl"],
        group_id=table["group"],
    )
    (found,) = grid.push_messages([message])
    return Parcel({"id": found})


def _pull(grid: Grid, order: Parcel) -> Parcel:
    """The replies that have come to some messages, their bytes one after another."""
    replies, contents = list[dict[str, Any]](), list[bytes]()
    for reply in grid.pull_messages(order.table["ids"]):
        about: dict[str, Any] = {"id": reply.metadata.reply_to_message_id}
        try:
            if reply.has_error():
                raise ValueError(f"[{reply.error.code}] {reply.error.reason}")
            letter = unpacked(reply.content)
        except ValueError as error:
            replies.append(about | {"error": str(error)})
            continue
        replies.append(about | {"letter": letter.table, "size": len(letter.content)})
        contents.append(letter.content)
    return Parcel({"replies": replies}, b"".join(contents))


_ACTIONS = {"nodes": _nodes, "push": _push, "pull": _pull}
