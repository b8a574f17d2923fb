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
from undrift.report.summary import aim, metric, print_summaries, summarise
from undrift.runs.folder import BadFolder, Folder, Outcome, Row
from undrift.runs.vary import varied

PLOTS = (".png", ".pdf", ".svg")
SMOOTH = 10


def compare(
    names: Sequence[str], target: float | None, plot: Path | None, y: str | None, smooth: int | None, as_json: bool
) -> int:
    complaints = [text for name in names if (text := missing(name))]
    if plot is not None and plot.suffix.lower() not in PLOTS:
        complaints.append(f"--plot {plot}: give a name that ends in {', '.join(PLOTS)}")
    if complaints:
        refuse(complaints)
    folders = list({path.resolve(): Folder(path) for path in map(place, names)}.values())
    try:
        rows, outcomes = gather(folders)
        column = metric(rows)
        goal = target if target is not None else common([aim(folder.document(), column) for folder in folders])
        window = smooth or common([folder.document().get("smooth") for folder in folders]) or SMOOTH
    except BadFolder as error:
        refuse([error])
    if not rows:
        refuse([f"{', '.join(names)}: nothing was recorded"])
    if column == "accuracy" and goal is not None and goal > 1:
        refuse([f"--target {goal:g}: these runs are judged by their accuracy, which is at most 1"])
    if y is not None and all(row.get(y) is None for row in rows):
        there = [column for column in COLUMNS if any(row.get(column) is not None for row in rows)]
        refuse([f"--y {y}: was not measured in these runs; there are {', '.join(there)}"])
    summaries, note = with_outcomes(summarise(rows, goal), outcomes), common([folder.note for folder in folders]) or ""
    about = spreads(folders)
    if as_json:
        methods = [dataclasses.asdict(s) for s in summaries]
        result_json({"target": goal, "note": note, "varied": about, "methods": methods})
    else:
        result(print_summaries(summaries, goal, note=note, varied=about))
    if plot is None:
        return OK
    from undrift.report.figures import panels, save

    try:
        title = ", ".join(folder.name for folder in folders)
        save(panels({title: rows}, goal, y=y, smooth=window, note=note), plot)
    except OSError as error:
        say(f"{plot}: {error.strerror or error}")
        return FAILED
    say(f"Drawn to {plot}")
    return OK


def gather(folders: Sequence[Folder]) -> tuple[list[Row], list[Outcome]]:
    """All rows and outcomes; labels tell the run, and what is to be said of its data, where there are several."""
    rows: list[Row] = []
    outcomes: list[Outcome] = []
    for folder, prefix in zip(folders, prefixes(folders), strict=True):
        rows += [row | {"label": prefix + row["label"]} for row in folder.rows()]
        outcomes += [dataclasses.replace(o, label=prefix + o.label) for o in folder.outcomes()]
    return rows, outcomes


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
    return [f"{name}{note}: " * (len(folders) > 1) for name, note in zip(titles(folders), notes, strict=True)]


def titles(folders: Sequence[Folder]) -> list[str]:
    """Of the runs; their paths, where two have the same name."""
    found = [folder.name for folder in folders]
    return found if len(set(found)) == len(found) else [str(folder.path) for folder in folders]


def common(values: Sequence[Any]) -> Any:
    """The one value of all, ``None`` where they differ."""
    return values[0] if len(set(values)) == 1 else None
