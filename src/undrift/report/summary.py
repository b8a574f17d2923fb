"""What each method needed and where it ended, as means over seeds."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from undrift.core.problem import Samples
from undrift.core.stopping import EVERYBODY, MEASURED, USUALLY, Goal, of_some, on_some
from undrift.plots.columns import SHARES
from undrift.records.differences import RELATIVE, Curve, curves, hit
from undrift.records.folder import Row
from undrift.records.rows import ENDED, ENDS, Outcome, at_end, columns
from undrift.report.numbers import (
    NONE,
    UNKNOWN,
    Spread,
    count,
    number,
    spell,
    spread,
)
from undrift.spec.schema import Table

SPENT = {
    "rounds": "round",
    "vectors": "vectors",
    "bytes": "bytes",
    "gradients": "gradients",
    "seconds": "seconds",
}
"""What a run spends, and the column that counts it."""
COUNTED = ("rounds", "vectors", "gradients")
"""What a terminal has room for; bytes only where they are not in proportion to vectors."""
UNFINISHED = "unfinished"
OPEN = (UNFINISHED, "stopped")
ON: Mapping[Samples | None, str] = {
    "test": ", on the test samples",
    "train": ", on the clients' training samples",
    None: "",
}
NO_END = f"{NONE}: a method that diverges or is unfinished, if only with some seed, has no end"


@dataclasses.dataclass(frozen=True)
class Summary:
    """One method over its seeds."""

    label: str
    method: str = ""
    goal: Goal = USUALLY
    """What it is judged by."""
    seeds: int = 0
    """Seeds with recorded rows."""
    statuses: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """How many seeds ended in which way."""
    ends: Mapping[str, Spread] = dataclasses.field(default_factory=dict)
    """The last value of every column; those of quality are unknown where a seed has no end."""
    best: Spread = UNKNOWN
    reached: int = 0
    """Seeds that reached the target."""
    needed: Mapping[str, Spread] = dataclasses.field(default_factory=dict)
    """Spent until the target, if every seed reached it."""
    values: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """Hyper-parameters it ran with."""
    note: str = ""
    """What became of it and what to try, where there is something to say of a seed: of the first
    such seed, which is named if it was run with others."""
    seeded: bool = True
    """Whether a seed changes it; if not, it was run with one of them."""
    partial: int = 0
    """Rows that were measured on some clients only."""
    progress: str = ""
    """Of one that is unfinished: the rounds that its slowest seed has run, and all of them."""
    measured: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Where final values are of some clients only: of how many, and how many there are."""

    @property
    def metric(self) -> str:
        """The column it is judged by."""
        return self.goal.column()

    @property
    def fares(self) -> str:
        """What is measured of clients of the number it is judged by, else the loss."""
        own = self.metric.removeprefix("train_")
        return own if f"client_{own}_mean" in self.ends else "loss"

    @property
    def without_end(self) -> bool:
        """Whether it has no final values, for a seed of it is unfinished, diverged or failed."""
        return not self.statuses.keys() <= {*ENDED}

    @property
    def final(self) -> str:
        """The last value of the column it is judged by, with the clients that it is of."""
        found = self.end(self.metric)
        text = spell(found, number(self.metric))
        known = self.measured and found.mean is not None
        return f"{text} ({on_some(self.measured)})" if known else text

    def end(self, column: str) -> Spread:
        """The last values of a column."""
        return self.ends.get(column, UNKNOWN)

    @property
    def status(self) -> str:
        """How its seeds ended, in words."""
        so_far = f": {self.progress}" if self.progress else ""
        words = {ENDS[s].words + so_far * (s in OPEN): n for s, n in self.statuses.items()}
        if len(words) < 2:
            return next(iter(words), UNFINISHED)
        return ", ".join(f"{text} ({n})" for text, n in words.items())

    def document(self) -> dict[str, object]:
        """The summary for JSON."""
        spreads = {
            "final": self.end(self.metric),
            **{name: self.end(name) for name in ("loss", "drift")},
            **{name: self.needed.get(name, UNKNOWN) for name in COUNTED},
        }
        totals = {name: SPENT[name] for name in COUNTED}
        totals |= {"bytes_up": "bytes_up", "bytes_down": "bytes_down"}
        return {
            "label": self.label,
            "seeds": self.seeds,
            "metric": self.metric,
            **{name: found.mean for name, found in spreads.items()},
            "reached": self.reached,
            "total": {name: self.end(column).mean for name, column in totals.items()},
            "sd": {name: found.sd for name, found in spreads.items()},
            "clients": self._clients(),
            "seconds": self.end("seconds").mean,
            "status": self.status,
            "seeded": self.seeded,
            "partial_rows": self.partial,
            "measured": {**self.measured} or None,
        }

    def _clients(self) -> dict[str, object] | None:
        """How the clients are spread at the end; ``None`` where they were not measured."""
        head = f"client_{self.fares}_"
        found = {n.removeprefix(head): v for n, v in self.ends.items() if n.startswith(head)}
        if not found:
            return None
        means = {name: value.mean for name, value in found.items()}
        return {"metric": self.fares, **means, "sd": {n: v.sd for n, v in found.items()}}


