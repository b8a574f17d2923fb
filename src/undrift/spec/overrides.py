"""Changes of a parsed document by flags of the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence

from undrift.core.params import unknown
from undrift.spec.errors import Complaint, Keys, Origin
from undrift.spec.schema import SETTINGS, Values

SHORT = {"cohort": "size", "best": "metric"}
"""The key of a table that a value alone stands for; of other tables it is their name."""


def override(
    document: Values,
    flags: Iterable[str],
    fields: Sequence[Sequence[str]],
    origin: Origin,
) -> tuple[Values, list[Complaint]]:
    """``document`` with the changes ``KEY=VALUE`` of ``flags``.

    ``fields`` are what can be set of each method. A key that nobody knows is set like any other: it
    is refused where the document is read, and ``origin`` blames the flag.
    """
    complaints = []
    for flag in flags:
        key, equals, text = flag.partition("=")
        path, written = tuple(part.strip() for part in key.split(".")), f"-s {flag:.300}"
        try:
            if not equals:
                raise ValueError("not KEY=VALUE, as rounds=50")
            for target in _targets(document, path, fields):
                document = _changed(document, target, _value(text))
                origin.flags[target] = written
        except ValueError as error:
            complaints.append(Complaint(path, str(error), written))
    return document, complaints


def tables(document: Values) -> list[Values]:
    """The [[method]]s of a document, if that is what it has under this name."""
    found = document.get("method")
    good = isinstance(found, list) and all(isinstance(table, dict) for table in found)
    return found if isinstance(found, list) and good else []


def _value(text: str) -> object:
    """The value of a flag: TOML, or else text, as a name or a path."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        parsed = {}
    return parsed["value"] if len(parsed) == 1 else text.strip()


def _targets(
    document: Values, path: tuple[str, ...], fields: Sequence[Sequence[str]]
) -> list[Keys]:
    """The places a flag changes: one, or a field of every method that has it."""
    top, *rest = path
    if top != "method" or not rest:
        if len(path) == 1 and top not in SETTINGS and any(top in names for names in fields):
            raise ValueError(f"unknown key {top!r}; did you mean method.{top}?")
        return [path]
    labels = [str(table.get("label", table.get("name"))) for table in tables(document)]
    chosen = [*range(len(labels))]
    if rest[0] in labels and rest[1:]:
        chosen, rest = [labels.index(rest[0])], rest[1:]
    found: list[Keys] = [("method", i, *rest) for i in chosen if rest[0] in fields[i]]
    if not found:
        known = dict.fromkeys([*(name for i in chosen for name in fields[i]), *labels])
        raise ValueError(unknown("parameter of the methods", rest[0], known))
    return found


def _changed(old: object, path: Keys, value: object) -> Values:
    """The table ``old`` with ``value`` at ``path``; nothing is changed in place."""
    key, *rest = path
    table = dict(old) if isinstance(old, dict) else {}
    inner = table.get(str(key))
    if not rest:
        table[str(key)] = value
    elif isinstance(inner, list) and isinstance(rest[0], int):
        changed = _changed(inner[rest[0]], tuple(rest[1:]), value)
        table[str(key)] = [*inner[: rest[0]], changed, *inner[rest[0] + 1 :]]
    else:
        if inner is not None and not isinstance(inner, dict):
            inner = {SHORT.get(str(key), "name"): inner}
        table[str(key)] = _changed(inner, tuple(rest), value)
    return table
