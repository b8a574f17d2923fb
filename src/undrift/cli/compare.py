"""``compare``: recorded runs side by side."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from undrift.cli.folders import add_runs, compared
from undrift.cli.output import refuse, result, result_json, say
from undrift.cli.parser import Parser, positive
from undrift.plots.columns import WORDS
from undrift.records.folder import Row
from undrift.report.comparison import Comparison, common, measured_on
from undrift.report.table import Form

PLOTS = (".png", ".pdf", ".svg")
ACROSS = {
    "rounds": "round",
    **{n: n for n in ("vectors", "vectors_up", "bytes_up", "gradients", "iterations", "seconds")},
}
"""What a figure can be drawn against, and the column of it."""


def add(parser: Parser) -> None:
    parser.description = (
        "What each method of one or more runs needed to reach a target: means over seeds, with "
        "the standard deviation where there are several. Runs that are judged by different "
        "measures get a table each."
    )
    add_runs(parser)
    parser.add_argument("--latex", action="store_true", help="print tables for a paper")
    parser.file("--plot", help="also draw the curves (.png, .pdf or .svg)")
    parser.add_argument(
        "--x",
        choices=tuple(ACROSS),
        metavar="SPENT",
        help=f"draw one panel, against {', '.join(ACROSS)} (default: against rounds and vectors, "
        "in a narrow figure rounds alone)",
    )
    parser.add_argument(
        "--width",
        type=positive,
        metavar="INCHES",
        help="width of the figure for print, such as 3.3 for a column",
    )
    parser.add_argument("--y", metavar="COLUMN", help="what to draw: accuracy, loss, drift, ...")


def main(args: Namespace) -> None:
    plot: Path | None = args.plot
    if plot is not None and plot.suffix.lower() not in PLOTS:
        refuse([f"--plot {plot}: give a name that ends in {', '.join(PLOTS)}"])
    if args.latex and args.json:
        refuse(["--latex and --json are two ways to print the same: choose one"])
    if plot is None and (args.x or args.width):
        refuse(["--x and --width are about a figure: name its file, as --plot curves.pdf"])
    found = compared(args)
    rows = [row for one in found for row in one.rows]
    drawable = {"y": {name: name for name in WORDS if name not in ACROSS.values()}, "x": ACROSS}
    for flag, known in drawable.items():
        asked = getattr(args, flag)
        if asked is not None and not measured(rows, known.get(asked, asked)):
            there = [name for name, column in known.items() if measured(rows, column)]
            text = f"was not measured in these runs; there are {', '.join(there)}"
            refuse([f"--{flag} {asked}: {text}"])
    if plot is not None:  # first: who reads the table may stop after a few lines
        drawn = {one.title: one for one in found if not args.y or measured(one.rows, args.y)}
        from undrift.report.figures import panels, save

        save(panels(drawn, args.y, ACROSS.get(args.x), args.width), plot)
        say(f"Figure written to {plot}")
    if args.json:
        runs = [run for one in found for run in one.runs]
        result_json(
            {
                "target": common([one.target for one in found]),
                "note": common([one.note for one in found]) or "",
                "varied": [*dict.fromkeys(text for one in found for text in one.varied)],
                "samples": measured_on(runs),
                "mixed": [text for one in found for text in one.mixed],
                "methods": [m for one in found for m in one.documents(one.baseline(args.baseline))],
            }
        )
    else:
        form: Form | None = "latex" if args.latex else None
        each = [shown(one, args.baseline, found, form) for one in found]
        result("\n\n".join(text for texts in each for text in texts))


def shown(
    one: Comparison, baseline: str | None, found: Sequence[Comparison], form: Form | None
) -> list[str]:
    """Its tables, under the measure that judges it if there are several."""
    mark = "% " if form == "latex" else ""
    head = [f"{mark}Judged by {one.column}: {one.title}"] if len(found) > 1 else []
    tables = [one.results(), *filter(None, [one.differences(one.baseline(baseline))])]
    return [*head, *(table.shown(form) if form else table.text() for table in tables)]


def measured(rows: Sequence[Row], column: str) -> bool:
    return any(row.get(column) is not None for row in rows)
