"""How the clients fare: what the charts and the table of a report show of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, TypedDict

from undrift.core.problem import OF_CLIENTS, OF_OWN_MODELS
from undrift.plots.columns import SHARES
from undrift.plots.style import finish, legend, line_styles, plain
from undrift.records.differences import curves
from undrift.records.folder import Row

if TYPE_CHECKING:
    from undrift.plots.curves import Floats

BINS = 20
NOTHING = 1e-12
"""Beside the values, a width of bins that is rounding alone."""
POINTS = 300
"""Points of a curve; longer ones are thinned."""
WORDS = {"accuracy": "accuracy, %", "loss": "loss"}


class Histogram(TypedDict):
    """How many of a method's clients are in each bin, of all seeds together."""

    label: str
    counts: list[int]
    infinite: int
    """Clients in no bin."""
    mean: float | None
    """``None`` where it is infinite."""


class OverTime(TypedDict):
    """How a method's clients are spread at each round, as means over seeds."""

    label: str
    round: list[int]
    p10: list[float | None]
    p50: list[float | None]
    p90: list[float | None]
    worst10: list[float | None]


class Measure(TypedDict):
    """One metric of all clients."""

    name: str
    title: str
    share: bool
    edges: list[float]
    ends: list[Histogram]
    over_time: list[OverTime]


def measures(clients: Sequence[Row], rows: Sequence[Row]) -> list[Measure]:
    """Every metric that was measured of the clients, the accuracy first."""
    names = dict.fromkeys(
        name for row in clients for name, value in row.items() if isinstance(value, list)
    )
    ordered = sorted(names, key=lambda n: (n.startswith(OF_OWN_MODELS), "accuracy" not in n))
    found = (_measure(name, clients, rows) for name in ordered)
    return [measure for measure in found if measure["ends"]]


def judge(clients: Sequence[Row]) -> str:
    """The metric that clients are compared by."""
    return "accuracy" if any("accuracy" in row for row in clients) else "loss"


def lasts(clients: Sequence[Row]) -> dict[str, dict[int, Row]]:
    """Label -> seed -> the last row about the clients."""
    return {
        label: {seed: found[-1] for seed, found in seeds.items()}
        for label, seeds in curves(clients).items()
    }


def fares(clients: Sequence[Row], metric: str, seed: int | None) -> dict[str, list[float | None]]:
    """Label -> the numbers of every client at the end: of one seed, or means over all of them."""
    found: dict[str, list[float | None]] = {}
    for label, seeds in lasts(clients).items():
        chosen = [row for key, row in seeds.items() if seed in (None, key)]
        columns = [row[metric] for row in chosen if metric in row]
        if columns:
            found[label] = [_mean(numbers) for numbers in zip(*columns, strict=True)]
    return found


def _measure(name: str, clients: Sequence[Row], rows: Sequence[Row]) -> Measure:
    bare = name.removeprefix(OF_OWN_MODELS)
    share, scale = bare in SHARES, 100 if bare in SHARES else 1
    ends = {
        label: [scale * v for row in seeds.values() for v in row.get(name, ()) if v is not None]
        for label, seeds in lasts(clients).items()
    }
    ends = {label: values for label, values in ends.items() if values}
    every = [value for values in ends.values() for value in values if math.isfinite(value)]
    edges = _edges(every or [0.0], share)
    return {
        "name": name,
        "title": WORDS.get(bare, bare),
        "share": share,
        "edges": edges,
        "ends": [_histogram(label, values, edges) for label, values in ends.items()],
        "over_time": [
            _over_time(label, name, [*seeds.values()], scale)
            for label, seeds in curves(rows).items()
            if label in ends
        ],
    }


def _edges(values: Sequence[float], share: bool) -> list[float]:
    low, high = (0.0, 100.0) if share else (min(values), max(values))
    step, size = (high - low) / BINS, max(abs(low), abs(high))
    if step <= NOTHING * size:  # all in the first bin
        step = max(size, 1.0)
    return [low + k * step for k in range(BINS + 1)]


def _histogram(label: str, values: Sequence[float], edges: Sequence[float]) -> Histogram:
    counts, step = [0] * BINS, (edges[-1] - edges[0]) / BINS
    finite = [value for value in values if math.isfinite(value)]
    for value in finite:
        counts[min(max(int((value - edges[0]) / step), 0), BINS - 1)] += 1
    infinite = len(values) - len(finite)
    mean = None if infinite else _short(fmean(finite))
    return {"label": label, "counts": counts, "infinite": infinite, "mean": mean}


def _over_time(label: str, name: str, seeds: Sequence[Sequence[Row]], scale: float) -> OverTime:
    rounds = sorted({row["round"] for curve in seeds for row in curve})
    stride = -(-len(rounds) // POINTS) or 1
    at: dict[int, list[Row]] = {
        k: [] for i, k in enumerate(rounds) if i % stride == 0 or i == len(rounds) - 1
    }
    for curve in seeds:
        for row in curve:
            if row["round"] in at:
                at[row["round"]].append(row)

    def means(statistic: str) -> list[float | None]:
        column = f"{OF_CLIENTS}{name}_{statistic}"
        found = (_mean([row.get(column) for row in rows]) for rows in at.values())
        return [None if v is None or math.isinf(v) else _short(scale * v) for v in found]

    return {
        "label": label,
        "round": [*at],
        "p10": means("p10"),
        "p50": means("p50"),
        "p90": means("p90"),
        "worst10": means("worst10"),
    }


def _mean(numbers: Sequence[float | None]) -> float | None:
    known = [v for v in numbers if v is not None and not math.isnan(v)]
    if all(map(math.isfinite, known)):
        return fmean(known) if known else None
    mean = sum(known)
    return None if math.isnan(mean) else mean


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def picture(measure: Measure, order: Sequence[str], grey: set[str]) -> bytes:
    """The charts of one metric for paper: where the clients ended, and their spread over time."""
    import numpy as np
    from matplotlib.figure import Figure

    from undrift.plots.curves import image

    styles = line_styles(order, grey)
    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for one in measure["ends"]:
        style = styles[one["label"]]
        clients = sum(one["counts"]) + one["infinite"]
        shares = 100 * np.array(one["counts"]) / max(clients, 1)
        left.stairs(
            shares,
            measure["edges"],
            color=style["color"],
            linestyle=style["linestyle"],
            linewidth=1.5,
            label=plain(one["label"])
            + (f" ({one['infinite']} infinite)" if one["infinite"] else ""),
        )
    for over in measure["over_time"]:
        colour = styles[over["label"]]["color"]
        low, high = _floats(over["p10"]), _floats(over["p90"])
        right.fill_between(over["round"], low, high, color=colour, alpha=0.14, linewidth=0)
        right.plot(over["round"], _floats(over["p50"]), color=colour, linewidth=1.6)
        worst = _floats(over["worst10"])
        right.plot(over["round"], worst, color=colour, linewidth=1.2, linestyle=":")
    finish(left, measure["title"], "clients, %", zero=False)
    finish(right, "rounds", f"{measure['title']}: median, 10-90 %, worst 10 %")
    legend(figure, [left])
    return image(figure)


def _floats(values: Sequence[float | None]) -> Floats:
    import numpy as np

    return np.array([math.nan if v is None else v for v in values], dtype=np.float64)


def about(of: Mapping[str, str]) -> str:
    """Which samples the clients are measured on, in words; ``of`` is by label."""
    kinds = sorted(set(of.values()))
    if kinds == ["test"]:
        return "own test samples"
    if kinds == ["train"]:
        return "training samples"
    return "own samples, of some methods test samples, of others training samples"
