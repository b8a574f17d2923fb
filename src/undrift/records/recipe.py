"""What a run folder is made from, and how two such recipes differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Protocol

from undrift.spec.schema import Table, Values, normal

GIVEN = "given"
"""What is said of a method that another recipe does not have."""
PYTHON = "python"
"""The key of [problem] with the class of a problem that only its author's program can build."""


class Recipe(Protocol):
    """What a run folder is made from: a spec, or a call of ``undrift.run``."""

    @property
    def name(self) -> str: ...
    @property
    def sources(self) -> Mapping[str, bytes]:
        """Python files that belong to it."""

    @property
    def identity(self) -> str:
        """A fingerprint of everything that decides the numbers."""

    def document(self) -> Values:
        """Everything it says, as TOML holds it."""

    def toml(self) -> str: ...


def digest_of_call(document: Table) -> str:
    """The identity of a call of ``undrift.run`` that no spec can describe, whatever its name."""
    tables = {key: value for key, value in document.items() if key != "name"}
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()


def changes(before: Table, now: Table) -> dict[str, str]:
    """What ``now`` changes of ``before``: dotted key -> in words."""
    old, new = _flat(normal(before)), _flat(normal(now))
    keys = [k for k in dict.fromkeys([*old, *new]) if old.get(k) != new.get(k) and k != "name"]
    methods = tuple(f"{key}." for key in keys if GIVEN in (old.get(key), new.get(key)))
    return {
        key: f"{key} was {old.get(key, 'not set')} and is {new.get(key, 'not set')}"
        for key in keys
        if not key.startswith(methods)  # all of a method that is new, or gone, is one change
    }


def _flat(table: Table, before: str = "") -> dict[str, object]:
    """Dotted key -> value, methods by their labels."""
    found: dict[str, object] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{key}.")
        elif key == "method" and isinstance(value, list):
            for k, entry in enumerate(value):
                label = entry.get("label", k)
                found |= {f"method.{label}": GIVEN} | _flat(entry, f"method.{label}.")
        else:
            found[f"{before}{key}"] = value
    return found
