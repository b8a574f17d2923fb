"""``compare``: recorded runs side by side."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from undrift.cli.folders import add_runs, compared
from undrift.cli.output import refuse, result, result_json, say
from undrift.cli.parser import Parser, natural
from undrift.plots.columns import WORDS
from undrift.records.folder import Row
from undrift.report.comparison import Comparison, common, measured_on

PLOTS = (".png", ".pdf", ".svg")
NOT_DRAWN = ("round", "vectors", "vectors_up", "bytes_up", "gradients", "iterations", "seconds")


def add(parser: Parser) -> None:
    parser.description = (
        "What each method of one or more runs needed to reach a target: means over seeds, with "
        "the standard deviation where there are several. Runs that are judged by different "
        "measures get a table each."
    )
    add_runs(parser)
    parser.file("--plot", help="also draw the curves (.png, .pdf or .svg)")
    parser.add_argument("--y", metavar="COLUMN", help="what to draw: accuracy, loss, drift, ...")
    parser.add_argument(
        "--smooth",
        type=natural,
        metavar="ROWS",
        help="draw accuracies as means of that many rows (default: the spec's, else 10)",
    )


def main(args: Namespace) -> None:
    plot: Path | None = args.plot
    if plot is not None and plot.suffix.lower() not in PLOTS:
        refuse([f"--plot {plot}: give a name that ends in {', '.join(PLOTS)}"])
    found = compared(args)
    rows = [row for one in found for row in one.rows]
    if args.y is not None and not measured(rows, args.y):
        there = [name for name in WORDS if name not in NOT_DRAWN and measured(rows, name)]
        refuse([f"--y {args.y}: was not measured in these runs; there are {', '.join(there)}"])
    if args.json:
        runs = [run for one in found for run in one.runs]
        document = {
            "target": common([one.target for one in found]),
            "note": common([one.note for one in found]) or "",
            "varied": [*dict.fromkeys(text for one in found for text in one.varied)],
            "samples": measured_on(runs),
            "mixed": [text for one in found for text in one.mixed],
            "methods": [m for one in found for m in one.documents(one.baseline(args.baseline))],
        }
        result_json(document)
    else:
        result("\n\n".join(text for one in found for text in shown(one, args.baseline, found)))
    if plot is not None:
        draw(found, plot, args.y, args.smooth)


def shown(one: Comparison, baseline: str | None, found: Sequence[Comparison]) -> list[str]:
    """Its tables, under the measure that judges it if there are several."""
    head = [f"Judged by {one.column}: {one.title}"] if len(found) > 1 else []
    apart = one.differences(one.baseline(baseline))
    return [*head, one.results().text(), *([apart.text()] if apart else [])]


def draw(found: Sequence[Comparison], plot: Path, y: str | None, smooth: int | None) -> None:
    from undrift.report.figures import panels, save

    drawn = {one.title: one for one in found if y is None or measured(one.rows, y)}
    save(panels(drawn, y, smooth), plot)
    say(f"Figure written to {plot}")


def measured(rows: Sequence[Row], column: str) -> bool:
    return any(row.get(column) is not None for row in rows)
