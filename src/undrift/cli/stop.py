"""Ctrl-C, and the signals by which batch systems and terminals end a program; none is lost.

Imports only the standard library, because it is loaded before everything else.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
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
MOMENT, PATIENCE = 0.02, 1.0
"""Seconds between looks at whether an import has ended, and of waiting in all."""


class Interrupt:
    """Inside it a signal is a KeyboardInterrupt with its number.

    Python may lose an exception in the middle of an import, and the imported code may turn it into
    another: there it waits until the import has ended. If that takes long, and at a second signal,
    the process ends at once, which loses nothing: files are written whole.
    """

    number = 0
    """The first signal; 0 if there was none."""
    _again = _over = False
    _since: float | None = None
    """When it began to wait for an import to end."""

    def __enter__(self) -> Self:
        self._over = False
        self._lost, self._before = sys.unraisablehook, dict[int, Any]()
        self._thread = _thread.get_ident()
        with suppress(ValueError):  # only the main thread gets signals
            self._before = {n: signal.signal(n, self._heard) for n in SIGNALS if not _left_alone(n)}
            sys.unraisablehook = self._unraisable
        return self

    def __exit__(self, *error: object) -> None:
        self._over = True
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        if self._before:
            sys.unraisablehook = self._lost

    def settle(self) -> None:
        """Raise, at the end of the work, an interrupt that still waits."""
        if self._since is not None:
            raise KeyboardInterrupt(self.number)

    def first(self, number: int, frame: FrameType | None) -> None:
        """What the first signal does."""
        self.insist(number, frame)

    def insist(self, number: int, frame: FrameType | None) -> None:
        """KeyboardInterrupt, now or when the import that is under way has ended."""
        if not _importing(frame):
            self._since = None
            raise KeyboardInterrupt(number)
        self._since = self._since or time.monotonic()
        if time.monotonic() - self._since > PATIENCE:
            _end(number)
        _thread.start_new_thread(self._remind, (number,))

    def _heard(self, number: int, frame: FrameType | None) -> None:
        again, self._again = self._again, False
        if again:
            self.insist(number, frame)
        elif not self.number:
            self.number = number
            self.first(number, frame)
        elif self._since is not None:
            _end(number)
        else:
            self.insist(number, frame)

    def _remind(self, number: int) -> None:
        time.sleep(MOMENT)
        if self._over:
            return
        self._again = True
        if hasattr(signal, "pthread_kill"):  # wakes a sleeping thread too
            signal.pthread_kill(self._thread, number)
        else:
            _thread.interrupt_main(signal.Signals(number))

    def _unraisable(self, what: Any) -> None:
        """Raise our exception again where Python could not deliver it."""
        if what.exc_type is KeyboardInterrupt:
            _thread.start_new_thread(self._remind, (self.number or signal.SIGINT,))
        else:
            self._lost(what)


class Stop(Interrupt):
    """Inside it the first signal only sets ``asked``; the second is a KeyboardInterrupt."""

    others: Sequence[Popen[bytes]] = ()
    """Processes that are signalled too."""

    @property
    def asked(self) -> bool:
        return self.number != 0

    @property
    def code(self) -> int:
        """The exit code of a program that was stopped."""
        return code(self.number)

    def first(self, number: int, frame: FrameType | None) -> None:
        tell("\nStopping after this round; Ctrl-C again stops now.")

    def _heard(self, number: int, frame: FrameType | None) -> None:
        for other in self.others:
            with suppress(OSError, ValueError):
                other.send_signal(number)
        super()._heard(number, frame)


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


def _left_alone(number: int) -> bool:
    """Whether a signal is ignored on purpose, as SIGHUP is by nohup."""
    return number != signal.SIGINT and signal.getsignal(number) == signal.SIG_IGN


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
