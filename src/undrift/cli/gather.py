"""``gather``: one run of several."""

from __future__ import annotations

from argparse import Namespace

from undrift.cli.folders import places
from undrift.cli.output import say
from undrift.cli.parser import RUN, Parser
from undrift.cli.run import report
from undrift.records.folder import Folder
from undrift.records.gathering import gather


def add(parser: Parser) -> None:
    parser.description = (
        "Make one finished run of several: of all parts that undrift run --part has run, or of "
        "runs whose specs differ in seeds and methods alone. Every method must be there with "
        "every seed. Other settings, problems, data or code are refused; other machines and "
        "versions are told. The runs stay as they are."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help=RUN)
    parser.file("-o", "--out", metavar="FOLDER", required=True, help="the new run, as runs/NAME")
    parser.json()


def main(args: Namespace) -> int:
    for remark in gather([*map(Folder.of_run, places(*args.runs))], args.out):
        say(remark)
    code = report(Folder(args.out), args.json, again=True)
    say(f"\nKept in {args.out}.")
    return code
