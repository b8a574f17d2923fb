"""What the cache holds for an item, beside what the paper has."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import count
from typing import Any

from undrift.reproduce import rates
from undrift.reproduce.cache import Cache, Kept, Want
from undrift.reproduce.grid import best
from undrift.reproduce.items import Column, Item, Panel
from undrift.reproduce.perform import Options, missing, wants
from undrift.reproduce.readouts import readout
from undrift.reproduce.study import recall
from undrift.reproduce.verdict import (
    COMPUTED,
    DRAWN,
    NOT,
    NOTHING,
    OPEN,
    ORDER,
    PARTLY,
    QUICK,
    Cell,
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
    runs: dict[str, list[Kept]]
    columns: list[tuple[Column, dict[str, Cell]]]
    wants: list[Want]
    absent: str = ""
    """Why nothing could be run, if so."""

    @property
    def empty(self) -> bool:
        return not any(self.runs.values())

    @property
    def data(self) -> str:
        return getattr(self.wants[0].spec.problem, "data", "")

    def reached(self, label: str) -> int:
        """Rounds that were run, of the seed that has fewest."""
        return min((kept.last for kept in self.runs[label]), default=0)


@dataclasses.dataclass(frozen=True)
class Report:
    """One item."""

    item: Item
    shown: list[Shown]
    quick: bool
    study: dict[str, Any] | None = None

    @property
    def kept(self) -> list[Kept]:
        return [kept for shown in self.shown for runs in shown.runs.values() for kept in runs]

    @property
    def judgement(self) -> Judgement:
        whole = Judgement()
        for shown in self.shown:
            for column, cells in shown.columns:
                whole += judge(column, cells)
        return whole + rates.judgement(self.study["found"]) if self.study else whole

    @property
    def verdict(self) -> str:
        if self.item.kind == "computed" and not self.study:
            return COMPUTED
        if self.item.kind == "heatmap":
            return OPEN if all(shown.absent for shown in self.shown) else DRAWN
        if not self.kept and not self.study:
            return OPEN
        if self.quick:
            return QUICK
        found, (run, printed) = self.judgement.verdict, self.coverage
        return found if found == NOTHING or run == printed else found + PARTLY

    @property
    def why(self) -> str:
        """What there is to say beside the verdict."""
        if self.verdict == OPEN:
            return self.shown[0].absent if all(shown.absent for shown in self.shown) else ""
        return self.item.reason if not self.quick and self.judgement.verdict in (NOT, ORDER) else ""

    @property
    def agreement(self) -> tuple[int, int]:
        """Numbers that agree, and all that are judged."""
        return (0, 0) if self.quick else (self.judgement.agree, self.judgement.numbers)

    @property
    def coverage(self) -> tuple[int, int]:
        """Numbers of the paper that there is one of ours for, and all of them, where they are
        judged.
        """
        judged = [cells for shown in self.shown for column, cells in shown.columns if column.judged]
        cells = [c for cells in judged for c in cells.values() if c.printed is not None]
        if self.study:
            cells += [
                c for _, exponents in rates.columns(self.study["found"]) for c in exponents.values()
            ]
        return sum(c.ours is not None for c in cells), len(cells)

    @property
    def seeds(self) -> int:
        return max((len(runs) for shown in self.shown for runs in shown.runs.values()), default=0)

    def environments(self, key: str) -> list[Any]:
        """The different values of one entry, over all runs."""
        found = [kept.folder.environment for kept in self.kept]
        if self.study:
            found.append(self.study["environment"])
        return list(dict.fromkeys(where[key] for where in found if where.get(key)))


def collect(item: Item, options: Options, cache: Cache) -> Report:
    """All panels, whatever part of them was asked to run; every seed that is there."""
    everything = dataclasses.replace(options, rounds=None, only=(), seeds=1)
    shown = [_shown(item, panel, everything, cache) for panel in item.panel]
    return Report(item, shown, options.quick, recall(item, options.quick, cache))


def _shown(item: Item, panel: Panel, options: Options, cache: Cache) -> Shown:
    wanted = wants(item, panel, options)
    if item.grid:
        wanted = best(wanted, cache)
    runs = {want.entry.label: list(_seeds(want, cache)) for want in wanted if item.runs}
    rounds = {want.entry.label: want.entry.rounds for want in wanted}
    columns = [(column, _cells(column, runs, rounds)) for column in panel.column]
    shown = Shown(panel, rounds, runs, columns, wanted)
    if shown.empty and missing(wanted[0].spec):
        return dataclasses.replace(
            shown, absent=f"{shown.data} is not there; undrift data fetch gets it"
        )
    return shown


def _seeds(want: Want, cache: Cache) -> Any:
    for seed in count():
        kept = cache.found(dataclasses.replace(want, seed=seed))
        if kept is None:
            return
        yield kept


def _cells(column: Column, runs: dict[str, list[Kept]], rounds: dict[str, int]) -> dict[str, Cell]:
    cells = {}
    for label, seeds in runs.items():
        others: Sequence[Kept] = runs.get(column.than, []) if column.than else []
        found = [
            readout(
                column,
                kept.until(rounds[label]),
                kept.final or kept.last >= rounds[label],
                others[k].rows if k < len(others) else (),
            )
            for k, kept in enumerate(seeds)
        ]
        least = min((kept.last for kept in seeds), default=0)
        cells[label] = cell(label, column, found, least)
    return cells
