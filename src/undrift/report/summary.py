"""What each method needed and where it ended, as means over seeds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from undrift.report.text import NONE, percent, plain, prose, small, table, whole

RELATIVE = 1e-6
"""Default target, as a part of the first gap."""
SPENT = {"rounds": "round", "vectors": "vectors", "gradients": "gradients"}
"""What a run spends, and the column it is in."""
FAR = "mean squared distance of the local models"
NUMBER: dict[str, Callable[[float | None], str]] = {"gap": small, "accuracy": percent, "loss": plain}

Curve = list[dict[str, Any]]
"""The rows of one method with one seed."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """One method. ``rounds``, ``vectors`` and ``gradients`` are those to the target, ``None`` if a seed missed it."""

    label: str
    seeds: int = 0
    metric: str = "gap"
    final: float | None = None
    loss: float | None = None
    drift: float | None = None
    reached: int = 0
    rounds: float | None = None
    vectors: float | None = None
    gradients: float | None = None
    total: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    """The same, spent in all."""
    seconds: float = 0.0
    status: str = ""
    seeded: bool = True
    """Whether a seed changes it; if not, it was run with one of them."""


def curves(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, Curve]]:
    """Label -> seed -> rows."""
    found: dict[str, dict[int, Curve]] = {}
    for row in rows:
        found.setdefault(row["label"], {}).setdefault(row["seed"], []).append(dict(row))
    return found


def metric(rows: Iterable[Mapping[str, Any]]) -> str:
    """The column to judge by: the gap where the optimum is known, else the accuracy, else the loss."""
    rows = list(rows)
    return next((name for name in ("gap", "accuracy") if any(row.get(name) is not None for row in rows)), "loss")


def aim(document: Mapping[str, Any], column: str) -> float | None:
    """The target of a spec that is about ``column``."""
    return document.get("target_accuracy" if column == "accuracy" else "target")


def summarise(rows: Sequence[Mapping[str, Any]], target: float | None = None) -> list[Summary]:
    """One summary per label; without a target, 1e-6 of each curve's first gap."""
    column = metric(rows)
    return [_summary(label, list(seeds.values()), column, target) for label, seeds in curves(rows).items()]


def goal(target: float | None, column: str) -> str:
    """The target in words."""
    if column == "accuracy" and target is not None:
        return f"accuracy >= {percent(target)}"
    return f"{column} <= {target:g}" if target is not None else f"{column} <= {RELATIVE:g} of the first"


def print_summaries(
    summaries: Sequence[Summary],
    target: float | None,
    last: tuple[str, Mapping[str, str]] | None = None,
    legend: bool = True,
    note: str = "",
    varied: Sequence[str] = (),
) -> str:
    """The table of some summaries, and what its columns mean.

    ``last`` replaces its last column; ``note`` stands beside every accuracy; ``varied`` says what seeds vary.
    """
    column = summaries[0].metric if summaries else "gap"
    seeds = max((s.seeds for s in summaries), default=1)
    aimed, judged = target is not None or column == "gap", column == "accuracy"
    drifted = judged and any(s.drift is not None for s in summaries)
    title, cells = last or ("outcome", {s.label: _end(s) for s in summaries})
    final = "accuracy" + f" ({note})" * bool(note) if judged else f"final {column}"
    head = [
        "method",
        *["seeds"] * (seeds > 1),
        *SPENT,
        final,
        *["loss"] * judged,
        *["drift"] * drifted,
        "seconds",
        title,
    ]
    rows = [
        [
            s.label,
            *[str(s.seeds)] * (seeds > 1),
            *(whole(getattr(s, name) if aimed else s.total.get(name)) for name in SPENT),
            NUMBER[column](s.final),
            *[plain(s.loss, 4)] * judged,
            *[small(s.drift)] * drifted,
            f"{s.seconds:.1f}",
            cells.get(s.label, ""),
        ]
        for s in summaries
    ]
    until = f"until {goal(target, column)}" if aimed else "in all"
    mean = ", mean over seeds" if seeds > 1 else ""
    never = f" ({NONE} if never)" if aimed else ""
    same = [s.label for s in summaries if not s.seeded]
    meaning = [
        f"rounds, vectors and gradients: spent {until}{mean}{never}",
        "vectors: of model size, up and down, per client; gradients: of all clients together",
        *["accuracy and loss: at the end, on the test images" + f"; drift: {FAR}" * drifted] * judged,
        *[f"seeds: of {text}" for text in varied] * (seeds > 1),
        *[f"run once, for no seed changes it: {', '.join(same)}"] * bool(same),
    ]
    return "\n".join([table(head, rows, right=head[1:-1]), *["", *map(prose, meaning)] * legend])


def _summary(label: str, seeds: list[Curve], column: str, target: float | None) -> Summary:
    hits = [row for curve in seeds if (row := hit(curve, column, target))]
    ends = [curve[-1] for curve in seeds]
    spent = {name: _mean(hits, key) if len(hits) == len(seeds) else None for name, key in SPENT.items()}
    return Summary(
        label=label,
        seeds=len(seeds),
        metric=column,
        final=_mean(ends, column),
        loss=_mean(ends, "loss"),
        drift=_mean(ends, "drift"),
        reached=len(hits),
        rounds=spent["rounds"],
        vectors=spent["vectors"],
        gradients=spent["gradients"],
        total={name: _mean(ends, key) for name, key in SPENT.items()},
        seconds=sum(end.get("seconds") or 0.0 for end in ends) / len(ends),
    )


def _mean(rows: Curve, column: str) -> float | None:
    """``None`` if a row lacks the value."""
    found = [value for row in rows if (value := row.get(column)) is not None]
    return sum(found) / len(found) if len(found) == len(rows) else None


def hit(curve: Curve, column: str, target: float | None) -> dict[str, Any] | None:
    """The first row that reaches the target; without one, 1e-6 of the first gap."""
    start = curve[0].get(column)
    if target is None:
        target = RELATIVE * start if column == "gap" and start is not None else math.nan
    values = ((row, row.get(column)) for row in curve)
    if column == "accuracy":
        return next((row for row, value in values if value is not None and value >= target), None)
    return next((row for row, value in values if value is not None and value <= target), None)


def _end(summary: Summary) -> str:
    some = 0 < summary.reached < summary.seeds
    return f"{summary.reached} of {summary.seeds} seeds reached it" if some else summary.status
