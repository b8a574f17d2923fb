"""Folders of recorded runs, by path or by name, and what is read of them to compare."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from undrift.cli.output import refuse, say
from undrift.cli.parser import RUN, Parser, positive
from undrift.core.params import unknown
from undrift.records.folder import Folder
from undrift.report.comparison import Comparison, compare, read

ROOT = Path("runs")
TARGET = (
    "a gap, or for networks an accuracy such as 0.8 "
    "(default: the spec's, else 1e-6 of the first gap)"
)
BOUNDS = "draw the theorems' bounds on the gap too, for the methods that have one"
BASELINE = "method that the others are compared with, seed by seed (default: the first)"


def place(name: str) -> Path:
    """The folder of the run ``name``, which may be a path."""
    path = Path(name)
    return path if path.exists() or len(path.parts) > 1 else ROOT / name


def missing(name: str) -> str:
    """Why ``name`` is not the name of a run; empty if it is one."""
    path = place(name)
    if path.is_dir():
        return ""
    root = path.parent
    near = sorted(f.name for f in root.iterdir() if f.is_dir()) if root.is_dir() else []
    return f"{unknown('run', name, near)} (in {root})"


def add_runs(parser: Parser) -> None:
    """The options that choose runs and how they are judged."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help=RUN)
    parser.add_argument("--target", type=positive, metavar="VALUE", help=TARGET)
    parser.add_argument("--baseline", metavar="LABEL", help=BASELINE)
    parser.add_argument("--bounds", action="store_true", help=BOUNDS)
    parser.json()


def compared(args: Namespace, apart: bool = True) -> list[Comparison]:
    """The chosen runs, each once, by the measure that judges them or together."""
    if wrong := [*filter(None, map(missing, args.runs))]:
        refuse(wrong)
    folders = {path.resolve(): Folder(path) for path in map(place, args.runs)}
    runs = read([*folders.values()])
    if not any(run.rows for run in runs):
        refuse([f"{', '.join(run.title for run in runs)}: nothing was recorded"])
    found = compare(runs, args.target, args.baseline, apart)
    for one in found if args.bounds else ():
        from undrift.runs.promises import bounds_of, recorded

        cases = [case for run in one.runs for case in recorded(run)]
        one.bounds, one.bound_notes = bounds_of(cases)
        say("\n".join(one.bound_notes))
    return found
