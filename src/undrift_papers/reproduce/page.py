"""A page per item, with the paper's numbers beside ours and a verdict; and a list of the pages."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from undrift._files import write_whole
from undrift.plots.curves import image
from undrift.report.numbers import count
from undrift.report.table import Table
from undrift_papers.fedred import rates
from undrift_papers.reproduce import agreement, grid
from undrift_papers.reproduce.figure import figure
from undrift_papers.reproduce.items import NEVER, Column, names
from undrift_papers.reproduce.results import Report, Shown
from undrift_papers.reproduce.verdict import (
    COMPUTED,
    LITTLE,
    OPEN,
    RULE,
    SHOWN,
    UNTOLD,
    Compared,
)
from undrift_papers.tables import TABLES

JUDGED = "How it is judged"
"""The last section of the index, which every page links to."""
DPI = 90
INDEX = "README.md"
PICTURE = "agreement.png"
CLAIMS, CLAIMED = "claims.md", "What the five papers claim, and what we see"
BY_CLAIM = (
    "*For those who ask whether a paper's claim holds.* A claim is what the text of a paper says of"
    " a table or figure, in its own words; under each answer are the items that it was judged by,"
    " whose pages have the numbers. [How it is judged](README.md#how-it-is-judged)."
)
ANSWERS = ("yes", "no", UNTOLD, OPEN)
GREY = (
    "Every judged number that the paper and we both have, but for exponents and targets that one"
    " of the two never reaches; grey is what counts as agreement."
)
MEANT = {
    "JPEG q80": (
        " (images that were stored as JPEG of quality 80; in (b) of"
        " [FedACG's Table B](../fedacg/table-b.md), where that was measured, it costs 1.6 and 1.9"
        " points after 1,000 rounds)"
    )
}
"""Longer forms of notes about the data."""
Section = tuple[str, str, str]
"""A title, a table, and a sentence below it."""


def write(report: Report, root: Path) -> None:
    """The page, its numbers and its figure, under ``root``."""
    page = root / f"{report.item.name}.md"
    drawn = None if report.verdict == COMPUTED else figure(report)
    if drawn:
        for kind in ("png", "pdf"):
            write_whole(page.with_suffix(f".{kind}"), image(drawn, kind, dpi=DPI))
    write_whole(page.with_suffix(".json"), json.dumps(numbers(report), indent=1) + "\n")
    write_whole(page, text(report, page.with_suffix(".png").name if drawn else ""))


def write_index(root: Path) -> None:
    """The list of all pages under ``root``."""
    files = [file for name in names() if (file := root / f"{name}.json").is_file()]
    found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    if picture := agreement.figure(found):
        write_whole(root / PICTURE, image(picture, dpi=DPI))
    write_whole(root / INDEX, index(found, picture is not None))
    write_whole(root / CLAIMS, claims(found))


def claims(found: Sequence[agreement.Page]) -> str:
    """What each paper claims, by the items that it stands on, and why the answer is no."""
    lines = [f"# {CLAIMED}", "", BY_CLAIM, ""]
    for paper in dict.fromkeys(n["item"].partition("/")[0] for n in found):
        told = [n for n in found if n["item"].startswith(f"{paper}/") and n.get("answer")]
        by_claim: dict[str, dict[str, list[str]]] = {}
        for n in told:
            link = f"[{n['item'].partition('/')[2]}]({n['item']}.md)"
            by_claim.setdefault(n["claim"], {}).setdefault(n["answer"], []).append(link)
        rows = [
            [claim, *(", ".join(items.get(answer, ())) for answer in ANSWERS)]
            for claim, items in by_claim.items()
        ]
        if rows:
            lines += [f"## {paper}", "", Table(["claim", *ANSWERS], rows).markdown(), ""]
        why = [f"* {n['item']}: no. {n['why']}." for n in told if n["answer"] == "no" and n["why"]]
        lines += [*why, ""] if why else []
    return "\n".join(lines).rstrip() + "\n"


def index(found: Sequence[agreement.Page], pictured: bool) -> str:
    """The page that lists all pages, from their numbers."""
    ran = ["of the paper's numbers run", "agree", "of its pairs run", "in order"]
    claim = ["the paper's claim", "holds"]
    head = ["item", "what", "verdict", *claim, *ran, "seeds", "device", "date"]
    rows = []
    for n in found:
        link = f"[{n['item']}]({n['item']}.md)"
        counts = [of(*n.get(key, (0, 0))) for key in ("coverage", "agree", "pairs", "ordered")]
        takes = f"; one seed takes {n['takes']}" if n["verdict"] == OPEN and n.get("takes") else ""
        verdict = n["ran"] if n["verdict"] == LITTLE else f"{n['verdict']}{takes}"
        claimed = [n.get("claim", ""), n.get("answer", "")]
        seeds = span(n.get("fewest_seeds", n["seeds"]), n["seeds"]) if n["seeds"] else ""
        place = [seeds, n["device"], n["date"]]
        rows.append([link, n["title"], verdict, *claimed, *counts, *place])
    verdicts = Counter(n["verdict"] for n in found).most_common()
    summed = f"{count(len(found), 'item')}: {'; '.join(f'{k} {v}' for v, k in verdicts)}."
    if answers := Counter(n["answer"] for n in found if n.get("answer")).most_common():
        held = "; ".join(f"{k} {answer}" for answer, k in answers)
        summed += f" Does what the papers claim hold? {held}."
    seen = [f"![The papers' numbers against ours]({PICTURE})", "", GREY, ""] if pictured else []
    top = files("undrift_papers.reproduce").joinpath("index.md").read_text(encoding="utf-8")
    judged = [f"## {JUDGED}", "", RULE, ""]
    return "\n".join([top, *seen, summed, "", Table(head, rows).markdown(), "", *judged])


def of(some: int, total: int) -> str:
    return f"{some} of {total}" if total else ""


def span(fewest: int, most: int) -> str:
    return str(most) if fewest == most else f"{fewest} to {most}"


def numbers(report: Report) -> agreement.Page:
    """The page for programs."""
    judged = report.judgement
    found: dict[str, object] = {
        "item": report.item.name,
        "title": report.item.title,
        "verdict": report.verdict,
        "why": report.why,
        "judged": str(judged),
        "ran": judged.ran,
        "claim": report.item.claim,
        "answer": report.answer,
        "found": report.found,
        "coverage": (judged.numbers, judged.printed),
        "agree": (0, 0) if report.quick else (judged.agree, judged.numbers),
        "pairs": (judged.pairs, judged.stated),
        "ordered": (0, 0) if report.quick else (judged.ordered, judged.pairs),
        "takes": report.item.takes,
        "quick": report.quick,
        "seeds": report.seeds,
        "fewest_seeds": report.fewest_seeds,
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
                **({"tried": shown.tried} if shown.tried else {}),
                "columns": [
                    {
                        "read": column.title,
                        "share": column.share,
                        "judged": column.stated,
                        "cells": [
                            _plain(c) for c in cells.values() if c.ours is not None or c.late
                        ],
                    }
                    for column, cells in shown.columns
                ],
            }
            for shown in report.shown
            if not shown.empty
        ],
    }
    return found | {"study": report.measured["found"]} if report.measured else found


def command(report: Report) -> str:
    """The command that makes the page again."""
    devices, precisions = report.environments("device"), report.environments("precision")
    gpu = any(device.startswith("cuda") for device in devices)
    words = ["undrift reproduce", report.item.name]
    if report.quick:
        words.append("--quick")
    if report.seeds > 1:
        words.append(f"--seeds {report.seeds}")
    if gpu:
        words.append("--device cuda")
    if precisions and precisions != ["bf16" if gpu else "f32"]:
        words.append(f"--precision {precisions[0]}")
    return " ".join(words)


def text(report: Report, picture: str) -> str:
    """The page, with the name of its picture."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    item = report.item
    found = report.judgement.ran if report.verdict == LITTLE else f"Verdict: {report.verdict}"
    printed = any(column.printed for panel in item.panel for column in panel.column)
    tables = _sweep(report) if item.kind == "sweep" else []
    if item.runs and (printed or item.kind != "sweep"):
        tables += [_panel(shown, report) for shown in report.shown]
    page = Environment(
        loader=PackageLoader("undrift_papers.reproduce", ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("page.md.j2")
    whole = page.render(
        report=report,
        item=item,
        verdict=f"**{found}.** {_sentence(report)}".rstrip(),
        claim=_claim(report) if report.answer else "",
        command=command(report),
        facts=facts(report),
        picture=picture,
        rates="\n".join(rates.text(report.measured["found"])) if report.measured else "",
        computed=TABLES[item.table]().markdown() if item.table else "",
        tables=tables,
        sections=[
            ("Where it differs, and what was looked for", item.causes if report.known else []),
            ("What was open, and how it was resolved", item.notes("ambiguous")),
            ("What the authors' code does differently", item.notes("authors")),
        ],
        tolerances={
            c.title: c.tolerance
            for s in report.shown
            for c, _ in s.columns
            if c.judged and c.tolerance is not None
        },
    )
    return whole.rstrip() + "\n"


def facts(report: Report) -> list[str]:
    """How the numbers came about."""
    found = []
    if report.item.grid:
        found.append(f"{grid.RULE} A value with a star is the least or the largest that was tried.")
    if report.kept:
        averaged = f"; the paper averages {report.item.seeds}" if report.item.seeds > 1 else ""
        seeds = f"{span(report.fewest_seeds, report.seeds)} seed{'s' * (report.seeds > 1)}"
        found.append(
            f"{seeds}{averaged}. A seed decides cohorts, mini-batches and"
            " coins; all share the data, their split and the start."
        )
        if report.unseeded:
            found.append(f"Run once, for no seed changes it: {', '.join(report.unseeded)}.")
        if any(shown.at_chance(label) for shown in report.shown for label in shown.runs):
            found.append(
                "A seed that ended at chance is in no mean; where curves are drawn, it is dotted."
            )
        where = f"Device: {', '.join(report.environments('device'))}"
        if precision := " and ".join(report.environments("precision")):
            where += f"; products in {precision}"
        found.append(f"{where}.")
    for note in report.environments("note"):
        found.append(f"Data: {note}{MEANT.get(note, '')}; the paper has the originals.")
    return found


def _claim(report: Report) -> str:
    """What the paper claims, and whether it holds."""
    judged, item = report.judgement, report.item
    found = f"{judged.held} of {judged.claimed} pairs hold"
    if judged.failed:
        found += f", {judged.failed} do{'es' * (judged.failed == 1)} not"
    if judged.open:
        found += f", {judged.open} cannot be told"
    if left := judged.claimed - judged.held - judged.failed - judged.open:
        found += f", {left} not run"
    if item.answer:
        found = f"answered by hand: {item.because}" if report.by_hand else "not looked at by hand"
    return f"**The paper's claim: {item.claim} Holds: {report.answer}** ({found})."


def _sentence(report: Report) -> str:
    judged = not report.quick and report.verdict not in (OPEN, COMPUTED, SHOWN, LITTLE)
    parts = [str(report.judgement)] if judged else []
    parts = [part.rstrip(".") for part in (*parts, report.why) if part]
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts)


def _panel(shown: Shown, report: Report) -> Section:
    """The numbers of a panel, methods below one another, and what was not run."""
    if shown.empty:
        why = f": {shown.absent}" if shown.absent else ""
        return shown.panel.title, "", f"Not run{why}."
    notes, grid = ", ".join(report.environments("note")), report.item.grid
    ours = f"ours ({notes})" if notes else "ours"
    there = [label for label, kept in shown.runs.items() if kept]
    columns = [["method", *there], ["rounds run", *(_rounds(shown, label) for label in there)]]
    seeds = [span(*shown.seeds(label)) for label in there]
    if set(seeds) != {str(report.seeds)}:
        columns.append(["seeds", *seeds])
    if grid:
        settings = (_setting(shown, label, grid.get(label, [])) for label in there)
        columns.append(["best setting", *settings])
    for column, cells in shown.columns:
        columns += _columns(column, [cells[label] for label in there], ours)
    head, *rows = zip(*columns, strict=True)
    left = [label for label in shown.runs if label not in there]
    told = f"Not run: {', '.join(left)}." if left else ""
    return shown.panel.title, Table(head, rows).markdown(), told


def _sweep(report: Report) -> list[Section]:
    """Our numbers of the first column, a line per panel."""
    shown = [s for s in report.shown if not s.empty]
    if not shown:
        return []
    labels = list(dict.fromkeys(label for s in shown for label in s.runs))
    rows = []
    for s in shown:
        column, cells = s.columns[0]
        row = [s.panel.title if column.stated else f"{s.panel.title}, not judged"]
        for label in labels:
            ours = _number(column, cells[label].ours) if label in cells else ""
            diverged = any(kept.final for kept in s.runs.get(label, ()))
            row.append(f"{ours} (diverged)" if diverged else ours)
        rows.append(row)
    title = shown[0].columns[0][0].title
    return [(f"{title[0].upper()}{title[1:]}", Table(["", *labels], rows).markdown(), "")]


def _rounds(shown: Shown, label: str) -> str:
    reached, rounds, first = shown.reached(label), shown.rounds[label], shown.runs[label][0]
    text = f"{reached}" if reached >= rounds else f"{reached} of {rounds}"
    return f"{text} ({first.outcome.status})" if first.final and first.outcome else text


def _setting(shown: Shown, label: str, tried: list[dict[str, float]]) -> str:
    """The best of the settings that were tried; a value at the end of its range has a star."""
    given = next(w.entry.given for w in shown.wants if w.entry.label == label)
    words = []
    for key in tried[0] if tried else ():
        values = {point[key] for point in tried}
        edge = len(values) > 1 and given[key] in (min(values), max(values))
        words.append(f"{key} = {given[key]:.4g}{'*' if edge else ''}")
    run = shown.tried.get(label, 0)
    count = f"of {run}" if run == len(tried) else f"{run} of {len(tried)} run"
    return f"{', '.join(words)} ({count})"


def _columns(column: Column, cells: Sequence[Compared], ours: str) -> list[list[str]]:
    """Our numbers under their title, between the paper's and the difference if it has any."""
    found = [_ours(column, c) for c in cells]
    judged = "" if column.stated else ", not judged"
    if not column.printed:
        return [[f"{column.title}: {ours}{judged}", *found]]
    whose = "stored by the authors" if column.stored else "paper"
    return [
        [f"{column.title}: {whose}{judged}", *(_number(column, c.printed) for c in cells)],
        [ours, *found],
        ["difference", *(_difference(column, c) for c in cells)],
    ]


def _ours(column: Column, c: Compared) -> str:
    if c.late:
        return f"> {c.rounds}"
    text = _number(column, c.ours)
    if c.deviation:
        small = _digits(column) is None
        text += f" ± {f'{c.deviation:.2g}' if small else _number(column, c.deviation)}"
    if c.ours is None or not c.untrained:
        return text
    which = "" if c.seeds == 1 else f"{c.untrained} of {c.seeds} "
    return f"{text} ({which}did not train)"


def _difference(column: Column, c: Compared) -> str:
    if c.difference is None:
        return ""
    if (digits := _digits(column)) is None:
        return f"{c.difference / (c.printed or math.nan):+.1%}"
    return f"{c.difference:+.{digits}f}"


def _number(column: Column, value: float | None) -> str:
    if value is None:
        return ""
    if math.isinf(value):
        return NEVER
    digits = _digits(column)
    return f"{value:.4g}" if digits is None else f"{value:.{digits}f}"


def _digits(column: Column) -> int | None:
    """Digits after the point; ``None`` if numbers are of any size and compared by their ratio."""
    if column.read in ("rounds", "total"):
        return 0
    return 2 if column.share or column.read in ("pace", "jitter") else None


def _plain(c: Compared) -> dict[str, object]:
    """Without what is not known or not so, and with "-" for an infinity, which JSON cannot hold."""
    found = dataclasses.asdict(c)
    return {
        key: NEVER if isinstance(v, float) and math.isinf(v) else v
        for key, v in found.items()
        if v is not None and v is not False
    }
