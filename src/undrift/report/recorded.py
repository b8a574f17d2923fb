"""Recorded runs side by side: their rows and outcomes, with labels that name the run."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

from undrift.core.optimisers import registry as optimisers
from undrift.core.problem import Samples
from undrift.records.folder import BadFolder, Folder, Outcome, Row
from undrift.records.outcome import UNCHANGED
from undrift.report.content import About, Content, Partition, Setting
from undrift.report.summary import ON, aim, metric, window
from undrift.report.text import count
from undrift.spec.user_files import own_tables
from undrift.spec.vary import varied

SMOOTH = 10
"""Rows that accuracies of long runs are averaged over, unless a spec says otherwise."""
MOST = 4
"""Keys by which problems differ that are named."""
BUNDLED = ("breast-cancer", "digits")
"""Data that come with scikit-learn."""

FROM_PYTHON = (
    "made by undrift.run with a problem, a method or a function that only that program has: run it "
    "again, with another folder to save in"
)

Document = Mapping[str, Any]
"""A spec, or a table of one, as TOML has it."""
Value = TypeVar("Value", bound=Hashable)


class Mixed(ValueError):
    """A target was given for runs that are judged by different measures, or one out of range."""


@dataclasses.dataclass(frozen=True)
class Recorded:
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


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that are judged by the same measure."""

    column: str
    runs: list[Recorded]
    target: float | None

    @property
    def title(self) -> str:
        return ", ".join(run.title for run in self.runs)

    @property
    def rows(self) -> list[Row]:
        return [row for run in self.runs for row in run.rows]

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome for run in self.runs for outcome in run.outcomes]

    @property
    def note(self) -> str:
        return common([run.folder.note for run in self.runs]) or ""

    @property
    def samples(self) -> Samples | None:
        """Which losses and accuracies are of, where that is known and all have the same."""
        return common([*measured_on(self.runs).values()])

    @property
    def mixed(self) -> list[str]:
        """Warnings where the numbers of these runs cannot be compared."""
        return [text for text in (other_samples(self.runs), other_problems(self.runs)) if text]

    @property
    def problems(self) -> dict[str, str]:
        """The problem of every label, as its spec has it: differences are taken within one."""
        return {
            label: repr(sorted(problem(run).items()))
            for run in self.runs
            for label in {row["label"] for row in run.rows}
        }

    @property
    def planned(self) -> dict[str, list[int]]:
        """The seeds each label should be run with, and those that are recorded."""
        found = {
            run.prefix + table["label"]: dict.fromkeys(run.document.get("seeds", [0]))
            for run in self.runs
            for table in methods(run.document)
        }
        for row in self.rows:
            found.setdefault(row["label"], {})[row["seed"]] = None
        return {label: list(seeds) for label, seeds in found.items()}

    @property
    def rounds(self) -> dict[str, int]:
        """For how many rounds each label should be run."""
        return {
            run.prefix + table["label"]: table.get("rounds", run.document.get("rounds", 0))
            for run in self.runs
            for table in methods(run.document)
        }

    @property
    def settings(self) -> dict[str, Setting]:
        """By label."""
        found = dict[str, Setting]()
        for run in self.runs:
            found |= settings(run.document, run.prefix)
        return found


def read(folders: Sequence[Folder]) -> list[Recorded]:
    """All of the runs; ``BadFolder`` where nothing was recorded."""
    names = titles(folders)
    runs = []
    for folder, title, prefix in zip(folders, names, prefixes(folders, names), strict=True):
        if not folder.file("metrics.jsonl").exists():
            raise BadFolder(f"{folder.path} is not the folder of a run: it has no metrics.jsonl")
        found = folder.record()
        rows, left_out, clients = (
            [row | {"label": prefix + row["label"]} for row in some]
            for some in (found.rows, found.left_out, found.clients)
        )
        outcomes = [dataclasses.replace(o, label=prefix + o.label) for o in found.outcomes]
        document = folder.document()
        runs.append(Recorded(folder, title, prefix, document, rows, outcomes, left_out, clients))
    if not any(run.rows for run in runs):
        raise BadFolder(f"{', '.join(names)}: nothing was recorded")
    return runs


def judged(runs: Sequence[Recorded], target: float | None) -> list[Group]:
    """The runs by the measure that judges them; one without a row joins the first."""
    found: dict[str, list[Recorded]] = {}
    for run in sorted(runs, key=lambda run: not run.rows):
        column = metric(run.rows) if run.rows or not found else next(iter(found))
        found.setdefault(column, []).append(run)
    if target is not None and len(found) > 1:
        measures = " and by ".join(found)
        raise Mixed(f"target {target:g}: of which measure? These runs are judged by {measures}")
    return [together(column, members, target) for column, members in found.items()]


