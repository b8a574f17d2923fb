"""What each method needed and where it ended, as means over seeds."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from undrift.core.problem import Samples
from undrift.core.stopping import EVERYBODY, MEASURED, of_some, on_some
from undrift.plots.columns import metric
from undrift.records.differences import RELATIVE, Curve, curves, hit
from undrift.records.folder import Row
from undrift.records.rows import Outcome, at_end, in_words
from undrift.report.numbers import NONE, Show, Spread, count, percent, plain, small, spell, spread

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
NUMBER: dict[str, Show] = {"gap": small, "accuracy": percent, "loss": plain}


@dataclasses.dataclass(frozen=True)
class Summary:
    """One method over its seeds. A value that some seed lacks is ``None``."""

    label: str
    method: str = ""
    metric: str = "gap"
    """The column it is judged by."""
    seeds: int = 0
    """Seeds with recorded rows."""
    statuses: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """How many seeds ended in which way."""
    ends: Mapping[str, Spread | None] = dataclasses.field(default_factory=dict)
    """The last value of every column; ``None`` for those of quality, where a seed has no end."""
    best: Spread | None = None
    reached: int = 0
    """Seeds that reached the target."""
    needed: Mapping[str, Spread | None] = dataclasses.field(default_factory=dict)
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
    def fares(self) -> str:
        """The column about clients that is of the measure it is judged by; of a gap, the loss."""
        return f"client_{'accuracy' if self.metric == 'accuracy' else 'loss'}"

    @property
    def diverged(self) -> bool:
        """Whether a seed of it did, so that it has no final values."""
        return "diverged" in self.statuses

    @property
    def unfinished(self) -> bool:
        """Whether a seed of it is, so that it has no final values yet."""
        return any(status in self.statuses for status in OPEN)

    @property
    def without_end(self) -> bool:
        """Whether it has no final values, for one of these two reasons."""
        return self.diverged or self.unfinished

    @property
    def final(self) -> str:
        """The last value of the column it is judged by, with the clients that it is of."""
        found = self.ends.get(self.metric)
        text = spell(found, NUMBER[self.metric])
        return f"{text} ({on_some(self.measured)})" if found and self.measured else text

    def end(self, column: str) -> float | None:
        """The mean of the last values of a column."""
        return _mean(self.ends.get(column))

    def need(self, name: str) -> float | None:
        """The mean of what was spent until the target."""
        return _mean(self.needed.get(name))

    def spent(self, name: str) -> float | None:
        """The mean of what was spent in all."""
        return self.end(SPENT[name])

    @property
    def status(self) -> str:
        """How its seeds ended, in words."""
        so_far = f": {self.progress}" if self.progress else ""
        words = {
            in_words(status) + (so_far if status in OPEN else ""): n
            for status, n in self.statuses.items()
        }
        if len(words) < 2:
            return next(iter(words), UNFINISHED)
        return ", ".join(f"{text} ({n})" for text, n in words.items())

    def document(self) -> dict[str, object]:
        """The summary for JSON."""
        spreads = {"final": self.ends.get(self.metric)}
        spreads |= {name: self.ends.get(name) for name in ("loss", "drift")}
        spreads |= {name: self.needed.get(name) for name in COUNTED}
        columns = {name: SPENT[name] for name in COUNTED}
        columns |= {"bytes_up": "bytes_up", "bytes_down": "bytes_down"}
        return {
            "label": self.label,
            "seeds": self.seeds,
            "metric": self.metric,
            **{name: _mean(found) for name, found in spreads.items()},
            "reached": self.reached,
            "total": {name: self.end(column) for name, column in columns.items()},
            "sd": {name: found.sd if found else None for name, found in spreads.items()},
            "clients": self._clients(),
            "seconds": self.end("seconds"),
            "status": self.status,
            "seeded": self.seeded,
            "partial_rows": self.partial,
            "measured": {**self.measured} or None,
        }

    def _clients(self) -> dict[str, object] | None:
        """How the clients are spread at the end; ``None`` where they were not measured."""
        head = f"{self.fares}_"
        found = {n.removeprefix(head): v for n, v in self.ends.items() if n.startswith(head)}
        if not found:
            return None
        means = {name: _mean(value) for name, value in found.items()}
        deviations = {name: value.sd if value else None for name, value in found.items()}
        return {"metric": self.fares.removeprefix("client_"), **means, "sd": deviations}


def with_bytes(rows: Iterable[Row]) -> list[Row]:
    """The rows with a column for the bytes sent and received together."""
    return [
        row | {"bytes": row["bytes_up"] + row["bytes_down"]}
        if row.keys() >= {"bytes_up", "bytes_down"}
        else row
        for row in rows
    ]


def aim(document: Mapping[str, float | None], column: str) -> float | None:
    """The target that a spec sets for ``column``."""
    return document.get("target_accuracy" if column == "accuracy" else "target")


def window(smooth: int, rows: Sequence[Row]) -> int:
    """Rows that a point of a curve is the mean of: ``smooth``, but at most a twentieth of them.

    A mean over more would show a curve's past as its end.
    """
    lengths = Counter((row["label"], row["seed"]) for row in rows).values()
    return max(1, min(smooth, max(lengths, default=0) // 20))


def goal(target: float | None, column: str) -> str:
    """The target in words."""
    if target is None:
        return f"{column} <= {RELATIVE:g} of the first"
    return f"accuracy >= {percent(target)}" if column == "accuracy" else f"{column} <= {target:g}"


def summarise(
    rows: Sequence[Row],
    target: float | None,
    outcomes: Sequence[Outcome],
    planned: Mapping[str, Iterable[int]] | None = None,
    rounds: Mapping[str, int] | None = None,
) -> list[Summary]:
    """One summary per label; without a target, 1e-6 of each curve's first gap is the target.

    ``planned`` has the seeds each label should be run with, by default those that have ended, and
    ``rounds`` for how many rounds.
    """
    column, found = metric(rows), curves(with_bytes(rows))
    ended = {outcome.key: outcome for outcome in outcomes}
    seen: dict[str, dict[int, None]] = {}
    for label, seed in ended:
        seen.setdefault(label, {})[seed] = None
    return [
        _summary(
            label,
            found.get(label, {}),
            {seed: ended.get((label, seed)) for seed in seeds},
            column,
            target,
            (rounds or {}).get(label),
        )
        for label, seeds in (planned or seen).items()
    ]


def partly(summaries: Sequence[Summary]) -> list[str]:
    """A note on methods with rows that were measured on some clients only."""
    found = [
        f"{s.label}: {count(s.partial, 'row')} measured on some clients only"
        + (f", the last one {on_some(s.measured)}" if s.measured else "")
        for s in summaries
        if s.partial
    ]
    rest = "such rows count for no best value, no target and no difference"
    return [f"{'; '.join(found)}; {rest}"] if found else []


def _summary(
    label: str,
    by_seed: Mapping[int, Curve],
    outcomes: Mapping[int, Outcome | None],
    column: str,
    target: float | None,
    rounds: int | None,
) -> Summary:
    curves = [*by_seed.values()]
    known = [outcome for outcome in outcomes.values() if outcome]
    ended = {seed: one.status if one else UNFINISHED for seed, one in outcomes.items()}
    statuses = Counter(ended.values())
    so_far = [by_seed[s][-1]["round"] if s in by_seed else 0 for s in ended if ended[s] in OPEN]
    recorded = str(curves[0][0].get("method", "")) if curves else ""
    last = [at_end(curve[-1], ended.get(seed, UNFINISHED)) for seed, curve in by_seed.items()]
    hits = [row for curve in curves if (row := hit(curve, column, target))]
    top = max if column == "accuracy" else min
    measured = [
        [row[column] for row in curve if row.get(column) is not None and not of_some(row)]
        for curve in curves
    ]
    partial = [curve[-1] for curve in curves if of_some(curve[-1])]
    fewest = min(partial, key=lambda row: row[MEASURED], default={})
    return Summary(
        label,
        method=known[0].method if known else recorded,
        metric=column,
        seeds=len(curves),
        statuses=statuses,
        ends={
            name: spread([row.get(name) for row in last])
            for name in dict.fromkeys(name for row in last for name in row)
        },
        best=None if so_far else spread([top(values, default=None) for values in measured]),
        reached=len(hits),
        needed={
            name: spread([row.get(key) for row in hits]) if len(hits) == len(curves) else None
            for name, key in SPENT.items()
        },
        values=known[0].values if known else {},
        note=_note(known),
        seeded=all(outcome.same_as is None for outcome in known),
        progress=f"{min(so_far)} of {count(rounds, 'round')}" if so_far and rounds else "",
        partial=sum(map(of_some, itertools.chain(*curves))),
        measured={name: fewest[name] for name in (MEASURED, EVERYBODY) if name in fewest},
    )


def _note(outcomes: Sequence[Outcome]) -> str:
    said = next((outcome for outcome in outcomes if outcome.note), None)
    if said is None:
        return ""
    several = sum(outcome.same_as is None for outcome in outcomes) > 1
    return f"(seed {said.seed}) {said.note}" if several else said.note


def _mean(found: Spread | None) -> float | None:
    return None if found is None else found.mean
