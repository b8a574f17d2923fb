"""Packets between two processes of one machine, over a Unix socket."""

from __future__ import annotations

import json
import socket
from multiprocessing.connection import Connection
from pathlib import Path

from undrift.engines.messages.packet import Packet


class Pipe:
    """One end of a connection.

    ``OSError`` says that the other end is gone, or silent for ``patience`` seconds.
    """

    def __init__(self, connection: socket.socket, patience: float | None = None):
        # As it comes from accept it may have a timeout, which is its listener's.
        connection.setblocking(True)
        self._connection, self._patience = Connection(connection.detach()), patience

    def send(self, packet: Packet) -> None:
        self._connection.send_bytes(json.dumps(packet.table).encode())
        self._connection.send_bytes(packet.content)

    def receive(self) -> Packet:
        if not self._connection.poll(self._patience):
            raise TimeoutError("the other process is silent")
        try:
            return Packet(json.loads(self._connection.recv_bytes()), self._connection.recv_bytes())
        except EOFError:
            raise ConnectionResetError("the other process is gone") from None

    def close(self) -> None:
        self._connection.close()


def listen(path: Path) -> socket.socket:
    """Listen at ``path``, which only this user can reach."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen()
    return listener
