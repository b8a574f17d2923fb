"""``show``: a method or a local objective with its update, parameters and source."""

from __future__ import annotations

import inspect
import re
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

from undrift.cli.listing import as_tables, assumptions, explain, explained, facts
from undrift.cli.output import OK, refuse, result, result_json
from undrift.cli.parser import Parser
from undrift.core.costs import costs, placeholder
from undrift.core.method import Method, registry
from undrift.core.params import section, unknown
from undrift.methods import find
from undrift.objectives import Objective
from undrift.objectives import find as find_objective
from undrift.objectives.base import registry as losses
from undrift.problems.by_file import OBJECTIVE, OF_IMAGES
from undrift.report.numbers import count
from undrift.report.table import prose
from undrift.spec.errors import BadFile
from undrift.spec.functions import Unfit
from undrift.spec.functions import parameters as parameters_of
from undrift.spec.user_files import execute

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
        "Show a method (update, hyper-parameters, costs, assumptions, source) or a local "
        "objective; of a Python file, which is executed, those that it defines and the functions "
        "that a spec can call."
    )
    text = "from: undrift list methods, or: undrift list objectives; or a file"
    parser.add_argument("name", metavar="NAME", help=text)
    parser.json()


def main(args: Namespace) -> int:
    if args.name.endswith(".py"):
        return show_file(Path(args.name), args.json)
    found = find_objective(args.name) or find(args.name)
    if found is None:
        names = sorted([*registry, *losses], key=str.casefold)
        refuse([unknown("method or objective", args.name, names)])
    if args.json:
        result_json(known(found))
    else:
        show(found)
    return OK


def known(cls: type[Method] | type[Objective]) -> dict[str, object]:
    """All that is known of a method or an objective."""
    more = {
        "update": update(cls),
        "reference": " ".join(section(cls, "References")),
        "parameters": as_tables(explained(cls)),
        "source": inspect.getsource(cls),
    }
    return facts(cls) | more


def show_file(file: Path, as_json: bool) -> int:
    """Show what a user's file defines."""
    try:
        found = execute(file)
    except BadFile as error:
        refuse([error])
    classes: list[type[Method] | type[Objective]] = [*found.methods, *found.objectives]
    makers = {}
    for name, maker in found.makers.items():
        with suppress(Unfit):  # it has parameters that no spec can give
            makers[name] = parameters_of(maker, (OBJECTIVE, *OF_IMAGES))
    titles = {name: (cls.__doc__ or "").strip().partition("\n")[0] for name, cls in makers.items()}
    if as_json:
        functions = [
            {"name": name, "title": titles[name], "parameters": as_tables(explained(cls))}
            for name, cls in makers.items()
        ]
        result_json([*map(known, classes), *functions])
        return OK
    for shown in classes:
        show(shown, file)
        result("")
    for name, cls in makers.items():
        result(f"{name} in {file}: {titles[name]}\n")
        explain(explained(cls))
        result("")
    return OK


def show(cls: type[Method] | type[Objective], file: Path | None = None) -> None:
    """Print all that is known of a method or an objective, which a user's ``file`` may define: of
    such a class not the title and the paper that it inherits.
    """
    own = vars(cls) if file else {"title", "paper"}
    where = f" in {file}" if file else ""
    derived = f", derived from {cls.__bases__[0].__name__}"
    result(f"{cls.__name__}{where}{f': {cls.title}' if 'title' in own else derived}")
    if "paper" in own:
        result(cls.paper)
    if issubclass(cls, Method) and cls.provisional:
        result(f"Provisional: {cls.provisional}")
    result(f"\n{update(cls)}\n")
    explain(explained(cls))
    result("")
    for title, text in remarks(cls).items():
        result(prose(text, f"{title:<12} ", " " * 13))
    result(f"\nSource       {file or cls.__module__}\n\n{inspect.getsource(cls).rstrip()}")


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
