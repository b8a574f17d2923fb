"""``new``: the file of a method, a problem, a network or an objective to start from."""

from __future__ import annotations

from argparse import Namespace

from undrift.check.template import TEMPLATES, BadName, write
from undrift.cli.output import refuse, result, say
from undrift.cli.parser import Parser


def add(parser: Parser) -> None:
    parser.description = (
        "Write a file with a small method, problem, network or local objective that works, to be "
        "changed into your own."
    )
    parser.add_argument(
        "kind",
        choices=tuple(TEMPLATES),
        metavar="|".join(TEMPLATES),
        help=f"what to start: {', '.join(TEMPLATES)}",
    )
    names = ", ".join(template.example for template in TEMPLATES.values())
    parser.add_argument("name", metavar="NAME", help=f"its name: {names}")
    parser.folder("--out", default=".", help="where to write it")


def main(args: Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        file = write(args.name, args.out, args.kind)
    except BadName as error:
        refuse([error])
    result(str(file))
    say(f"Next: undrift check {file}")
