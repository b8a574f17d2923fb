"""``list`` and ``show``: what there is, read off the declarations."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from undrift.cli.talk import OK, refuse, result, result_json
from undrift.core.costs import costs, placeholder
from undrift.core.method import Method, registry
from undrift.core.params import describe, hints, meanings, unknown
from undrift.methods import find
from undrift.objectives import Objective
from undrift.objectives import find as find_objective
from undrift.objectives.base import registry as losses
from undrift.report.text import NONE, prose, table
from undrift.theory.rules import has_rule

NEEDS = {
    "global": "the model local training starts from",
    "previous": "the client's last local model",
    "features": "the network's features",
    "blocks": "the network's blocks",
    "label_counts": "the client's samples per class",
}
"""What an objective may need, in words."""


def methods(as_json: bool) -> int:
    rows = [facts(registry[name]) for name in sorted(registry, key=str.casefold)]
    if as_json:
        result_json(rows)
        return OK
    head = ["name", "up", "down", "server", "client", "clients", "exact", "title"]
    cells = [
        [
            row["name"] + " *" * bool(row["provisional"]),
            row["vectors_up"],
            row["vectors_down"],
            row["stored_server"],
            row["stored_client"],
            "all" if row["participation"] == "full" else "some",
            "yes" if row["exact"] else "no",
            row["title"],
        ]
        for row in rows
    ]
    result(table(head, cells, right=head[1:5]))
    result("")
    result(
        prose(
            "up, down: vectors sent per client and round; server, client: vectors stored between rounds"
        )
    )
    result(
        prose(
            "a vector of which only some entries travel counts as one; the bytes of a run are those that travel"
        )
    )
    result(
        prose(
            "clients: all must take part in every round, or some may; exact: no bias on heterogeneous data"
        )
    )
    if any(row["provisional"] for row in rows):
        result(
            prose("*: this may not be exactly its authors' recursion; undrift show NAME says why")
        )
    result("\nMore on one of them: undrift show FedRecu")
    return OK


def problems(as_json: bool) -> int:
    from undrift.problems.named import registry as known

    rows: list[dict[str, Any]] = [
        {"name": name, "title": kind.title, "parameters": _explained(kind)}
        for name, kind in known.items()
    ]
    if as_json:
        result_json(rows)
        return OK
    result(table(["name", "title"], [[row["name"], row["title"]] for row in rows]))
    for row in rows:
        result(f"\n{row['name']}\n")
        _explain(row["parameters"])
    return OK


def settings(as_json: bool) -> int:
    from undrift.core.cohort import Sampling
    from undrift.spec.schema import SETTINGS, TRAINING, Settings

    known = {row["name"]: row for row in _explained(Settings)}
    known["cohort"]["takes"], known["objective"]["takes"] = (
        "whole number >= 1 or table",
        "text or table",
    )
    parts = {
        "at the top of a spec": [known[name] for name in SETTINGS if name not in TRAINING],
        "at the top, or in a [[method]] for that one": [known[name] for name in TRAINING],
        "in [cohort]; cohort = 5 is the same as size = 5": _explained(Sampling),
    }
    if as_json:
        result_json([{"place": place} | row for place, rows in parts.items() for row in rows])
        return OK
    for place, rows in parts.items():
        result(f"{place}\n")
        _explain(rows)
        result("")
    method = 'a name, a label if you like, and the parameters in: undrift show NAME; file = "mine.py" where it is your own'
    result(prose("a name and the parameters in: undrift list problems", "[problem]   ", " " * 12))
    result(prose(method, "[[method]]  ", " " * 12))
    return OK


def objectives(as_json: bool) -> int:
    rows = [_objective(losses[name]) for name in sorted(losses, key=str.casefold)]
    if as_json:
        result_json(rows)
        return OK
    head = ["name", "needs", "title"]
    result(
        table(head, [[row["name"], ", ".join(row["needs"]) or NONE, row["title"]] for row in rows])
    )
    result("")
    result(
        prose(
            "needs: what it looks at besides the local model. Objectives are for networks: problem images."
        )
    )
    result("\nMore on one of them: undrift show FedLC")
    return OK


def show(name: str, as_json: bool) -> int:
    objective = find_objective(name)
    cls: Any = objective or find(name)
    if cls is None:
        refuse(
            [unknown("method or objective", name, sorted([*registry, *losses], key=str.casefold))]
        )
    page = (_objective if objective else facts)(cls)
    page |= {
        "update": inspect.getdoc(cls) or "",
        "parameters": parameters(cls),
        "source": inspect.getsource(cls),
    }
    if as_json:
        result_json(page)
        return OK
    result(f"{page['name']}: {page['title']}\n{page['paper']}")
    if page.get("provisional"):
        result(f"Provisional: {page['provisional']}")
    result(f"\n{page['update']}\n")
    result(_parameter_table(page["parameters"], theory=objective is None))
    if objective:
        result(
            f"\nNeeds        {', '.join(NEEDS[need] for need in page['needs']) or 'the local model only'}"
        )
        result(f"Use          objective = {_toml(page['name'])} in a spec whose problem is images")
    else:
        result("\n" + prose(_costs(page), f"{'Costs':<12} ", " " * 13))
        for k, text in enumerate(page["assumptions"]):
            result(prose(text, f"{'' if k else 'Assumptions':<12} ", " " * 13))
    result(f"\nSource       {cls.__module__}\n\n{page['source'].rstrip()}")
    return OK


def _objective(cls: type[Objective]) -> dict[str, Any]:
    return {"name": cls.__name__, "title": cls.title, "paper": cls.paper, "needs": list(cls.needs)}


def facts(cls: type[Method]) -> dict[str, Any]:
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
    }


def assumptions(cls: type[Method]) -> list[str]:
    """What a federation must have, in words."""
    full, equal = cls.participation == "full", cls.equal_steps
    return [
        "every client takes part in every round"
        if full
        else "any number of clients may take part in a round",
        *["every client takes the same number of local steps"] * equal,
        *["each client can minimise its own regularised problem exactly"] * cls.solves,
    ]


def parameters(cls: type) -> list[dict[str, Any]]:
    """The fields of a method or of a problem."""
    declared = hints(cls)
    return [
        {
            "name": field.name,
            "takes": describe(declared[field.name]),
            "required": field.default is field.default_factory is dataclasses.MISSING,
            "default": _usual(field),
            "theory": has_rule(cls.__name__, field.name),
        }
        for field in dataclasses.fields(cls)
    ]


def _explained(cls: type) -> list[dict[str, Any]]:
    """The fields of a problem or of a spec, with what they mean."""
    said = meanings(cls)
    return [row | {"meaning": said.get(row["name"], "")} for row in parameters(cls)]


def _explain(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        usual = "" if row["default"] is None else f"; default {_toml(row['default'])}"
        takes = row["takes"] + ("; required" if row["required"] else usual)
        result(prose(takes, f"  {row['name']:<16} ", " " * 19))
        result(prose(row["meaning"], " " * 19, " " * 19))


def _usual(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _parameter_table(rows: list[dict[str, Any]], theory: bool) -> str:
    head = ["parameter", "default", *["theory"] * theory, "takes"]
    cells = []
    for row in rows:
        default = (
            "required"
            if row["required"]
            else NONE
            if row["default"] is None
            else _toml(row["default"])
        )
        cells.append(
            [row["name"], default, *["yes" if row["theory"] else "no"] * theory, row["takes"]]
        )
    return table(head, cells) if rows else "no parameters"


def _toml(value: Any) -> str:
    """A value as a spec would have it."""
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f'"{value}"'
        if isinstance(value, str)
        else str(value)
    )


def _costs(row: dict[str, Any]) -> str:
    up, down, syncs = row["vectors_up"], row["vectors_down"], row["syncs"]
    return (
        f"{up} vector{'s' * (up > 1)} up, {down} down, per client and round ({syncs} exchange{'s' * (syncs > 1)}); "
        f"{row['stored_server']} stored on the server, {row['stored_client']} on each client"
    )
