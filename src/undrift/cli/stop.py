"""Ctrl-C, and the signals by which batch systems and terminals end a program; none is lost.

Imports only the standard library, because it is loaded before everything else.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, Self

if TYPE_CHECKING:
    from subprocess import Popen

SIGNALS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    if hasattr(signal, name)
]


class Stop:
    """Inside it the first signal only says ``text`` and sets ``asked``; the second, or with
    ``None`` for a text the first already, is a KeyboardInterrupt with its number.

    In the middle of an import, and in a destructor, Python may lose an exception, and imported code
    may turn it into another. There the process ends at once, which loses nothing: files are written
    whole.
    """

    number = 0
    """The first signal; 0 if there was none."""
    others: Sequence[Popen[bytes]] = ()
    """Processes that are signalled too."""

    def __init__(self, text: str | None = "\nStopping after this round; Ctrl-C again stops now."):
        self.text = text

    def __enter__(self) -> Self:
        self._lost, self._before = sys.unraisablehook, dict[int, Any]()
        with suppress(ValueError):  # only the main thread gets signals
            for number in SIGNALS:
                # What is ignored on purpose, as SIGHUP is by nohup, stays so.
                if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._heard)
            sys.unraisablehook = self._unraisable
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        if self._before:
            sys.unraisablehook = self._lost

    @property
    def asked(self) -> bool:
        return self.number != 0

    @property
    def code(self) -> int:
        """The exit code of a program that was stopped."""
        return code(self.number)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        for other in self.others:
            with suppress(OSError, ValueError):
                other.send_signal(number)
        again, self.number = self.number, self.number or number
        if again or self.text is None:
            if _importing(frame):
                _end(number)
            raise KeyboardInterrupt(number)
        if self.text:
            tell(self.text)

    def _unraisable(self, what: Any) -> None:
        if what.exc_type is KeyboardInterrupt:
            _end(self.number)
        self._lost(what)


def code(number: object = 0) -> int:
    """The exit code of a program that a signal has ended."""
    return 128 + (number if isinstance(number, int) and number else signal.SIGINT)


def tell(text: str) -> None:
    """Print even in the middle of another print; once the terminal is gone, print nothing more."""
    try:
        os.write(2, f"{text}\n".encode())
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)


def _end(number: int) -> NoReturn:
    tell("Interrupted.")
    os._exit(code(number))


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
