"""The tables of a report."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import undrift.methods  # noqa: F401, fills the registry
from undrift.core.costs import Costs, costs, placeholder
from undrift.core.method import Method, registry
from undrift.core.params import THEORY, BadParameters, hints
from undrift.core.problem import Samples
from undrift.records.differences import Against, Difference
from undrift.records.folder import Row
from undrift.records.outcome import ENDS, UNCHANGED
from undrift.report.against import between, remarks, signed
from undrift.report.content import Setting
from undrift.report.left_out import by_client, skipped, spans, why
from undrift.report.summary import NO_END, NUMBER, ON, SPENT, Spread, Summary, goal, partly, spell
from undrift.report.text import NONE, count, duration, names, percent, plain, size, small, whole
from undrift.spec.schema import TRAINING

UNITS: dict[str, Callable[[float], str]] = {
    "bytes": size,
    "seconds": duration,
    "loss": lambda value: plain(value, 4),
    "drift": small,
}
BILL = {
    "up": "vectors_up",
    "down": "vectors_down",
    "exchanges": "syncs",
    "on the server": "",
    "on a client": "",
    "gradients per step": "",
    "gradients per round": "gradients",
}
"""Columns of the costs, and the recorded ones that count the same."""

FARES = {
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

Best = Callable[[Iterable[float]], float]


@dataclasses.dataclass(frozen=True)
class Cell:
    """``value`` is what a number is sorted by; ``kind`` is ``best``, or that of a status."""

    text: str
    value: float | None = None
    kind: str = ""


@dataclasses.dataclass(frozen=True)
class Sheet:
    """A table whose first column is the method; ``words`` names other columns of text."""

    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: Sequence[str] = ()
    notes: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Tile:
    """One result to take home."""

    title: str
    value: str
    detail: str


def results(
    summaries: Sequence[Summary],
    column: str,
    target: float | None,
    note: str,
    varied: Sequence[str] = (),
    samples: Samples | None = None,
    mixed: Sequence[str] = (),
) -> Sheet:
    """Where each method ended, measured on these samples; ``varied`` has what seeds vary, and
    ``mixed`` has warnings about numbers that cannot be compared.
    """
    judged = column == "accuracy"
    several = any(s.seeds > 1 for s in summaries)
    extra = [] if column == "loss" else ["loss"]
    notes = []
    if several:
        notes += [f"seeds vary {what}" for what in varied]
    if any(not s.seeded for s in summaries):
        notes.append(f"{UNCHANGED}: nothing in it is drawn at random, so it was run once")
    if any(s.ends.get("drift") for s in summaries):
        extra.append("drift")
        notes.append("drift: mean squared distance of the last local models to the server's")
    if judged and samples is not None:
        notes.append(f"accuracy and loss: {ON[samples].removeprefix(', ')}")
    notes += mixed
    notes += partly(summaries)
    notes.append("time: of training, for one seed")
    if any(s.diverged or s.unfinished for s in summaries):
        notes.append(NO_END)
    if several:
        means = ", ".join(["final", "best", *extra])
        notes.insert(0, f"{means}: means over seeds ± standard deviation")
    rows = [
        [
            Cell(s.label),
            Cell(s.status, kind=kind(s.statuses)),
            Cell(_seeds(s), s.seeds),
            Cell(s.final, None if s.measured else s.end(column)),
            _spread(s.best, NUMBER[column]),
            *(_number(s.end(name), UNITS[name]) for name in extra),
            _number(s.spent("rounds"), whole),
            _number(s.spent("seconds"), duration),
        ]
        for s in summaries
    ]
    best: Best | None = max if judged else min if target is None else None
    if best is not None:
        _mark(rows, [3, 4], best)
    about = f" ({note})" if judged and note else ""
    measured = [f"final {column}{about}", f"best {column}{about}", *extra]
    head = ["method", "outcome", "seeds", *measured, "rounds", "time"]
    return Sheet("Results", "Where each method ended", head, rows, ["outcome"], notes)


def differences(found: Sequence[Against], column: str) -> Sheet | None:
    """Methods against a baseline; ``None`` where there is no other method."""
    if not found:
        return None
    rounds = any(one.rounds is not None and one.rounds.mean is not None for one in found)
    rows = []
    for one in found:
        cells = [Cell(one.label), *_apart(one.final, column)]
        if rounds:
            cells += _apart(one.rounds or Difference(0), "rounds")
        rows.append([*cells, Cell(str(one.final.seeds), one.final.seeds)])
    head = ["method", f"final {column}", "95 % interval"]
    head += ["rounds to the target", "95 % interval of rounds"] if rounds else []
    caption = f"Differences to {found[0].baseline}, seed by seed"
    notes = remarks(found, column)
    if any(cell.kind for row in rows for cell in row):
        notes.append("bold: zero is outside the interval")
    return Sheet("Differences", caption, [*head, "seeds"], rows, notes=notes)


def fares(summaries: Sequence[Summary], of: str) -> Sheet | None:
    """How the clients are spread at the end; ``None`` where they were not measured."""
    known = [s for s in summaries if f"{s.fares}_mean" in s.ends]
    if not any(s.ends[f"{s.fares}_mean"] for s in known):
        return None
    judged = known[0].metric == "accuracy"
    rows = [
        [Cell(s.label), *(_fare(s.ends.get(f"{s.fares}_{name}"), judged) for name in FARES)]
        for s in known
    ]
    best: Best = max if judged else min
    if not any(s.measured for s in known):
        _mark(rows, [k for k, name in enumerate(FARES, 1) if name != "std"], best)
        _mark(rows, [k for k, name in enumerate(FARES, 1) if name == "std"], min)
    what = "Accuracy" if judged else "Loss"
    notes = [
        "worst 10 %: the mean over the worst tenth of the clients, at least one; spread: the "
        "standard deviation over the clients"
    ]
    if any(s.seeds > 1 for s in known):
        notes.append("means over seeds ± standard deviation")
    if any(s.diverged or s.unfinished for s in known):
        notes.append(NO_END)
    notes += partly(known)
    caption = f"{what} of the server's model at the end, on each client's {of}"
    return Sheet("Clients", caption, ["method", *FARES.values()], rows, notes=notes)


def parameters(summaries: Sequence[Summary], settings: Mapping[str, Setting]) -> Sheet:
    """What each method was run with, and which values theory has set."""
    rows = []
    for s in summaries:
        setting = settings.get(s.label, Setting())
        given = setting.written
        method = registry.get(s.method or setting.method)
        names = list(s.values) or [name for name in given if method and name in hints(method)]
        known = {name: s.values.get(name, given.get(name)) for name in names}
        theory = [name for name in names if given.get(name) == THEORY and name in s.values]
        own = {**setting.shared, **{n: v for n, v in given.items() if n in TRAINING}}
        cells = [
            ", ".join(f"{name} = {_value(known[name])}" for name in some) or NONE
            for some in ([name for name in names if name not in theory], theory)
        ]
        others = ", ".join(f"{name} = {_value(value)}" for name, value in own.items()) or NONE
        rows.append([Cell(s.label), Cell(s.method or setting.method), *map(Cell, [*cells, others])])
    words = ["class", "hyper-parameters", "set by theory", "settings"]
    shown = [k for k, _ in enumerate(["method", *words]) if k < 3 or any(
        row[k].text != NONE for row in rows
    )]  # fmt: skip
    head = [name for k, name in enumerate(["method", *words]) if k in shown]
    return Sheet(
        "Hyper-parameters",
        "What each method was run with",
        head,
        [[row[k] for k in shown] for row in rows],
        words,
    )


def needs(summaries: Sequence[Summary], column: str, target: float | None) -> Sheet:
    """What each method needed until the target; without one, what it spent in all."""
    notes = [
        "vectors: of model size, up and down, per client; bytes and gradients: of all clients"
        " together",
        "a vector of which only some entries travel counts as one; bytes are those that travel",
    ]

    def spent(value: Callable[[str], float | None]) -> list[Cell]:
        return [_number(value(name), UNITS.get(name, whole)) for name in SPENT]

    if target is None and column != "gap":
        rows = [[Cell(s.label), *spent(s.spent)] for s in summaries]
        return Sheet("Spent", "Spent in all", ["method", *SPENT], rows, notes=notes)
    several = any(s.seeds > 1 for s in summaries)
    never = f"means over seeds; {NONE} if one of them never got there" if several else ""
    rows = [[Cell(s.label), _reached(s), *spent(s.need)] for s in summaries]
    head = ["method", "seeds there", *SPENT]
    _mark(rows, range(2, len(head)), min)
    return Sheet(
        "To the target",
        f"Spent until {words(goal(target, column))}",
        head,
        rows,
        notes=[never or f"{NONE} if it never got there", *notes],
    )


def bill(summaries: Sequence[Summary], settings: Mapping[str, Setting]) -> Sheet:
    """What each method costs; the settings are by label."""
    rows = []
    for s in summaries:
        setting = settings.get(s.label, Setting())
        method = registry.get(s.method or setting.method)
        rounds = s.end("round")
        spent = {name: found.mean / rounds for name, found in s.ends.items() if found and rounds}
        found = {name: spent.get(column) for name, column in BILL.items()}
        if setting.steps and setting.clients and spent.get("iterations"):
            steps = spent["iterations"] * setting.clients
            found["gradients per step"] = spent["gradients"] / steps
        clients = exact = NONE
        if method is not None:
            cost = declared(method, s.values, setting.steps)
            found |= {"up": cost.up, "down": cost.down, "exchanges": cost.syncs}
            found |= {"on the server": cost.server, "on a client": cost.client + setting.kept}
            clients = "all" if method.participation == "full" else "some"
            exact = "yes" if method.exact and not setting.biased else "no"
        total = found.pop("gradients per round")
        counts = [_number(value, lambda value: plain(value, 3)) for value in found.values()]
        rows.append([Cell(s.label), *counts, _number(total, whole), Cell(clients), Cell(exact)])
    notes = [
        "up, down, exchanges: vectors of model size and messages, per client and round",
        "on the server, on a client: vectors stored from round to round",
        "gradients: as counted; of one client in a local step"
        f" ({NONE} where cohorts or steps differ), and of all clients in a round",
        "clients: all must take part in every round, or some may; exact: no bias on heterogeneous"
        " data",
    ]
    last = ["clients", "exact"]
    return Sheet("Costs", "What each method costs", ["method", *BILL, *last], rows, last, notes)


def left_out(found: Sequence[Row], rows: Sequence[Row]) -> Sheet | None:
    """Whose work did not count, and why; ``None`` where all of it did."""
    absent = by_client(found)
    if not absent:
        return None
    cells = [
        [
            Cell(one.label),
            Cell(str(one.client), one.client),
            Cell(whole(one.times), one.times),
            Cell(spans(one.rounds)),
            Cell(why(one.reasons)),
        ]
        for one in absent[:ABSENT]
    ]
    notes = ["rounds: counted from 0, as in [[faults]]; times: of all seeds together"]
    notes += [
        f"{label}: {count(number, 'round')} skipped, after which server and clients are as before"
        for label, number in skipped(rows).items()
    ]
    if len(absent) > ABSENT:
        notes.append(f"and {count(len(absent) - ABSENT, 'client')} more")
    words = ["rounds", "reasons"]
    head = ["method", "client", "times", *words]
    return Sheet("Left out", "Clients whose work did not count", head, cells, words, notes)


def declared(cls: type[Method], values: Mapping[str, object], steps: int | None) -> Costs:
    """What a method declares to cost, with the values it was run with."""
    try:
        method = cls(**values)
    except (BadParameters, TypeError):  # not run yet, or by another version
        method = placeholder(cls)
    return costs(method, steps or 2)


def tiles(
    summaries: Sequence[Summary],
    column: str,
    target: float | None,
    samples: Samples | None = None,
) -> list[Tile]:
    """The winners, once all have ended."""
    if late := [s.label for s in summaries if s.unfinished]:
        rounds = {s.progress for s in summaries if s.unfinished}
        return [Tile("Unfinished", _listed(late), rounds.pop() if len(rounds) == 1 else "")]
    found: list[Tile] = []
    aimed, judged = target is not None or column == "gap", column == "accuracy"
    if judged or not aimed:
        ends = {s.label: s.end(column) for s in summaries if not s.measured}
        of = "training " if judged and samples == "train" else ""
        found += _winner(f"Best final {of}{column}", ends, NUMBER[column], max if judged else min)
    if aimed:
        no_break = "e\u2011"  # a hyphen at which no line ends
        until = words(goal(target, column)).replace("e-", no_break)
        for name in ("rounds", "vectors", "gradients"):
            needed = {s.label: s.need(name) for s in summaries}
            found += _winner(
                f"Fewest {name}", needed, lambda value: f"{whole(value)} until {until}", min
            )
        judged_by = [s for s in summaries if s.best is not None or column in s.ends]
        if late := [s.label for s in judged_by if s.reached < s.seeds]:
            found.append(Tile("Missed the target", _listed(late), until))
    return found[:4]


def kind(statuses: Iterable[str]) -> str:
    """The worst kind of some statuses."""
    kinds = {ENDS[status].kind if status in ENDS else "open" for status in statuses}
    return next((kind for kind in ("bad", "open", "good") if kind in kinds), "open")


def words(goal: str) -> str:
    return goal.replace("<=", "≤").replace(">=", "≥")


def _apart(found: Difference, column: str) -> list[Cell]:
    """A difference and its interval, which counts if it has no zero in it."""
    sure = found.low is not None and found.high is not None and found.low * found.high > 0
    middle = Cell(signed(found.mean, column), found.mean)
    return [middle, Cell(between(found, column), kind="best" if sure else "")]


def _fare(found: Spread | None, judged: bool) -> Cell:
    """A statistic of the clients; what differs by rounding alone is alike."""
    text = spell(found, percent if judged else lambda value: plain(value, 4))
    return Cell(text, float(f"{found.mean:.9g}") if found else None)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping) and "name" in value:
        more = ", ".join(f"{n} = {_value(v)}" for n, v in value.items() if n != "name")
        return f"{value['name']} ({more})" if more else str(value["name"])
    return plain(value, 4) if isinstance(value, float) else str(value)


def _seeds(s: Summary) -> str:
    if not s.seeded:
        return UNCHANGED
    planned = sum(s.statuses.values())
    return f"{s.seeds} of {planned}" if planned > s.seeds else str(s.seeds)


def _reached(s: Summary) -> Cell:
    share = s.reached / s.seeds if s.seeds else 0
    return Cell(f"{s.reached} of {s.seeds}" if s.seeded else UNCHANGED, share)


def _number(value: float | None, show: Callable[[float], str]) -> Cell:
    return Cell(NONE) if value is None or math.isnan(value) else Cell(show(value), value)


def _spread(spread: Spread | None, show: Callable[[float | None], str]) -> Cell:
    return Cell(spell(spread, show), spread.mean if spread else None)


def _mark(rows: list[list[Cell]], columns: Iterable[int], best: Best) -> None:
    """Mark the best of each of the columns, unless all values are alike."""
    for k in columns:
        values = {value for row in rows if (value := row[k].value) is not None}
        if len(values) > 1:
            top = best(values)
            for row in rows:
                if row[k].value == top:
                    row[k] = dataclasses.replace(row[k], kind="best")


def _winner(
    title: str, values: Mapping[str, float | None], show: Callable[[float], str], best: Best
) -> list[Tile]:
    known = [value for value in values.values() if value is not None]
    if not known:
        return []
    top = best(known)
    winners = [label for label, value in values.items() if value == top]
    return [Tile(title, _listed(winners), show(top))]


def _listed(labels: Sequence[str]) -> str:
    if len(labels) < 4:
        return names(labels)
    return f"{names(labels[:2])} and {len(labels) - 2} more"
