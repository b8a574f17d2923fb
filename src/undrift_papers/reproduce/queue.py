"""The queue: which runs on real images come next, and how long each takes."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

from undrift.core.params import Natural, made
from undrift_papers.reproduce.cache import Cache, Want
from undrift_papers.reproduce.items import PAPERS, Item, Panel, find
from undrift_papers.reproduce.perform import ItemOptions, missing, wants

FILE = PAPERS / "reproduce/queue.toml"
START = 20.0
"""Seconds before the first round, on average: 45 of a panel's first run, 5 of those after it."""


@dataclasses.dataclass(frozen=True)
class Queued:
    """Some methods of a panel, for so many rounds of so many ``seconds`` on one H200."""

    panel: str
    methods: list[str]
    rounds: Natural
    seconds: float


class Due(NamedTuple):
    """The runs of one method that are not kept, and why their data cannot be had, if so."""

    item: Item
    panel: Panel
    label: str
    runs: list[Want]
    minutes: float
    missing: str


def due(cache: Cache, options: ItemOptions) -> Iterator[Due]:
    """What is left of the queue, in its order, and not in the hands of another process."""
    for entry in tomllib.loads(FILE.read_text(encoding="utf-8"))["run"]:
        queued = made(Queued, entry, kind="key of the queue")
        ((item, (panel,)),) = find(queued.panel)
        for label in queued.methods:
            asked = dataclasses.replace(options, only=[label], rounds=queued.rounds)
            runs = [
                want
                for want in wants(item, panel, asked)
                if not (cache.serves(want) or cache.at_work(want))
            ]
            if runs:
                minutes = (START + queued.rounds * queued.seconds) / 60
                yield Due(item, panel, label, runs, minutes, missing(runs[0].spec))


def following(cache: Cache, options: ItemOptions, minutes: float | None) -> list[Due]:
    """The first that can run and end within so many minutes, so that none is broken off."""
    found, left = list[Due](), float("inf") if minutes is None else minutes
    for one in due(cache, options):
        if one.minutes <= left and not one.missing:
            found.append(one)
            left -= one.minutes
    return found
