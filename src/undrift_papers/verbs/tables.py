"""``tables``: tables of the papers, printed values beside ours."""

from __future__ import annotations

import dataclasses
from argparse import Namespace

from undrift.cli.output import refuse, result_as
from undrift.cli.parser import Parser
from undrift.core.params import unknown
from undrift_papers.tables import items, table


def add(parser: Parser) -> None:
    parser.description = (
        "Tables of the papers: the printed values, and those computed from the methods and theory "
        "as they are here."
    )
    parser.add_argument("item", nargs="?", metavar="ITEM", help="default: all of them")
    parser.json()


def main(args: Namespace) -> None:
    known, item = items(), args.item
    if item is not None and item not in known:
        refuse([unknown("table", item, known)])
    names = known if item is None else [item]
    found = {name: table(name) for name in names}
    document = {name: dataclasses.asdict(one) for name, one in found.items()}
    result_as(args.json, document, "\n".join(one.text() for one in found.values()).rstrip())
