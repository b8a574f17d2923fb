"""``show``: a method with its update, parameters and source, or a natural federation."""

from __future__ import annotations

import dataclasses
import inspect
import re
from argparse import Namespace

from undrift.cli.listing import as_tables, assumptions, explained, facts, shown
from undrift.cli.output import refuse, result, result_as, result_json
from undrift.cli.parser import Parser
from undrift.core.costs import costs, placeholder
from undrift.core.method import Method, registry
from undrift.core.params import unknown
from undrift.data.natural import NaturalCard, cards
from undrift.methods import find
from undrift.methods._papers import cited, reference
from undrift.report.numbers import count
from undrift.report.table import prose


def add(parser: Parser) -> None:
    parser.description = (
        "Show a method: update, hyper-parameters, costs, assumptions, source. Or data that come "
        "with undrift: what they are, and where they are from."
    )
    parser.add_argument("name", metavar="NAME", help="from: undrift list methods, or data")
    parser.json()


def main(args: Namespace) -> None:
    found, card = find(args.name), cards().get(args.name)
    if card is not None:
        result_as(args.json, dataclasses.asdict(card), described(card))
        return
    if found is None:
        known = [*sorted(registry, key=str.casefold), *cards()]
        refuse(
            [unknown("method or data", args.name, known)],
            "A run: undrift compare RUN. Problems, objectives and settings: undrift list problems, "
            "and so on. Image sets: undrift data info.",
        )
    if args.json:
        more = {
            "update": update(found),
            "reference": reference(found),
            "cite": [*cited(found)],
            "parameters": as_tables(explained(found)),
            "source": inspect.getsource(found),
        }
        result_json(facts(found) | more)
    else:
        show(found)


def described(card: NaturalCard) -> str:
    """All that is known of a natural federation."""
    table = {
        "Clients": f"{card.clients}; each is {card.client}",
        "They differ": f"in {card.differ}",
        "Samples": f"{card.samples:,} of {card.features} features",
        "Target": card.target,
        "Classes": ", ".join(card.classes),
        "Prepared": f"{card.prepared}. Features, and a measured target, have mean 0 and standard "
        "deviation 1 over all clients; what is missing is 0, and a column says where if more than "
        "a tenth of the samples lack it",
        "Licence": card.licence,
        "Source": card.source,
        "Cite": card.citation,
        "In a spec": f'name = "{card.problem}" and data = "{card.name}" in [problem]',
        "In Python": f'undrift.data.federation("{card.name}")',
    }
    lines = [prose(text, f"{title:<12} ", " " * 13) for title, text in table.items() if text]
    return "\n".join([f"{card.name}: {card.title}\n", *lines])


def show(cls: type[Method]) -> None:
    """Print all that is known of a method."""
    result(f"{cls.__name__}: {cls.title}\n{cls.paper}")
    if cls.provisional:
        result(f"Provisional: {cls.provisional}")
    result(f"\n{update(cls)}\n\n{shown(explained(cls))}\n")
    for title, text in remarks(cls).items():
        result(prose(text, f"{title:<12} ", " " * 13))
    result(f"\nSource       {cls.__module__}\n\n{inspect.getsource(cls).rstrip()}")


def remarks(cls: type[Method]) -> dict[str, str]:
    """What is to be known of it besides its parameters: title -> text."""
    example = placeholder(cls)
    cost, why = costs(example), example.needs_sgd
    sgd = "SGD, or another optimiser (undrift list settings)"
    only = f"the mean only: {cls.needs_mean}" if cls.needs_mean else "the mean only"
    robust = "the mean, or a robust one (undrift list settings)"
    return {
        "Costs": f"{count(cost.up, 'vector')} up, {cost.down} down, per client and round "
        f"({count(cost.syncs, 'exchange')}); {cost.server} stored on the server, "
        f"{cost.client} on each client",
        "Assumptions": "; ".join(assumptions(cls)),
        "Local steps": f"no other optimiser: {why}" if why else sgd,
        "Reduction": robust if cls.robust else only,
        "Reference": reference(cls),
        "Cited as": f"{', '.join(cited(cls))} (undrift cite {cls.__name__})",
    }


def update(cls: type) -> str:
    """The docstring without its sections; formulas are in LaTeX."""
    text = inspect.getdoc(cls) or ""
    return re.split(r"^(?:Args|Example|References):$", text, flags=re.MULTILINE)[0].rstrip()
