"""The settings of a spec that are tables, or names of what a table has the parameters of."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from undrift.core.cohort import sampling
from undrift.core.faults import Fault, Judging, faults, judging
from undrift.core.optimisers import optimiser
from undrift.core.params import BadParameters
from undrift.core.robust import robust
from undrift.core.schedules import schedule
from undrift.core.stopping import early_stopping, goal
from undrift.spec.errors import Complaints
from undrift.spec.lines import Keys
from undrift.spec.schema import Values, keys_of


def _faults(given: object) -> list[Fault] | None:
    """What clients do wrong; ``None`` where they do nothing wrong."""
    tables = isinstance(given, list) and all(isinstance(table, dict) for table in given)
    if given is not None and not tables:
        text = "write [[faults]], with two brackets, and a kind in each"
        raise BadParameters("faults", {"faults": text})
    return [*faults(given)] or None


def _judge(given: object) -> Judging | None:
    """How work is judged; ``None`` where that is as usual."""
    found = judging(given)
    return None if found == Judging() else found


Reader = Callable[[object], object]
TABLES: Mapping[str, Reader] = {
    "cohort": sampling,
    "reduction": robust,
    "stop": early_stopping,
    "best": goal,
    "faults": _faults,
    "judge": _judge,
}
"""The settings at the top that may be tables, or are a list of them, and what reads them."""
STEPPING: Mapping[str, Reader] = {"schedule": schedule, "local": optimiser}
"""How lr changes, and who takes local steps: at the top, or in a [[method]]."""


def settle(
    readers: Mapping[str, Reader], table: Values, path: Keys, complaints: Complaints
) -> Values:
    """What ``table`` has of these settings; ``None`` for one that it lacks, or that is wrong."""
    found = dict.fromkeys(readers)
    for key, read in readers.items():
        try:
            found[key] = read(table.get(key))
        except BadParameters as error:
            for field, text in error.problems.items():
                place = keys_of(field)
                complaints.add((*path, *(place if place[0] == key else (key, *place))), text)
    return found
