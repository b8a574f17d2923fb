"""What Python shows of recorded rows: curves on given axes, and a table with a small picture."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from undrift.core.problem import Samples
from undrift.plots.columns import BOUND_OF, axis, metric
from undrift.plots.curves import bounding, draw, drawn, entries, finish, image, line_styles
from undrift.records.differences import curves
from undrift.records.folder import Row
from undrift.records.rows import columns
from undrift.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE, DOTS = (5.0, 3.0), 200
"""Inches of a small picture, and dots of an inch, of which a screen shows half."""


def drawn_on(
    ax: Axes,
    rows: Sequence[Row],
    x: str,
    y: str,
    samples: Samples | None = None,
    promised: Sequence[Row] = (),
) -> None:
    """One column of every method against another, with theorems' bounds if there are some."""
    found = curves(rows)
    styles = bounding(line_styles(found), {row["label"]: row[BOUND_OF] for row in promised})
    draw(ax, found | curves(promised), x, y, styles)
    finish(ax, axis(x), axis(y, samples=samples), zero=False)
    if x == "round":
        ax.locator_params(axis="x", integer=True)
    if shown := entries([ax]):
        ax.legend([*shown.values()], [*shown], frameon=False, fontsize="small")


def html(
    title: str,
    table: Table | None,
    rows: Sequence[Row],
    samples: Samples | None = None,
    notes: Iterable[str] = (),
) -> str:
    """For a notebook: a title, a table, notes and the curves that the runs are judged by.

    The picture brings its white paper, so that it can be read in a dark notebook too.
    """
    parts = [f"<p><b>{escape(title)}</b></p>", table.html() if table else ""]
    said = [*(table.notes if table else ()), *notes]
    parts.append(f"<p><small>{'<br>'.join(map(escape, said))}</small></p>" if said else "")
    y, known = metric(rows), columns(rows)
    # With nothing finite to draw, as where everything diverged at once, there is no picture.
    if "round" in known and any(v == v for v in drawn(known.get(y, ()), y)):
        from matplotlib.figure import Figure

        figure = Figure(figsize=SIZE, layout="constrained")
        drawn_on(figure.subplots(), rows, "round", y, samples)
        content = base64.b64encode(image(figure, "png", DOTS)).decode()
        about = f'width="{50 * SIZE[0] * 2:.0f}" alt="{escape(axis(y))} against rounds"'
        parts.append(f'<img src="data:image/png;base64,{content}" {about}>')
    return "\n".join(filter(None, parts))
