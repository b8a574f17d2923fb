"""Pictures of a report, for paper and for browsers that run no scripts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

from undrift.plots.curves import image
from undrift.plots.style import plain
from undrift.records.folder import Row
from undrift.report.clients import Measure, fares, judge, picture
from undrift.report.content import Content, Partition
from undrift.report.figures import biased, panels

CLIENTS = 100
"""Clients in a heat map; of more, every second, third, ... is shown."""


class Map(TypedDict):
    """The heat map of one run's partition."""

    name: str
    facts: list[str]
    classes: list[str]
    clients: list[int]
    """Those that are shown."""
    counts: list[list[int]]
    fares: dict[str, list[float | str | None]]
    """Label -> the accuracy, or loss, of the clients that are shown, where it was measured."""
    measure: str
    """Which of the two."""


def draw(
    title: str,
    content: Content,
    column: str,
    maps: Sequence[Map],
    measured: Sequence[Measure] = (),
) -> dict[str, bytes]:
    """Name -> PNG: ``curves``, ``drift`` and ``clients`` if they were ``measured``, and a ``map0``,
    ... per partition.
    """
    found: dict[str, bytes] = {}
    runs = {title: content.rows}
    if any(row.get(column) is not None for row in content.rows):
        figure = panels(
            runs,
            content.target,
            smooth=content.smooth,
            note=content.note,
            settings=content.settings,
            samples={title: content.samples},
        )
        found["curves"] = image(figure)
    if any(row.get("drift") for row in content.rows):
        found["drift"] = image(panels(runs, y="drift", settings=content.settings))
    if measured:
        order = [*dict.fromkeys(row["label"] for row in content.rows)]
        found["clients"] = picture(measured[0], order, biased(runs, content.settings))
    return found | {f"map{k}": heat(entry) for k, entry in enumerate(maps)}


def heat_map(name: str, partition: Partition, clients: Sequence[Row] = ()) -> Map:
    """What a heat map shows, and the facts printed with it; ``clients`` are their numbers."""
    counts, classes = partition["counts"], partition["classes"]
    sizes = sorted(map(sum, counts))
    held = sorted(sum(n > 0 for n in row) for row in counts)
    shown = range(0, len(counts), -(-len(counts) // CLIENTS))
    facts = [
        f"{len(counts)} clients, {len(classes)} classes, {sum(sizes):,} samples",
        f"samples of a client: {sizes[0]:,} to {sizes[-1]:,}, median {sizes[len(sizes) // 2]:,}",
        f"classes of a client: {held[0]} to {held[-1]}, median {held[len(held) // 2]}",
    ]
    if shown.step > 1:
        facts.append(f"shown: {len(shown)} clients, one in {shown.step}")
    if of := partition.get("of"):
        facts.append(of)
    measure = judge(clients)
    found = fares(clients, measure, partition.get("seed"))
    return {
        "fares": {
            label: [_spelled(values[k]) for k in shown]
            for label, values in found.items()
            if len(values) == len(counts)
        },
        "measure": measure,
        "name": name,
        "facts": facts,
        "classes": classes,
        "clients": list(shown),
        "counts": [counts[k] for k in shown],
    }


def _spelled(value: float | None) -> float | str | None:
    """JSON has no infinities; ``Number`` of JavaScript reads these."""
    if value is None or math.isfinite(value):
        return value
    return "Infinity" if value > 0 else "-Infinity"


def heat(entry: Map) -> bytes:
    """Samples of each class and client."""
    import numpy as np
    from matplotlib.figure import Figure

    counts = np.array(entry["counts"]).T
    classes, clients = counts.shape
    figure = Figure(figsize=(10.5, 1.2 + min(0.22 * classes, 4)), layout="constrained")
    ax = figure.subplots()
    drawn = ax.imshow(counts, aspect="auto", cmap="Blues", interpolation="nearest", vmin=0)
    ax.set_xlabel("client")
    if classes <= 20:
        ax.set_yticks(range(classes), [plain(name) for name in entry["classes"]], fontsize=8)
    places = range(0, clients, -(-clients // 20))
    ax.set_xticks(places, [str(entry["clients"][k]) for k in places], fontsize=8)
    figure.colorbar(drawn, ax=ax, label="samples", pad=0.01)
    return image(figure)
