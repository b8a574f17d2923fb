"""Packets between two processes of one machine, over a Unix socket."""

from __future__ import annotations

import json
import socket
import struct
from contextlib import suppress
from pathlib import Path

from undrift.engines.messages.packet import Packet

HEAD = struct.Struct("<IQ")
"""The lengths of the table and of the bytes."""


class Pipe:
    """One end of a connection.

    ``OSError`` says that the other end is gone, or silent for longer than the socket's timeout.
    """

    def __init__(self, connection: socket.socket):
        self._connection, self._file = connection, connection.makefile("rwb")

    def send(self, packet: Packet) -> None:
        text = json.dumps(packet.table).encode()
        self._file.write(HEAD.pack(len(text), len(packet.content)) + text)
        self._file.write(packet.content)
        self._file.flush()

    def receive(self) -> Packet:
        text, content = HEAD.unpack(self._exactly(HEAD.size))
        return Packet(json.loads(self._exactly(text)), self._exactly(content))

    def close(self) -> None:
        with suppress(OSError):  # what was not sent yet is for nobody
            self._file.close()
        self._connection.close()

    def _exactly(self, size: int) -> bytes:
        found = self._file.read(size)
        if len(found) < size:
            raise ConnectionResetError("the other process is gone")
        return found


def listen(path: Path) -> socket.socket:
    """Listen at ``path``, which only this user can reach."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen()
    return listener
