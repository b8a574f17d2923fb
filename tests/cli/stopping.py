"""Runs that somebody stops."""

from pathlib import Path

from undrift.cli.stop import Stop
from undrift.records.folder import Folder
from undrift.records.rows import key_of


class Soon(Stop):
    """Ctrl-C after ``rounds`` looks: the run looks before every method and every round."""

    rounds = 1

    def __init__(self):
        self.calls = 0

    @property
    def asked(self):
        self.calls += 1
        return self.calls > self.rounds


def after(rounds):
    """A stop of its own for every run; ``None``: never."""
    return Stop if rounds is None else type("Then", (Soon,), {"rounds": rounds})


def rows(path):
    """The rows of a folder, without the seconds."""
    found = sorted(Folder(Path(path)).rows(), key=key_of)
    return [{k: v for k, v in row.items() if k != "seconds"} for row in found]
