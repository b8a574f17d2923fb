"""``report``: recorded runs as one HTML file."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from undrift._files import write_whole
from undrift.cli.folders import add_runs, compared
from undrift.cli.output import refuse, result_as, say
from undrift.cli.parser import Parser
from undrift.report.numbers import size

FILE = "report.html"


def add(parser: Parser) -> None:
    parser.description = (
        "Write recorded runs, finished or not, as one HTML file: curves to explore, tables, who "
        "holds what, specs and machines. It is about 5 MB, most of it the chart library, and "
        "needs no network."
    )
    add_runs(parser)
    parser.file("-o", "--out", help="default: RUN/report.html; of several runs, report.html")


def main(args: Namespace) -> None:
    out: Path | None = args.out
    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        refuse([f"-o {out}: give a name that ends in .html"])
    (found,) = compared(args, apart=False)

    from undrift.report.html import page

    path = out or (found.runs[0].folder.file(FILE) if len(found.runs) == 1 else Path(FILE))
    whole = page(found, args.baseline).encode()
    write_whole(path, whole)
    result_as(args.json, {"report": str(path), "bytes": len(whole)}, str(path))
    say(f"{size(len(whole))}, most of it the chart library; it needs no network.")
