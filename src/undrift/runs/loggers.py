"""Recorded rows also go to TensorBoard or MLflow, as they are recorded."""

from __future__ import annotations

import abc
import hashlib
import logging
import math
import os
import re
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from undrift.runs.folder import Folder, Outcome, Row

KEYS = ("label", "method", "seed", "round")
"""What tells rows apart; the other columns are logged, each at the step ``round``."""
PAUSE = 1.0
"""Seconds from one message to MLflow to the next."""
BATCH = 900
"""Numbers in a message; MLflow takes a thousand."""


def missing(names: Sequence[str]) -> list[str]:
    """What is wrong with some names of loggers."""
    return [
        f"--log {name}: the package {name} is not installed; pip install 'undrift[{name}]'"
        for name in names
        if find_spec(name) is None
    ]


class Log:
    """Listens to a folder, for some loggers. One that fails is given up, and the run goes on."""

    def __init__(self, folder: Folder, names: Sequence[str], say: Callable[[str], None]):
        self.say = say
        self.loggers: dict[str, Logger] = {name: LOGGERS[name](folder) for name in names}

    def row(self, row: Row) -> None:
        self._tell("row", row)

    def ended(self, outcome: Outcome) -> None:
        self._tell("ended", outcome)

    def close(self) -> None:
        self._tell("close")

    def _tell(self, what: str, *about: Any) -> None:
        for name, logger in list(self.loggers.items()):
            try:
                getattr(logger, what)(*about)
            except Exception as error:  # a server that is gone, a disk that is full
                del self.loggers[name]
                self.say(f"--log {name} is given up, the run goes on: {error}")


class Logger(abc.ABC):
    """Has every row of the folder, one trial after another: what was recorded before a break is
    told again.
    """

    def __init__(self, folder: Folder):
        self.folder = folder
        self._trial: tuple[str, int] | None = None

    def row(self, row: Row) -> None:
        trial = row["label"], row["seed"]
        if trial == self._trial:
            self.write(row["round"], _numbers(row))
            return
        self.close()
        self.begin(row["label"], row.get("method", ""), row["seed"])
        self._trial = trial
        for known in self.folder.rows():  # the last of them is this row
            if (known["label"], known["seed"]) == trial:
                self.write(known["round"], _numbers(known))

    def ended(self, outcome: Outcome) -> None:
        if self._trial == (outcome.label, outcome.seed):
            self.end(outcome)
            self._trial = None

    def close(self) -> None:
        if self._trial is not None:
            self.end(None)
            self._trial = None

    @abc.abstractmethod
    def begin(self, label: str, method: str, seed: int) -> None:
        """One method with one seed."""

    @abc.abstractmethod
    def write(self, round: int, numbers: dict[str, float]) -> None: ...

    @abc.abstractmethod
    def end(self, outcome: Outcome | None) -> None:
        """How it ended; ``None`` if it was interrupted."""


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


class MLflow(Logger):
    """A run of the experiment that has the folder's name, where MLFLOW_TRACKING_URI says (else
    where MLflow does).
    """

    def __init__(self, folder: Folder):
        super().__init__(folder)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        for talkative in ("alembic", "mlflow.store.db"):
            logging.getLogger(talkative).setLevel(logging.WARNING)
        self.client: Any = None

    def begin(self, label: str, method: str, seed: int) -> None:
        from mlflow.tracking import MlflowClient

        self.client = self.client or MlflowClient()
        known = self.client.get_experiment_by_name(self.folder.name)
        experiment = (
            known.experiment_id if known else self.client.create_experiment(self.folder.name)
        )
        tags = {"undrift.label": label, "undrift.method": method, "undrift.seed": str(seed)}
        self.run = self.client.create_run(
            experiment, run_name=f"{label}, seed {seed}", tags=tags
        ).info.run_id
        self.waiting: list[Any] = []
        self.sent = time.monotonic()

    def write(self, round: int, numbers: dict[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self.waiting += [Metric(column, value, now, round) for column, value in numbers.items()]
        if len(self.waiting) >= BATCH - len(numbers) or time.monotonic() - self.sent >= PAUSE:
            self.send()

    def send(self) -> None:
        self.client.log_batch(self.run, metrics=self.waiting)
        self.waiting, self.sent = [], time.monotonic()

    def end(self, outcome: Outcome | None) -> None:
        self.send()
        if outcome is None:
            self.client.set_terminated(self.run, "KILLED")
            return
        for name, value in outcome.values.items():
            self.client.log_param(self.run, name, value)
        self.client.set_tag(self.run, "undrift.status", outcome.status)
        self.client.set_terminated(
            self.run, "FAILED" if outcome.status in ("diverged", "failed") else "FINISHED"
        )


LOGGERS: dict[str, type[Logger]] = {"tensorboard": TensorBoard, "mlflow": MLflow}
"""By the name of the package, and of the extra that brings it."""


def filename(label: str) -> str:
    """A name for a folder: the label if it can be one, else what is left of it and a fingerprint.

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
