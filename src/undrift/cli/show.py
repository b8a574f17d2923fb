"""``show``: a method or a local objective with its update, parameters and source."""

from __future__ import annotations

import inspect
import re
from argparse import Namespace

from undrift.cli.listing import as_tables, assumptions, explained, facts, shown
from undrift.cli.output import refuse, result, result_json
from undrift.cli.parser import Parser
from undrift.core.costs import costs, placeholder
from undrift.core.method import Method, registry
from undrift.core.params import section, unknown
from undrift.methods import find
from undrift.objectives import Objective
from undrift.objectives import find as find_objective
from undrift.objectives.base import registry as losses
from undrift.report.numbers import count
from undrift.report.table import prose

NEEDS = {
    "global": "the model local training starts from",
    "previous": "the client's last local model",
    "features": "the network's features",
    "blocks": "the network's blocks",
    "label_counts": "the client's samples per class",
}
"""What an objective may need, in words."""


def add(parser: Parser) -> None:
    parser.description = (
        "Show a method (update, hyper-parameters, costs, assumptions, source) or a local objective."
    )
    text = "from: undrift list methods, or: undrift list objectives"
    parser.add_argument("name", metavar="NAME", help=text)
    parser.json()


def main(args: Namespace) -> None:
    found = find_objective(args.name) or find(args.name)
    if found is None:
        names = sorted([*registry, *losses], key=str.casefold)
        refuse([unknown("method or objective", args.name, names)])
    if args.json:
        more = {
            "update": update(found),
            "reference": " ".join(section(found, "References")),
            "parameters": as_tables(explained(found)),
            "source": inspect.getsource(found),
        }
        result_json(facts(found) | more)
    else:
        show(found)


def show(cls: type[Method] | type[Objective]) -> None:
    """Print all that is known of a method or an objective."""
    result(f"{cls.__name__}: {cls.title}\n{cls.paper}")
    if issubclass(cls, Method) and cls.provisional:
        result(f"Provisional: {cls.provisional}")
    result(f"\n{update(cls)}\n\n{shown(explained(cls))}\n")
    for title, text in remarks(cls).items():
        result(prose(text, f"{title:<12} ", " " * 13))
    result(f"\nSource       {cls.__module__}\n\n{inspect.getsource(cls).rstrip()}")


def remarks(cls: type[Method] | type[Objective]) -> dict[str, str]:
    """What is to be known of it besides its parameters: title -> text."""
    found = {}
    if issubclass(cls, Method):
        example = placeholder(cls)
        cost, why = costs(example), example.needs_sgd
        found["Costs"] = (
            f"{count(cost.up, 'vector')} up, {cost.down} down, per client and round "
            f"({count(cost.syncs, 'exchange')}); {cost.server} stored on the server, "
            f"{cost.client} on each client"
        )
        found["Assumptions"] = "; ".join(assumptions(cls))
        sgd = "SGD, or another optimiser (undrift list settings)"
        found["Local steps"] = f"no other optimiser: {why}" if why else sgd
        only = f"the mean only: {cls.needs_mean}" if cls.needs_mean else "the mean only"
        robust = "the mean, or a robust one (undrift list settings)"
        found["Reduction"] = robust if cls.robust else only
    else:
        found["Needs"] = ", ".join(NEEDS[need] for need in cls.needs) or "the local model only"
        found["Use"] = f'objective = "{cls.__name__}" in a spec whose problem is images'
    if text := " ".join(section(cls, "References")):
        found["Reference"] = text
    return found


def update(cls: type) -> str:
    """The docstring without its sections; formulas are in LaTeX."""
    text = inspect.getdoc(cls) or ""
    return re.split(r"^(?:Args|Example|References):$", text, flags=re.MULTILINE)[0].rstrip()
