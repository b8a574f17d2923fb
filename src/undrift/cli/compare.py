"""``compare``: recorded runs side by side."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from undrift.cli.folders import recorded
from undrift.cli.output import OK, cannot, refuse, result, result_json, say
from undrift.cli.parser import BASELINE, RUN, TARGET, Parser, natural, positive
from undrift.records.differences import Against, against
from undrift.records.folder import BadFolder, Row
from undrift.report.against import alike, between, remarks, signed
from undrift.report.recorded import (
    Group,
    Mixed,
    based_on,
    common,
    judged,
    measured_on,
    read,
    smoothing,
    spreads,
)
from undrift.report.summary import Summary, print_summaries, summarise
from undrift.report.text import prose, table

COLUMNS = (
    "gap",
    "accuracy",
    "top5",
    "loss",
    "train_accuracy",
    "train_top5",
    "train_loss",
    "drift",
    "grad_norm",
    "distance",
)
"""Columns that can be drawn."""
PLOTS = (".png", ".pdf", ".svg")


def add(parser: Parser) -> None:
    parser.description = (
        "What each method of one or more runs needed to reach a target: means over seeds, with "
        "the standard deviation where there are several. Runs that are judged by different "
        "measures get a table each."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help=RUN)
    parser.add_argument("--target", type=positive, metavar="VALUE", help=TARGET)
    parser.add_argument("--baseline", metavar="LABEL", help=BASELINE)
    parser.file("--plot", help="also draw the curves (.png, .pdf or .svg)")
    parser.add_argument("--y", metavar="COLUMN", help=f"what to draw: {', '.join(COLUMNS)}")
    text = "draw accuracies as means of that many rows (default: the spec's, else 10)"
    parser.add_argument("--smooth", type=natural, metavar="ROWS", help=text)
    parser.json()


def main(args: Namespace) -> int:
    plot: Path | None = args.plot
    complaints = []
    if plot is not None and plot.suffix.lower() not in PLOTS:
        complaints.append(f"--plot {plot}: give a name that ends in {', '.join(PLOTS)}")
    folders = recorded(args.runs, complaints)
    try:
        runs = read(folders)
        groups = judged(runs, args.target)
        baselines = based_on(groups, args.baseline)
        window = args.smooth or smoothing(runs)
    except (BadFolder, Mixed) as error:
        refuse([error])
    rows = [row for group in groups for row in group.rows]
    if args.y is not None and not measured(rows, args.y):
        there = [column for column in COLUMNS if measured(rows, column)]
        refuse([f"--y {args.y}: was not measured in these runs; there are {', '.join(there)}"])
    note = common([group.note for group in groups]) or ""
    if args.json:
        result_json(
            {
                "target": common([group.target for group in groups]),
                "note": note,
                "varied": spreads(runs),
                "samples": measured_on(runs),
                "mixed": [text for group in groups for text in group.mixed],
                "methods": [
                    document
                    for group, baseline in zip(groups, baselines, strict=True)
                    for document in documents(group, baseline)
                ],
            }
        )
    else:
        texts = []
        for group, baseline in zip(groups, baselines, strict=True):
            texts.append(shown(group, several=len(groups) > 1))
            if found := apart(group, baseline):
                texts.append(differences(found, group.column))
        result("\n\n".join(texts))
    return OK if plot is None else draw(groups, plot, args.y, window, note)


def draw(groups: list[Group], plot: Path, y: str | None, window: int, note: str) -> int:
    from undrift.report.figures import panels, save

    drawn = [group for group in groups if y is None or measured(group.rows, y)]
    goals = {group.title: group.target for group in drawn}
    rows = {group.title: group.rows for group in drawn}
    settings = {label: one for group in drawn for label, one in group.settings.items()}
    samples = {group.title: group.samples for group in drawn}
    figure = panels(rows, goals, y=y, smooth=window, note=note, settings=settings, samples=samples)
    try:
        save(figure, plot)
    except OSError as error:
        return cannot(error, plot)
    say(f"Figure written to {plot}")
    return OK


def summaries(group: Group) -> list[Summary]:
    return summarise(group.rows, group.target, group.outcomes, group.planned, group.rounds)


def shown(group: Group, several: bool) -> str:
    """The table of a group, under the measure that judges it if there are several."""
    head = f"Judged by {group.column}: {group.title}\n\n" if several else ""
    text = print_summaries(
        summaries(group),
        group.target,
        note=group.note,
        varied=spreads(group.runs),
        samples=group.samples,
    )
    return "\n".join([head + text, *map(prose, group.mixed)])


def documents(group: Group, baseline: str) -> list[dict[str, object]]:
    """The summaries of a group for JSON, with what sets each method apart from the baseline."""
    others = {one.label: one.document() for one in apart(group, baseline)}
    return [
        summary.document() | {"target": group.target, "difference": others.get(summary.label)}
        for summary in summaries(group)
    ]


def apart(group: Group, baseline: str) -> list[Against]:
    rows = alike(group.rows, group.problems, baseline)
    return against(rows, group.outcomes, group.column, group.target, baseline)


def differences(found: Sequence[Against], column: str) -> str:
    """The table of methods against a baseline, and what its columns mean."""
    rounds = any(one.rounds is not None and one.rounds.mean is not None for one in found)
    head = [f"against {found[0].baseline}", "seeds", f"final {column}", "95 % interval"]
    head += ["rounds", "95 % interval of rounds"] if rounds else []
    rows = []
    for one in found:
        final = [signed(one.final.mean, column), between(one.final, column)]
        row = [one.label, str(one.final.seeds), *final]
        if rounds and one.rounds is not None:
            row += [signed(one.rounds.mean, "rounds"), between(one.rounds, "rounds")]
        rows.append(row)
    text = table(head, rows, right=head[1:])
    return "\n".join([text, "", *map(prose, remarks(found, column))])


def measured(rows: list[Row], column: str) -> bool:
    return any(row.get(column) is not None for row in rows)
