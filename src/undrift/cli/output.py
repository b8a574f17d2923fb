"""Results on standard output, messages on standard error, and the exit codes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import NoReturn

from undrift._files import finite
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


def result_as(as_json: bool, value: object, text: str) -> None:
    """A result for programs or for people."""
    if as_json:
        result_json(value)
    else:
        result(text)


def say(text: str = "") -> None:
    if not muted:
        print(clean(text), file=sys.stderr, flush=True)


def say_when(text: str) -> None:
    """With the time, for those who come back to it later."""
    say(f"{time.strftime('%H:%M:%S')} {text}")


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
