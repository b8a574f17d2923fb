"""FedRed's rates, which are measured without a spec and kept in a file of their own."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from undrift._files import write_whole
from undrift_papers.fedred import rates
from undrift_papers.reproduce.cache import EDITION, Cache
from undrift_papers.reproduce.items import Column, Item
from undrift_papers.reproduce.verdict import Columns, cell


class MeasuredRates(TypedDict):
    """The content of the file."""

    found: rates.Found
    environment: dict[str, object]


def recall(item: Item, cache: Cache) -> MeasuredRates | None:
    """What was measured for an item; ``None`` if nothing was."""
    file = _file(cache)
    if item.kind != "measured" or not file.is_file():
        return None
    kept: MeasuredRates = json.loads(file.read_text(encoding="utf-8"))
    return kept


def measure(item: Item, cache: Cache, say: Callable[[str], None]) -> None:
    """Measure what an item shows, unless that was done."""
    from undrift.runs.environment import environment

    if item.kind != "measured" or recall(item, cache):
        return
    about = environment() | {"date": time.strftime("%Y-%m-%d")}
    found: MeasuredRates = {"found": rates.measure(say), "environment": about}
    write_whole(_file(cache), json.dumps(found, indent=1) + "\n")


def columns(found: rates.Found) -> Columns:
    """The table's exponents beside ours, as columns to judge."""
    result = []
    for what, table, ours in (each for along in rates.exponents(found) for each in along):
        column = Column("slope", of=what, printed={**table}, tolerance=rates.TOLERANCE)
        result.append((column, {label: cell(label, column, [ours[label]], 0) for label in table}))
    return result


def _file(cache: Cache) -> Path:
    decides = hashlib.sha256(f"{EDITION} {rates.settings()}".encode()).hexdigest()[:20]
    return cache.root.parent / "studies" / f"rates-{decides}.json"
