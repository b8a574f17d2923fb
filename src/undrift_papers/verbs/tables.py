"""``tables``: tables of the papers, printed values beside ours."""

from __future__ import annotations

import dataclasses
from argparse import Namespace

from undrift.cli.output import refuse, result_as
from undrift.cli.parser import Parser
from undrift.core.params import unknown
from undrift.report.table import prose
from undrift_papers.tables import TABLES


def add(parser: Parser) -> None:
    parser.description = (
        "Tables of the papers: the printed values, and those computed from the methods and theory "
        "as they are here."
    )
    parser.add_argument("item", nargs="?", metavar="ITEM", help="default: all of them")
    parser.json()


def main(args: Namespace) -> None:
    if args.item not in (None, *TABLES):
        refuse([unknown("table", args.item, TABLES)])
    found = {name: make() for name, make in TABLES.items() if args.item in (None, name)}
    document = {name: dataclasses.asdict(one) for name, one in found.items()}
    texts = (f"{prose(one.title)}\n\n{one.table.text()}" for one in found.values())
    result_as(args.json, document, "\n\n".join(texts))
