"""Messages between two processes of one machine: a table of JSON, and bytes beside it."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from undrift.flower.parcel import Parcel

HEAD = struct.Struct("<IQ")
"""The lengths of the table and of the bytes."""
MOST = 2**33


class Closed(ConnectionError):
    """The other end is gone."""


class Pipe:
    """One end of a connection."""

    def __init__(self, connection: socket.socket):
        self.connection = connection

    @classmethod
    def to(cls, path: str | Path, timeout: float | None = None) -> Pipe:
        """Connect to the process that listens at ``path``."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        try:
            connection.connect(str(path))
        except BaseException:
            connection.close()
            raise
        return cls(connection)

    def send(self, table: Mapping[str, Any], content: bytes = b"") -> None:
        text = json.dumps(table).encode()
        try:
            self.connection.sendall(HEAD.pack(len(text), len(content)) + text)
            self.connection.sendall(content)
        except TimeoutError:
            raise
        except OSError as error:
            raise Closed(f"the other process is gone ({error})") from None

    def receive(self) -> Parcel:
        text, content = HEAD.unpack(self._exactly(HEAD.size))
        if content > MOST:
            raise Closed(f"a message of {content} bytes is none of ours")
        return Parcel(json.loads(self._exactly(text)), self._exactly(content))

    def ask(self, table: Mapping[str, Any], content: bytes = b"") -> Parcel:
        """Send a message and wait for the reply."""
        self.send(table, content)
        return self.receive()

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _exactly(self, size: int) -> bytes:
        found = bytearray(size)
        view, at = memoryview(found), 0
        while at < size:
            try:
                count = self.connection.recv_into(view[at:])
            except TimeoutError:
                raise
            except OSError as error:
                raise Closed(f"the other process is gone ({error})") from None
            if not count:
                raise Closed("the other process is gone")
            at += count
        return bytes(found)


def listen(path: Path) -> socket.socket:
    """Listen at ``path``, which only this user can reach."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen()
    return listener
