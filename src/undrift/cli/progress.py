"""Progress of a run: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping

from undrift.cli.output import say
from undrift.core.stopping import on_some
from undrift.records.rows import Outcome, in_words
from undrift.report.numbers import percent, small, whole
from undrift.report.table import clean
from undrift.runs.events import Began, Ended, Event, Measured

LINES = 10
"""Lines per method where there is no terminal."""
Row = Mapping[str, float]
Key = tuple[str, int]


def progress(labels: Collection[str] = (), seeds: Collection[int] = (), note: str = "") -> Lines:
    """A bar where standard error is a terminal, else lines; ``note`` stands at every accuracy."""
    kind = Bar if sys.stderr.isatty() else Lines
    return kind(max(map(len, labels), default=0), len(seeds) > 1, note)


class Lines:
    """About ten lines for each method, and one for its end.

    Labels are padded to ``width``, and have their seeds if there are ``several``.
    """

    def __init__(self, width: int = 0, several: bool = False, note: str = "") -> None:
        self.width, self.several, self.note = width, several, note
        self.rounds: dict[Key, int] = {}
        self.next: dict[Key, int] = {}
        """The round of the next line."""
        self.last: dict[Key, Row] = {}

    def show(self, event: Event) -> None:
        if isinstance(event, Began):
            self.rounds[event.label, event.seed] = event.rounds
        elif isinstance(event, Measured):
            key = event.label, event.seed
            self.last[key] = event.row
            self.measured(key, event.row)
        elif isinstance(event, Ended) and event.outcome.same_as is None:
            key = event.outcome.key
            self.ended(key, ending(event.outcome, self.last.pop(key, None), self.note))

    def measured(self, key: Key, row: Row) -> None:
        step = max(self.rounds[key] // LINES, 1)
        if row["round"] >= self.next.get(key, step):
            self.next[key] = int(row["round"]) + step
            self.say(key, status(row, self.note))

    def ended(self, key: Key, text: str) -> None:
        self.say(key, text)

    def title(self, key: Key) -> str:
        label, seed = key
        return f"{label:<{self.width}} seed {seed}" if self.several else label.ljust(self.width)

    def say(self, key: Key, text: str) -> None:
        say(f"{self.title(key)}  {text}")

    def close(self) -> None:
        pass


class Bar(Lines):
    """A bar for each method at work; colours unless NO_COLOR is set."""

    def __init__(self, width: int = 0, several: bool = False, note: str = "") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

        super().__init__(width, several, note)
        self.console = Console(stderr=True, highlight=False)
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[status]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=self.console,
            transient=True,
        )
        self.first: dict[Key, tuple[TaskID, float, int]] = {}
        """The bar, and the time and round of its first row: a resumed run begins later than 0."""
        self.bar.start()

    def measured(self, key: Key, row: Row) -> None:
        now = int(row["round"])
        if key not in self.first:
            title, total = clean(self.title(key)), self.rounds[key]
            task = self.bar.add_task(title, total=total, completed=now, status="")
            self.first[key] = task, time.perf_counter(), now
        task, began, first = self.first[key]
        pace = 1000 * (time.perf_counter() - began) / max(now - first, 1)
        text = f"{status(row, self.note)}  {pace:.1f} ms/round"
        self.bar.update(task, completed=now, status=text)

    def ended(self, key: Key, text: str) -> None:
        if key in self.first:
            self.bar.remove_task(self.first.pop(key)[0])
        self.say(key, text)

    def say(self, key: Key, text: str) -> None:
        self.console.print(clean(f"{self.title(key)}  {text}"), markup=False)

    def close(self) -> None:
        self.bar.stop()


def status(row: Row, note: str = "") -> str:
    """A row in a few words."""
    if row.get("gap") is not None:
        quality = f"gap {small(row['gap'])}"
    elif row.get("accuracy") is not None:
        about = f" ({note})" if note else ""
        quality = f"accuracy {percent(row['accuracy'])}{about}  loss {row['loss']:.4g}"
    else:
        quality = f"loss {row['loss']:.6g}"
    if some := on_some(row):
        quality += f" ({some})"
    drift = "" if row.get("drift") is None else f"  drift {small(row['drift'])}"
    out = f"  left out {whole(row['left_out'])}" if row.get("left_out") else ""
    return f"round {row['round']}  {quality}{drift}  vectors {whole(row['vectors'])}{out}"


def ending(outcome: Outcome, row: Row | None, note: str = "") -> str:
    words = in_words(outcome.status)
    if not row:
        return outcome.note or words
    return f"{words}: {status(row, note)}  {row['seconds']:.1f} s"
