"""A page per item: the paper's numbers beside ours, what was open, and a verdict; and a page that
lists them.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from undrift._files import writing
from undrift.reproduce import grid as search
from undrift.reproduce import rates
from undrift.reproduce.items import NEVER, Column
from undrift.reproduce.results import Report, Shown
from undrift.reproduce.verdict import COMPUTED, OPEN, RULE, Cell

QUICK = "quick"
"""Folder of the pages of quick runs, apart from the others."""
INDEX = "README.md"
PICTURE = "agreement.png"
GREY = "Every number that is judged; grey is what counts as agreement."
HEAD = """# Reproductions

Every table and figure of the five papers, run by `undrift reproduce`. Generated; each page has its own command.

    undrift reproduce --list                                  # what there is, and what it takes
    undrift reproduce --quick all --jobs 2                    # all of it, with less of everything
    undrift reproduce fedspeed/table-7 --device cuda          # one item as in the paper
    undrift reproduce fedacg/table-b/a-cifar10 --device cuda --only FedAvg,FedACG --rounds 500

FedRecu, FedACG and FedSpeed need CIFAR-10 and CIFAR-100: `undrift data fetch cifar10 --folder FOLDER`, then set
`UNDRIFT_DATA=FOLDER`. FedRed's Figure 2 needs the files a9a, w8a, mushrooms and phishing of LIBSVM in that folder. The
other convex items need nothing. Runs are kept in `reproductions` and never run twice. On a machine that is lent for a
while:

    undrift reproduce fedrecu/figure-1 fedspeed/table-7/dir --device cuda --minutes 8 --pack runs.zip   # there
    undrift reproduce all --kept --unpack runs.zip --pages docs/reproductions                           # at home
