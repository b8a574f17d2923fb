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


def places(*names: str) -> list[Path]:
    """The folders of runs, each by its path or its name; refuses what is none."""
    paths = [
        path if path.exists() or len(path.parts) > 1 else ROOT / path for path in map(Path, names)
    ]
    wrong = list[str]()
    for name, root in [
        (n, path.parent) for n, path in zip(names, paths, strict=True) if not path.is_dir()
    ]:
        near = sorted(f.name for f in root.iterdir() if f.is_dir()) if root.is_dir() else []
        wrong.append(f"{unknown('run', name, near)} (in {root})")
    if wrong:
        refuse(wrong)
    return paths


def add_runs(parser: Parser) -> None:
    """The options that choose runs and how they are judged."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help=RUN)
    parser.add_argument(
        "--target",
        type=positive,
        metavar="VALUE",
        help="a gap, an accuracy such as 0.8, or what else judges the runs "
        "(default: the spec's, else 1e-6 of the first gap)",
    )
    parser.add_argument(
        "--baseline",
        metavar="LABEL",
        help="method that the others are compared with, seed by seed (default: the first)",
    )
    parser.add_argument(
        "--bounds",
        action="store_true",
        help="draw the theorems' bounds on the gap too, for the methods that have one",
    )
    parser.json()


def compared(args: Namespace, apart: bool = True) -> list[Comparison]:
    """The chosen runs, each once, by the measure that judges them or together."""
    folders = {path.resolve(): Folder(path) for path in places(*args.runs)}
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
