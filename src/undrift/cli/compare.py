"""``compare``: recorded runs side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undrift.cli.run import with_outcomes
from undrift.cli.talk import FAILED, OK, refuse, result, result_json, say
from undrift.core.params import unknown
from undrift.report.summary import print_summaries, summarise
from undrift.runs.folder import BadFolder, Folder, Outcome, Row

ROOT = Path("runs")
PLOTS = (".png", ".pdf", ".svg")


def compare(names: Sequence[str], target: float | None, plot: Path | None, as_json: bool) -> int:
    complaints = [text for name in names if (text := missing(name))]
    if plot is not None and plot.suffix.lower() not in PLOTS:
        complaints.append(f"--plot {plot}: give a name that ends in {', '.join(PLOTS)}")
    if complaints:
        refuse(complaints)
    folders = list({path.resolve(): Folder(path) for path in map(place, names)}.values())
    try:
        rows, outcomes = gather(folders)
        goal = target if target is not None else common_target(folders)
    except BadFolder as error:
        refuse([error])
    if not rows:
        refuse([f"{', '.join(names)}: nothing was recorded"])
    summaries = with_outcomes(summarise(rows, goal), outcomes)
    if as_json:
        result_json({"target": goal, "methods": [dataclasses.asdict(s) for s in summaries]})
    else:
        result(print_summaries(summaries, goal))
    return draw(rows, folders, goal, plot) if plot else OK


def gather(folders: Sequence[Folder]) -> tuple[list[Row], list[Outcome]]:
    """All rows and outcomes; labels tell the run where there are several."""
    rows: list[Row] = []
    outcomes: list[Outcome] = []
    for folder in folders:
        prefix = f"{folder.name}: " if len(folders) > 1 else ""
        rows += [row | {"label": prefix + row["label"]} for row in folder.rows()]
        outcomes += [dataclasses.replace(o, label=prefix + o.label) for o in folder.outcomes()]
    return rows, outcomes


def common_target(folders: Sequence[Folder]) -> float | None:
    """The target of the specs, where they have one and the same."""
    targets: set[Any] = {folder.document().get("target") for folder in folders}
    return targets.pop() if len(targets) == 1 else None


def draw(rows: list[Row], folders: Sequence[Folder], target: float | None, plot: Path) -> int:
    from undrift.report.figures import panels, save

    try:
        save(panels({", ".join(folder.name for folder in folders): rows}, target), plot)
    except OSError as error:
        say(f"{plot}: {error.strerror or error}")
        return FAILED
    say(f"Drawn to {plot}")
    return OK


def place(name: str) -> Path:
    path = Path(name)
    return path if path.exists() or len(path.parts) > 1 else ROOT / name


def missing(name: str) -> str:
    """What is wrong with a name, if it is not that of a run."""
    path = place(name)
    if path.is_dir():
        return ""
    root = path.parent
    near = sorted(f.name for f in root.iterdir() if f.is_dir()) if root.is_dir() else []
    return f"{unknown('run', name, near)} (in {root})"
