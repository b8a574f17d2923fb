"""``report``: recorded runs as one HTML file."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from undrift._files import write_whole
from undrift.cli.folders import recorded
from undrift.cli.output import OK, cannot, refuse, result, result_json, say
from undrift.cli.parser import BASELINE, RUN, TARGET, Parser, positive
from undrift.records.folder import BadFolder
from undrift.report.recorded import Mixed, content, read
from undrift.report.text import size

FILE = "report.html"


def add(parser: Parser) -> None:
    parser.description = (
        "Write recorded runs, finished or not, as one HTML file: curves to explore, tables, who "
        "holds what, specs and machines. It is about 5 MB, most of it the chart library, and "
        "needs no network."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help=RUN)
    parser.file("-o", "--out", help="default: RUN/report.html; of several runs, report.html")
    parser.add_argument("--target", type=positive, metavar="VALUE", help=TARGET)
    parser.add_argument("--baseline", metavar="LABEL", help=BASELINE)
    parser.json()


def main(args: Namespace) -> int:
    out: Path | None = args.out
    complaints = []
    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        complaints.append(f"-o {out}: give a name that ends in .html")
    folders = recorded(args.runs, complaints)
    try:
        found = content(read(folders), args.target, args.baseline)
    except (BadFolder, Mixed) as error:
        refuse([error])

    from undrift.report.html import page

    path = out or (folders[0].file(FILE) if len(folders) == 1 else Path(FILE))
    whole = page(found).encode()
    try:
        write_whole(path, whole)
    except OSError as error:
        return cannot(error, path)
    if args.json:
        result_json({"report": str(path), "bytes": len(whole)})
    else:
        result(str(path))
        say(f"{size(len(whole))}, most of it the chart library; it needs no network.")
    return OK
