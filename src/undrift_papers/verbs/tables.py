"""``tables``: tables of the papers, printed values beside ours."""

from __future__ import annotations

import dataclasses
from argparse import Namespace

from undrift.cli.output import OK, refuse, result, result_json
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


def main(args: Namespace) -> int:
    known, item = items(), args.item
    if item is not None and item not in known:
        refuse([unknown("table", item, known)])
    names = known if item is None else [item]
    if args.json:
        result_json({name: dataclasses.asdict(table(name)) for name in names})
    else:
        result("\n".join(table(name).text() for name in names).rstrip())
    return OK
