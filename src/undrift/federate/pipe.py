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


class Closed(ConnectionError):
    """The other end is gone, or silent for longer than the socket's timeout."""


class Pipe:
    """One end of a connection."""

    def __init__(self, connection: socket.socket):
        self._connection, self._file = connection, connection.makefile("rwb")

    @classmethod
    def to(cls, path: str | Path) -> Pipe:
        """Connect to the process that listens at ``path``."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(path))
        except BaseException:
            connection.close()
            raise
        return cls(connection)

    def send(self, packet: Packet) -> None:
        text = json.dumps(packet.table).encode()
        try:
            self._file.write(HEAD.pack(len(text), len(packet.content)) + text)
            self._file.write(packet.content)
            self._file.flush()
        except OSError as error:
            raise Closed(f"the other process is gone ({error})") from None

    def receive(self) -> Packet:
        text, content = HEAD.unpack(self._exactly(HEAD.size))
        return Packet(json.loads(self._exactly(text)), self._exactly(content))

    def ask(self, packet: Packet) -> Packet:
        """Send a packet and wait for the reply."""
        self.send(packet)
        return self.receive()

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        with suppress(OSError):  # what was not sent yet is for nobody
            self._file.close()
        self._connection.close()

    def _exactly(self, size: int) -> bytes:
        try:
            found = self._file.read(size)
        except OSError as error:
            raise Closed(f"the other process is gone ({error})") from None
        if len(found) < size:
            raise Closed("the other process is gone")
        return found


def listen(path: Path) -> socket.socket:
    """Listen at ``path``, which only this user can reach."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen()
    return listener
