"""From tables of TOML to the dataclasses that declare them. Complaints are gathered."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from typing import TypeVar

from undrift.core.params import BadParameters, alternatives, check, hints
from undrift.spec.errors import Complaints
from undrift.spec.lines import Keys
from undrift.spec.schema import Values

T = TypeVar("T")


def structure(
    cls: type[T],
    table: Mapping[str, object],
    path: Keys,
    complaints: Complaints,
    *,
    kind: str,
    names: Iterable[str] | None = None,
    theory: bool = False,
) -> T | None:
    """``cls(**table)``, with the tables inside it structured as ``cls`` declares them.

    ``None`` where that is not possible; the reasons are then among the complaints. ``kind``,
    ``names`` and ``theory`` are those of ``params.check``.
    """
    before = len(complaints.found)
    values = fields(cls, table, path, complaints, kind=kind, names=names, theory=theory)
    if len(complaints.found) == before:
        try:
            return cls(**values)
        except BadParameters as error:
            complaints.add_fields(path, error.problems)
    return None


def fields(
    cls: type,
    table: Mapping[str, object],
    path: Keys,
    complaints: Complaints,
    *,
    kind: str = "key",
    names: Iterable[str] | None = None,
    theory: bool = False,
    partial: bool = False,
) -> Values:
    """The values of ``table`` that are as ``cls`` declares them, and complaints about the others.

    With ``partial`` a field may be missing.
    """
    declared, values, bad = hints(cls), dict[str, object](), set[str]()
    for key, value in table.items():
        before = len(complaints.found)
        values[key] = _inner(declared.get(key), value, (*path, key), complaints, key)
        if len(complaints.found) > before:
            bad.add(key)
    wrong = check(cls, values, theory=theory, kind=kind, names=names, partial=partial)
    wrong = {key: text for key, text in wrong.items() if key not in bad}
    complaints.add_fields(path, wrong)
    return {key: value for key, value in values.items() if key not in wrong and key not in bad}


def _inner(hint: object, value: object, path: Keys, complaints: Complaints, owner: str) -> object:
    """``value`` with the tables in it structured, where ``hint`` declares dataclasses."""
    for choice in alternatives(hint) or (hint,):
        if isinstance(choice, type) and dataclasses.is_dataclass(choice):
            if isinstance(value, Mapping):
                return structure(choice, value, path, complaints, kind=f"parameter of {owner}")
        elif typing.get_origin(choice) is list and isinstance(value, list):
            (item,) = typing.get_args(choice)
            return [_inner(item, v, (*path, i), complaints, owner) for i, v in enumerate(value)]
    return value
