"""What a report says of each method, in numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from undrift.core.costs import Costs, costs, placeholder
from undrift.core.method import Method
from undrift.core.params import BadParameters
from undrift.report.summary import Curve, Spread, curves, hit, metric, spread
from undrift.runs.folder import Outcome, Row

SPENT = {
    "rounds": "round",
    "vectors": "vectors",
    "bytes": "bytes",
    "gradients": "gradients",
    "seconds": "seconds",
}
"""What a run spends, and the column it is in."""
UNFINISHED = "unfinished"


@dataclasses.dataclass(frozen=True)
class Setting:
    """What costs depend on."""

    method: str = ""
    steps: int | None = None
    """Local steps of a round, where all clients take as many."""
    clients: int | None = None
    """Clients of a round, where all take part."""
    kept: int = 0
    """Vectors that a client keeps for its local loss."""


@dataclasses.dataclass(frozen=True)
class Score:
    """One method over its seeds. A value that a seed lacks is ``None``."""

    label: str
    method: str
    statuses: Mapping[str, int]
    seeds: int = 0
    ends: Mapping[str, Spread | None] = dataclasses.field(default_factory=dict)
    """Column -> its last value."""
    best: Spread | None = None
    reached: int = 0
    needed: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    """Spent until the target, where every seed reached it."""
    spent: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    """Spent in all."""
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    note: str = ""
    seeded: bool = True
    """Whether a seed changes it; if not, it was run with one of them."""


def complete(rows: Iterable[Row]) -> list[Row]:
    """The rows with all bytes in one column."""
    return [
        row | {"bytes": row["bytes_up"] + row["bytes_down"]}
        if row.keys() >= {"bytes_up", "bytes_down"}
        else row
        for row in rows
    ]


def scores(
    rows: Sequence[Row],
    outcomes: Sequence[Outcome],
    planned: Mapping[str, Iterable[int]],
    target: float | None,
) -> list[Score]:
    """One score per label of ``planned``, which has the seeds each label was to be run with."""
    column, found = metric(rows), curves(rows)
    ended = {(outcome.label, outcome.seed): outcome for outcome in outcomes}
    return [
        _score(
            label,
            found.get(label, {}),
            [ended.get((label, seed)) for seed in seeds],
            column,
            target,
        )
        for label, seeds in planned.items()
    ]


def declared(cls: type[Method], score: Score, steps: int | None) -> Costs:
    """What a method declares to cost, with the values it was run with."""
    try:
        method = cls(**score.values)
    except (BadParameters, TypeError):  # not run yet, or by another version
        method = placeholder(cls)
    return costs(method, steps or 2)


def _score(
    label: str,
    seeds: Mapping[int, Curve],
    outcomes: Sequence[Outcome | None],
    column: str,
    target: float | None,
) -> Score:
    statuses: dict[str, int] = {}
    for outcome in outcomes:
        status = outcome.status if outcome else UNFINISHED
        statuses[status] = statuses.get(status, 0) + 1
    known = [outcome for outcome in outcomes if outcome]
    runs = list(seeds.values())
    method = known[0].method if known else str(runs[0][0].get("method", "")) if runs else ""
    about = Score(label, method, statuses, values=known[0].values if known else {})
    note = next((outcome.note for outcome in known if outcome.note), "")
    about = dataclasses.replace(
        about, note=note, seeded=all(outcome.same_as is None for outcome in known)
    )
    if not runs:
        return about
    hits = [row for curve in runs if (row := hit(curve, column, target))]
    ends = [curve[-1] for curve in runs]
    best = max if column == "accuracy" else min
    tops = [
        best((row[column] for row in curve if row.get(column) is not None), default=None)
        for curve in runs
    ]
    return dataclasses.replace(
        about,
        seeds=len(runs),
        ends={
            name: spread([row.get(name) for row in ends])
            for name in {name for row in ends for name in row}
        },
        best=spread(tops),
        reached=len(hits),
        needed={
            name: _mean(hits, key) if len(hits) == len(runs) else None
            for name, key in SPENT.items()
        },
        spent={name: _mean(ends, key) for name, key in SPENT.items()},
    )


def _mean(rows: Sequence[Row], column: str) -> float | None:
    found = spread([row.get(column) for row in rows])
    return found.mean if found else None
