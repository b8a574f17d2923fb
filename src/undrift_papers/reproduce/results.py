"""What the cache holds for an item, beside what the paper has."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from undrift._files import write_whole
from undrift.records.folder import Row
from undrift_papers.fedred import rates
from undrift_papers.reproduce.cache import EDITION, Cache, KeptRun, Want
from undrift_papers.reproduce.grid import best, tried
from undrift_papers.reproduce.items import Column, Item, Panel
from undrift_papers.reproduce.perform import ItemOptions, missing, wants
from undrift_papers.reproduce.readouts import readout, trained
from undrift_papers.reproduce.verdict import (
    COMPUTED,
    DRAWN,
    LITTLE,
    NOTHING,
    OPEN,
    PARTLY,
    QUICK,
    REPRODUCED,
    SHOWN,
    UNTOLD,
    Columns,
    Compared,
    Judgement,
    cell,
    judge,
)


@dataclasses.dataclass(frozen=True)
class Shown:
    """One panel: label -> its runs, one per seed."""

    panel: Panel
    rounds: dict[str, int]
    """Label -> rounds of the paper."""
    runs: dict[str, list[KeptRun]]
    columns: Columns
    wants: list[Want]
    tried: dict[str, int] = dataclasses.field(default_factory=dict)
    """Of a search: label -> settings that were run."""

    @property
    def empty(self) -> bool:
        return not any(self.runs.values())

    @property
    def absent(self) -> str:
        """Why nothing could be run; empty otherwise."""
        if not self.empty or not missing(self.wants[0].spec):
            return ""
        return (
            f"{vars(self.wants[0].spec.problem)['data']} is not there; undrift data fetch gets it"
        )

    def over(self, label: str) -> bool:
        """Whether a seed has the rounds of the paper, or ended by itself."""
        return any(kept.over(self.rounds[label]) for kept in self.runs[label])

    def reached(self, label: str) -> int:
        """Rounds that were run, by the longest seed; those beyond the paper's are not shown."""
        return furthest(self.runs[label], self.rounds[label])

    def at_chance(self, label: str) -> list[KeptRun]:
        """Seeds that did not train, where that is looked at; none if no seed trained."""
        columns, rounds = [column for column, _ in self.columns], self.rounds[label]
        found = [
            kept
            for kept in self.runs[label]
            if not all(_trained(column, kept, rounds) for column in columns)
        ]
        return found if len(found) < len(self.runs[label]) else []

    def seeds(self, label: str) -> tuple[int, int]:
        """How many a number of this method is a mean of, at least and at most."""
        numbers = (cells[label] for _, cells in self.columns if label in cells)
        counts = [c.seeds for c in numbers if c.seeds] or [len(self.runs[label])]
        return min(counts), max(counts)