def together(column: str, runs: Sequence[Recorded], target: float | None) -> Group:
    """The runs as one group; its target is the given one, else the one that all of them have."""
    if target is None:
        target = common([aim(run.document, column) for run in runs])
    if column == "accuracy" and target is not None and target > 1:
        raise Mixed(
            f"target {target:g}: these runs are judged by their accuracy, which is at most 1"
        )
    return Group(column, [*runs], target)


def spreads(runs: Sequence[Recorded]) -> list[str]:
    """What the seeds vary, in words: once, or for each run where they differ."""
    found = [varied(run.document) for run in runs]
    if (same := common(found)) is not None:
        return [same]
    return [f"{run.title}: {text}" for run, text in zip(runs, found, strict=True)]


def measured_on(runs: Sequence[Recorded]) -> dict[str, Samples | None]:
    """The samples that losses and accuracies of each run are of, by its title."""
    return {run.title: run.folder.metric_samples for run in runs if run.rows}


def other_samples(runs: Sequence[Recorded]) -> str:
    """A warning where losses and accuracies are of different samples; empty otherwise."""
    found = measured_on(runs)
    if len({*found.values()}) < 2:
        return ""
    where = [f"{title}{ON[of] or ', not known on which'}" for title, of in found.items()]
    return f"accuracies and losses compare only on the same samples: {'; '.join(where)}"


def problem(run: Recorded) -> dict[str, object]:
    """The problem as the spec has it; of one that only a program has, with a digest of its data."""
    table = dict(run.document.get("problem", {}))
    if run.folder.from_python and "data" in run.folder.environment:
        table["data"] = str(run.folder.environment["data"])[:12]
    return table


def other_problems(runs: Sequence[Recorded]) -> str:
    """A warning where the runs' specs have different problems; empty otherwise."""
    tables = {run.title: problem(run) for run in runs if run.rows}
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


def smoothing(runs: Sequence[Recorded]) -> int:
    """Rows that a point of an accuracy curve is the mean of."""
    asked = common([run.document.get("smooth") for run in runs]) or SMOOTH
    return window(asked, [row for run in runs for row in run.rows])


def based_on(groups: Sequence[Group], baseline: str | None) -> list[str]:
    """The label that the methods of each group are compared with: the given one, else the first.

    Raises :class:`Mixed` for one that no group has.
    """
    labels = [[*dict.fromkeys(row["label"] for row in group.rows)] for group in groups]
    if baseline is not None and not any(baseline in some for some in labels):
        known = ", ".join(label for some in labels for label in some)
        raise Mixed(f"baseline {baseline}: no such method; there are {known}")
    return [baseline if baseline and baseline in some else "".join(some[:1]) for some in labels]


def content(runs: Sequence[Recorded], target: float | None, baseline: str | None = None) -> Content:
    """What the HTML report shows of some runs."""
    group = together(metric([row for run in runs for row in run.rows]), runs, target)
    return Content(
        runs=[
            dataclasses.replace(
                about(run.title, run.folder, run.document, run.unchanged), clients=run.clients
            )
            for run in runs
        ],
        rows=group.rows,
        outcomes=group.outcomes,
        planned=group.planned,
        rounds=group.rounds,
        target=group.target,
        smooth=smoothing(runs),
        note=group.note,
        samples=group.samples,
        mixed=group.mixed,
        problems=group.problems,
        varied=spreads(runs),
        left_out=[row for run in runs for row in run.left_out],
        settings=group.settings,
        baseline=based_on([group], baseline)[0],
    )


def about(title: str, folder: Folder, document: Document, unchanged: bool = False) -> About:
    """A run in words: its facts, its spec and machine, and the command that repeats it."""
    spec = folder.file("spec.toml")
    command, remarks = "", [FROM_PYTHON]
    if not folder.from_python:
        command, remarks = repetition(f"{folder.name}.toml", document)
    return About(
        name=title,
        facts=facts(folder, document, unchanged),
        spec=spec.read_text(encoding="utf-8", errors="replace") if spec.is_file() else "",
        environment=folder.environment,
        command=command,
        remarks=remarks,
        partition=partition(folder, document),
    )


