"""``show``: a method or a local objective with its update, parameters and source."""

from __future__ import annotations

import dataclasses
import inspect
import re
from argparse import Namespace

from undrift.cli.formulas import readable
from undrift.cli.listing import Facts, Meaning, ObjectiveFacts, explained
from undrift.cli.output import OK, refuse, result, result_json
from undrift.cli.parser import Parser
from undrift.core.method import Method, registry
from undrift.core.params import section, unknown
from undrift.methods import find
from undrift.objectives import Objective
from undrift.objectives import find as find_objective
from undrift.objectives.base import registry as losses
from undrift.report.text import prose, table

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


def main(args: Namespace) -> int:
    if found := find_objective(args.name):
        objective(found, args.json)
    elif known := find(args.name):
        method(known, args.json)
    else:
        names = sorted([*registry, *losses], key=str.casefold)
        refuse([unknown("method or objective", args.name, names)])
    return OK


def method(cls: type[Method], as_json: bool) -> None:
    facts, fields = Facts.of(cls), explained(cls)
    if as_json:
        page(cls, facts, fields)
        return
    head(cls, facts)
    if fields:
        columns = ["parameter", "default", "theory", "takes"]
        rows = [[p.name, p.usual, "yes" if p.theory else "no", p.takes] for p in fields]
        result(table(columns, rows))
        meanings(fields)
    else:
        result("no parameters")
    result("\n" + prose(costs(facts), f"{'Costs':<12} ", " " * 13))
    for k, text in enumerate(facts.assumptions):
        result(prose(text, f"{'' if k else 'Assumptions':<12} ", " " * 13))
    source(cls)


def objective(cls: type[Objective], as_json: bool) -> None:
    facts, fields = ObjectiveFacts.of(cls), explained(cls)
    if as_json:
        page(cls, facts, fields)
        return
    head(cls, facts)
    if fields:
        rows = [[p.name, p.usual, p.takes] for p in fields]
        result(table(["parameter", "default", "takes"], rows))
        meanings(fields)
    else:
        result("no parameters")
    needs = ", ".join(NEEDS[need] for need in facts.needs) or "the local model only"
    result(f"\nNeeds        {needs}")
    result(f'Use          objective = "{facts.name}" in a spec whose problem is images')
    source(cls)


def page(cls: type, facts: Facts | ObjectiveFacts, fields: list[Meaning]) -> None:
    """All of it as JSON."""
    more = {
        "update": update(cls),
        "reference": " ".join(section(cls, "References")),
        "parameters": [dataclasses.asdict(field) for field in fields],
        "source": inspect.getsource(cls),
    }
    result_json(dataclasses.asdict(facts) | more)


def head(cls: type, facts: Facts | ObjectiveFacts) -> None:
    result(f"{facts.name}: {facts.title}\n{facts.paper}")
    if isinstance(facts, Facts) and facts.provisional:
        result(f"Provisional: {facts.provisional}")
    result(f"\n{readable(update(cls))}\n")


def update(cls: type) -> str:
    """The docstring without its sections."""
    text = inspect.getdoc(cls) or ""
    return re.split(r"^(?:Args|Example|References):$", text, flags=re.MULTILINE)[0].rstrip()


def meanings(fields: list[Meaning]) -> None:
    width = max(len(p.name) for p in fields) + 2
    result("")
    for p in fields:
        result(prose(p.meaning, p.name.ljust(width), " " * width))


def source(cls: type) -> None:
    reference = " ".join(section(cls, "References"))
    if reference:
        result(prose(reference, f"{'Reference':<12} ", " " * 13))
    result(f"\nSource       {cls.__module__}\n\n{inspect.getsource(cls).rstrip()}")


def costs(facts: Facts) -> str:
    up = "1 vector" if facts.vectors_up == 1 else f"{facts.vectors_up} vectors"
    exchanges = "1 exchange" if facts.syncs == 1 else f"{facts.syncs} exchanges"
    return (
        f"{up} up, {facts.vectors_down} down, per client and round ({exchanges}); "
        f"{facts.stored_server} stored on the server, {facts.stored_client} on each client"
    )
