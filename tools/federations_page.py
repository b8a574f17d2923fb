"""Write the table and the picture of docs/federations.md from the federations that are embedded.

``make stubs`` writes the table, and tests/data/test_natural.py compares it;
``python -m tools.federations_page --picture`` also draws the picture.
"""

import sys
from pathlib import Path

import matplotlib
import numpy as np

from undrift.data.natural import cards, federation

PAGE = Path(__file__).parents[1] / "docs/federations.md"
PICTURE = PAGE.parent / "pictures/federations.png"
BEGIN, END = "<!-- written by make stubs -->\n", "<!-- end -->\n"


def table() -> str:
    lines = ["| name | task | clients | samples | features | by target | by features | licence |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for name, card in cards().items():
        target, features = federation(name).between()
        task = f"{len(card.classes)} classes" if card.classes else "a number"
        lines.append(
            f"| `{name}` | {card.title}; `{card.problem}`, {task} | {card.clients} "
            f"| {card.samples:,} | {card.features} | {target:.0%} | {features:.0%} "
            f"| {card.licence} |"
        )
    about = [
        f"* `{name}`: a client is {card.client}. They differ in {card.differ}. The target is "
        f"{card.target}.\n  {card.source}. {card.citation}."
        for name, card in cards().items()
    ]
    return "\n".join([*lines, "", *about, ""])


def page() -> str:
    """The page as it stands, with the table of now."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


def draw() -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(10, 5.4), layout="constrained")
    for axis, (name, card) in zip(axes.flat, cards().items(), strict=True):
        found = federation(name, scaled=False)
        sizes = [len(part) for part in found.parts]
        target, features = found.shares(), federation(name).features
        away = [float((features[part].mean(0) ** 2).mean() ** 0.5) for part in found.parts]
        area = [12 + 240 * size / max(sizes) for size in sizes]
        axis.scatter(away, target, s=area, alpha=0.5, linewidths=0)
        axis.set_title(f"{name}: {card.clients} clients", fontsize=10)
        kind = ""
        if card.classes:
            kind = card.classes[np.bincount(found.target).argmax()]
            axis.set_ylim(-0.05, 1.05)
        axis.set_ylabel(f"share of {kind}" if kind else "mean of the target", fontsize=9)
        axis.set_xlim(0, 1.12 * max(away))
        axis.margins(y=0.1)
        axis.tick_params(labelsize=8)
    figure.supxlabel(
        "distance of a client's features from the mean over all samples, in deviations", fontsize=9
    )
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    if "--picture" in sys.argv:
        draw()
