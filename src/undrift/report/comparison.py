"""Recorded runs side by side: their rows and outcomes, with labels that name the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import TypeVar

from undrift.core.problem import Samples
from undrift.plots.columns import metric
from undrift.records.differences import Against, against
from undrift.records.folder import BadFolder, Folder, Outcome, Row
from undrift.report.numbers import count
from undrift.report.summary import ON, Summary, aim, summarise, window
from undrift.report.table import Table
from undrift.report.tables import Document, MethodSetting, differences, methods, results, setting
from undrift.spec.schema import varied

SMOOTH = 10
"""Rows that accuracies of long runs are averaged over, unless a spec says otherwise."""
MOST = 4
"""Keys by which problems differ that are named."""

Value = TypeVar("Value", bound=Hashable)


class Mixed(BadFolder):
    """A target was given for runs that are judged by different measures, or one out of range."""


@dataclasses.dataclass(frozen=True)
class RunOnDisk:
    """The contents of a folder. Where there are several, labels begin with the name of the run."""

    folder: Folder
    title: str
    prefix: str
    document: Document
    """The spec that was run."""
    rows: list[Row]
    outcomes: list[Outcome]
    left_out: list[Row]
    clients: list[Row]
    """Each client's numbers, where they were measured."""

    @property
    def unchanged(self) -> bool:
        """Whether no seed changes any of its methods."""
        return bool(self.outcomes) and not any(outcome.seeded for outcome in self.outcomes)

    @property
    def problem(self) -> dict[str, object]:
        """As the spec has it; of one that only a program has, with a digest of its data."""
        table = dict(self.document.get("problem", {}))
        if self.folder.from_python and "data" in self.folder.environment:
            table["data"] = str(self.folder.environment["data"])[:12]
        return table


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Runs that are judged by the same measure; labels are distinct across all of them."""

    column: str
    runs: list[RunOnDisk]
    target: float | None

    @property
    def title(self) -> str:
        return ", ".join(run.title for run in self.runs)

    @cached_property
    def rows(self) -> list[Row]:
        return [row for run in self.runs for row in run.rows]

    @cached_property
    def outcomes(self) -> list[Outcome]:
        return [outcome for run in self.runs for outcome in run.outcomes]

    @property
    def labels(self) -> list[str]:
        """Of the methods with rows."""
        return [*dict.fromkeys(row["label"] for row in self.rows)]

    @cached_property
    def note(self) -> str:
        """Caveat printed next to every accuracy."""
        return common([run.folder.note for run in self.runs]) or ""

    @cached_property
    def samples(self) -> Samples | None:
        """Which losses and accuracies are of, where that is known and all have the same."""
        return common([*measured_on(self.runs).values()])

    @property
    def smooth(self) -> int:
        """Rows that a point of an accuracy curve is the mean of."""
        asked = common([run.document.get("smooth") for run in self.runs]) or SMOOTH
        return window(asked, self.rows)

    @property
    def varied(self) -> list[str]:
        """What the seeds vary, in words: once, or for each run where they differ."""
        found = [varied(run.document) for run in self.runs]
        if (same := common(found)) is not None:
            return [same]
        return [f"{run.title}: {text}" for run, text in zip(self.runs, found, strict=True)]

    @cached_property
    def mixed(self) -> list[str]:
        """Warnings where the numbers of these runs cannot be compared."""
        return [text for text in (other_samples(self.runs), other_problems(self.runs)) if text]

    @cached_property
    def problems(self) -> dict[str, str]:
        """The problem of every label: differences are taken within one."""
        return {
            label: repr(sorted(run.problem.items()))
            for run in self.runs
            for label in {row["label"] for row in run.rows}
        }

    @cached_property
    def settings(self) -> dict[str, MethodSetting]:
        """By label."""
        return {
            run.prefix + table["label"]: setting(table, run.document)
            for run in self.runs
            for table in methods(run.document)
        }

    @cached_property
    def summaries(self) -> list[Summary]:
        """One for each label, also for methods of the specs that have not begun."""
        planned: dict[str, dict[int, None]] = {}
        rounds = {}
        for run in self.runs:
            for table in methods(run.document):
                label = run.prefix + table["label"]
                planned[label] = dict.fromkeys(run.document.get("seed", [0]))
                rounds[label] = table.get("rounds", run.document.get("rounds", 0))
        for row in self.rows:
            planned.setdefault(row["label"], {})[row["seed"]] = None
        return summarise(self.rows, self.target, self.outcomes, planned, rounds)

    def results(self, wide: bool = False) -> Table:
        """Where each method ended, and what it spent."""
        return results(
            self.summaries,
            self.target,
            note=self.note,
            varied=self.varied,
            samples=self.samples,
            mixed=self.mixed,
            wide=wide,
        )

    def baseline(self, label: str | None) -> str:
        """The label that others are compared with: the given one if it is here, else the first."""
        return label if label in self.labels else "".join(self.labels[:1])

    def against(self, baseline: str) -> list[Against]:
        """Every other method of the same problem against one of them."""
        own = self.problems.get(baseline)
        rows = [row for row in self.rows if self.problems[row["label"]] == own]
        return against(rows, self.outcomes, self.column, self.target, baseline)

    def differences(self, baseline: str) -> Table | None:
        """The same as a table; ``None`` where there is no other method."""
        found = self.against(baseline)
        return differences(baseline, self.column, found) if found else None

    def documents(self, baseline: str) -> list[dict[str, object]]:
        """The summaries for JSON, with what sets each method apart from the baseline."""
        others = {one.label: one.document() for one in self.against(baseline)}
        return [
            summary.document() | {"target": self.target, "difference": others.get(summary.label)}
            for summary in self.summaries
        ]


def read(folders: Sequence[Folder]) -> list[RunOnDisk]:
    """All of the runs; ``BadFolder`` for a folder that is not one's."""
    names = [folder.name for folder in folders]
    if len({*names}) < len(names):
        names = [str(folder.path) for folder in folders]
    same = common([folder.note for folder in folders]) is not None
    runs = []
    for folder, title in zip(folders, names, strict=True):
        if not folder.file("metrics.jsonl").exists():
            raise BadFolder(f"{folder.path} is not the folder of a run: it has no metrics.jsonl")
        note = f" ({folder.note})" if folder.note and not same else ""
        prefix = f"{title}{note}: " if len(folders) > 1 else ""
        found = folder.record()
        rows, left_out, clients = (
            [row | {"label": prefix + row["label"]} for row in some]
            for some in (found.rows, found.left_out, found.clients)
        )
        outcomes = [dataclasses.replace(o, label=prefix + o.label) for o in found.outcomes]
        document = folder.document()
        runs.append(RunOnDisk(folder, title, prefix, document, rows, outcomes, left_out, clients))
    return runs


