"""``list``: methods, objectives, problems and settings, read off their declarations."""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import undrift.methods  # noqa: F401 - fills the registry
from undrift.cli.output import result_as
from undrift.cli.parser import Parser
from undrift.core.costs import costs, placeholder
from undrift.core.method import Method, registry
from undrift.core.params import Record, describe, fields, hints, meanings, needed
from undrift.data.cards import CARDS
from undrift.objectives.base import registry as losses
from undrift.report.table import Table, prose
from undrift.spec.document import inline
from undrift.theory import has_rule

METHODS = """\
up, down: vectors sent per client and round; server, client: vectors stored between rounds
a vector of which only some entries travel counts as one; the bytes of a run are those that travel
clients: all must take part in every round, or some may
exact: no bias on heterogeneous data; if all: in runs of which no client misses a round
*: may not be exactly its authors' recursion; undrift show NAME says why"""
OBJECTIVES = 'Local losses of networks: objective = "FedLC" in a spec whose problem is images.'
DATA = """\
Natural federations, whose clients are where the data are from. In a spec: name = "logistic" and \
data = "heart" in [problem], by the column problem; in Python undrift.data.federation("heart").
y apart, x apart: how much clients differ: the share of the variance of the target, and of the \
features, that is between them
y of each: each client's share of the most frequent class, or mean target, in ascending order
Image sets: undrift data info. Others: breast-cancer and digits, for logistic; files of your own."""
MORE = "One of the methods: undrift show FedRecu. Papers that can be run: undrift reproduce --list"
ABSENT: Mapping[str, Mapping[str, str]] = {
    "FedADMM": {"rule": "all"},
    "FedDC": {},
    "FedDyn": {},
    "Scaffold": {},
    "ScaffoldM": {},
}
"""Methods that stay exact while clients come and go, and with which parameters; tested."""
TABLES = {
    "[problem]": 'a name and the parameters in: undrift list problems; file = "mine.py" where it '
    "is your own: undrift new problem NAME",
    "[network]": "a file, a name and parameters of a network of your own, for images: undrift new "
    "network NAME",
    "[data]": "a file, a name and parameters of a function of your own that gives images",
    "[[method]]": "a name, a label if you like, and the parameters in: undrift show NAME; "
    'file = "mine.py" where it is your own: undrift new method NAME',
}


Listing = tuple[list[dict[str, object]], list[str]]
"""The rows of a list, and the lines that show them."""


def add(parser: Parser) -> None:
    parser.description = (
        "List the data that come with undrift, the methods with what they cost, the local "
        "objectives, the named problems with their parameters, or the settings of a spec. Without "
        "a word: what there is of each."
    )
    text = f"{', '.join(KINDS)}; left out: an overview"
    parser.add_argument("kind", nargs="?", choices=tuple(KINDS), help=text, metavar="KIND")
    parser.json()


def main(args: Namespace) -> None:
    document, lines = KINDS[args.kind]() if args.kind else overview()
    result_as(args.json, document, "\n".join(lines))


def overview() -> Listing:
    """How many there are of each kind, and the command that lists them."""
    counts = {kind: (len(found()[0]), f"undrift list {kind}") for kind, found in KINDS.items()}
    counts["image sets"] = len(CARDS), "undrift data info"
    rows = [{"what": n, "number": k, "command": text} for n, (k, text) in counts.items()]
    lines = [Table([*rows[0]], [[*row.values()] for row in rows], ["command"]).text()]
    return rows, [*lines, "", MORE]


def facts(cls: type[Method]) -> dict[str, object]:
    """What a method declares."""
    cost = costs(placeholder(cls))
    return {
        "name": cls.__name__,
        "title": cls.title,
        "paper": cls.paper,
        "vectors_up": cost.up,
        "vectors_down": cost.down,
        "stored_server": cost.server,
        "stored_client": cost.client,
        "syncs": cost.syncs,
        "participation": cls.participation,
        "exact": cls.exact,
        "provisional": cls.provisional,
        "assumptions": assumptions(cls),
        "robust": cls.robust,
        "needs_mean": cls.needs_mean,
        "needs_sgd": placeholder(cls).needs_sgd,
    }


