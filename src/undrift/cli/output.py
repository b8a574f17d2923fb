"""Results on standard output, messages on standard error, and the exit codes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from undrift.report.numbers import finite
from undrift.report.table import clean

OK, FAILED, BAD_INPUT = 0, 1, 2
muted = False
"""Whether another process of the same run does the talking."""


def result(text: str) -> None:
    if not muted:
        print(clean(text))


def result_json(value: object) -> None:
    if not muted:
        print(json.dumps(finite(value), indent=2))


def say(text: str = "") -> None:
    if not muted:
        print(clean(text), file=sys.stderr, flush=True)


def say_when(text: str) -> None:
    """With the time, for those who come back to it later."""
    say(f"{time.strftime('%H:%M:%S')} {text}")


def cannot(error: OSError, path: Path | None = None) -> int:
    """Report a file or folder that cannot be read or written; the exit code."""
    say(f"{error.filename or path}: {error.strerror or error}")
    return FAILED


def refuse(complaints: Iterable[object], remedy: str = "") -> NoReturn:
    """Exit with everything that is wrong with the input."""
    texts = [str(complaint) for complaint in complaints]
    for text in texts:
        say(text)
    if len(texts) > 1:
        say(f"{len(texts)} problems; nothing was run.")
    if remedy:
        say(remedy)
    raise SystemExit(BAD_INPUT)
