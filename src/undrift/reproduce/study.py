"""Measurements that are not runs of a spec: one module makes and shows them, one file keeps what
was found.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from undrift._files import writing
from undrift.reproduce import rates
from undrift.reproduce.cache import EDITION, Cache
from undrift.reproduce.items import Item


def recall(item: Item, quick: bool, cache: Cache) -> dict[str, Any] | None:
    """``found`` and its ``environment``; ``None`` while it is not measured."""
    file = _file(item, quick, cache)
    return json.loads(file.read_text(encoding="utf-8")) if item.study and file.is_file() else None


def carry_out(item: Item, quick: bool, cache: Cache, say: Callable[[str], None]) -> None:
    """Measure, unless that was done."""
    from undrift.runs.environment import environment

    if not item.study or recall(item, quick, cache):
        return
    about = environment() | {"date": time.strftime("%Y-%m-%d")}
    found = {"found": rates.measure(quick, say), "environment": about}
    with writing(_file(item, quick, cache)) as out:
        out.write((json.dumps(found, indent=1) + "\n").encode())


def _file(item: Item, quick: bool, cache: Cache) -> Path:
    decides = hashlib.sha256(f"{EDITION} {rates.settings(quick)}".encode()).hexdigest()[:20]
    return cache.root.parent / "studies" / f"{item.study}-{decides}.json"