def with_bytes(row: Row) -> Row:
    """A row with a column for the bytes sent and received together."""
    if row.get("bytes_up") is None or row.get("bytes_down") is None:
        return row
    return row | {"bytes": row["bytes_up"] + row["bytes_down"]}


def aim(document: Table, column: str) -> float | None:
    """The target that a spec sets for ``column``."""
    stop = document.get("stop", {})
    targets = {"gap": document.get("target"), "accuracy": document.get("target_accuracy")}
    own: float | None = stop.get("target") if stop.get("metric") == column else None
    return targets.get(column) or own


def until(goal: Goal, target: float | None) -> str:
    """The target in words."""
    column = goal.column()
    if target is None:
        return f"{column} <= {RELATIVE:g} of the first"
    value = number(column)(target) if column in SHARES else f"{target:g}"
    return f"{column} {'>=' if goal.larger(column) else '<='} {value}"


def summarise(
    rows: Sequence[Row],
    target: float | None,
    outcomes: Sequence[Outcome],
    planned: Mapping[str, Iterable[int]] | None = None,
    rounds: Mapping[str, int] | None = None,
    goal: Goal = USUALLY,
) -> list[Summary]:
    """One summary per label; without a target, 1e-6 of each curve's first gap is the target.

    ``planned`` has the seeds each label should be run with, by default those that have ended, and
    ``rounds`` for how many rounds.
    """
    goal, found = goal.settled(*rows), curves(rows)
    ended: dict[str, dict[int, Outcome]] = {}
    for outcome in outcomes:
        ended.setdefault(outcome.label, {})[outcome.seed] = outcome
    return [
        _summary(
            label,
            found.get(label, {}),
            dict.fromkeys(seeds) | ended.get(label, {}),
            goal,
            target,
            (rounds or {}).get(label),
        )
        for label, seeds in (planned or ended).items()
    ]


def partly(summaries: Sequence[Summary]) -> list[str]:
    """A note on methods with rows that were measured on some clients only."""
    last = {s.label: f", the last one {on_some(s.measured)}" for s in summaries if s.measured}
    found = [
        f"{s.label}: {count(s.partial, 'row')} measured on some clients only{last.get(s.label, '')}"
        for s in summaries
        if s.partial
    ]
    rest = "such rows count for no best value, no target and no difference"
    return [f"{'; '.join(found)}; {rest}"] if found else []


def _summary(
    label: str,
    by_seed: Mapping[int, Curve],
    outcomes: Mapping[int, Outcome | None],
    goal: Goal,
    target: float | None,
    rounds: int | None,
) -> Summary:
    column, known = goal.column(), [outcome for outcome in outcomes.values() if outcome]
    statuses = {seed: one.status if one else UNFINISHED for seed, one in outcomes.items()}
    so_far = [
        by_seed[seed][-1]["round"] if seed in by_seed else 0
        for seed, status in statuses.items()
        if status in OPEN
    ]
    last = [
        at_end(with_bytes(curve[-1]), statuses.get(seed, UNFINISHED))
        for seed, curve in by_seed.items()
    ]
    hits = [with_bytes(row) for curve in by_seed.values() if (row := hit(curve, goal, target))]
    whole = [[row for row in curve if not of_some(row)] for curve in by_seed.values()]
    measured = [[r[column] for r in rows if r.get(column) is not None] for rows in whole]
    best = [(max if goal.larger(column) else min)(own, default=None) for own in measured]
    said = next((outcome for outcome in known if outcome.note), None)
    note = said.note if said else ""
    if said and sum(outcome.same_as is None for outcome in known) > 1:
        note = f"(seed {said.seed}) {note}"
    ends_of_some = [curve[-1] for curve in by_seed.values() if of_some(curve[-1])]
    fewest = min(ends_of_some, key=lambda row: row[MEASURED], default={})
    first = next(iter(by_seed.values()), [{}])[0]
    return Summary(
        label,
        method=known[0].method if known else str(first.get("method", "")),
        goal=goal,
        seeds=len(by_seed),
        statuses=Counter(statuses.values()),
        ends={name: spread(values) for name, values in columns(last).items()},
        best=UNKNOWN if so_far else spread(best),
        reached=len(hits),
        needed={
            name: spread([row.get(key) for row in hits]) if len(hits) == len(by_seed) else UNKNOWN
            for name, key in SPENT.items()
        },
        values=known[0].values if known else {},
        note=note,
        seeded=all(outcome.same_as is None for outcome in known),
        progress=f"{' to '.join(map(str, dict.fromkeys([min(so_far), max(so_far)])))} of "
        f"{count(rounds, 'round')}"
        if so_far and rounds
        else "",
        partial=sum(map(len, by_seed.values())) - sum(map(len, whole)),
        measured={name: fewest[name] for name in (MEASURED, EVERYBODY) if name in fewest},
    )
