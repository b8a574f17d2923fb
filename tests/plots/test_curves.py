"""Curves of plain columns, and the style they share with every other figure."""

import subprocess
import sys

import pytest
from matplotlib.figure import Figure

from undrift.plots.columns import axis
from undrift.plots.curves import (
    COLOURS,
    GREY,
    draw,
    finish,
    grid,
    image,
    legend,
    line_styles,
)


def test_a_curve_is_the_mean_of_the_last_rows():
    ax = Figure().subplots()
    rows = [{"round": k, "accuracy": share} for k, share in enumerate((0.0, 0.5, 1.0, 1.0))]
    draw(ax, {"A": {0: rows}}, "round", "accuracy", line_styles("A"), smooth=2)
    assert list(ax.lines[0].get_ydata()) == [0, 25, 75, 100]
    assert "mean of the last 2 rows" in axis("accuracy", 2)


def test_of_several_seeds_the_mean_is_drawn_in_a_band_of_one_deviation():
    """The second seed ended early, and the third lacks a round and a value."""
    losses = {0: [9.0, 8.0, 4.0, 2.0], 1: [7.0, 6.0], 2: [5.0, None, None, 4.0]}
    runs = {
        seed: [{"round": k, "vectors": 2 * k, "loss": loss} for k, loss in enumerate(values)]
        for seed, values in losses.items()
    }
    del runs[2][2]
    ax = Figure().subplots()
    draw(ax, {"A": runs}, "vectors", "loss", line_styles("A"))
    (line,), (band,) = ax.lines, ax.collections
    assert line.get_xydata().tolist() == [[0, 7], [2, 7], [4, 4], [6, 3]]
    ends = {x: sorted({y for at, y in band.get_paths()[0].vertices if at == x}) for x in (0, 2, 4)}
    assert ends == {0: [5, 9], 2: [pytest.approx(7 - 2**0.5), pytest.approx(7 + 2**0.5)], 4: []}


def test_a_band_of_what_shrinks_to_zero_stays_above_it():
    runs = {seed: [{"round": 0, "gap": gap}] for seed, gap in enumerate((1e-8, 1.0))}
    ax = Figure().subplots()
    draw(ax, {"A": runs}, "round", "gap", line_styles("A"))
    ends = {y for _, y in ax.collections[0].get_paths()[0].vertices}
    assert min(ends) == 1e-8 and max(ends) == pytest.approx(0.5 + 0.5**0.5)


def test_no_two_lines_look_the_same_and_grey_ones_take_no_colour():
    labels = [f"m{k}" for k in range(2 * len(COLOURS) + 1)]
    styles = line_styles(labels, grey={"m1"})
    assert styles["m1"]["color"] == GREY and styles["m2"]["color"] == COLOURS[1]
    looks = {(s["color"], s["linestyle"]) for s in styles.values()}
    assert len(looks) == len(labels)


def test_a_figure_is_the_same_file_every_time():
    figure = Figure()
    figure.subplots().plot([0, 1], [0, 1])
    assert image(figure, "pdf") == image(figure, "pdf")
    assert b"CreationDate" not in image(figure, "pdf")


def test_a_legend_names_every_label_of_all_plots_once():
    figure, axes = grid(3, across=2)
    assert len(axes) == 3 and len(figure.axes) == 4 and not figure.axes[3].get_visible()
    for ax, label in zip(axes, ("a", "b", "a"), strict=True):
        ax.plot([0, 1], label=label)
        finish(ax, "$x$")
    legend(figure, axes)
    assert [text.get_text() for text in figure.legends[0].texts] == ["a", "b"]
    assert axes[0].get_xlabel() == r"\$x\$" and axes[0].get_xlim()[0] == 0


def test_columns_need_neither_numpy_nor_matplotlib():
    code = "import sys, undrift.plots.columns; print({'numpy', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
