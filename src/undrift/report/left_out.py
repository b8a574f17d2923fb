"""Whose work did not count, and why: by client, and in a line of text."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from undrift.records.differences import curves
from undrift.records.folder import Row
from undrift.report.text import count

CLIENTS = 8
"""Clients that a line names one by one."""
REASONS = 3
"""Reasons that are told; of the others, the number."""
SPANS = 8
"""Rounds, or rows of them, that a cell of a table has."""


@dataclasses.dataclass(frozen=True)
class Absent:
    """One client of one method, with all seeds together."""

    label: str
    client: int
    rounds: Sequence[int]
    """In ascending order, counted from 0."""
    reasons: Counter[str]

    @property
    def times(self) -> int:
        return self.reasons.total()

    def document(self) -> dict[str, object]:
        """The same for JSON."""
        return {**vars(self), "times": self.times}


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


def skipped(rows: Iterable[Row]) -> dict[str, int]:
    """Label -> rounds that did not count, with all seeds together; without those that have none."""
    found = {
        label: sum(curve[-1].get("skipped") or 0 for curve in seeds.values())
        for label, seeds in curves(rows).items()
    }
    return {label: number for label, number in found.items() if number}


def lines(left_out: Iterable[Row], rows: Iterable[Row]) -> dict[str, str]:
    """Label -> who was left out and why, in a line."""
    absent, lost = by_client(left_out), skipped(rows)
    found = {}
    for label in dict.fromkeys(one.label for one in absent):
        own = [one for one in absent if one.label == label]
        reasons = sum((one.reasons for one in own), Counter[str]())
        clients = sorted(one.client for one in own)
        who = count(len(clients), "client")
        if len(clients) <= CLIENTS:
            who = f"{'client' if len(own) == 1 else 'clients'} {', '.join(map(str, clients))}"
        end = f"; {count(lost[label], 'round')} skipped" if label in lost else ""
        found[label] = f"{who} left out {count(reasons.total(), 'time')}: {why(reasons)}{end}"
    return found


def why(reasons: Counter[str]) -> str:
    """The most frequent reasons, each with its number.

    >>> why(Counter({"it was lost": 3, "it came late": 1}))
    'it was lost (3), it came late (1)'
    """
    told = [f"{reason} ({times})" for reason, times in reasons.most_common(REASONS)]
    others = len(reasons) - len(told)
    return ", ".join(told) + (f" and {count(others, 'other reason')}" if others else "")


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
