"""Recorded runs side by side: their rows and outcomes, with labels that name the run."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from undrift.core.problem import Samples
from undrift.core.stopping import USUALLY, Goal
from undrift.plots.columns import SHARES
from undrift.records.differences import Against, against
from undrift.records.folder import METRIC_SAMPLES, PYTHON, BadFolder, Folder, Outcome, Row
from undrift.records.journal import RunRecord
from undrift.records.part import WHOLE, RunPart
from undrift.records.rows import METRICS, Key, key_of
from undrift.report.summary import ON, aim, summarise
from undrift.report.table import Table
from undrift.report.tables import Document, MethodSetting, differences, results
from undrift.spec.schema import TUNED, varied
from undrift.spec.space import TuningNote

SMOOTH = 10
"""Rows that accuracies of long runs are averaged over, unless a spec says otherwise."""

UNEQUAL = 2
"""Times the effort of tuning a method that another may have had."""

Value = TypeVar("Value", bound=Hashable)


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
    environment: Document
    """Where it was run, and caveats of its data."""
    part: RunPart = WHOLE

    @property
    def unchanged(self) -> bool:
        """Whether no seed changes any of its methods."""
        return bool(self.outcomes) and not any(outcome.seeded for outcome in self.outcomes)

    @property
    def dealt(self) -> list[Key]:
        """The labels, without the prefix, and seeds that it runs."""
        labels = [table["label"] for table in self.document.get("method", [])]
        return self.part.deal(labels, self.document.get("seed", [0]))

    @property
    def declared(self) -> Goal:
        """By what its spec says that it is judged."""
        table = self.document.get("best") or self.document.get("stop") or {}
        return Goal(metric=table.get("metric"), mode=table.get("mode"))

    @property
    def problem(self) -> dict[str, object]:
        """As the spec has it; of one that only a program has, with a digest of its data."""
        table = dict(self.document.get("problem", {}))
        if PYTHON in table and self.environment.get("data"):
            table["data"] = str(self.environment["data"])[:12]
        return table


class Comparison:
    """Runs that are judged by the same measure; labels are distinct across all of them."""

    def __init__(self, goal: Goal, runs: Sequence[RunOnDisk], target: float | None):
        self.goal, self.column, self.runs, self.target = goal, goal.column(), runs, target
        self.title = ", ".join([run.title for run in runs])
        tables = [
            (run.prefix + table["label"], table, run.document)
            for run in runs
            for table in run.document.get("method", [])
        ]
        self.rows = [row for run in runs for row in run.rows]
        self.outcomes = [outcome for run in runs for outcome in run.outcomes]
        self.settings = {label: MethodSetting(*written) for label, *written in tables}
        """By label."""
        self.tuned = {
            label: TuningNote.read(table[TUNED]) if TUNED in table else None
            for label, table, _ in tables
        }
        """How the values of each method were found, by label."""
        self.biased = {
            label for label, one in self.settings.items() if self.column == "gap" and one.biased
        }
        """Labels of methods with a bias, where there is an optimum to reach."""
        problems = [run.problem for run in runs]
        self.problems = {
            row["label"]: problem
            for run, problem in zip(runs, problems, strict=True)
            for row in run.rows
        }
        """The problem of every label with rows: differences are taken within one."""
        planned: dict[str, dict[int, None]] = {}
        dealt = [(run.prefix + label, seed) for run in runs for label, seed in run.dealt]
        for label, seed in chain(dealt, map(key_of, self.rows)):
            planned.setdefault(label, {})[seed] = None
        rounds = {name: t.get("rounds", whole.get("rounds", 0)) for name, t, whole in tables}
        # As in the specs: rows are in the order in which they were recorded.
        self.labels = [label for label in planned if label in self.problems]
        self.summaries = summarise(self.rows, target, self.outcomes, planned, rounds, goal)
        """One for each label, also for methods of the specs that have not begun."""
        self.note: str = common([run.environment.get("note", "") for run in runs]) or ""
        """Caveat printed next to every accuracy."""
        self.samples: Samples | None = common(
            [run.environment.get(METRIC_SAMPLES) for run in runs if run.rows]
        )
        """Which losses and accuracies are of, where that is known and all have the same."""
        vary = [varied(run.document) for run in runs]
        each = [f"{run.title}: {text}" for run, text in zip(runs, vary, strict=True)]
        self.varied = vary[:1] if common(vary) else each
        """What the seeds vary, in words: once, or for each run where they differ."""
        mixed = [other_samples(runs), other_problems(runs), unequal(self.tuned)]
        self.mixed = [text for text in (*mixed, *map(one_of_parts, runs)) if text]
        """Warnings where the numbers of these runs cannot be compared, or are not all."""
        self.bounds: list[Row] = []
        """The theorems' bounds on the gap, to be drawn with the curves, by labels of their own."""
        self.bound_notes: list[str] = []

    @property
    def smooth(self) -> int:
        """Rows that a point of an accuracy curve is the mean of: as the specs have it, but at most
        a twentieth of them.

        A mean over more would show a curve's past as its end.
        """
        asked = common(run.document.get("smooth") for run in self.runs) or SMOOTH
        lengths = Counter(map(key_of, self.rows)).values()
        return max(1, min(asked, max(lengths, default=0) // 20))

    def results(self, wide: bool = False) -> Table:
        """Where each method ended, and what it spent."""
        return results(
            self.summaries,
            self.target,
            note=self.note,
            varied=self.varied,
            samples=self.samples,
            mixed=self.mixed,
            tuned={label: str(note) for label, note in self.tuned.items() if note},
            wide=wide,
            declared=any(run.declared.metric for run in self.runs),
        )

    def baseline(self, label: str | None) -> str:
        """The label that others are compared with: the given one if it is here, else the first."""
        return label if label in self.labels else "".join(self.labels[:1])

    def against(self, baseline: str) -> list[Against]:
        """Every other method of the same problem against one of them."""
        own = self.problems.get(baseline)
        rows = [row for row in self.rows if self.problems[row["label"]] == own]
        return against(rows, self.outcomes, self.goal, self.target, baseline)

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
    names = [folder.path.name for folder in folders]
    if len({*names}) < len(names):
        names = [str(folder.path) for folder in folders]
    about = [folder.environment for folder in folders]
    notes = [str(known.get("note", "")) for known in about]
    runs = []
    for folder, title, known, note in zip(folders, names, about, notes, strict=True):
        if not folder.file(METRICS).exists():
            raise BadFolder(f"{folder.path} is not the folder of a run: it has no {METRICS}")
        own = f" ({note})" if note and len({*notes}) > 1 else ""
        prefix = f"{title}{own}: " if len(folders) > 1 else ""
        found = folder.record()
        if prefix:
            found = _labelled(found, prefix)
        runs.append(RunOnDisk(folder, title, prefix, folder.document(), *found, known, folder.part))
    return runs


def _labelled(found: RunRecord, prefix: str) -> RunRecord:
    """What a run has recorded, with labels that name the run."""
    rows, left_out, clients = (
        [row | {"label": prefix + row["label"]} for row in some]
        for some in (found.rows, found.left_out, found.clients)
    )
    outcomes = [dataclasses.replace(o, label=prefix + o.label) for o in found.outcomes]
    return RunRecord(rows, outcomes, left_out, clients)


def compare(
    runs: Sequence[RunOnDisk],
    target: float | None = None,
    baseline: str | None = None,
    apart: bool = True,
) -> list[Comparison]:
    """The runs by the measure that judges them, unless they are not to be set ``apart``.

    A run without rows joins the first. Raises :class:`BadFolder` for a target or a baseline that
    does not fit.
    """
    found: dict[Goal, list[RunOnDisk]] = {}
    for run in runs:
        if run.rows:
            found.setdefault(run.declared.settled(*run.rows), []).append(run)
    if not apart or not found:
        rows = [row for run in runs for row in run.rows]
        found = {(common(found) or USUALLY).settled(*rows): [*runs]}
    else:
        next(iter(found.values())).extend([run for run in runs if not run.rows])
    if target is not None and len(found) > 1:
        measures = " and by ".join(goal.column() for goal in found)
        raise BadFolder(f"target {target:g}: of which measure? These runs are judged by {measures}")
    together = []
    for goal, members in found.items():
        own = common([aim(run.document, goal.column()) for run in members])
        aimed = own if target is None else target
        if goal.column() in SHARES and aimed is not None and aimed > 1:
            raise BadFolder(
                f"target {aimed:g}: these runs are judged by their {goal.column()}, "
                "which is at most 1"
            )
        together.append(Comparison(goal, members, aimed))
    if baseline is not None and not any(baseline in one.labels for one in together):
        labels = [label for one in together for label in one.labels]
        raise BadFolder(f"baseline {baseline}: no such method; there are {', '.join(labels)}")
    return together


def one_of_parts(run: RunOnDisk) -> str:
    """A warning where a run is a part of one; empty otherwise."""
    text = f"{run.title} is {run.part} of the methods and seeds of its spec"
    return "" if run.part == WHOLE else f"{text}: undrift gather makes one run of all parts"


def measured_on(runs: Sequence[RunOnDisk]) -> dict[str, Samples | None]:
    """The samples that losses and accuracies of each run are of, by its title."""
    return {run.title: run.environment.get(METRIC_SAMPLES) for run in runs if run.rows}


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
    keys = dict.fromkeys(key for table in tables.values() for key in table)
    values = {
        key: {title: str(table.get(key, "not set")) for title, table in tables.items()}
        for key in keys
    }
    apart = [
        f"problem.{key} is {', '.join(f'{value} in {title}' for title, value in there.items())}"
        for key, there in values.items()
        if len({*there.values()}) > 1
    ]
    return f"no differences are taken between problems: {'; '.join(apart)}" if apart else ""


def unequal(tuned: Mapping[str, TuningNote | None]) -> str:
    """A warning where methods were tuned by unequal effort; empty otherwise.

    Extensions of a grid do not count, nor do gradients: who reaches a target early spends few.
    """
    tried = {name: (n.asked or n.settings) if n else 0 for name, n in tuned.items()}
    most = max(tried.values(), default=0)
    less = [f"{n} settings of {name}" for name, n in tried.items() if UNEQUAL * n < most]
    text = f"unequal tuning: {', '.join(less)}, others had up to {most} to try"
    return text if less else ""


def common(values: Iterable[Value | None]) -> Value | None:
    """The one value of all, ``None`` where they differ."""
    found = {*values}
    return found.pop() if len(found) == 1 else None