def compare(
    runs: Sequence[RunOnDisk],
    target: float | None = None,
    baseline: str | None = None,
    apart: bool = True,
) -> list[Comparison]:
    """The runs by the measure that judges them, unless they are not to be set ``apart``.

    A run without rows joins the first. Raises :class:`Mixed` for a target or a baseline that does
    not fit.
    """
    found: dict[str, list[RunOnDisk]] = {}
    every = metric([row for run in runs for row in run.rows])
    for run in sorted(runs, key=lambda run: not run.rows):
        column = metric(run.rows) if apart and run.rows else next(iter(found), every)
        found.setdefault(column, []).append(run)
    if target is not None and len(found) > 1:
        measures = " and by ".join(found)
        raise Mixed(f"target {target:g}: of which measure? These runs are judged by {measures}")
    together = []
    for column, members in found.items():
        aimed = common([aim(run.document, column) for run in members]) if target is None else target
        if column == "accuracy" and aimed is not None and aimed > 1:
            raise Mixed(
                f"target {aimed:g}: these runs are judged by their accuracy, which is at most 1"
            )
        together.append(Comparison(column, members, aimed))
    labels = [label for one in together for label in one.labels]
    if baseline is not None and baseline not in labels:
        raise Mixed(f"baseline {baseline}: no such method; there are {', '.join(labels)}")
    return together


def measured_on(runs: Sequence[RunOnDisk]) -> dict[str, Samples | None]:
    """The samples that losses and accuracies of each run are of, by its title."""
    return {run.title: run.folder.metric_samples for run in runs if run.rows}


def other_samples(runs: Sequence[RunOnDisk]) -> str:
    """A warning where losses and accuracies are of different samples; empty otherwise."""
    found = measured_on(runs)
    if len({*found.values()}) < 2:
        return ""
    where = [f"{title}{ON[of] or ', not known on which'}" for title, of in found.items()]
    return f"accuracies and losses compare only on the same samples: {'; '.join(where)}"


def other_problems(runs: Sequence[RunOnDisk]) -> str:
    """A warning where the runs' specs have different problems; empty otherwise."""
    tables = {run.title: run.problem for run in runs if run.rows}
    apart = []
    for key in dict.fromkeys(key for table in tables.values() for key in table):
        values = {title: str(table.get(key, "not set")) for title, table in tables.items()}
        if len({*values.values()}) > 1:
            shown = ", ".join(f"{value} in {title}" for title, value in values.items())
            apart.append(f"problem.{key} is {shown}")
    if not apart:
        return ""
    more = f"; and {count(len(apart) - MOST, 'other key')}" if len(apart) > MOST else ""
    return f"no differences are taken between problems: {'; '.join(apart[:MOST])}{more}"


def common(values: Sequence[Value]) -> Value | None:
    """The one value of all, ``None`` where they differ."""
    return values[0] if len(set(values)) == 1 else None
