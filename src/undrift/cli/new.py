"""``new``: the file of a method to start from."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from undrift.check.template import BadName, write
from undrift.cli.output import OK, cannot, refuse, result, say
from undrift.cli.parser import Parser


def add(parser: Parser) -> None:
    parser.description = "Write a file with a small working method, to be changed into your own."
    kinds = ("method",)
    parser.add_argument("kind", choices=kinds, metavar="method", help="what to start: a method")
    parser.add_argument("name", metavar="NAME", help="its name, with a capital letter: Mine")
    parser.folder("--out", default=".", help="where to write it")


def main(args: Namespace) -> int:
    folder: Path = args.out
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = write(args.name, folder)
    except BadName as error:
        refuse([error])
    except OSError as error:
        return cannot(error, folder)
    result(str(file))
    say(f"Next: undrift check {file}")
    return OK
