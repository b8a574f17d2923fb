"""Clients: how they are spread at the end, which of them were left out, and who holds what."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from undrift.core.stopping import USUALLY
from undrift.plots.columns import SHARES
from undrift.records.differences import curves
from undrift.records.folder import Row
from undrift.report.comparison import RunOnDisk
from undrift.report.numbers import UNKNOWN, count, percent, plain, spell
from undrift.report.summary import NO_END, Summary, partly
from undrift.report.table import Cell, Table, mark_best

STATISTICS = {
    "mean": "mean",
    "p10": "10 % quantile",
    "p50": "median",
    "p90": "90 % quantile",
    "worst10": "worst 10 %",
    "std": "spread",
}
"""Statistics of the clients, and their titles."""
ABSENT = 100
"""Clients in the table of those that were left out."""
REASONS = 3
"""Reasons that are told of a client."""
SPANS = 8
"""Rounds, or rows of them, that a cell of a table has."""
SHOWN = 100
"""Clients in a heat map; of more, every second, third, ... is shown."""


def spreads(summaries: Sequence[Summary], of: str) -> Table | None:
    """How the clients are spread at the end; ``None`` where they were not measured."""
    known = [s for s in summaries if s.end(f"client_{s.fares}_mean") != UNKNOWN]
    if not known:
        return None
    fares = known[0].fares
    show, larger = percent if fares in SHARES else plain, USUALLY.larger(fares)
    rows = []
    for s in known:
        found = [s.end(f"client_{fares}_{name}") for name in STATISTICS]
        # What differs by rounding alone is alike: nine digits.
        values = [None if one.mean is None else float(f"{one.mean:.9g}") for one in found]
        cells = map(Cell, (spell(one, show) for one in found), values)
        rows.append([Cell(s.label), *cells])
    if not any(s.measured for s in known):
        mark_best(rows, range(1, len(STATISTICS)), max if larger else min)
        mark_best(rows, [len(STATISTICS)], min)
    notes = {
        "worst 10 %: the mean over the worst tenth of the clients, at least one; spread: the "
        "standard deviation over the clients": True,
        "means over seeds ± standard deviation": any(s.seeds > 1 for s in known),
        NO_END: any(s.without_end for s in summaries),
    }
    said = [*(text for text, holds in notes.items() if holds), *partly(known)]
    caption = (
        f"{fares.capitalize()} of the server's model at the end, on each client's {of} samples"
    )
    return Table(["method", *STATISTICS.values()], rows, (), said, "Clients", caption)


@dataclasses.dataclass(frozen=True)
class Absent:
    """One client of one method, with all seeds together."""

    label: str
    client: int
    rounds: Sequence[int]
    """In ascending order, counted from 0."""
    reasons: Counter[str]

    def document(self) -> dict[str, object]:
        """The same for JSON."""
        return {**vars(self), "times": self.reasons.total()}


def by_client(left_out: Iterable[Row]) -> list[Absent]:
    """Each client that was left out; of each method, the most frequent first."""
    reasons: dict[str, dict[int, Counter[str]]] = {}
    rounds: dict[tuple[str, int], set[int]] = {}
    for row in left_out:
        label, client = row["label"], row["client"]
        reasons.setdefault(label, {}).setdefault(client, Counter())[row["reason"]] += 1
        rounds.setdefault((label, client), set()).add(row["round"])
    return [
        Absent(label, client, sorted(rounds[label, client]), clients[client])
        for label, clients in reasons.items()
        for client in sorted(clients, key=lambda client: (-clients[client].total(), client))
    ]


def left_out(found: Sequence[Row], rows: Iterable[Row]) -> Table:
    """Whose work did not count, and why."""
    absent = by_client(found)
    cells = [
        [
            one.label,
            Cell(str(one.client), one.client),
            Cell(str(one.reasons.total()), one.reasons.total()),
            spans(one.rounds),
            why(one.reasons),
        ]
        for one in absent[:ABSENT]
    ]
    notes = [
        "rounds: counted from 0, as in [[faults]]; times: of all seeds together",
        "reasons: the three most frequent",
    ]
    skipped = {
        label: sum(curve[-1].get("skipped") or 0 for curve in seeds.values())
        for label, seeds in curves(rows).items()
    }
    notes += [
        f"{label}: {count(number, 'round')} skipped, after which server and clients are as before"
        for label, number in skipped.items()
        if number
    ]
    if len(absent) > ABSENT:
        notes.append(f"and {count(len(absent) - ABSENT, 'client')} more")
    words = ["rounds", "reasons"]
    head, caption = ["method", "client", "times", *words], "Clients whose work did not count"
    return Table(head, cells, words, notes, "Left out", caption)


def why(reasons: Counter[str]) -> str:
    """The most frequent reasons, each with its number.

    >>> why(Counter({"it was lost": 3, "it came late": 1}))
    'it was lost (3), it came late (1)'
    """
    return ", ".join(f"{reason} ({times})" for reason, times in reasons.most_common(REASONS))


def spans(rounds: Sequence[int]) -> str:
    """Rounds with those in a row taken together.

    >>> spans([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    rows: list[tuple[int, int]] = []
    for round in rounds:
        if rows and rows[-1][1] == round - 1:
            rows[-1] = rows[-1][0], round
        else:
            rows.append((round, round))
    told = [str(first) if first == last else f"{first}-{last}" for first, last in rows[:SPANS]]
    more = f" and later ones, {len(rounds)} in all" if len(rows) > SPANS else ""
    return ", ".join(told) + more


def heat_map(run: RunOnDisk) -> Mapping[str, object] | None:
    """What a heat map of a run's partition shows, and the facts printed with it; ``None`` where
    samples have no classes.
    """
    if (partition := run.folder.partition) is None:
        return None
    counts, classes = partition["counts"], partition["classes"]
    sizes = sorted(map(sum, counts))
    held = sorted(sum(n > 0 for n in row) for row in counts)
    shown = range(0, len(counts), -(-len(counts) // SHOWN))
    facts = [
        f"{len(counts)} clients, {len(classes)} classes, {sum(sizes):,} samples",
        f"samples of a client: {sizes[0]:,} to {sizes[-1]:,}, median {sizes[len(sizes) // 2]:,}",
        f"classes of a client: {held[0]} to {held[-1]}, median {held[len(held) // 2]}",
    ]
    if shown.step > 1:
        facts.append(f"shown: {len(shown)} clients, one in {shown.step}")
    if "split" in run.document.get("vary", ()):
        facts.append(f"of seed {run.document['seed'][0]}; every seed has its own split")
    return {
        "name": run.title,
        "facts": facts,
        "classes": classes,
        "clients": list(shown),
        "counts": [counts[k] for k in shown],
    }
