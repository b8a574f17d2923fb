"""How a run goes: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

from undrift.cli.output import say
from undrift.report.text import clean, percent, small, whole

if TYPE_CHECKING:
    from undrift.runs.folder import Outcome

LINES = 10
"""Lines per method where there is no terminal."""


class Progress(Protocol):
    def begin(self, title: str, rounds: int) -> None: ...
    def row(self, row: dict[str, Any]) -> None: ...
    def end(self, outcome: Outcome) -> None: ...
    def close(self) -> None: ...


def progress(quiet: bool = False, note: str = "") -> Progress:
    """A bar where standard error is a terminal, else lines; if ``quiet``, nothing that stays.

    ``note`` is said beside every accuracy.
    """
    return Bar(quiet, note) if sys.stderr.isatty() else Lines(quiet, note)


class Lines:
    def __init__(self, quiet: bool, note: str = ""):
        self.quiet, self.note = quiet, note
        self.title, self.step, self.next = "", 1, 1
        self.last: dict[str, Any] = {}

    def begin(self, title: str, rounds: int) -> None:
        self.title, self.step = title, max(rounds // LINES, 1)
        self.next, self.last = self.step, {}

    def row(self, row: dict[str, Any]) -> None:
        self.last = row
        if not self.quiet and row["round"] >= self.next:
            self.next = row["round"] + self.step
            say(f"{self.title}  {status(row, self.note)}")

    def end(self, outcome: Outcome) -> None:
        if not self.quiet:
            say(f"{self.title}  {ending(outcome, self.last, self.note)}")

    def close(self) -> None:
        pass


class Bar:
    """Round, gap, drift, vectors, seconds per round and the time that is left; colours unless
    NO_COLOR is set.
    """

    def __init__(self, quiet: bool, note: str = "") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = Console(stderr=True, highlight=False)
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[status]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=self.console,
            transient=True,
        )
        self.quiet, self.note = quiet, note
        self.task: Any = None
        self.title, self.total, self.began, self.first = "", 0, 0.0, 0
        self.last: dict[str, Any] = {}
        self.bar.start()

    def begin(self, title: str, rounds: int) -> None:
        self.title, self.total, self.task, self.last = clean(title), rounds, None, {}

    def row(self, row: dict[str, Any]) -> None:
        now, self.last = row["round"], row
        if self.task is None:  # a run that is resumed does not begin at round 0
            self.began, self.first = time.perf_counter(), now
            self.task = self.bar.add_task(self.title, total=self.total, completed=now, status="")
        pace = 1000 * (time.perf_counter() - self.began) / max(now - self.first, 1)
        self.bar.update(
            self.task, completed=now, status=f"{status(row, self.note)}  {pace:.1f} ms/round"
        )

    def end(self, outcome: Outcome) -> None:
        if self.task is not None:
            self.bar.remove_task(self.task)
        if not self.quiet:
            self.console.print(
                clean(f"{self.title}  {ending(outcome, self.last, self.note)}"), markup=False
            )

    def close(self) -> None:
        self.bar.stop()


def status(row: dict[str, Any], note: str = "") -> str:
    """A row in a few words."""
    if row.get("gap") is not None:
        quality = f"gap {small(row['gap'])}"
    elif row.get("accuracy") is not None:
        quality = (
            f"accuracy {percent(row['accuracy'])}"
            + f" ({note})" * bool(note)
            + f"  loss {row['loss']:.4g}"
        )
    else:
        quality = f"loss {row['loss']:.6g}"
    drift = "" if row.get("drift") is None else f"  drift {small(row['drift'])}"
    return f"round {row['round']}  {quality}{drift}  vectors {whole(row['vectors'])}"


def ending(outcome: Outcome, row: dict[str, Any], note: str = "") -> str:
    words = {"done": "all rounds run", "reached": "target reached"}.get(
        outcome.status, outcome.status
    )
    return f"{words}: {status(row, note)}  {row['seconds']:.1f} s" if row else outcome.note or words
