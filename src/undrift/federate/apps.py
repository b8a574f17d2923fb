"""The ServerApp and the ClientApp of a federation: they hand packets on, and load no torch.

So federate outlives the Flower run that carries its messages, and a worker the ClientApp that
brings it one.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from undrift.engines.messages.packet import Packet
from undrift.federate.clientapp_stub import reached
from undrift.federate.pipe import Pipe
from undrift.flower.grid_carrier import GridCarrier, packed, unpacked

FEDERATE, WORKER = "UNDRIFT_FEDERATE_SOCKET", "UNDRIFT_WORKER_SOCKET"
"""Environment variables with the paths of the sockets at which federate and a worker listen."""

# One assignment each: Flower looks for these names in the text of this file.
server = ServerApp()
client = ClientApp()


@server.main()
def carry(grid: Grid, context: Context) -> None:
    """Serve federate until it hangs up, which ends the Flower run."""
    carrier = GridCarrier(grid)
    with suppress(OSError), closing(Pipe(reached(os.environ[FEDERATE]))) as pipe:
        pipe.send(Packet({"run": str(context.run_id)}))
        while True:
            serve(carrier, pipe)


def serve(carrier: GridCarrier, pipe: Pipe) -> None:
    """Do for federate what one packet asks of the carrier."""
    table, content = pipe.receive()
    if table["do"] == "nodes":
        pipe.send(Packet({"nodes": carrier.nodes()}))
    elif table["do"] == "push":
        packet = Packet(table["table"], content)
        pipe.send(Packet({"id": carrier.push(table["node"], packet, table["ttl"])}))
    else:
        found = carrier.pull(table["ids"])
        pipe.send(Packet({"ids": [*found]}))
        for reply in found.values():
            pipe.send(reply)


@client.train()
def answer(message: Message, context: Context) -> Message:
    """The reply of this node's worker; one that is away for long, or dies over it, is an error."""
    with closing(Pipe(reached(os.environ[WORKER]))) as pipe:
        pipe.send(unpacked(message.content))
        return Message(packed(pipe.receive()), reply_to=message)