@dataclasses.dataclass(frozen=True)
class Meaning:
    """A field of a method, an objective, a problem or a spec, with what it means."""

    name: str
    takes: str
    required: bool
    default: object
    theory: bool
    meaning: str

    def __str__(self) -> str:
        takes = f'{self.takes}, or "theory"' if self.theory else self.takes
        if self.required:
            takes += "; required"
        elif self.default is not None:
            takes += f"; default {inline(self.default)}"
        lines = prose(takes, f"  {self.name:<16} ", " " * 19)
        return f"{lines}\n{prose(self.meaning, ' ' * 19, ' ' * 19)}"


def methods() -> Listing:
    rows = [facts(registry[name]) for name in sorted(registry, key=str.casefold)]
    head = ["name", "up", "down", "server", "client", "clients", "exact", "title"]
    cells = [
        [
            f"{row['name']} *" if row["provisional"] else row["name"],
            row["vectors_up"],
            row["vectors_down"],
            row["stored_server"],
            row["stored_client"],
            "all" if row["participation"] == "full" else "some",
            when_exact(registry[str(row["name"])]),
            row["title"],
        ]
        for row in rows
    ]
    more = "\nMore on one of them: undrift show FedRecu"
    return rows, [Table(head, cells, head[5:]).text(), "", prose(METHODS), more]


def when_exact(method: type[Method]) -> str:
    """Whether, and when, a method reaches the minimiser on heterogeneous data."""
    always = method.participation == "full" or ABSENT.get(method.__name__) == {}
    return ("yes" if always else "if all") if method.exact else "no"


def objectives() -> Listing:
    found = {name: losses[name] for name in sorted(losses, key=str.casefold)}
    rows, lines = with_parameters(found)
    more = [{"paper": cls.paper, "needs": list(cls.needs)} for cls in found.values()]
    rows = [row | own for row, own in zip(rows, more, strict=True)]
    return rows, [*lines, "", prose(OBJECTIVES)]


def problems() -> Listing:
    from undrift.problems.named import registry as known

    return with_parameters(known)


def data() -> Listing:
    from undrift.data.natural import cards, federation

    rows: list[dict[str, object]] = []
    cells: list[list[object]] = []
    for name, card in cards().items():
        found = federation(name)
        (target, features), shares = found.between(), sorted(found.shares().tolist())
        between = {"target_between": target, "features_between": features}
        rows.append(dataclasses.asdict(card) | between | {"shares": shares})
        size = card.clients, f"{card.samples:,}", card.features, f"{target:.0%}", f"{features:.0%}"
        cells.append([name, card.problem, *size, card.licence, bars(shares)])
    head = ["name", "problem", "clients", "samples", "features", "y apart", "x apart"]
    words = ["licence", "y of each"]
    text = Table([*head, *words], cells, ["problem", *words]).text()
    return rows, [text, "", prose(DATA), "\nMore on one of them: undrift show heart"]


