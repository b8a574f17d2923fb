"""Which messages are new: those of another run, of another phase and second ones are refused."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from undrift.core.struct import Message
from undrift.engines.codec import BadFrame, Envelope, Reason, Way


class Inbox:
    """What one end of a run awaits: one message of each of some clients, for one phase.

    It remembers no more than the numbers of these clients.
    """

    def __init__(self, run: str, way: Way):
        self.run, self.way = run, way
        self.turn = 0, 0
        """The round and the place of the phase."""
        self._clients: frozenset[int] = frozenset()
        self._received: set[int] = set()

    def expect(self, round: int, phase: int, clients: Iterable[int]) -> None:
        """From now on messages of these clients for this phase, and no others."""
        self.turn = round, phase
        self._clients, self._received = frozenset(clients), set()

    def take(self, kind: type[Message], frame: bytes, like: Tensor) -> tuple[int, Message]:
        """The client and the message of a frame that is awaited.

        Raises :class:`BadFrame` for any other; a frame that is refused changes nothing, so that the
        right one may still come.
        """
        envelope = Envelope.of(kind, frame, like)
        found, turn = envelope.address, envelope.address[1:3]
        if found.run != self.run or found.way != self.way or found.client not in self._clients:
            raise BadFrame("foreign", f"{found} is not of this run and its clients")
        if turn != self.turn:
            reason: Reason = "stale" if turn < self.turn else "early"
            raise BadFrame(reason, f"{found}, where round and phase are {self.turn}")
        if found.client in self._received:
            raise BadFrame("duplicate", f"{found} was received before")
        message = envelope.message(kind, like)
        self._received.add(found.client)
        return found.client, message
