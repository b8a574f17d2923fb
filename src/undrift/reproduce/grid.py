"""A grid of settings per method: all are run with one seed, and the best with the others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from undrift.reproduce.cache import Cache, Want

RULE = "Every setting of a grid was run to the end with one seed, and the least gap then decides."


def batches(wanted: Sequence[Want], cache: Cache) -> Iterator[list[Want]]:
    """What to run: first every setting with seed 0, then the best ones with the other seeds.

    ``wanted`` has the settings of all methods on one problem, with every seed.
    """
    yield [want for want in wanted if want.seed == 0]
    chosen = {want.key for want in best(wanted, cache)}
    yield [want for want in wanted if want.seed and dataclasses.replace(want, seed=0).key in chosen]


def best(wanted: Sequence[Want], cache: Cache) -> list[Want]:
    """The setting of each method with the least gap."""
    found: dict[str, list[Want]] = {}
    for want in wanted:
        if want.seed == 0:
            found.setdefault(want.entry.label, []).append(want)
    return [min(settings, key=lambda want: gap(want, cache)) for settings in found.values()]


def gap(want: Want, cache: Cache) -> float:
    """The gap after the last round; infinite if the run diverged or is not complete."""
    kept = cache.found(want)
    if kept is None or kept.final or kept.last < want.rounds:
        return math.inf
    value = kept.until(want.rounds)[-1].get("gap")
    return math.inf if value is None or math.isnan(value) else float(value)
