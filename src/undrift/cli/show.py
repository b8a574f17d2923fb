"""``show``: a method or a local objective with its update, parameters and source."""

from __future__ import annotations

import inspect
import re
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

from undrift.cli.formulas import readable
from undrift.cli.listing import Meaning, as_tables, assumptions, explained, facts
from undrift.cli.output import OK, refuse, result, result_json
from undrift.cli.parser import Parser
from undrift.core.costs import Costs, costs, placeholder
from undrift.core.method import Method, registry
from undrift.core.params import section, unknown
from undrift.methods import find
from undrift.objectives import Objective
from undrift.objectives import find as find_objective
from undrift.objectives.base import registry as losses
from undrift.problems.by_file import OBJECTIVE, OF_IMAGES
from undrift.report.table import Table, prose
from undrift.spec.errors import BadFile
from undrift.spec.functions import Unfit
from undrift.spec.functions import parameters as parameters_of
from undrift.spec.plugins import execute

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
        "reference": reference(cls),
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
    if as_json:
        functions = [
            {"name": name, "title": title(cls), "parameters": as_tables(explained(cls))}
            for name, cls in makers.items()
        ]
        result_json([*map(known, classes), *functions])
        return OK
    for shown in classes:
        show(shown, file)
        result("")
    for name, cls in makers.items():
        result(f"{name} in {file}: {title(cls)}\n")
        parameters(explained(cls), theory=False)
        result("")
    return OK


def title(cls: type) -> str:
    """The first line of a docstring."""
    return (cls.__doc__ or "").strip().partition("\n")[0]


def heading(cls: type[Method] | type[Objective], file: Path | None) -> str:
    """The name, the title and the paper; of a class in a user's file not those that it inherits."""
    if file is None:
        return f"{cls.__name__}: {cls.title}\n{cls.paper}"
    own = vars(cls)
    title = f": {cls.title}" if "title" in own else f", derived from {cls.__bases__[0].__name__}"
    paper = f"\n{cls.paper}" if "paper" in own else ""
    return f"{cls.__name__} in {file}{title}{paper}"


def show(cls: type[Method] | type[Objective], file: Path | None = None) -> None:
    """Print all that is known of a method or an objective, which a user's ``file`` may define."""
    result(heading(cls, file))
    if issubclass(cls, Method) and cls.provisional:
        result(f"Provisional: {cls.provisional}")
    result(f"\n{readable(update(cls))}\n")
    parameters(explained(cls), theory=issubclass(cls, Method))
    result("")
    if issubclass(cls, Method):
        titled("Costs", spending(costs(placeholder(cls))))
        for k, text in enumerate(assumptions(cls)):
            titled("" if k else "Assumptions", text)
        titled("Local steps", local_steps(cls))
        titled("Reduction", reductions(cls))
    else:
        titled("Needs", ", ".join(NEEDS[need] for need in cls.needs) or "the local model only")
        titled("Use", f'objective = "{cls.__name__}" in a spec whose problem is images')
    if text := reference(cls):
        titled("Reference", text)
    result(f"\nSource       {file or cls.__module__}\n\n{inspect.getsource(cls).rstrip()}")


def titled(title: str, text: str) -> None:
    """Prose under a title that stands before it."""
    result(prose(text, f"{title:<12} ", " " * 13))


def parameters(fields: list[Meaning], theory: bool) -> None:
    """What each takes and means; with ``theory``, also whether that can set it."""
    if not fields:
        result("no parameters")
        return
    columns = {
        "parameter": [p.name for p in fields],
        "default": [p.usual for p in fields],
        "theory": ["yes" if p.theory else "no" for p in fields],
        "takes": [p.takes for p in fields],
    }
    if not theory:
        del columns["theory"]
    result(Table([*columns], [*zip(*columns.values(), strict=True)], columns).text())
    result("")
    width = max(len(p.name) for p in fields) + 2
    for p in fields:
        result(prose(p.meaning, p.name.ljust(width), " " * width))


def reductions(cls: type[Method]) -> str:
    if cls.robust:
        return "the mean, or a robust one (undrift list settings)"
    return f"the mean only: {cls.needs_mean}" if cls.needs_mean else "the mean only"


def local_steps(cls: type[Method]) -> str:
    if why := placeholder(cls).needs_sgd:
        return f"no other optimiser: {why}"
    return "SGD, or another optimiser (undrift list settings)"


def reference(cls: type) -> str:
    return " ".join(section(cls, "References"))


def update(cls: type) -> str:
    """The docstring without its sections."""
    text = inspect.getdoc(cls) or ""
    return re.split(r"^(?:Args|Example|References):$", text, flags=re.MULTILINE)[0].rstrip()


def spending(cost: Costs) -> str:
    up = "1 vector" if cost.up == 1 else f"{cost.up} vectors"
    exchanges = "1 exchange" if cost.syncs == 1 else f"{cost.syncs} exchanges"
    return (
        f"{up} up, {cost.down} down, per client and round ({exchanges}); "
        f"{cost.server} stored on the server, {cost.client} on each client"
    )
