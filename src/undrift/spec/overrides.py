"""Changes of a parsed document by flags of the command line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from undrift.core.params import unknown
from undrift.spec.errors import Complaint, Complaints, Place
from undrift.spec.lines import Keys
from undrift.spec.schema import SETTINGS, Values

TEXT = re.compile(r"[A-Za-z./~\\][^\n'\"]*")
"""A value that is taken as text though it is not TOML: a name, a path."""
SHORT = {
    "cohort": "size", "aggregation": "name", "objective": "name", "engine": "name",
    "schedule": "name", "optimiser": "name", "best": "metric",
}  # fmt: skip
"""Tables that may be given by this one value alone."""
WHOLE = ("problem", "network", "data", "judge", "stop", "training")
"""Tables that may not."""
ALLOWED = ("method.FIELD", "method.LABEL.FIELD", "problem.PARAMETER", "cohort.FIELD",
           "training.FIELD", "aggregation.FIELD", "objective.FIELD", "engine.OPTION", "judge.FIELD",
           "schedule.FIELD", "stop.FIELD", "best.FIELD", "network.PARAMETER", "data.PARAMETER",
           *SETTINGS)  # fmt: skip


class Flag(NamedTuple):
    """A change ``KEY=VALUE``, and how the user wrote it: ``-s rounds=5``, ``--store host``."""

    change: str
    written: str


Fields = Callable[[int, Values], Sequence[str]]
"""What can be set of the i-th [[method]], as far as that is known."""


def override(
    document: Values,
    flags: Iterable[str | Flag],
    fields: Fields,
    complaints: Complaints,
    *,
    more: bool = False,
) -> Values:
    """``document`` with the changes of ``flags``; a plain string is a flag after ``-s``.

    With ``more``, methods may have fields besides ``fields``: their files are not executed yet.
    """
    for given in flags:
        flag = given if isinstance(given, Flag) else Flag(given, f"-s {given}")
        key, equals, text = flag.change.partition("=")
        path = tuple(part.strip() for part in key.split("."))
        try:
            parsed = tomllib.loads(f"value = {text}")
        except (ValueError, RecursionError):
            parsed = {"value": text.strip()} if TEXT.fullmatch(text.strip()) else {}
        if not equals or len(parsed) != 1:
            examples = "such as rounds=50 or, for text, name='2nd try'"
            targets: list[Keys] | str = f"not KEY=VALUE with a TOML value, {examples}"
        else:
            targets = _targets(document, path, fields, more)
        if isinstance(targets, str):
            complaints.found.append(Complaint(path, targets, Place(flag.written)))
            continue
        for target in targets:
            document = _changed(document, target, parsed["value"])
            complaints.origin.flags[target] = flag.written
    return document


def tables(document: Values) -> list[Values]:
    """The [[method]]s of a document, if that is what it has under this name."""
    found = document.get("method")
    good = isinstance(found, list) and all(isinstance(table, dict) for table in found)
    return found if isinstance(found, list) and good else []


def _targets(
    document: Values, path: tuple[str, ...], fields: Fields, more: bool
) -> list[Keys] | str:
    """The places a flag changes (one, or a field of every method that has it), or a complaint."""
    methods = tables(document)
    match path:
        case (top,) if top not in ("problem", "method", "network", "data"):
            of_methods = any(top in fields(i, table) for i, table in enumerate(methods))
            if of_methods and top not in SETTINGS:
                return f"unknown key {top!r}; did you mean method.{top}?"
            return [path]
        case (top, _) if top in SHORT:
            return [path]
        case ("training", "optimiser", _):
            return [path]
        case (top, _) if top in WHOLE and isinstance(document.get(top, {}), dict):
            return [path]
        case ("method", "training", name):
            return [("method", i, "training", name) for i in range(len(methods))]
        case ("method", name):
            taken = [fields(i, table) for i, table in enumerate(methods)]
            found = [i for i, names in enumerate(taken) if name in names]
            if not found and not more:
                known = dict.fromkeys(field for names in taken for field in names)
                return unknown("parameter of the methods", name, known)
            return [("method", i, name) for i in found]
        case ("method", label, *names) if names:
            labels = [str(table.get("label", table.get("name"))) for table in methods]
            if label not in labels:
                return unknown("label of a method", label, labels)
            return [("method", labels.index(label), *names)]
    return unknown("key", ".".join(path), ALLOWED)


def _changed(old: object, path: Keys, value: object) -> Values:
    """The table ``old`` with ``value`` at ``path``; nothing is changed in place."""
    key, *rest = path
    table = dict(old) if isinstance(old, dict) else {}
    inner = table.get(str(key))
    if not rest:
        table[str(key)] = value
    elif isinstance(inner, list):
        at, *last = rest
        table[str(key)] = [
            _changed(item, tuple(last), value) if i == at else item for i, item in enumerate(inner)
        ]
    else:
        if inner is not None and not isinstance(inner, dict):
            inner = {SHORT[str(key)]: inner}
        table[str(key)] = _changed(inner, tuple(rest), value)
    return table
