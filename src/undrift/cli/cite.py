"""``cite``: the papers of methods, or undrift itself, as BibTeX."""

from __future__ import annotations

from argparse import Namespace

from undrift import __version__
from undrift.cli.output import refuse, result_as
from undrift.cli.parser import Parser
from undrift.core.method import registry
from undrift.core.params import unknown
from undrift.methods import find
from undrift.methods._papers import cited, papers, reference
from undrift.objectives.base import registry as losses


def add(parser: Parser) -> None:
    parser.description = (
        "Print the papers of methods and objectives as BibTeX, in plain form as comments above; "
        "without a name, how to cite undrift."
    )
    parser.add_argument(
        "names",
        metavar="METHOD",
        nargs="*",
        help="methods or objectives, from: undrift list methods, undrift list objectives",
    )
    parser.json()


def main(args: Namespace) -> None:
    known = {name: losses.get(name) or find(name) for name in args.names}
    names = sorted({*registry, *losses}, key=str.casefold)
    if lost := [unknown("method", name, names) for name, cls in known.items() if cls is None]:
        refuse(lost)
    found = {cls.__name__: (reference(cls), cited(cls)) for cls in known.values() if cls}
    if not found:
        own = papers()["undrift"].replace("VERSION", __version__)
        found = {"undrift": ("", {"undrift": own})}
    rows = [
        {
            "name": name,
            "reference": plain,
            "keys": [*entries],
            "bibtex": "\n\n".join(entries.values()),
        }
        for name, (plain, entries) in found.items()
    ]
    lines = [f"% {name}: {plain}" for name, (plain, _) in found.items() if plain]
    texts = dict.fromkeys(text for _, entries in found.values() for text in entries.values())
    result_as(args.json, rows, "\n\n".join(filter(None, ["\n".join(lines), *texts])))
