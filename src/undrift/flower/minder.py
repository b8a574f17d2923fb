"""Runs a command for as long as whoever started it lives: ``python minder.py COMMAND ...``.

Standard input is a pipe from that process. When it closes, the command and all that it started are
ended. It uses nothing but Python's own library, so that it starts at once.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading

GRACE = 3.0
"""Seconds between asking a command to end and ending it."""


def main() -> int:
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)

    def end(number: int = signal.SIGTERM) -> None:
        try:
            os.killpg(command.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def watch() -> None:
        while os.read(0, 1):
            pass
        end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(GRACE)
        end(signal.SIGKILL)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the pipe says when it is over
    threading.Thread(target=watch, daemon=True).start()
    code = command.wait()
    end(signal.SIGKILL)  # what it left behind
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