def repetition(name: str, document: Document) -> tuple[str, list[str]]:
    """The command that repeats a run whose spec is saved as ``name``, and what it needs."""
    problem, own = document.get("problem", {}), own_tables(dict(document))
    files = sorted({str(table["file"]) for table in own.values()})
    remark = f"with the spec below saved as {name}"
    remarks = [f"{remark}, and beside it {', '.join(files)}" if files else remark]
    command, data = f"undrift run {shlex.quote(name)} --out again", problem.get("data")
    read = data is not None and data not in BUNDLED and "folder" not in problem
    if read and not {("problem",), ("data",)} & own.keys():  # their functions read what they like
        command = f"UNDRIFT_DATA=FOLDER {command}"
        remarks.append(f"FOLDER has the files of {data}")
    return command, remarks


def facts(folder: Folder, document: Document, unchanged: bool) -> list[str]:
    """The problem, the clients, the methods, the seeds and the rounds of a run, in words;
    ``unchanged`` says that no seed changes any of it.
    """
    problem = document.get("problem", {})
    clients, cohort = problem.get("clients"), document.get("cohort", {}).get("size")
    named = filter(None, (problem.get("name"), problem.get("data")))
    found = [", ".join(named) or "unknown problem"]
    if isinstance(clients, int):
        some = f", {cohort} in a round" if cohort else ""
        found.append(count(clients, "client") + some)
    found += [count(len(methods(document)), "method"), UNCHANGED if unchanged else seeds(document)]
    if "rounds" in document:
        found.append(count(document["rounds"], "round"))
    if reduction := document.get("reduction"):
        found.append(f"{reduction['name']} instead of the mean")
    return [*found, f"undrift {folder.environment.get('undrift', '')}"]


def partition(folder: Folder, document: Document) -> Partition | None:
    """Who holds what, and of which seed that is where every seed has its own split."""
    if (found := folder.partition) is None:
        return None
    partition: Partition = {"classes": found["classes"], "counts": found["counts"]}
    if "split" in document.get("vary", ()):
        partition["seed"] = document["seeds"][0]
        partition["of"] = f"of seed {partition['seed']}; every seed has its own split"
    return partition


def methods(document: Document) -> list[Document]:
    tables = document.get("method", [])
    return [table for table in tables if isinstance(table, dict) and "label" in table]


def seeds(document: Document) -> str:
    """How many seeds, and what they vary if there are several."""
    number = len(document.get("seeds", [0]))
    text = count(number, "seed")
    return f"{text} that vary {varied(document)}" if number > 1 else text


def settings(document: Document, prefix: str = "") -> dict[str, Setting]:
    """What every method of a spec was run with; labels begin with ``prefix``."""
    return {prefix + table["label"]: setting(table, document) for table in methods(document)}


def setting(table: Document, document: Document) -> Setting:
    """What the costs of one method depend on."""
    from undrift.objectives import find

    steps = None if "epochs" in table else table.get("steps", document.get("steps"))
    objective = table.get("objective", document.get("objective"))
    local = table.get("local", document.get("local"))
    loss = find(objective["name"]) if isinstance(objective, dict) and "name" in objective else None
    return Setting(
        method=table.get("name", ""),
        steps=steps if isinstance(steps, int) else None,
        clients=_in_a_round(document),
        kept=int(loss is not None and "previous" in loss.needs),
        biased="reduction" in document or not _keeps_exact(local),
        written=table,
        shared={name: document[name] for name in ("schedule", "local") if name in document},
    )


def _in_a_round(document: Document) -> int | None:
    """How many clients take part in a round, where it is always the same number."""
    if (cohort := document.get("cohort")) is None:
        found = document.get("problem", {}).get("clients")
        return found if isinstance(found, int) else None
    if not isinstance(cohort, dict) or cohort.get("sampling") != "fixed" or cohort.get("dropout"):
        return None
    return cohort.get("size")


def _keeps_exact(local: object) -> bool:
    """Whether exact methods stay exact with a local optimiser, as a document has it."""
    name = local.get("name") if isinstance(local, dict) else local
    kind = optimisers.get(str(name))
    return name is None or (kind is not None and kind.exact)


def prefixes(folders: Sequence[Folder], names: Sequence[str]) -> list[str]:
    """What the labels of each run begin with; nothing where there is one run."""
    if len(folders) == 1:
        return [""]
    same = common([folder.note for folder in folders]) is not None
    notes = [f" ({folder.note})" if folder.note and not same else "" for folder in folders]
    return [f"{name}{note}: " for name, note in zip(names, notes, strict=True)]


def titles(folders: Sequence[Folder]) -> list[str]:
    """The names of the runs; their paths, where two have the same name."""
    found = [folder.name for folder in folders]
    return found if len(set(found)) == len(found) else [str(folder.path) for folder in folders]


def common(values: Sequence[Value]) -> Value | None:
    """The one value of all, ``None`` where they differ."""
    return values[0] if len(set(values)) == 1 else None