"""
MEANT = {
    "JPEG q80": " (images that were stored as JPEG of quality 80; what it costs in accuracy was not measured)"
}
"""What is said of the data, at more length."""
REDUCED = "**A quick run**: less data, fewer rounds and a smaller network. Its numbers do not compare with the paper's."


def write(report: Report, root: Path) -> Path:
    """The page, its numbers and its figure, under ``root``; the place of the page."""
    base = root / QUICK / report.item.name if report.quick else root / report.item.name
    if report.verdict == COMPUTED:
        pictures: list[str] = []
    else:
        pictures = _pictures(report, base)
    _put(base.with_suffix(".json"), json.dumps(numbers(report), indent=1) + "\n")
    page = base.with_suffix(".md")
    _put(page, text(report, pictures))
    return page


def write_index(root: Path) -> None:
    """The list of all pages under ``root``, and of the quick ones under ``root/quick``."""
    from undrift.reproduce import agreement
    from undrift.reproduce.figure import image
    from undrift.reproduce.items import names

    place = {name: k for k, name in enumerate(names())}
    for folder in (root, root / QUICK):
        found = [
            json.loads(file.read_text(encoding="utf-8"))
            for file in sorted(folder.glob("*/*.json"))
            if file.parent.name != QUICK
        ]
        found.sort(key=lambda numbers: place.get(numbers["item"], len(place)))
        if found:
            picture = None if folder.name == QUICK else agreement.figure(found)
            if picture:
                _put(folder / PICTURE, image(picture, "png"))
            _put(folder / INDEX, index(found, picture is not None))


def index(found: list[dict[str, Any]], pictured: bool) -> str:
    head = [
        "item",
        "what",
        "verdict",
        "of the paper's numbers run",
        "agree",
        "seeds",
        "device",
        "date",
    ]
    rows = []
    for n in found:
        link, counts = (
            f"[{n['item']}]({n['item']}.md)",
            [of(*n["coverage"]), of(*n.get("agree", (0, 0)))],
        )
        rows.append(
            [link, n["title"], n["verdict"], *counts, str(n["seeds"] or ""), n["device"], n["date"]]
        )
    seen = [f"![The papers' numbers against ours]({PICTURE})", "", GREY, ""] if pictured else []
    return "\n".join([HEAD, *seen, _table(head, rows), "", "## How it is judged", "", RULE, ""])


def of(some: int, total: int) -> str:
    return f"{some} of {total}" if total else ""


def numbers(report: Report) -> dict[str, Any]:
    """All of the page that a program may want."""
    return {
        "item": report.item.name,
        "title": report.item.title,
        "verdict": report.verdict,
        "why": report.why,
        "judged": str(report.judgement),
        "coverage": report.coverage,
        "agree": report.agreement,
        "quick": report.quick,
        "seeds": report.seeds,
        "device": ", ".join(d.partition(": ")[2] or d for d in report.environments("device")),
        "precision": report.environments("precision"),
        "date": max(report.environments("date"), default=""),
        "command": command(report),
        "panels": [
            {
                "panel": shown.panel.name,
                "rounds": {
                    label: shown.reached(label) for label in shown.runs if shown.runs[label]
                },
                "columns": [
                    {
                        "read": column.title,
                        "share": column.share,
                        "judged": column.judged,
                        "cells": [_finite(c) for c in cells.values() if c.ours is not None],
                    }
                    for column, cells in shown.columns
                ],
            }
            for shown in report.shown
            if not shown.empty
        ],
        **({"study": report.study["found"]} if report.study else {}),
    }


def command(report: Report) -> str:
    """What makes the page again."""
    words = ["undrift reproduce", report.item.name]
    words += ["--quick"] * report.quick
    words += [f"--seeds {report.seeds}"] * (report.seeds > 1)
    devices, precisions = report.environments("device"), report.environments("precision")
    gpu = any(device.startswith("cuda") for device in devices)
    words += ["--device cuda"] * gpu
    if precisions and precisions != ["bf16" if gpu else "f32"]:
        words += [f"--precision {p}" for p in precisions[:1]]
    return " ".join(words)


def text(report: Report, pictures: list[str]) -> str:
    """The page."""
    item = report.item
    lines = [f"# {item.name}: {item.title}", "", item.shows, ""]
    lines += [REDUCED, ""] * report.quick
    lines += [f"**Verdict: {report.verdict}.** {_sentence(report)}".rstrip(), ""]
    lines += [f"    {command(report)}", ""]
    lines += [f"* {fact}" for fact in facts(report)] + [""]
    for picture in pictures:
        if picture.endswith(".png"):
            lines += [f"![{item.title}]({picture})", ""]
    if item.kind == "computed":
        from undrift.papers.tables import render

        lines += rates.text(report.study["found"]) if report.study else []
        lines += [render(item.table), ""]
    if item.kind == "sweep":
        lines += _sweep(report)
    if item.kind != "sweep" or any(
        column.printed for panel in item.panel for column in panel.column
    ):
        for shown in report.shown if item.runs else []:
            lines += _panel(shown, report)
    for title, notes in (
        (
            "Where it differs, and what was looked for",
            item.causes if report.kept and not report.quick else [],
        ),
        ("What was open, and how it was resolved", item.said("ambiguous")),
        ("What the authors' code does differently", item.said("authors")),
    ):
        lines += [f"## {title}", "", *(f"* {note}" for note in notes), ""] if notes else []
    lines += ["## How it is judged", "", RULE, *_tolerances(report), ""] if item.runs else []
    return "\n".join(lines)


def facts(report: Report) -> list[str]:
    """How the numbers came about."""
    from undrift.report.text import count

    found = []
    if report.item.grid:
        found.append(
            f"{search.RULE} A value with a star is the least or the largest that was tried."
        )
    if report.kept:
        averaged = f"; the paper averages {report.item.seeds}" if report.item.seeds > 1 else ""
        found.append(f"{count(report.seeds, 'seed')}{averaged}. A seed decides cohorts, mini-batches and coins; all "
                     "share the data, their split and the start.")  # fmt: skip
        where = ", ".join(report.environments("device"))
        precision = " and ".join(report.environments("precision"))
        found.append(f"Device: {where}" + f"; products in {precision}" * bool(precision) + ".")
    found += [
        f"Data: {note}{MEANT.get(note, '')}; the paper has the originals."
        for note in report.environments("note")
    ]
    if report.quick:
        found += [
            f"Changed for the quick run: {', '.join(f'`{flag}`' for flag in less)}."
            for less in _reductions(report)
        ]
    return found


def _reductions(report: Report) -> list[list[str]]:
    found = [report.item.less(s.panel) for s in report.shown]
    stand_in = [s for s in report.shown if s.data == "digits"]
    found += [["problem.data=digits"]] * bool(stand_in)
    return [list(flags) for flags in dict.fromkeys(map(tuple, found))]


def _sentence(report: Report) -> str:
    said = "" if report.quick or report.verdict in (OPEN, COMPUTED) else str(report.judgement)
    parts = [part.rstrip(".") for part in (said, report.why) if part]
    return ". ".join(part[0].upper() + part[1:] for part in parts) + "." * bool(parts)


def _panel(shown: Shown, report: Report) -> list[str]:
    lines = [f"## {shown.panel.title}", ""]
    if shown.empty:
        return [*lines, f"Not run{': ' * bool(shown.absent)}{shown.absent}.", ""]
    notes = report.environments("note")
    ours = "ours" + f" ({', '.join(notes)})" * bool(notes)
    head, rows = ["method", "rounds run", *["best setting"] * bool(report.item.grid)], []
    for column, _ in shown.columns:
        whose = ("stored by the authors" if column.stored else "paper") + ", not judged" * (
            not column.judged
        )
        head += (
            [f"{column.title}: {whose}", ours, "difference"]
            if column.printed
            else [f"{column.title}: {ours}"]
        )
    for label, kept in shown.runs.items():
        if kept:
            row = [label, _rounds(shown, label), *_setting(shown, label, report.item.grid)]
            for column, cells in shown.columns:
                row += _cells(column, cells[label])
            rows.append(row)
    lines += [_table(head, rows), ""]
    left = [label for label, kept in shown.runs.items() if not kept]
    return [*lines, f"Not run: {', '.join(left)}.", ""] if left else lines


def _tolerances(report: Report) -> list[str]:
    """Of columns that have their own."""
    own = {
        c.title: c.tolerance
        for s in report.shown
        for c, _ in s.columns
        if c.judged and c.tolerance is not None
    }
    return [f"\nHere {title} agrees within {tolerance:g}." for title, tolerance in own.items()]


def _sweep(report: Report) -> list[str]:
    """Our numbers of the first column, a line per panel."""
    shown = [s for s in report.shown if not s.empty]
    if not shown:
        return []
    labels = list(dict.fromkeys(label for s in shown for label in s.runs))
    rows = []
    for s in shown:
        column, cells = s.columns[0]
        ours = [_number(column, cells[label].ours) if label in cells else "" for label in labels]
        ended = [any(kept.final for kept in s.runs.get(label, ())) for label in labels]
        rows.append(
            [
                s.panel.title,
                *(f"{n}{' (diverged)' * end}" for n, end in zip(ours, ended, strict=True)),
            ]
        )
    title = shown[0].columns[0][0].title
    return [f"## {title[0].upper()}{title[1:]}", "", _table(["", *labels], rows), ""]


def _rounds(shown: Shown, label: str) -> str:
    reached, rounds = shown.reached(label), shown.rounds[label]
    ended = "".join(
        f" ({k.outcome.status})" for k in shown.runs[label][:1] if k.final and k.outcome
    )
    return (f"{reached}" if reached >= rounds else f"{reached} of {rounds}") + ended


def _setting(shown: Shown, label: str, grid: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Of those that were tried; a value at the end of its range is marked."""
    tried, given = (
        grid.get(label, []),
        next(w.entry.given for w in shown.wants if w.entry.label == label),
    )
    words = []
    for key in tried[0] if tried else ():
        values = {point[key] for point in tried}
        edge = len(values) > 1 and given[key] in (min(values), max(values))
        words.append(f"{key} = {given[key]:.4g}" + "*" * edge)
    return [f"{', '.join(words)} (of {len(tried)})"] if grid else []


