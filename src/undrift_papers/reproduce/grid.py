"""A grid of settings per method: all are run with one seed, and the best with the others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from undrift_papers.reproduce.cache import Cache, Want
from undrift_papers.reproduce.items import Item

RULE = (
    "Every setting of a grid is run to the end with one seed, and the best is shown: that with the"
    " least gap then, or of a network the highest accuracy."
)


def batches(asked: Sequence[tuple[Item, list[Want]]], cache: Cache) -> Iterator[list[Want]]:
    """What to run, from the runs of each panel: everything but other seeds of a search than the
    first; then the other seeds of the settings that it found best.
    """
    if first := [w for item, wanted in asked for w in wanted if not (item.grid and w.seed)]:
        yield first
    searches = [wanted for item, wanted in asked if item.grid]
    chosen = {want.key for wanted in searches for want in best(wanted, cache)}
    if rest := [w for wanted in searches for w in wanted if w.seed and w.first.key in chosen]:
        yield rest


def best(wanted: Sequence[Want], cache: Cache) -> list[Want]:
    """The setting of each method with the least loss."""
    found: dict[str, list[Want]] = {}
    for want in wanted:
        if want.seed == 0:
            found.setdefault(want.entry.label, []).append(want)
    return [min(settings, key=lambda want: loss(want, cache)) for settings in found.values()]


def loss(want: Want, cache: Cache) -> float:
    """The gap after the last round, or minus the accuracy of a network.

    Infinite if the run diverged or is not complete.
    """
    kept = cache.found(want)
    if kept is None or kept.final or kept.last < want.rounds:
        return math.inf
    last = kept.until(want.rounds)[-1]
    value = last.get("gap", -last["accuracy"] if "accuracy" in last else None)
    return math.inf if value is None or math.isnan(value) else float(value)


def tried(wanted: Sequence[Want], cache: Cache) -> dict[str, int]:
    """Label -> settings that were run to the end, or diverged."""
    return dict(Counter(w.entry.label for w in wanted if w.seed == 0 and cache.serves(w)))
