"""From tables of TOML to the dataclasses that declare them. Complaints are gathered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from undrift.core.params import BadParameters, made, read
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
    """``params.made``; ``None``, with the reasons among the complaints, where that fails."""
    try:
        return made(cls, table, kind=kind, names=names, theory=theory)
    except BadParameters as error:
        complaints.add_fields(path, error.problems)
    return None


def fields(
    cls: type,
    table: Mapping[str, object],
    path: Keys,
    complaints: Complaints,
    *,
    names: Iterable[str] | None = None,
    partial: bool = False,
) -> Values:
    """``params.read``, with what is wrong among the complaints."""
    values, problems = read(cls, table, kind="key", names=names, partial=partial)
    complaints.add_fields(path, problems)
    return values
