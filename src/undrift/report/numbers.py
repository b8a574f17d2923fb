"""Numbers and counts in words. Imports little, so that ``list`` starts fast."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, stdev

from undrift.plots.columns import LOGARITHMIC, SHARES

NONE = "-"
"""What is not known."""
Show = Callable[[float | None], str]


@dataclasses.dataclass(frozen=True)
class Spread:
    """A mean over seeds, and the standard deviation if there are several."""

    mean: float | None = None
    """``None`` if a seed lacks the value."""
    sd: float | None = None


UNKNOWN = Spread()


def spread(values: Sequence[object]) -> Spread:
    """The mean over seeds, unless one lacks the value.

    >>> spread([1, 3]), spread([1]), spread([1, None]) == UNKNOWN
    (Spread(mean=2.0, sd=1.4142135623730951), Spread(mean=1.0, sd=None), True)
    """
    numbers = [value for value in values if isinstance(value, int | float)]
    if not numbers or len(numbers) < len(values):
        return UNKNOWN
    several = len(numbers) > 1 and all(map(math.isfinite, numbers))
    return Spread(fmean(numbers), stdev(numbers) if several else None)


def spell(found: Spread, show: Show) -> str:
    """A mean over seeds with its deviation: as far as two digits of that, if it does not shrink
    to zero.

    >>> spell(Spread(0.5, 0.01), percent), spell(Spread(0.668559, 0.0500696), plain)
    ('50.0 ± 1.0 %', '0.669 ± 0.050')
    >>> spell(Spread(1e-3, 2e-4), small), spell(Spread(0.5), percent), spell(UNKNOWN, percent)
    ('1.0e-03 ± 2.0e-04', '50.00 %', '-')
    """
    text, scale = show(found.mean), 100 if show is percent else 1
    if found.mean is None or found.sd is None:
        return text
    if show is small or scale * found.sd < 1e-5:  # more digits than a table has room for
        return f"{text.removesuffix(' %')} ± {show(found.sd)}"
    digits = max(0, 1 - math.floor(math.log10(scale * found.sd)))
    return (
        f"{scale * found.mean:,.{digits}f} ± {scale * found.sd:,.{digits}f}"
        f"{' %' if show is percent else ''}"
    )


def small(value: float | None) -> str:
    """A quantity that goes to zero."""
    if value is None or math.isnan(value):
        return NONE
    return "0" if value <= 0 else f"{value:.1e}"


def plain(value: float | None) -> str:
    """Any number, with four digits."""
    return NONE if value is None or math.isnan(value) else f"{value:.4g}"


def whole(value: float | None) -> str:
    """A count, or the mean of some."""
    return NONE if value is None or not math.isfinite(value) else f"{value:,.0f}"


def percent(value: float | None) -> str:
    """A share."""
    return NONE if value is None or math.isnan(value) else f"{100 * value:.2f} %"


def number(column: str) -> Show:
    """How the numbers of a column are shown.

    >>> number("gap")(0.0123), number("accuracy")(0.0123), number("f1")(0.0123)
    ('1.2e-02', '1.23 %', '0.0123')
    """
    if column in SHARES:
        return percent
    return small if column in LOGARITHMIC else plain


def signed(value: float | None, column: str) -> str:
    """A difference in some column.

    >>> signed(0.0123, "accuracy"), signed(-12.0, "rounds"), signed(None, "gap")
    ('+1.23', '-12', '-')
    """
    if value is None:
        return NONE
    if column in SHARES:
        return f"{100 * value:+.2f}"
    return f"{value:+,.0f}" if column == "rounds" and abs(value) >= 10 else f"{value:+.3g}"


def duration(seconds: float | None) -> str:
    """How long something takes.

    >>> duration(0.5), duration(75), duration(7300)
    ('0.5 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds is None:
        return NONE
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes} min {left} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"


def size(number: float | None) -> str:
    """Bytes.

    >>> size(0), size(1500), size(44.7e6)
    ('0 B', '1.5 kB', '44.7 MB')
    """
    if number is None:
        return NONE
    units = ["B", "kB", "MB", "GB", "TB"]
    while number >= 999.95 and len(units) > 1:
        number /= 1000
        units.pop(0)
    return f"{number:.0f} {units[0]}" if units[0] == "B" else f"{number:.1f} {units[0]}"


def count(number: int, thing: str) -> str:
    """A number of things.

    >>> count(1, "seed"), count(2, "seed")
    ('1 seed', '2 seeds')
    """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def names(labels: Iterable[str]) -> str:
    """Labels one after another; one with a comma is quoted.

    >>> print(names(["FedAvg", "FedAvg, calibrated"]))
    FedAvg, "FedAvg, calibrated"
    """
    return ", ".join(f'"{label}"' if "," in label else label for label in labels)
