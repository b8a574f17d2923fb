"""The tables of a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from undrift.methods import registry
from undrift.report.scores import SPENT, Score, Setting, declared
from undrift.report.summary import NUMBER, Spread, goal, spell
from undrift.report.text import NONE, duration, plain, size, small, whole

ENDS = {
    "done": ("all rounds run", "good"),
    "reached": ("target reached", "good"),
    "diverged": ("diverged", "bad"),
    "failed": ("failed", "bad"),
    "stopped": ("stopped", "open"),
    "unfinished": ("unfinished", "open"),
}
"""A status in words, and its kind."""
UNCHANGED = "no seed changes it"
UNITS: dict[str, Callable[[float], str]] = {"bytes": size, "seconds": duration}


@dataclasses.dataclass(frozen=True)
class Cell:
    """``value`` is what a number is sorted by; ``kind`` is ``best``, or that of a status."""

    text: str
    value: float | None = None
    kind: str = ""


@dataclasses.dataclass(frozen=True)
class Sheet:
    """A table: the first column is the method, ``words`` are the other columns that are not
    numbers.
    """

    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: Sequence[str] = ()
    notes: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Tile:
    """One thing to take home."""

    title: str
    value: str
    detail: str


def results(
    scores: Sequence[Score],
    column: str,
    target: float | None,
    note: str,
    varied: Sequence[str] = (),
) -> Sheet:
    """Where each method ended; ``varied`` says what seeds vary."""
    judged = column == "accuracy"
    about = f" ({note})" if judged and note else ""
    drifted = any(s.ends.get("drift") for s in scores)
    extra = ["loss"] * (column != "loss") + ["drift"] * drifted
    head = [
        "method",
        "outcome",
        "seeds",
        f"final {column}{about}",
        f"best {column}{about}",
        *extra,
        "rounds",
        "time",
    ]
    rows = []
    for s in scores:
        text, kind = outcome(s)
        planned = sum(s.statuses.values())
        rows.append(
            [
                Cell(s.label),
                Cell(text, kind=kind),
                Cell(
                    str(s.seeds) + f" of {planned}" * (planned > s.seeds)
                    if s.seeded
                    else UNCHANGED,
                    s.seeds,
                ),
                _spread(s.ends.get(column), NUMBER[column]),
                _spread(s.best, NUMBER[column]),
                *(
                    _number((s.ends.get(name) or Spread(float("nan"))).mean, _PLAIN[name])
                    for name in extra
                ),
                _number(s.spent.get("rounds"), whole),
                _number(s.spent.get("seconds"), duration),
            ]
        )
    best = {3: max, 4: max} if judged else {3: min, 4: min} if target is None else {}
    several = any(s.seeds > 1 for s in scores)
    notes = [
        *[f"{', '.join(['final', 'best', *extra])}: means over seeds ± standard deviation"]
        * several,
        *[f"seeds vary {text}" for text in varied] * several,
        *[f"{UNCHANGED}: nothing in it is drawn at random, so it was run once"]
        * any(not s.seeded for s in scores),
        *["drift: mean squared distance of the last local models to the server's"] * drifted,
        *["accuracy and loss: on the test images"] * judged,
        "time: of training, for one seed",
    ]
    return Sheet("Results", "Where each method ended", head, _mark(rows, best), ["outcome"], notes)


def needs(scores: Sequence[Score], column: str, target: float | None) -> Sheet:
    """What each method needed until the target; without one, spent in all."""
    aimed = target is not None or column == "gap"
    rows = []
    for s in scores:
        values = s.needed if aimed else s.spent
        cells = [_number(values.get(name), UNITS.get(name, whole)) for name in SPENT]
        reached = (
            [
                Cell(
                    f"{s.reached} of {s.seeds}" if s.seeded else UNCHANGED,
                    s.reached / s.seeds if s.seeds else 0,
                )
            ]
            if aimed
            else []
        )
        rows.append([Cell(s.label), *reached, *cells])
    head = ["method", *["seeds there"] * aimed, *SPENT]
    title = f"Spent until {words(goal(target, column))}" if aimed else "Spent in all"
    several = any(s.seeds > 1 for s in scores)
    notes = [
        *[
            f"means over seeds; {NONE} if one of them never got there"
            if several
            else f"{NONE} if it never got there"
        ]
        * aimed,
        "vectors: of model size, up and down, per client; bytes and gradients: of all clients together",
        "a vector of which only some entries travel counts as one; bytes are those that travel",
    ]
    marked = range(2, len(head)) if aimed else ()
    return Sheet(
        "To the target" if aimed else "Spent",
        title,
        head,
        _mark(rows, {k: min for k in marked}),
        notes=notes,
    )


def bill(scores: Sequence[Score], settings: Mapping[str, Setting]) -> Sheet:
    """What each method costs; the settings are by label."""
    head = [
        "up",
        "down",
        "exchanges",
        "on the server",
        "on a client",
        "gradients per step",
        "gradients per round",
    ]
    rows = []
    for s in scores:
        setting = settings.get(s.label, Setting())
        cls = registry.get(s.method or setting.method)
        cost = declared(cls, s, setting.steps) if cls else None
        rounds = (s.ends.get("round") or Spread(0)).mean
        spent = {name: value.mean / rounds for name, value in s.ends.items() if value and rounds}
        taken = spent.get("iterations", 0) * (setting.clients or 0) if setting.steps else 0
        counted = [
            cost.up if cost else spent.get("vectors_up"),
            cost.down if cost else spent.get("vectors_down"),
            cost.syncs if cost else spent.get("syncs"),
            cost.server if cost else None,
            cost.client + setting.kept if cost else None,
            spent["gradients"] / taken if taken else None,
        ]
        rows.append(
            [
                Cell(s.label),
                *(_number(value, lambda value: plain(value, 3)) for value in counted),
                _number(spent.get("gradients"), whole),
                Cell(NONE if cls is None else "all" if cls.participation == "full" else "some"),
                Cell(NONE if cls is None else "yes" if cls.exact else "no"),
            ]
        )
    notes = [
        "up, down, exchanges: vectors of model size and messages, per client and round",
        "on the server, on a client: vectors stored from round to round",
        "gradients: as counted; of one client in a local step"
        f" ({NONE} where cohorts or steps differ), and of all clients in a round",
        "clients: all must take part in every round, or some may; exact: no bias on heterogeneous data",
    ]
    last = ["clients", "exact"]
    return Sheet("Costs", "What each method costs", ["method", *head, *last], rows, last, notes)


def tiles(scores: Sequence[Score], column: str, target: float | None) -> list[Tile]:
    """The winners."""
    found: list[Tile] = []
    aimed = target is not None or column == "gap"
    if not aimed or column == "accuracy":
        known = {s.label: spread.mean for s in scores if (spread := s.ends.get(column))}
        found += _winner(
            f"Best final {column}", known, NUMBER[column], max if column == "accuracy" else min
        )
    if aimed:
        until = words(goal(target, column)).replace(
            "e-", "e\u2011"
        )  # a hyphen at which no line ends
        for name in ("rounds", "vectors", "gradients"):
            known = {s.label: value for s in scores if (value := s.needed.get(name)) is not None}
            found += _winner(f"Fewest {name}", known, lambda value: f"{whole(value)} until {until}")
        if late := [s.label for s in scores if s.seeds and s.reached < s.seeds]:
            found.append(Tile("Missed the target", _listed(late), until))
    return found[:4]


def outcome(score: Score) -> tuple[str, str]:
    """How the seeds of a method ended, in words, and the worst kind of it."""
    ends = {status: ENDS.get(status, (status, "open")) for status in score.statuses}
    texts = [
        text + f" ({n})" * (len(ends) > 1)
        for (text, _), n in zip(ends.values(), score.statuses.values(), strict=True)
    ]
    kinds = {kind for _, kind in ends.values()}
    return ", ".join(texts), next(
        (kind for kind in ("bad", "open", "good") if kind in kinds), "open"
    )


def words(goal: str) -> str:
    return goal.replace("<=", "≤").replace(">=", "≥")


_PLAIN: dict[str, Callable[[float], str]] = {"loss": lambda value: plain(value, 4), "drift": small}


def _number(value: float | None, show: Callable[[float], str]) -> Cell:
    return Cell(NONE) if value is None or value != value else Cell(show(value), value)


def _spread(spread: Spread | None, show: Callable[[float | None], str]) -> Cell:
    return Cell(NONE) if spread is None else Cell(spell(spread.mean, spread.sd, show), spread.mean)


def _mark(rows: list[list[Cell]], columns: Mapping[int, Callable[..., Any]]) -> list[list[Cell]]:
    """The best of some columns marked, unless all are alike."""
    for k, best in columns.items():
        values = [row[k].value for row in rows if row[k].value is not None]
        if len(set(values)) > 1:
            top = best(values)
            for row in rows:
                if row[k].value == top:
                    row[k] = dataclasses.replace(row[k], kind="best")
    return rows


def _winner(
    title: str,
    known: Mapping[str, float],
    show: Callable[[float], str],
    best: Callable[..., Any] = min,
) -> list[Tile]:
    if not known:
        return []
    top = best(known.values())
    return [
        Tile(title, _listed([label for label, value in known.items() if value == top]), show(top))
    ]


def _listed(labels: Sequence[str]) -> str:
    return (
        ", ".join(labels)
        if len(labels) < 4
        else f"{labels[0]}, {labels[1]} and {len(labels) - 2} more"
    )