def _cells(column: Column, c: Cell) -> list[str]:
    ours = _number(column, c.ours)
    if c.deviation:
        ours += (
            f" ± {c.deviation:.2g}"
            if _digits(column) is None
            else f" ± {_number(column, c.deviation)}"
        )
    if not column.printed:
        return [ours]
    difference = ""
    if c.difference is not None:
        digits = _digits(column)
        parts = c.difference / (c.printed or math.nan)
        difference = f"{parts:+.1%}" if digits is None else f"{c.difference:+.{digits}f}"
    return [_number(column, c.printed), ours, difference]


def _number(column: Column, value: float | None) -> str:
    if value is None:
        return ""
    digits = _digits(column)
    return (
        NEVER if math.isinf(value) else f"{value:.4g}" if digits is None else f"{value:.{digits}f}"
    )


def _digits(column: Column) -> int | None:
    """After the point; ``None`` where numbers of any size are compared by their ratio."""
    if column.read in ("rounds", "total"):
        return 0
    return 2 if column.share or column.read in ("pace", "jitter") else None


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _pictures(report: Report, base: Path) -> list[str]:
    from undrift.reproduce.figure import figure, image

    drawn = figure(report)
    if drawn is None:
        return []
    names = []
    for kind in ("png", "pdf"):
        file = base.with_suffix(f".{kind}")
        _put(file, image(drawn, kind))
        names.append(file.name)
    return names


def _finite(c: Cell) -> dict[str, Any]:
    """JSON knows no numbers that are none; never is "-"."""
    found = dataclasses.asdict(c)
    return {
        key: NEVER if isinstance(v, float) and math.isinf(v) else v
        for key, v in found.items()
        if v is not None
    }


def _put(path: Path, content: str | bytes) -> None:
    with writing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