@dataclasses.dataclass(frozen=True)
class Report:
    """One item."""

    item: Item
    shown: list[Shown]
    quick: bool
    measured: dict[str, Any] | None = None
    """FedRed's rates, which are measured without a spec: ``found``, and the ``environment``."""

    @property
    def kept(self) -> list[KeptRun]:
        return [kept for shown in self.shown for runs in shown.runs.values() for kept in runs]

    @property
    def columns(self) -> Columns:
        """Of all panels, and of what was measured."""
        found = [pair for shown in self.shown for pair in shown.columns]
        return found + (exponents(self.measured["found"]) if self.measured else [])

    @property
    def judgement(self) -> Judgement:
        return sum((judge(column, cells) for column, cells in self.columns), Judgement())

    @property
    def verdict(self) -> str:
        if self.item.kind in ("computed", "measured") and not self.measured:
            return COMPUTED
        if self.item.kind == "heatmap":
            return OPEN if all(shown.absent for shown in self.shown) else DRAWN
        if not self.kept and not self.measured:
            return OPEN
        if self.quick:
            return QUICK
        if not any(column.stated for column, _ in self.columns):
            return SHOWN
        found = self.judgement.verdict
        return found if found in (NOTHING, LITTLE) or self.complete else found + PARTLY

    @property
    def why(self) -> str:
        """The reason for the verdict, where it is known."""
        if self.verdict == OPEN:
            absent = self.shown[0].absent if all(shown.absent for shown in self.shown) else ""
            takes = f"one seed takes {self.item.takes}" if self.item.takes else ""
            return "; ".join(filter(None, (absent, takes)))
        return self.item.reason if self.known and self.verdict != REPRODUCED else ""

    @property
    def answer(self) -> str:
        """Whether the paper's claim holds; empty where it makes none, or none that is judged."""
        if self.quick or not self.item.claim:
            return ""
        if self.item.answer:
            return self.item.answer if self.by_hand else UNTOLD
        return self.judgement.answer if self.kept or self.measured else OPEN

    @property
    def by_hand(self) -> bool:
        """Whether that is written in the item, about these runs."""
        return self.item.answer is not None and (self.known or not self.item.runs)

    @property
    def found(self) -> dict[str, float]:
        """What tells these runs from others: rounds in all, numbers that agree, pairs in order and
        the largest difference.
        """
        rounds = sum(
            min(kept.last, shown.rounds[label])
            for shown in self.shown
            for label, runs in shown.runs.items()
            for kept in runs
        )
        judged = self.judgement
        found = {"rounds": rounds, "agree": judged.agree, "ordered": judged.ordered}
        worst = {} if judged.worst is None else {"worst": round(judged.worst, 1)}
        return found | worst

    @property
    def known(self) -> bool:
        """Whether these are the runs that the item's reason and causes were written about."""
        return not self.quick and self.found == self.item.found

    @property
    def bare(self) -> bool:
        """Whether nothing is kept of what its page is made from."""
        made = self.item.kind in ("computed", "heatmap")
        return not (made or self.kept or self.measured)

    @property
    def complete(self) -> bool:
        """Whether we have a number wherever the paper prints one or its text speaks of one, from
        runs as long as the paper's, and searches have tried all there is.
        """
        searched = all(
            shown.tried.get(label) == len(settings)
            for label, settings in self.item.grid.items()
            for shown in self.shown
        )
        finished = all(
            shown.over(label)
            for shown in self.shown
            for column, _ in shown.columns
            for label in column.about(shown.runs)
        )
        return (
            searched
            and finished
            and all(
                cells[label].ours is not None
                for column, cells in self.columns
                for label in column.about(cells)
            )
        )

    @property
    def unseeded(self) -> list[str]:
        """The labels whose runs no seed changes."""
        runs = [entry for shown in self.shown for entry in shown.runs.items()]
        seeded = {label for label, kept in runs if any(one.seeded for one in kept)}
        return list(dict.fromkeys(label for label, kept in runs if kept and label not in seeded))

    @property
    def seeds(self) -> int:
        """The most that a number is a mean of."""
        counts = (shown.seeds(label)[1] for shown in self.shown for label in shown.runs)
        return max(counts, default=0)

    @property
    def fewest_seeds(self) -> int:
        """Of the methods that were run and that a seed changes."""
        seeded = [
            shown.seeds(label)[0]
            for shown in self.shown
            for label, kept in shown.runs.items()
            if any(one.seeded for one in kept)
        ]
        return min(seeded, default=self.seeds)

    def environments(self, key: str) -> list[str]:
        """The distinct values of one entry, over all runs."""
        found = [kept.folder.environment for kept in self.kept]
        if self.measured:
            found.append(self.measured["environment"])
        return list(dict.fromkeys(str(where[key]) for where in found if where.get(key)))


def furthest(seeds: Sequence[KeptRun], rounds: int) -> int:
    """Rounds of the longest run, up to ``rounds``."""
    return max((min(kept.last, rounds) for kept in seeds), default=0)


def _trained(column: Column, kept: KeptRun, rounds: int) -> bool:
    """Whether a run ended above chance; nothing is said of one that is not over."""
    return not kept.over(rounds) or trained(column, kept.until(rounds))


