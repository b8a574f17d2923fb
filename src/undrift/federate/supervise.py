"""Runs a command while whoever started it lives: ``python supervise.py FOLDER COMMAND ...``.

Standard input is a pipe from that process. When it closes, the command and all that it started are
ended, and the folder is removed, if one is named. What the command writes is for this user alone.
It uses nothing but Python's own library, so that it starts at once.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading

GRACE = 3.0
"""Seconds between asking a command to end and ending it."""


def main() -> int:
    folder, *words = sys.argv[1:]
    os.umask(0o077)
    command = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    over = threading.Event()

    def end(number: int = signal.SIGTERM) -> None:
        try:
            os.killpg(command.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def watch() -> None:
        while os.read(0, 1):
            pass
        over.set()
        end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(GRACE)
        end(signal.SIGKILL)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the pipe says when it is over
    threading.Thread(target=watch, daemon=True).start()
    code = command.wait()
    end(signal.SIGKILL)  # what it left behind
    if over.is_set() and folder:  # otherwise the command may be started again
        shutil.rmtree(folder, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
