"""``report``: recorded runs as one HTML file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undrift._files import writing
from undrift.cli.compare import SMOOTH, common, gather, prefixes, spreads, titles
from undrift.cli.places import missing, place
from undrift.cli.talk import FAILED, OK, refuse, result, result_json, say
from undrift.report.summary import aim, metric
from undrift.report.text import count, size
from undrift.runs.folder import BadFolder, Folder
from undrift.spec.vary import varied

if TYPE_CHECKING:
    from undrift.report.html import About
    from undrift.report.scores import Setting

FILE = "report.html"
BUNDLED = ("breast-cancer", "digits")
"""Data that come with scikit-learn."""


def report(names: Sequence[str], out: Path | None, target: float | None, as_json: bool) -> int:
    complaints = [text for name in names if (text := missing(name))]
    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        complaints.append(f"-o {out}: give a name that ends in .html")
    if complaints:
        refuse(complaints)
    folders = list({path.resolve(): Folder(path) for path in map(place, names)}.values())
    try:
        documents = [folder.document() for folder in folders]
        rows, outcomes = gather(folders)
        column = metric(rows)
        goal = (
            target
            if target is not None
            else common([aim(document, column) for document in documents])
        )
    except BadFolder as error:
        refuse([error])
    if not rows:
        refuse([f"{', '.join(names)}: nothing was recorded"])
    if column == "accuracy" and goal is not None and goal > 1:
        refuse([f"--target {goal:g}: these runs are judged by their accuracy, which is at most 1"])

    from undrift.report.html import Content, page

    tables = [
        (p + t["label"], t, d)
        for p, d in zip(prefixes(folders), documents, strict=True)
        for t in methods(d)
    ]
    planned = {label: dict.fromkeys(document.get("seeds", [0])) for label, _, document in tables}
    for row in rows:
        planned.setdefault(row["label"], {})[row["seed"]] = None
    content = Content(
        runs=[about(*run) for run in zip(titles(folders), folders, documents, strict=True)],
        rows=rows,
        outcomes=outcomes,
        planned={label: list(seeds) for label, seeds in planned.items()},
        target=goal,
        smooth=common([document.get("smooth") for document in documents]) or SMOOTH,
        note=common([folder.note for folder in folders]) or "",
        varied=spreads(folders),
        settings={label: setting(table, document) for label, table, document in tables},
    )
    path, whole = (
        out or (folders[0].file(FILE) if len(folders) == 1 else Path(FILE)),
        page(content).encode(),
    )
    try:
        with writing(path) as file:
            file.write(whole)
    except OSError as error:
        say(f"{error.filename or path}: {error.strerror or error}")
        return FAILED
    if as_json:
        result_json({"report": str(path), "bytes": len(whole)})
    else:
        result(str(path))
        say(
            f"{size(len(whole))}, most of it the chart library: open it in a browser; it needs no network."
        )
    return OK


def partition(folder: Folder, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Who holds what; which seed's it is, where each has its own."""
    found = folder.partition
    if found and "split" in document.get("vary", ()):
        found["of"] = f"of seed {document['seeds'][0]}; every seed has its own split"
    return found


def methods(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        table
        for table in document.get("method", [])
        if isinstance(table, dict) and "label" in table
    ]


def about(title: str, folder: Folder, document: Mapping[str, Any]) -> About:
    """What is to be said of a run beside its numbers."""
    from undrift.report.html import About

    problem = document.get("problem", {})
    data, clients, cohort = (
        problem.get("data"),
        problem.get("clients"),
        document.get("cohort", {}).get("size"),
    )
    own = sorted({table["file"] for table in methods(document) if "file" in table})
    outside = data is not None and data not in BUNDLED and "folder" not in problem
    name = f"{folder.name}.toml"
    spec = folder.file("spec.toml")
    where = folder.environment
    return About(
        name=title,
        facts=[
            ", ".join(filter(None, (problem.get("name"), data))) or "unknown problem",
            *[count(clients, "client") + f", {cohort} in a round" * bool(cohort)]
            * isinstance(clients, int),
            count(len(methods(document)), "method"),
            seeds(document),
            *[count(document.get("rounds", 0), "round")] * ("rounds" in document),
            f"undrift {where.get('undrift', '')}",
        ],
        spec=spec.read_text(encoding="utf-8", errors="replace") if spec.is_file() else "",
        environment=where,
        command="UNDRIFT_DATA=FOLDER " * outside + f"undrift run {shlex.quote(name)} --out again",
        remarks=[
            f"with the spec below saved as {name}"
            + f", and beside it {', '.join(own)}" * bool(own),
            *[f"FOLDER has the files of {data}"] * outside,
        ],
        partition=partition(folder, document),
    )


def seeds(document: Mapping[str, Any]) -> str:
    """How many, and what they vary where there are several."""
    number = len(document.get("seeds", [0]))
    return count(number, "seed") + f" that vary {varied(document)}" * (number > 1)


def setting(table: Mapping[str, Any], document: Mapping[str, Any]) -> Setting:
    """What the costs of one method depend on."""
    from undrift.objectives import find
    from undrift.report.scores import Setting

    steps = None if "epochs" in table else table.get("steps", document.get("steps"))
    objective = table.get("objective", document.get("objective"))
    loss = find(objective["name"]) if isinstance(objective, dict) and "name" in objective else None
    return Setting(
        method=table.get("name", ""),
        steps=steps if isinstance(steps, int) else None,
        clients=None if "cohort" in document else document.get("problem", {}).get("clients"),
        kept=int(loss is not None and "previous" in loss.needs),
    )
