"""A run in words: its facts, who holds what, and the command that repeats it."""

from __future__ import annotations

import shlex

from undrift.records.folder import Folder
from undrift.records.outcome import UNCHANGED
from undrift.report.clients import Partition
from undrift.report.comparison import RunOnDisk
from undrift.report.numbers import count
from undrift.report.settings import Document, methods
from undrift.spec.user_files import source_files
from undrift.spec.vary import varied

BUNDLED = ("breast-cancer", "digits")
"""Data that come with scikit-learn."""
FROM_PYTHON = (
    "made by undrift.run with a problem, a method or a function that only that program has: run it "
    "again, with another folder to save in"
)


def about(run: RunOnDisk) -> dict[str, object]:
    """What a report says of one run, apart from its numbers."""
    folder, spec = run.folder, run.folder.file("spec.toml")
    command, remarks = "", [FROM_PYTHON]
    if not folder.from_python:
        command, remarks = repetition(f"{folder.name}.toml", run.document)
    return {
        "name": run.title,
        "facts": facts(run),
        "spec": spec.read_text(encoding="utf-8", errors="replace") if spec.is_file() else "",
        "environment": folder.environment,
        "command": command,
        "remarks": remarks,
    }


def repetition(name: str, document: Document) -> tuple[str, list[str]]:
    """The command that repeats a run whose spec is saved as ``name``, and what it needs."""
    problem, files = document.get("problem", {}), source_files(document)
    remark = f"with the spec below saved as {name}"
    remarks = [f"{remark}, and beside it {', '.join(files)}" if files else remark]
    command, data = f"undrift run {shlex.quote(name)} --out again", problem.get("data")
    read = data is not None and data not in BUNDLED and "folder" not in problem
    if read and "file" not in problem and "data" not in document:  # functions read what they like
        command = f"UNDRIFT_DATA=FOLDER {command}"
        remarks.append(f"FOLDER has the files of {data}")
    return command, remarks


def facts(run: RunOnDisk) -> list[str]:
    """The problem, the clients, the methods, the seeds and the rounds of a run, in words."""
    document = run.document
    problem, seeds = document.get("problem", {}), document.get("seed", [0])
    clients, cohort = problem.get("clients"), document.get("cohort", {}).get("size")
    named = filter(None, (problem.get("name"), problem.get("data")))
    found = [", ".join(named) or "unknown problem"]
    if isinstance(clients, int):
        found.append(count(clients, "client") + (f", {cohort} in a round" if cohort else ""))
    text = count(len(seeds), "seed")
    if run.unchanged:
        text = UNCHANGED
    elif len(seeds) > 1:
        text += f" that vary {varied(document)}"
    found += [count(len(methods(document)), "method"), text]
    if "rounds" in document:
        found.append(count(document["rounds"], "round"))
    if (rule := document.get("aggregation", {}).get("name", "mean")) != "mean":
        found.append(f"{rule} instead of the mean")
    return [*found, f"undrift {run.folder.environment.get('undrift', '')}"]


def partition(folder: Folder, document: Document) -> Partition | None:
    """Who holds what, and of which seed that is where every seed has its own split."""
    if (found := folder.partition) is None:
        return None
    partition: Partition = {"classes": found["classes"], "counts": found["counts"]}
    if "split" in document.get("vary", ()):
        partition["of"] = f"of seed {document['seed'][0]}; every seed has its own split"
    return partition
