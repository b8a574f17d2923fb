"""Loggers that also send recorded rows elsewhere."""

from __future__ import annotations

import abc
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from undrift.core.params import unknown
from undrift.records.folder import Folder
from undrift.records.outcome import Outcome
from undrift.records.rows import Key, Row, key_of
from undrift.runs.events import Emit, LoggerLost

KEYS = ("label", "method", "seed", "round")
"""Columns that identify a row; the others are logged, each at the step ``round``."""


def missing(names: Sequence[str]) -> dict[str, str]:
    """Logger -> what is wrong with it."""
    wrong = {name: unknown("logger", name, LOGGERS) for name in names if name not in LOGGERS}
    return wrong | {
        name: f"the package {name} is not installed; pip install 'undrift[{name}]'"
        for name in names
        if name in LOGGERS and find_spec(name) is None
    }


class Log:
    """Passes rows and outcomes of a folder to loggers; one that fails is dropped.

    Every method and seed has loggers of its own, since several may run side by side. Each is told
    all its rows, also those recorded before an interruption.
    """

    def __init__(self, folder: Folder, names: Sequence[str], emit: Emit):
        self.folder, self.names, self.emit = folder, list(names), emit
        self.loggers: dict[tuple[str, Key], Logger] = {}

    def row(self, row: Row) -> None:
        key = key_of(row)
        for name in list(self.names):
            with self._dropping(name):
                if logger := self.loggers.get((name, key)):
                    logger.write(row["round"], _numbers(row))
                    continue
                logger = self.loggers[name, key] = LOGGERS[name](self.folder)
                logger.begin(row["label"], row.get("method", ""), row["seed"])
                for known in self.folder.rows():  # the last of them is this row
                    if key_of(known) == key:
                        logger.write(known["round"], _numbers(known))

    def ended(self, outcome: Outcome) -> None:
        for name in list(self.names):
            if logger := self.loggers.pop((name, outcome.key), None):
                with self._dropping(name):
                    logger.end(outcome)

    def close(self) -> None:
        for (name, _), logger in self.loggers.items():
            if name in self.names:
                with self._dropping(name):
                    logger.end(None)
        self.loggers.clear()

    @contextmanager
    def _dropping(self, name: str) -> Iterator[None]:
        """Go on without a logger that fails."""
        try:
            yield
        except Exception as error:  # a server that is gone, a disk that is full
            self.names.remove(name)
            self.emit(LoggerLost(name, str(error)))


class Logger(abc.ABC):
    """Logs one method with one seed of a folder."""

    def __init__(self, folder: Folder):
        self.folder = folder

    @abc.abstractmethod
    def begin(self, label: str, method: str, seed: int) -> None:
        """Called once, before the rows."""

    @abc.abstractmethod
    def write(self, round: int, numbers: dict[str, float]) -> None: ...

    @abc.abstractmethod
    def end(self, outcome: Outcome | None) -> None:
        """The method ended; ``None``: it was interrupted."""


class TensorBoard(Logger):
    """``RUN/tensorboard/LABEL/seed-0``: tags are columns."""

    def begin(self, label: str, method: str, seed: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        place = self.folder.file("tensorboard") / filename(label) / f"seed-{seed}"
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        self.writer = SummaryWriter(str(place), flush_secs=5)

    def write(self, round: int, numbers: dict[str, float]) -> None:
        for column, value in numbers.items():
            self.writer.add_scalar(column, value, round)

    def end(self, outcome: Outcome | None) -> None:
        self.writer.close()


LOGGERS: dict[str, type[Logger]] = {"tensorboard": TensorBoard}
"""By the name of the package, and of the extra that brings it."""


def filename(label: str) -> str:
    """A folder name: the label if it can be one, else its usable characters and a fingerprint.

    >>> filename("FedAvg, calibrated"), filename("../x")
    ('FedAvg, calibrated', 'x-d6b96a97')
    """
    if re.fullmatch(r"\w[\w ,.()+-]{0,79}(?<![ .])", label):
        return label
    rest = re.sub(r"[^\w+-]+", "-", label)[:60].strip("-")
    return f"{rest}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def _numbers(row: Row) -> dict[str, float]:
    return {
        column: value
        for column, value in row.items()
        if column not in KEYS and isinstance(value, int | float) and math.isfinite(value)
    }
