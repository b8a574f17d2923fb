"""Progress of a run: a live bar on a terminal and in Jupyter, a line now and then elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from undrift.core.stopping import USUALLY, Goal, on_some
from undrift.records.rows import ENDS, Key
from undrift.report.numbers import number, small, whole
from undrift.report.table import clean
from undrift.runs.events import Began, Emit, Ended, Event, Measured

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

LINES = 10
"""Lines per method where there is no terminal."""
PAUSE = 0.2
"""Seconds between two looks of a notebook at the bar."""
Row = Mapping[str, float]
Say = Callable[[str], None]


def say(text: str) -> None:
    """A line for people, beside what a program prints."""
    print(clean(text), file=sys.stderr, flush=True)


def nothing(text: str) -> None:
    """What is said where a bar shows all there is to see."""


class Progress:
    """About ten lines for each method, or a bar on a terminal; and one line for its end.

    Where there are several seeds, lines say which; ``note`` stands at every accuracy, and ``goal``
    is what they are about. Colours unless NO_COLOR is set. In a notebook the bar is a ``cell`` of
    its own.
    """

    def __init__(
        self,
        labels: Collection[str] = (),
        seeds: Collection[int] = (),
        note: str = "",
        say: Say = say,
        cell: bool = False,
        goal: Goal = USUALLY,
    ) -> None:
        self.say, self.goal, self.looked = say, goal, 0.0
        self.redraw: Callable[..., object] | None = None
        self.width, self.several, self.note = max([0, *map(len, labels)]), len(seeds) > 1, note
        self.last: dict[Key, Row] = {}
        self.next: dict[Key, float] = {}
        """The round of the next line."""
        self.step: dict[Key, float] = {}
        self.bars = rich_bars() if cell or sys.stderr.isatty() else None
        self.tasks: dict[Key, TaskID] = {}
        self.first: dict[Key, tuple[float, int]] = {}
        """The time and round of the first row: a resumed run begins later than 0."""
        if cell:
            # Redrawn in its place: rich by itself would want ipywidgets for that.
            show = import_module("IPython.display").display
            self.redraw = show(self.bars, display_id=True).update
        elif self.bars:
            self.bars.start()

    def show(self, event: Event) -> None:
        if isinstance(event, Began):
            key = event.label, event.seed
            self.next[key] = self.step[key] = max(event.rounds // LINES, 1)
            if self.bars:
                title = clean(self.title(key))
                self.tasks[key] = self.bars.add_task(title, total=event.rounds, status="")
        elif isinstance(event, Measured):
            key, row = (event.label, event.seed), event.row
            self.last[key] = row
            if self.bars:
                _, _, said = status(row, self.note, self.goal).partition("  ")
                now, text = int(row["round"]), f"{said}  {self.pace(key, row)}"
                self.bars.update(self.tasks[key], completed=now, status=text)
            elif row["round"] >= self.next[key]:
                self.next[key] = row["round"] + self.step[key]
                self.say(f"{self.title(key)}  {status(row, self.note, self.goal)}")
        elif isinstance(event, Ended) and event.outcome.same_as is None:
            outcome, key = event.outcome, event.outcome.key
            words, last = ENDS[outcome.status].words, self.last.pop(key, None)
            text = outcome.note or words
            if last:
                text = f"{words}: {status(last, self.note, self.goal)}  {last['seconds']:.1f} s"
            if self.bars:
                self.bars.remove_task(self.tasks.pop(key))
            self.say(f"{self.title(key)}  {text}")
        if self.redraw and time.perf_counter() - self.looked > PAUSE:
            self.looked = time.perf_counter()
            self.redraw(self.bars)

    def title(self, key: Key) -> str:
        label, seed = key
        return f"{label:<{self.width}} seed {seed}" if self.several else label.ljust(self.width)

    def pace(self, key: Key, row: Row) -> str:
        """How long a round has taken since the first row."""
        began, first = self.first.setdefault(key, (time.perf_counter(), int(row["round"])))
        rounds = max(int(row["round"]) - first, 1)
        return f"{1000 * (time.perf_counter() - began) / rounds:.1f} ms/round"

    def close(self) -> None:
        if self.redraw:  # empty, as on a terminal: what was run speaks for itself
            self.redraw({"text/plain": ""}, raw=True)
        elif self.bars:
            self.bars.stop()


def in_jupyter() -> bool:
    """Whether this is a notebook of Jupyter or Colab, and not IPython in a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", object)()
    return type(shell).__name__ in ("ZMQInteractiveShell", "Shell")


def looked_at(asked: object) -> bool:
    """Whether anybody looks on, who has not ``asked`` for silence; of several processes at one."""
    leads = os.environ.get("RANK", "0") == "0"
    return leads and asked is not False and bool(asked or sys.stderr.isatty() or in_jupyter())


def speaker(asked: object) -> Say:
    """What says a line where :func:`looked_at` and there is no bar, and else nothing."""
    return say if looked_at(asked) and not (in_jupyter() or sys.stderr.isatty()) else nothing


@contextmanager
def watched(
    asked: bool | None,
    labels: Collection[str],
    seeds: Collection[int],
    note: str,
    emit: Emit,
    goal: Goal = USUALLY,
) -> Iterator[Emit]:
    """What hears of the events of a run in Python, and shows how far it is.

    That is a bar on a terminal and in Jupyter unless ``asked`` is false. Elsewhere it is nothing,
    or lines where ``asked`` is true.
    """
    if not looked_at(asked):
        yield emit
        return
    bar = Progress(labels, seeds, note, speaker(asked), in_jupyter(), goal)

    def hear(event: Event) -> None:
        emit(event)
        bar.show(event)

    try:
        yield hear
    finally:
        bar.close()


def rich_bars() -> RichProgress:
    """A bar for each method at work."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # what a narrow terminal cuts off
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[status]}", markup=False, table_column=rest),
        expand=True,
        console=Console(stderr=True, highlight=False),
        transient=True,
    )


def status(row: Row, note: str = "", goal: Goal = USUALLY) -> str:
    """A row in a few words, the first of them about the goal."""
    quality = ""
    if (column := goal.column(row)) in row:
        quality = f"  {column} {number(column)(row[column])}"
    if column not in ("gap", "loss"):
        about = f" ({note})" if note else ""
        quality += f"{about}  loss {row['loss']:.4g}"
    if some := on_some(row):
        quality += f" ({some})"
    drift = "" if row.get("drift") is None else f"  drift {small(row['drift'])}"
    out = f"  left out {whole(row['left_out'])}" if row.get("left_out") else ""
    sent = f"  vectors {whole(row['vectors'])}" if "vectors" in row else ""
    return f"round {row['round']}{quality}{drift}{sent}{out}"