def collect(item: Item, options: ItemOptions, cache: Cache) -> Report:
    """All panels with every kept seed, whichever part of them was to run."""
    everything = dataclasses.replace(options, rounds=None, only=(), seeds=1)
    shown = [_shown(item, panel, everything, cache) for panel in item.panel]
    return Report(item, shown, options.quick, None if options.quick else recall(item, cache))


def _shown(item: Item, panel: Panel, options: ItemOptions, cache: Cache) -> Shown:
    every = wants(item, panel, options)
    wanted, settings = (best(every, cache), tried(every, cache)) if item.grid else (every, {})
    runs = {want.entry.label: _seeds(want, cache) for want in wanted if item.runs}
    rounds = {want.entry.label: want.entry.rounds for want in wanted}
    columns = [(column, cells(column, runs, rounds)) for column in panel.column]
    return Shown(panel, rounds, runs, columns, wanted, settings)


def _seeds(want: Want, cache: Cache) -> list[KeptRun]:
    """The kept runs of seeds 0, 1, ... up to the first that is missing; the first alone where no
    seed changes it.
    """
    found = (cache.found(dataclasses.replace(want, seed=seed)) for seed in count())
    kept = [kept for kept in takewhile(lambda kept: kept is not None, found) if kept]
    return kept if not kept or kept[0].seeded else kept[:1]


def cells(
    column: Column, runs: dict[str, list[KeptRun]], rounds: dict[str, int]
) -> dict[str, Compared]:
    """A column of one panel, by the runs and the rounds of the paper of each label.

    Seeds may differ in length: each number is of those that are long enough for it. When a target
    is reached is asked of the longest alone, for those of the others that have reached it are the
    early ones.
    """
    than = column.than or ""
    others = runs.get(than, [])

    def run(label: str, kept: KeptRun) -> tuple[list[Row], bool]:
        return kept.until(rounds[label]), kept.over(rounds[label])

    def value(label: str, k: int, kept: KeptRun) -> float | None:
        same = k if not others or others[0].seeded else 0
        other = run(than, others[same]) if same < len(others) else ()
        return readout(column, *run(label, kept), *other)

    def asked(label: str, seeds: list[KeptRun]) -> dict[int, KeptRun]:
        numbered = dict(enumerate(seeds))
        if column.read not in ("rounds", "total", "saving"):
            return numbered
        reach = furthest(seeds, rounds[label])
        return {k: kept for k, kept in numbered.items() if kept.over(reach)}

    def mean(label: str, seeds: dict[int, KeptRun]) -> Compared:
        return cell(
            label,
            column,
            [value(label, k, kept) for k, kept in seeds.items()],
            rounds=furthest([*seeds.values()], rounds[label]),
            trained=[_trained(column, kept, rounds[label]) for kept in seeds.values()],
        )

    return {label: mean(label, asked(label, seeds)) for label, seeds in runs.items()}


# -- rates, which have a file of their own ----------------------------------------------------


def recall(item: Item, cache: Cache) -> dict[str, Any] | None:
    """What was measured for an item; ``None`` if nothing was."""
    file = _rates(cache)
    if item.kind != "measured" or not file.is_file():
        return None
    kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return kept


def measure(item: Item, cache: Cache, say: Callable[[str], None]) -> None:
    """Measure what an item shows, unless that was done."""
    from undrift.runs.environment import environment

    if item.kind == "measured" and not recall(item, cache):
        about = environment() | {"date": time.strftime("%Y-%m-%d")}
        found = {"found": rates.measure(say), "environment": about}
        write_whole(_rates(cache), json.dumps(found, indent=1) + "\n")


def exponents(found: rates.Found) -> Columns:
    """The table's exponents beside ours, as columns to judge."""
    result = []
    for what, table, ours in (each for along in rates.exponents(found) for each in along):
        column = Column("slope", of=what, printed={**table}, tolerance=rates.TOLERANCE)
        result.append((column, {label: cell(label, column, [ours[label]], 0) for label in table}))
    return result


def _rates(cache: Cache) -> Path:
    decides = hashlib.sha256(f"{EDITION} {rates.settings()}".encode()).hexdigest()[:20]
    return cache.root.parent / "studies" / f"rates-{decides}.json"
