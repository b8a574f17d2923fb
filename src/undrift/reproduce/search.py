"""A grid of settings per method. All are tried for a few rounds, the better third goes on, and so once more."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from undrift.reproduce.cache import Cache, Want

RUNGS = (0.1, 0.3, 1.0)
"""Parts of the rounds after which settings are compared."""
KEPT = 3
"""One of so many goes on."""
SHARE = sum((end - start) / KEPT**k for k, (start, end) in enumerate(zip((0.0, *RUNGS), RUNGS, strict=False)))
"""Of the rounds of the whole grid, what is run."""
RULE = (
    f"Every setting is tried for {RUNGS[0]:.0%} of the rounds, the best third of each method's up to {RUNGS[1]:.0%}, "
    "and the best third of those to the end; the least gap then wins. One seed decides."
)


def lots(wanted: Sequence[Want], cache: Cache) -> Iterator[list[Want]]:
    """What to run, one lot after the other: the next one depends on what the last one found.

    ``wanted`` are the settings of all methods on one problem, with every seed that is asked for.
    """
    alive = [want for want in wanted if want.seed == 0]
    for rung in RUNGS:
        yield [_until(want, rung) for want in alive]
        better = _ranked(alive, cache, rung)
        alive = [want for settings in better.values() for want in settings[: -(-len(settings) // KEPT)]]
    chosen = {_setting(want) for want in best(wanted, cache)}
    yield [want for want in wanted if want.seed and _setting(want) in chosen]


def best(wanted: Sequence[Want], cache: Cache) -> list[Want]:
    """The setting of each method with the least gap, of those that went furthest."""
    ranked = _ranked([want for want in wanted if want.seed == 0], cache)
    found = []
    for settings in ranked.values():
        reached = [kept.last if (kept := cache.found(want)) and not kept.final else -1 for want in settings]
        found.append(settings[reached.index(max(reached))])
    return found


def gap(want: Want, cache: Cache) -> float:
    """After its last round; infinite if it diverged or is not there."""
    kept = cache.found(want)
    if kept is None or kept.final:
        return math.inf
    value = kept.until(want.rounds)[-1].get("gap")
    return math.inf if value is None or math.isnan(value) else float(value)


def _ranked(wanted: Sequence[Want], cache: Cache, rung: float = 1.0) -> dict[str, list[Want]]:
    """Label -> its settings, the least gap after that part of the rounds first."""
    found: dict[str, list[Want]] = {}
    for want in wanted:
        found.setdefault(want.entry.label, []).append(want)
    for settings in found.values():
        settings.sort(key=lambda want: gap(_until(want, rung), cache))
    return found


def _until(want: Want, rung: float) -> Want:
    return dataclasses.replace(want, rounds=min(want.rounds, math.ceil(rung * want.entry.rounds)))


def _setting(want: Want) -> str:
    return dataclasses.replace(want, seed=0).key
