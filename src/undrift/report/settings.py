"""What the methods of a spec were run with, as far as tables and figures depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from undrift.core.optimisers import registry as optimisers
from undrift.objectives import find
from undrift.report.tables import MethodSetting

Document = Mapping[str, Any]
"""A spec, or a table of one, as TOML has it."""


def methods(document: Document) -> list[Document]:
    tables = document.get("method", [])
    return [table for table in tables if isinstance(table, dict) and "label" in table]


def settings(document: Document, prefix: str = "") -> dict[str, MethodSetting]:
    """What every method of a spec was run with; labels begin with ``prefix``."""
    return {prefix + table["label"]: setting(table, document) for table in methods(document)}


def setting(table: Document, document: Document) -> MethodSetting:
    """What the costs of one method depend on."""
    steps = None if "epochs" in table else table.get("steps", document.get("steps"))
    objective = table.get("objective", document.get("objective"))
    optimiser = table.get("training", document.get("training", {})).get("optimiser")
    loss = find(objective["name"]) if isinstance(objective, dict) and "name" in objective else None
    return MethodSetting(
        method=table.get("name", ""),
        steps=steps if isinstance(steps, int) else None,
        clients=_in_a_round(document),
        kept=int(loss is not None and "previous" in loss.needs),
        biased=document.get("aggregation", {}).get("name", "mean") not in ("mean", "weighted-mean")
        or not _keeps_exact(optimiser),
        written=table,
        shared={name: document[name] for name in ("schedule", "training") if document.get(name)},
    )


def _in_a_round(document: Document) -> int | None:
    """How many clients take part in a round, where it is always the same number."""
    if (cohort := document.get("cohort")) is None:
        found = document.get("problem", {}).get("clients")
        return found if isinstance(found, int) else None
    if not isinstance(cohort, dict) or cohort.get("sampling") != "fixed" or cohort.get("dropout"):
        return None
    return cohort.get("size")


def _keeps_exact(optimiser: object) -> bool:
    """Whether exact methods stay exact with a local optimiser, as a document has it."""
    name = optimiser.get("name") if isinstance(optimiser, dict) else optimiser
    kind = optimisers.get(str(name))
    return name is None or (kind is not None and kind.exact)
