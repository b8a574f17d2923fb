"""``compare``: recorded runs side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undrift.cli import COLUMNS
from undrift.cli.places import missing, place
from undrift.cli.run import with_outcomes
from undrift.cli.talk import FAILED, OK, refuse, result, result_json, say
from undrift.report.summary import Summary, aim, metric, print_summaries, summarise
from undrift.runs.folder import BadFolder, Folder, Outcome, Row
from undrift.spec.vary import varied

PLOTS = (".png", ".pdf", ".svg")
SMOOTH = 10


@dataclasses.dataclass(frozen=True)
class Recorded:
    """What is in a folder; labels tell the run, and what is to be said of its data, where there are
    several.
    """

    folder: Folder
    title: str
    rows: list[Row]
    outcomes: list[Outcome]


@dataclasses.dataclass(frozen=True)
class Part:
    """Runs that are judged by the same measure."""

    title: str
    column: str
    rows: list[Row]
    summaries: list[Summary]
    goal: float | None
    note: str
    varied: list[str]
    """What seeds vary, in words."""


def compare(
    names: Sequence[str],
    target: float | None,
    plot: Path | None,
    y: str | None,
    smooth: int | None,
    as_json: bool,
) -> int:
    complaints = [text for name in names if (text := missing(name))]
    if plot is not None and plot.suffix.lower() not in PLOTS:
        complaints.append(f"--plot {plot}: give a name that ends in {', '.join(PLOTS)}")
    if complaints:
        refuse(complaints)
    folders = list({path.resolve(): Folder(path) for path in map(place, names)}.values())
    try:
        parts = judged(folders, target)
        window = smooth or common([folder.document().get("smooth") for folder in folders]) or SMOOTH
    except BadFolder as error:
        refuse([error])
    rows = [row for part in parts for row in part.rows]
    if not rows:
        refuse([f"{', '.join(names)}: nothing was recorded"])
    if y is not None and all(row.get(y) is None for row in rows):
        there = [column for column in COLUMNS if any(row.get(column) is not None for row in rows)]
        refuse([f"--y {y}: was not measured in these runs; there are {', '.join(there)}"])
    note = common([part.note for part in parts]) or ""
    if as_json:
        methods = [
            dataclasses.asdict(s) | {"target": part.goal} for part in parts for s in part.summaries
        ]
        goal = common([part.goal for part in parts])
        result_json({"target": goal, "note": note, "varied": spreads(folders), "methods": methods})
    else:
        result("\n\n".join(shown(part, several=len(parts) > 1) for part in parts))
    if plot is None:
        return OK
    from undrift.report.figures import panels, save

    drawn = [
        part for part in parts if y is None or any(row.get(y) is not None for row in part.rows)
    ]
    goals = {part.title: part.goal for part in drawn}
    try:
        save(
            panels({part.title: part.rows for part in drawn}, goals, y=y, smooth=window, note=note),
            plot,
        )
    except OSError as error:
        say(f"{plot}: {error.strerror or error}")
        return FAILED
    say(f"Figure written to {plot}")
    return OK


def judged(folders: Sequence[Folder], target: float | None) -> list[Part]:
    """The runs by the measure they are judged by; one without a row goes with the first."""
    found: dict[str, list[Recorded]] = {}
    for run in sorted(read(folders), key=lambda run: not run.rows):
        column = metric(run.rows) if run.rows or not found else next(iter(found))
        found.setdefault(column, []).append(run)
    if target is not None and len(found) > 1:
        refuse(
            [
                f"--target {target:g}: of which measure? These runs are judged by {' and by '.join(found)}"
            ]
        )
    return [part(column, runs, target) for column, runs in found.items()]


def part(column: str, runs: Sequence[Recorded], target: float | None) -> Part:
    goal = (
        target
        if target is not None
        else common([aim(run.folder.document(), column) for run in runs])
    )
    if column == "accuracy" and goal is not None and goal > 1:
        refuse([f"--target {goal:g}: these runs are judged by their accuracy, which is at most 1"])
    rows, outcomes = joined(runs)
    return Part(
        title=", ".join(run.title for run in runs),
        column=column,
        rows=rows,
        summaries=with_outcomes(summarise(rows, goal), outcomes),
        goal=goal,
        note=common([run.folder.note for run in runs]) or "",
        varied=spreads([run.folder for run in runs]),
    )


def shown(part: Part, several: bool) -> str:
    """The table of some runs; by what they are judged, where others are judged otherwise."""
    head = f"Judged by {part.column}: {part.title}\n\n" if several else ""
    return head + print_summaries(part.summaries, part.goal, note=part.note, varied=part.varied)


def gather(folders: Sequence[Folder]) -> tuple[list[Row], list[Outcome]]:
    """All rows and outcomes."""
    return joined(read(folders))


def joined(runs: Sequence[Recorded]) -> tuple[list[Row], list[Outcome]]:
    return [row for run in runs for row in run.rows], [
        outcome for run in runs for outcome in run.outcomes
    ]


def read(folders: Sequence[Folder]) -> list[Recorded]:
    return [
        Recorded(
            folder,
            title,
            rows=[row | {"label": prefix + row["label"]} for row in folder.rows()],
            outcomes=[
                dataclasses.replace(outcome, label=prefix + outcome.label)
                for outcome in folder.outcomes()
            ],
        )
        for folder, title, prefix in zip(folders, titles(folders), prefixes(folders), strict=True)
    ]


def spreads(folders: Sequence[Folder]) -> list[str]:
    """What the seeds of the runs vary: once, or for each where they differ."""
    found = [varied(folder.document()) for folder in folders]
    if (same := common(found)) is not None:
        return [same]
    return [f"{title}: {text}" for title, text in zip(titles(folders), found, strict=True)]


def prefixes(folders: Sequence[Folder]) -> list[str]:
    """What labels of each run begin with."""
    same = common([folder.note for folder in folders]) is not None
    notes = [f" ({folder.note})" if folder.note and not same else "" for folder in folders]
    return [
        f"{name}{note}: " * (len(folders) > 1)
        for name, note in zip(titles(folders), notes, strict=True)
    ]


def titles(folders: Sequence[Folder]) -> list[str]:
    """Of the runs; their paths, where two have the same name."""
    found = [folder.name for folder in folders]
    return found if len(set(found)) == len(found) else [str(folder.path) for folder in folders]


def common(values: Sequence[Any]) -> Any:
    """The one value of all, ``None`` where they differ."""
    return values[0] if len(set(values)) == 1 else None
