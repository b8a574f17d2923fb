"""What each method needed and where it ended, as means over seeds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from undrift.report.text import NONE, plain, small, table, whole

RELATIVE = 1e-6
"""Default target, as a part of the first gap."""
SPENT = ("rounds", "vectors", "gradients")

Curve = list[dict[str, Any]]
"""The rows of one method with one seed."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """One method. ``rounds``, ``vectors`` and ``gradients`` are those to the target, ``None`` if a seed missed it."""

    label: str
    seeds: int = 0
    metric: str = "gap"
    final: float | None = None
    reached: int = 0
    rounds: float | None = None
    vectors: float | None = None
    gradients: float | None = None
    seconds: float = 0.0
    status: str = ""


def curves(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, Curve]]:
    """Label -> seed -> rows."""
    found: dict[str, dict[int, Curve]] = {}
    for row in rows:
        found.setdefault(row["label"], {}).setdefault(row["seed"], []).append(dict(row))
    return found


def metric(rows: Iterable[Mapping[str, Any]]) -> str:
    """The column to judge by: the gap where the optimum is known, else the loss."""
    return "gap" if any(row.get("gap") is not None for row in rows) else "loss"


def summarise(rows: Sequence[Mapping[str, Any]], target: float | None = None) -> list[Summary]:
    """One summary per label; without a target, 1e-6 of each curve's first gap."""
    column = metric(rows)
    return [_summary(label, list(seeds.values()), column, target) for label, seeds in curves(rows).items()]


def goal(target: float | None, column: str) -> str:
    """The target in words."""
    return f"{column} <= {target:g}" if target is not None else f"{column} <= {RELATIVE:g} of the first"


def print_summaries(
    summaries: Sequence[Summary],
    target: float | None,
    last: tuple[str, Mapping[str, str]] | None = None,
    legend: bool = True,
) -> str:
    """The table of some summaries, and what its columns mean; ``last`` replaces its last column."""
    column = summaries[0].metric if summaries else "gap"
    seeds = max((s.seeds for s in summaries), default=1)
    title, cells = last or ("outcome", {s.label: _end(s) for s in summaries})
    head = ["method", *["seeds"] * (seeds > 1), *SPENT, f"final {column}", "seconds", title]
    rows = [
        [
            s.label,
            *[str(s.seeds)] * (seeds > 1),
            *(whole(spent) for spent in (s.rounds, s.vectors, s.gradients)),
            small(s.final) if column == "gap" else plain(s.final),
            f"{s.seconds:.1f}",
            cells.get(s.label, ""),
        ]
        for s in summaries
    ]
    mean = ", mean over seeds" if seeds > 1 else ""
    meaning = (
        f"rounds, vectors and gradients: spent until {goal(target, column)}{mean} ({NONE} if never)\n"
        "vectors: of model size, up and down, per client; gradients: of all clients together"
    )
    return table(head, rows, right=head[1:-1]) + f"\n\n{meaning}" * legend


def _summary(label: str, seeds: list[Curve], column: str, target: float | None) -> Summary:
    hits = [hit for curve in seeds if (hit := _first(curve, column, _level(curve, column, target)))]
    ends = [end for curve in seeds if (end := curve[-1].get(column)) is not None]

    def mean(key: str) -> float | None:
        return sum(hit[key] for hit in hits) / len(hits) if len(hits) == len(seeds) else None

    return Summary(
        label=label,
        seeds=len(seeds),
        metric=column,
        final=sum(ends) / len(ends) if len(ends) == len(seeds) else None,
        reached=len(hits),
        rounds=mean("round"),
        vectors=mean("vectors"),
        gradients=mean("gradients"),
        seconds=sum(curve[-1].get("seconds") or 0.0 for curve in seeds) / len(seeds),
    )


def _level(curve: Curve, column: str, target: float | None) -> float:
    if target is not None:
        return target
    first = curve[0].get(column)
    return RELATIVE * first if column == "gap" and first is not None else -math.inf


def _first(curve: Curve, column: str, level: float) -> dict[str, Any] | None:
    return next((row for row in curve if (value := row.get(column)) is not None and value <= level), None)


def _end(summary: Summary) -> str:
    some = 0 < summary.reached < summary.seeds
    return f"{summary.reached} of {summary.seeds} seeds reached it" if some else summary.status
