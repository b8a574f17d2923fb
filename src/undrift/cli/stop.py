"""Ctrl-C."""

from __future__ import annotations

import signal

from undrift.cli.talk import say


class Stop:
    """Ctrl-C while it is entered: once sets ``asked``, twice ends at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Stop:
        self.before = signal.signal(signal.SIGINT, self.heard)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self.before)

    def heard(self, *signal: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        say("\nStopping after this round; Ctrl-C again stops now.")
