"""Pictures of a report, for paper and for browsers that run no scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undrift.report.figures import image, panels

if TYPE_CHECKING:
    from undrift.report.html import Content


def draw(
    title: str, content: Content, column: str, maps: Sequence[Mapping[str, Any]]
) -> dict[str, bytes]:
    """Name -> PNG: ``curves``, ``drift`` where it was measured, and ``map0``, ``map1``, ... of the
    partitions.
    """
    found: dict[str, bytes] = {}
    if any(row.get(column) is not None for row in content.rows):
        figure = panels(
            {title: content.rows}, content.target, smooth=content.smooth, note=content.note
        )
        found["curves"] = image(figure)
    if any(row.get("drift") for row in content.rows):
        found["drift"] = image(panels({title: content.rows}, y="drift"))
    return found | {f"map{k}": heat(entry) for k, entry in enumerate(maps)}


def heat(entry: Mapping[str, Any]) -> bytes:
    """Samples of each class and client."""
    import numpy as np
    from matplotlib.figure import Figure

    counts = np.array(entry["counts"]).T
    figure = Figure(figsize=(10.5, 1.2 + min(0.22 * len(counts), 4)), layout="constrained")
    ax = figure.subplots()
    drawn = ax.imshow(counts, aspect="auto", cmap="Blues", interpolation="nearest", vmin=0)
    ax.set_xlabel("client")
    if len(counts) <= 20:
        ax.set_yticks(
            range(len(counts)),
            [str(name).replace("$", r"\$") for name in entry["classes"]],
            fontsize=8,
        )
    places = range(0, counts.shape[1], -(-counts.shape[1] // 20))
    ax.set_xticks(places, [str(entry["clients"][k]) for k in places], fontsize=8)
    figure.colorbar(drawn, ax=ax, label="samples", pad=0.01)
    return image(figure)