def bars(values: Sequence[float], most: int = 16) -> str:
    """A bar for each of some ascending numbers, of shares from 0 to 1 or else from their least to
    their greatest.

    >>> bars([0.0, 0.5, 1.0])
    '▁▅█'
    """
    some = [values[k * len(values) // most] for k in range(most)] if len(values) > most else values
    low, high = (0.0, 1.0) if values[0] >= 0 and values[-1] <= 1 else (values[0], values[-1])
    return "".join("▁▂▃▄▅▆▇█"[round(7 * (v - low) / (high - low))] for v in some)


def with_parameters(kinds: Mapping[str, Any]) -> Listing:
    """Problems or objectives by name, each with its title, then their parameters."""
    rows: list[dict[str, object]] = []
    head = ["name", "title"]
    lines = [Table(head, [[name, kind.title] for name, kind in kinds.items()], head).text()]
    for name, kind in kinds.items():
        parameters = explained(kind)
        rows.append({"name": name, "title": kind.title, "parameters": as_tables(parameters)})
        if parameters:
            lines += [f"\n{name}\n", shown(parameters)]
    return rows, lines


def settings() -> Listing:
    from undrift.core import aggregation, cohort, faults, optimisers, options, schedules, stopping
    from undrift.engines.options import registry as engines
    from undrift.spec import space
    from undrift.spec.schema import PER_METHOD, SETTINGS, Settings

    known = {row.name: row for row in explained(Settings)}
    parts = {
        "at the top of a spec": [known[name] for name in SETTINGS if name not in PER_METHOD],
        "at the top, or in a [[method]] for that one": [known[name] for name in PER_METHOD],
        "in [cohort]; cohort = 5 is the same as size = 5": explained(cohort.Sampling),
        "in [training]; a [[method]] may have one of its own, for what differs": explained(
            options.Training
        ),
        "in [[faults]], one for each thing that goes wrong": explained(faults.Fault),
        "in [judge]": explained(faults.Judging),
        "in [stop]": explained(stopping.EarlyStopping),
        'in [best]; best = "loss" is the same as metric = "loss"': explained(stopping.Goal),
        "in [tune], which undrift tune reads": explained(space.Tuning),
        "in place of a number of a [[method]] that is tuned, or run with each; a list is the same "
        "as values": explained(space.Several),
    }
    named: dict[str, Mapping[str, Any]] = {
        "aggregation": aggregation.registry,
        "schedule": schedules.registry,
        "training.optimiser": optimisers.registry,
    }
    parts |= {
        f'in [{table}] with name = "{name}", {kind.title}': explained(kind)
        for table, kinds in named.items()
        for name, kind in kinds.items()
    }
    own = {name: explained(engine) for name, engine in engines.items()}
    parts |= {f'in [engine] with name = "{name}"': rows for name, rows in own.items() if rows}
    document = [{"place": place} | row for place, rows in parts.items() for row in as_tables(rows)]
    lines = [f"{prose(place)}\n\n{shown(rows)}\n" for place, rows in parts.items()]
    lines += [prose(text, f"{name:<12}", " " * 12) for name, text in TABLES.items()]
    return document, lines


KINDS = {
    "data": data,
    "methods": methods,
    "objectives": objectives,
    "problems": problems,
    "settings": settings,
}


def assumptions(method: type[Method]) -> list[str]:
    """What a federation must have, in words."""
    full = method.participation == "full"
    found = {
        "every client takes part in every round": full,
        "any number of clients may take part in a round": not full,
        "every client takes the same number of local steps": method.equal_steps,
        "each client can minimise its own regularised problem exactly": method.solves,
    }
    return [text for text, holds in found.items() if holds]


def explained(cls: type) -> list[Meaning]:
    """The fields of a method, an objective, a problem or a spec."""
    declared, known = hints(cls), meanings(cls)
    return [
        Meaning(
            name=field.name,
            takes=describe(declared[field.name]),
            required=field.name in needed(cls),
            default=_default(field),
            theory=has_rule(cls, field.name),
            meaning=known.get(field.name, ""),
        )
        for field in fields(cls)
    ]


def shown(rows: Sequence[Meaning]) -> str:
    """Each field with what it takes and means."""
    return "\n".join(map(str, rows))


def as_tables(rows: Sequence[Meaning]) -> list[dict[str, object]]:
    return [dataclasses.asdict(row) for row in rows]


def _default(field: dataclasses.Field[object]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    value = None if field.default is dataclasses.MISSING else field.default
    return getattr(value, "name", None) if isinstance(value, Record) else value  # another table
