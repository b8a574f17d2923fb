"""The tables of ``undrift compare`` and of a report: one row for each method."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import undrift.methods  # noqa: F401, fills the registry
from undrift.core.method import registry
from undrift.core.optimisers import registry as optimisers
from undrift.core.params import AUTO, THEORY, hints
from undrift.core.problem import Samples
from undrift.core.stopping import USUALLY, Goal
from undrift.plots.columns import SHARES
from undrift.records.differences import EQUAL, Against, Difference
from undrift.records.rows import ENDS
from undrift.report.numbers import (
    NONE,
    UNKNOWN,
    Show,
    Spread,
    duration,
    names,
    number,
    plain,
    signed,
    size,
    small,
    spell,
    whole,
)
from undrift.report.summary import COUNTED, NO_END, ON, OPEN, SPENT, Summary, partly, until
from undrift.report.table import Best, Cell, Table, mark_best
from undrift.spec.schema import PER_METHOD

KINDS = ("bad", "open", "good")
"""Of outcomes, the worst first."""
Document = Mapping[str, Any]
"""A spec, or a table of one, as TOML has it."""
Columns = dict[str, tuple[bool, Callable[[Summary], Cell]]]
"""Title -> whether a table has it, and its cells."""


@dataclasses.dataclass(frozen=True)
class MethodSetting:
    """What a method was run with, as far as tables and figures depend on it."""

    written: Document = dataclasses.field(default_factory=dict)
    """The table of the method in the spec."""
    document: Document = dataclasses.field(default_factory=dict)
    """The spec."""

    @property
    def biased(self) -> bool:
        """Whether it is not exact there: by itself, or for a robust rule takes the place of its
        means, or another optimiser than SGD or momentum its local steps.
        """
        rule = self.document.get("aggregation", {}).get("name", "mean")
        training = self.written.get("training", self.document.get("training", {}))
        optimiser = training.get("optimiser")
        name = optimiser.get("name") if isinstance(optimiser, dict) else optimiser
        kind, method = optimisers.get(str(name)), registry.get(str(self.written.get("name")))
        exact = rule in ("mean", "weighted-mean") and (name is None or (kind and kind.exact))
        return not exact or (method is not None and not method.exact)


@dataclasses.dataclass(frozen=True)
class Tile:
    """One result to take home."""

    title: str
    value: str
    detail: str


def results(
    summaries: Sequence[Summary],
    target: float | None = None,
    *,
    note: str = "",
    varied: Sequence[str] = (),
    samples: Samples | None = None,
    mixed: Sequence[str] = (),
    tuned: Mapping[str, str] | None = None,
    wide: bool = False,
    declared: bool = False,
) -> Table:
    """Where each method ended, and what it spent until the target, or in all.

    ``note`` is printed next to every accuracy, ``varied`` has what seeds vary, in words, and
    ``mixed`` warnings about numbers that cannot be compared; ``tuned`` has what a method was tuned
    over, by label; ``samples`` are those that losses and accuracies are of. A ``wide`` table has
    more columns than a terminal has room for. Where the spec has ``declared`` by what methods are
    judged, that comes first.
    """
    goal = next((s.goal for s in summaries), USUALLY)
    column, best = goal.column(), max if goal.larger(goal.column()) else min
    aimed, judged = target is not None or column == "gap", column not in ("gap", "loss")
    several = any(s.seeds > 1 for s in summaries)
    drifted = (wide or judged) and any(s.end("drift").mean for s in summaries)
    what = next((s.fares for s in summaries), "loss")
    worst, spread = f"client_{what}_worst10", f"client_{what}_std"
    spread_out = not wide and any(s.end(worst).mean for s in summaries)
    about = f" ({note})" if judged and note else ""
    counted = [*COUNTED, "bytes"] if _compressed(summaries) else [*COUNTED]
    spent: Columns = {n: (True, partial(_spent, name=n, aimed=aimed)) for n in counted}
    reached: Columns = {
        # The last value is compared with others where it is of all clients.
        f"final {column}{about}": (
            True,
            lambda s: Cell(s.final, None if s.measured else s.end(column).mean),
        ),
        f"best {column}{about}": (wide, lambda s: Cell(spell(s.best, number(column)), s.best.mean)),
    }
    columns: Columns = {
        "method": (True, lambda s: Cell(s.label)),
        "seeds": (several, _seeds),
        **(reached | spent if declared else spent | reached),
        "loss": (judged, lambda s: Cell(plain(s.end("loss").mean), s.end("loss").mean)),
        "drift": (drifted, lambda s: Cell(small(s.end("drift").mean), s.end("drift").mean)),
        "worst 10 %": (spread_out, lambda s: Cell(spell(s.end(worst), number(what)))),
        "spread": (spread_out, lambda s: Cell(spell(s.end(spread), number(what)))),
        "time": (True, lambda s: Cell(duration(s.end("seconds").mean), s.end("seconds").mean)),
        "outcome": (True, _outcome),
        "tuned over": (bool(tuned), lambda s: Cell((tuned or {}).get(s.label, NONE))),
    }
    shown = {name: cell for name, (there, cell) in columns.items() if there}
    head, rows = [*shown], [[cell(s) for cell in shown.values()] for s in summaries]
    if aimed:
        mark_best(rows, map(head.index, counted), min)
    if judged or not aimed:
        finals = [k for k, name in enumerate(head) if name.startswith(("final", "best"))]
        mark_best(rows, finals, best)

    spent_on = f"until {until(goal, target)}" if aimed else "in all"
    mean = ", mean over seeds ± standard deviation" if several else ""
    never = f" ({NONE} if never)" if aimed else ""
    once = [s.label for s in summaries if not s.seeded]
    each = {s.label: (s.end("syncs").mean or 0, s.end("round").mean or 1) for s in summaries}
    several_a_round = [f"{label}: {n / k:.3g} exchanges" for label, (n, k) in each.items() if n > k]
    notes = {
        f"rounds, vectors and gradients: spent {spent_on}{mean}{never}": True,
        "vectors: of model size, up and down, per client; gradients: of all clients together, "
        "one for a mini-batch or for a pass over all data": True,
        f"{'; '.join(several_a_round)} a round": bool(several_a_round),
        "bytes: those that travel up and down, of all clients together": "bytes" in counted,
        f"{column} and loss: at the end{ON[samples]}": judged,
        "drift: mean squared distance of the last local models to the server's": drifted,
        f"worst 10 %: mean {what} of the worst tenth of the clients, each on its own samples; "
        f"spread: standard deviation of the clients' {what}": spread_out,
        **{f"seeds vary {part}": several for part in filter(None, varied)},
        NO_END: any(s.without_end for s in summaries),
        "tuned over: what was tried of each method, with other seeds; by undrift tune": bool(tuned),
        f"run once, for no seed changes it: {names(once)}": bool(once),
    }
    said = [text for text, holds in notes.items() if holds]
    ends = [f"{s.label} {s.note}" for s in summaries if s.note]
    told, words = [*said, *mixed, *partly(summaries), *ends], ["outcome", "tuned over"]
    return Table(head, rows, words, told, "Results", "Where each method ended")


def parameters(summaries: Sequence[Summary], settings: Mapping[str, MethodSetting]) -> Table:
    """What each method was run with, and which values theory has set."""
    rows = []
    for s in summaries:
        setting = settings.get(s.label, MethodSetting())
        given, name = setting.written, s.method or setting.written.get("name", "")
        method, spec = registry.get(name), setting.document
        known = s.values or {n: v for n, v in given.items() if method and n in hints(method)}
        theory = [name for name in s.values if given.get(name) == THEORY]
        others = {n: spec[n] for n in ("schedule", "training") if spec.get(n)}
        others |= {n: v for n, v in given.items() if n in PER_METHOD}
        runs = {name: f"{name} (auto)" for name in s.values if given.get(name) == AUTO}
        own = {runs.get(n, n): value for n, value in known.items() if n not in theory}
        found = [_values(own), _values({name: known[name] for name in theory}), _values(others)]
        rows.append([s.label, name, *found])
    head = ["method", "class", "hyper-parameters", "set by theory", "settings"]
    caption = "What each method was run with"
    return Table(head, rows, head, title="Hyper-parameters", caption=caption)


def tiles(
    summaries: Sequence[Summary], goal: Goal, target: float | None, samples: Samples | None = None
) -> list[Tile]:
    """The winners, once all have ended."""
    if left := [s for s in summaries if not s.statuses.keys().isdisjoint(OPEN)]:
        rounds = {s.progress for s in left}
        labels = _listed([s.label for s in left])
        return [Tile("Unfinished", labels, rounds.pop() if len(rounds) == 1 else "")]
    found, column = list[Tile](), goal.column()
    aimed, judged = target is not None or column == "gap", column not in ("gap", "loss")
    if judged or not aimed:
        ends = {s.label: s.end(column).mean for s in summaries if not s.measured}
        of = "training " if judged and samples == "train" else ""
        best = max if goal.larger(column) else min
        found += _winner(f"Best final {of}{column}", ends, number(column), best)
    if aimed:
        aim = until(goal, target)
        for name in COUNTED:
            needed = {s.label: s.needed.get(name, UNKNOWN).mean for s in summaries}
            found += _winner(f"Fewest {name}", needed, whole, min, f" until {aim}")
        judged_by = [s for s in summaries if s.best != UNKNOWN or column in s.ends]
        if late := [s.label for s in judged_by if s.reached < s.seeds]:
            found.append(Tile("Did not reach", _listed(late), aim))
    return found[:4]


class Differences(dict[str, Against]):
    """Methods against a baseline, by their labels."""

    def __init__(self, baseline: str, metric: str, found: Iterable[Against]):
        super().__init__({one.label: one for one in found})
        self.baseline, self.metric = baseline, metric

    def table(self) -> str:
        """The differences and their 95 % intervals, as text."""
        return differences(self.baseline, self.metric, [*self.values()]).text(math.inf)

    def __repr__(self) -> str:
        return self.table()


def differences(baseline: str, column: str, found: Sequence[Against]) -> Table:
    """Methods against a baseline, and what the numbers mean."""
    rounds = any(one.rounds is not None and one.rounds.mean is not None for one in found)
    rows = [
        [
            Cell(one.label),
            Cell(str(one.final.seeds), one.final.seeds),
            *_cells(one.final, column),
            *(_cells(one.rounds or Difference(0), "rounds") if rounds else []),
        ]
        for one in found
    ]
    head = [f"against {baseline}", "seeds", f"final {column}", "95 % interval"]
    head += ["rounds to the target", "95 % interval of rounds"] if rounds else []
    caption = f"Differences to {baseline}, seed by seed"
    return Table(head, rows, notes=_remarks(found, column), title="Differences", caption=caption)


def _cells(found: Difference, column: str) -> list[Cell]:
    """A difference and its interval, which counts if it has no zero in it."""
    mean = Cell(signed(found.mean, column), found.mean)
    if found.low is None or found.high is None:
        return [mean, Cell(f"none: {EQUAL}" if found.reason == EQUAL else NONE)]
    text = f"{signed(found.low, column)} to {signed(found.high, column)}"
    return [mean, Cell(text, kind="best" if found.low * found.high > 0 else "")]


def _remarks(found: Sequence[Against], column: str) -> list[str]:
    unit = " in percentage points" if column in SHARES else ""
    parts = [part for one in found for part in (one.final, one.rounds) if part is not None]
    notes = {
        f"differences{unit}: means over the seeds that both methods have, paired, with the 95 % "
        "interval of Student's t distribution where there are several that vary": True,
        f"{NONE}: no difference unless both methods have an end, or reach the target, in all "
        "of these seeds": any(part.mean is None for part in parts),
    }
    return [text for text, holds in notes.items() if holds]


def kind(statuses: Iterable[str]) -> str:
    """The worst kind of some statuses."""
    return min((ENDS[status].kind for status in statuses), key=KINDS.index, default="open")


def _values(found: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {_value(value)}" for name, value in found.items()) or NONE


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping) and "name" in value:
        others = {n: v for n, v in value.items() if n != "name"}
        return f"{value['name']} ({_values(others)})" if others else str(value["name"])
    return plain(value) if isinstance(value, float) else str(value)


def _seeds(s: Summary) -> Cell:
    planned = sum(s.statuses.values()) if s.seeded else s.seeds
    return Cell(f"{s.seeds} of {planned}" if planned > s.seeds else str(s.seeds), s.seeds)


def _outcome(s: Summary) -> Cell:
    some = f"{s.reached} of {s.seeds} seeds reached it"
    return Cell(some if 0 < s.reached < s.seeds else s.status, kind=kind(s.statuses))


def _spent(s: Summary, name: str, aimed: bool) -> Cell:
    """Spent until the target, or in all; only rounds have a deviation, as other counts follow."""
    found = s.needed.get(name, UNKNOWN) if aimed else s.end(SPENT[name])
    own = found if aimed and name == "rounds" else Spread(found.mean)
    return Cell(spell(own, size if name == "bytes" else whole), found.mean)


def _compressed(summaries: Sequence[Summary]) -> bool:
    """Whether bytes say more than vectors: methods differ in their bytes per vector."""
    spent = [(s.end("bytes").mean, s.end("vectors").mean) for s in summaries]
    ratios = [total / vectors for total, vectors in spent if total and vectors]
    return bool(ratios) and max(ratios) > 1.01 * min(ratios)


def _winner(
    title: str, values: Mapping[str, float | None], show: Show, best: Best, more: str = ""
) -> list[Tile]:
    known = [value for value in values.values() if value is not None]
    if not known:
        return []
    top = best(known)
    winners = [label for label, value in values.items() if value == top]
    return [Tile(title, _listed(winners), show(top) + more)]


def _listed(labels: Sequence[str]) -> str:
    if len(labels) < 4:
        return names(labels)
    return f"{names(labels[:2])} and {len(labels) - 2} more"
