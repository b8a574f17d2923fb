"""The settings of a spec that are tables, or names of what a table has the parameters of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from undrift.core import optimisers, robust, schedules
from undrift.core.cohort import Sampling, sampling
from undrift.core.faults import Fault, Judging, judging
from undrift.core.params import BadParameters, not_allowed, not_named
from undrift.core.robust import Robust
from undrift.core.stopping import EarlyStopping, Goal
from undrift.spec.errors import Complaints
from undrift.spec.lines import Keys
from undrift.spec.schema import Values
from undrift.spec.structure import structure

T = TypeVar("T")


def _cohort(given: object, complaints: Complaints) -> Sampling | None:
    if isinstance(given, dict):
        return _table("cohort", Sampling, given, complaints)
    try:
        return sampling(given)
    except BadParameters as error:
        complaints.add(("cohort",), error.problems["cohort"])
        return None


def _reduction(given: object, complaints: Complaints) -> Robust | None:
    return _chosen("reduction", given, (), robust.registry, robust.EXAMPLE, complaints)


def _stop(given: object, complaints: Complaints) -> EarlyStopping | None:
    """What ends a method early."""
    if isinstance(given, dict):
        return _table("stop", EarlyStopping, given, complaints)
    if given is not None:
        complaints.add(("stop",), not_allowed("stop", given, "a table, as {patience = 10}"))
    return None


def _best(given: object, complaints: Complaints) -> Goal | None:
    """What the best model is best in."""
    if given is None:
        return None
    return _table("best", Goal, given if isinstance(given, dict) else {"metric": given}, complaints)


def _faults(given: object, complaints: Complaints) -> list[Fault] | None:
    """What clients do wrong; ``None`` where they do nothing wrong."""
    if given is None:
        return None
    if not (isinstance(given, list) and all(isinstance(table, dict) for table in given)):
        complaints.add(("faults",), "write [[faults]], with two brackets, and a kind in each")
        return None
    kind = "parameter of faults"
    found = [structure(Fault, t, ("faults", i), complaints, kind=kind) for i, t in enumerate(given)]
    return [fault for fault in found if fault] or None


def _judge(given: object, complaints: Complaints) -> Judging | None:
    """How work is judged; ``None`` where that is as usual."""
    if isinstance(given, dict):
        found = _table("judge", Judging, given, complaints)
        return None if found == Judging() else found
    try:
        judging(given)
    except BadParameters as error:
        complaints.add(("judge",), error.problems["judge"])
    return None


TABLES: Mapping[str, Callable[[object, Complaints], object]] = {
    "cohort": _cohort,
    "reduction": _reduction,
    "stop": _stop,
    "best": _best,
    "faults": _faults,
    "judge": _judge,
}
"""The settings at the top that may be tables, or are a list of them, and what reads them."""


def stepping(table: Values, path: Keys, complaints: Complaints) -> Values:
    """How lr changes, and who takes local steps: at the top, or in a [[method]]."""
    choices = {"schedule": schedules, "local": optimisers}
    return {
        key: _chosen(key, table.get(key), path, module.registry, module.EXAMPLE, complaints)
        for key, module in choices.items()
    }


def _chosen(
    key: str,
    given: object,
    path: Keys,
    known: Mapping[str, type[T]],
    example: str,
    complaints: Complaints,
) -> T | None:
    """What is given as ``key``: a name, or a table with one."""
    if given is None:
        return None
    path = (*path, key)
    values: Values = dict(given) if isinstance(given, dict) else {"name": given}
    name = values.pop("name", None)
    if text := not_named(key, name, known, example):
        complaints.add((*path, "name"), text)
        return None
    return structure(known[name], values, path, complaints, kind=f"parameter of {name}")


def _table(name: str, cls: type[T], given: Values, complaints: Complaints) -> T | None:
    return structure(cls, given, (name,), complaints, kind=f"parameter of {name}")
