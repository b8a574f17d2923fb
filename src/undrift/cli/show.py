"""``show``: a method with its update, parameters and source."""

from __future__ import annotations

import inspect
import re
from argparse import Namespace

from undrift.cli.listing import as_tables, assumptions, explained, facts, shown
from undrift.cli.output import refuse, result, result_json
from undrift.cli.parser import Parser
from undrift.core.costs import costs, placeholder
from undrift.core.method import Method, registry
from undrift.core.params import unknown
from undrift.methods import find
from undrift.methods._papers import cited, reference
from undrift.report.numbers import count
from undrift.report.table import prose


def add(parser: Parser) -> None:
    parser.description = "Show a method: update, hyper-parameters, costs, assumptions, source."
    parser.add_argument("name", metavar="NAME", help="from: undrift list methods")
    parser.json()


def main(args: Namespace) -> None:
    found = find(args.name)
    if found is None:
        refuse([unknown("method", args.name, sorted(registry, key=str.casefold))])
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
