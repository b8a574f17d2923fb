"""What each method needed and where it ended, as means over seeds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from undrift.report.text import NONE, percent, plain, prose, small, table, whole

RELATIVE = 1e-6
"""Default target, as a part of the first gap."""
SPENT = {"rounds": "round", "vectors": "vectors", "gradients": "gradients"}
"""What a run spends, and the column it is in."""
FAR = "mean squared distance of the local models"
NUMBER: dict[str, Callable[[float | None], str]] = {
    "gap": small,
    "accuracy": percent,
    "loss": plain,
}

Curve = list[dict[str, Any]]
"""The rows of one method with one seed."""


@dataclasses.dataclass(frozen=True)
class Spread:
    """A mean over seeds and the standard deviation, where there are several."""

    mean: float
    sd: float | None = None


@dataclasses.dataclass(frozen=True)
class Summary:
    """One method. ``rounds``, ``vectors`` and ``gradients`` are those to the target, ``None`` if a
    seed missed it.
    """

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
    """The same, and bytes of all clients together, spent in all."""
    sd: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    """Standard deviations over seeds, ``None`` where there is one seed or no mean."""
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
    return next(
        (name for name in ("gap", "accuracy") if any(row.get(name) is not None for row in rows)),
        "loss",
    )


def aim(document: Mapping[str, Any], column: str) -> float | None:
    """The target of a spec that is about ``column``."""
    return document.get("target_accuracy" if column == "accuracy" else "target")


def summarise(rows: Sequence[Mapping[str, Any]], target: float | None = None) -> list[Summary]:
    """One summary per label; without a target, 1e-6 of each curve's first gap."""
    column = metric(rows)
    return [
        _summary(label, list(seeds.values()), column, target)
        for label, seeds in curves(rows).items()
    ]


def goal(target: float | None, column: str) -> str:
    """The target in words."""
    if column == "accuracy" and target is not None:
        return f"accuracy >= {percent(target)}"
    return (
        f"{column} <= {target:g}"
        if target is not None
        else f"{column} <= {RELATIVE:g} of the first"
    )


def print_summaries(
    summaries: Sequence[Summary],
    target: float | None,
    last: tuple[str, Mapping[str, str]] | None = None,
    legend: bool = True,
    note: str = "",
    varied: Sequence[str] = (),
) -> str:
    """The table of some summaries, and what its columns mean.

    ``last`` replaces its last column; ``note`` stands beside every accuracy; ``varied`` says what
    seeds vary.
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
            *(_spent(s, name) if aimed else whole(s.total.get(name)) for name in SPENT),
            spell(s.final, s.sd.get("final"), NUMBER[column]),
            *[plain(s.loss, 4)] * judged,
            *[small(s.drift)] * drifted,
            f"{s.seconds:.1f}",
            cells.get(s.label, ""),
        ]
        for s in summaries
    ]
    until = f"until {goal(target, column)}" if aimed else "in all"
    mean = ", mean over seeds ± standard deviation" if seeds > 1 else ""
    never = f" ({NONE} if never)" if aimed else ""
    same = [s.label for s in summaries if not s.seeded]
    meaning = [
        f"rounds, vectors and gradients: spent {until}{mean}{never}",
        "vectors: of model size, up and down, per client; gradients: of all clients together",
        *["accuracy and loss: at the end, on the test images" + f"; drift: {FAR}" * drifted]
        * judged,
        *[f"seeds vary {text}" for text in varied] * (seeds > 1),
        *[f"run once, for no seed changes it: {', '.join(same)}"] * bool(same),
    ]
    return "\n".join([table(head, rows, right=head[1:-1]), *["", *map(prose, meaning)] * legend])


def _summary(label: str, seeds: list[Curve], column: str, target: float | None) -> Summary:
    hits = [row for curve in seeds if (row := hit(curve, column, target))]
    ends = [curve[-1] for curve in seeds]
    found = {
        name: spread([row.get(key) for row in ends])
        for name, key in {"final": column, "loss": "loss", "drift": "drift"}.items()
    }
    found |= {
        name: spread([row.get(key) for row in hits]) if len(hits) == len(seeds) else None
        for name, key in SPENT.items()
    }
    means = {name: value.mean if value else None for name, value in found.items()}
    spent = {**SPENT, "bytes_up": "bytes_up", "bytes_down": "bytes_down"}
    total = {name: spread([row.get(key) for row in ends]) for name, key in spent.items()}
    return Summary(
        label=label,
        seeds=len(seeds),
        metric=column,
        final=means["final"],
        loss=means["loss"],
        drift=means["drift"],
        reached=len(hits),
        rounds=means["rounds"],
        vectors=means["vectors"],
        gradients=means["gradients"],
        total={name: value.mean if value else None for name, value in total.items()},
        sd={name: value.sd if value else None for name, value in found.items()},
        seconds=sum(end.get("seconds") or 0.0 for end in ends) / len(ends),
    )


def spread(values: Sequence[Any]) -> Spread | None:
    """A value of each seed; ``None`` if one lacks it.

    >>> spread([1, 3]), spread([1]), spread([1, None])
    (Spread(mean=2.0, sd=1.4142135623730951), Spread(mean=1.0, sd=None), None)
    """
    if not values or not all(isinstance(value, int | float) for value in values):
        return None
    several = len(values) > 1 and all(map(math.isfinite, values))
    return Spread(fmean(values), stdev(values) if several else None)


def spell(mean: float | None, sd: float | None, show: Callable[[float | None], str]) -> str:
    """A mean over seeds, and its deviation where there is one.

    >>> spell(0.5, 0.01, percent), spell(0.5, None, percent)
    ('50.00 ± 1.00 %', '50.00 %')
    """
    text = show(mean)
    return text if sd is None else f"{text.removesuffix(' %')} ± {show(sd)}"


def _spent(summary: Summary, name: str) -> str:
    """Until the target; the other counts vary as the rounds do."""
    text, sd = whole(getattr(summary, name)), summary.sd.get(name)
    if name != "rounds" or sd is None:
        return text
    return f"{text} ± {whole(sd) if sd >= 10 else plain(sd, 2)}"


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
