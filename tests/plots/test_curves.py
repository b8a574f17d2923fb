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
    entries,
    finish,
    fit_titles,
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


@pytest.mark.parametrize(
    ("samples", "loss", "accuracy"),
    [
        ("test", "test loss", "test accuracy, %"),
        ("train", "f(x)", "training accuracy, %"),
        (None, "f(x)", "accuracy, %"),
    ],
)
def test_an_axis_says_what_was_measured_on_what(samples, loss, accuracy):
    assert axis("loss", samples=samples) == loss
    assert axis("accuracy", samples=samples) == accuracy
    assert axis("top5", samples=samples) == f"top-5 {accuracy}"


def test_points_of_some_clients_only_are_open_and_the_legend_says_so():
    ax, styles = Figure().subplots(), line_styles("AB")
    rows = [{"round": k, "accuracy": v, "loss": v} for k, v in enumerate((0.0, 0.5, 1.0, 1.0))]
    draw(ax, {"A": {0: rows}}, "round", "loss", styles)
    assert len(ax.lines) == 1
    rows[1]["measured_clients"] = 2
    draw(ax, {"A": {0: rows}}, "round", "loss", styles)
    draw(ax, {"B": {0: rows}}, "round", "accuracy", styles, smooth=2)
    first, second = (line for line in ax.lines if line.get_label() == "_")
    assert first.get_xdata().tolist() == [1] and first.get_ydata().tolist() == [0.5]
    assert second.get_xdata().tolist() == [1, 2] and second.get_ydata().tolist() == [25, 75]
    assert first.get_markerfacecolor() == "white" and first.get_linestyle() == "None"
    assert [*entries([ax])] == ["A", "B", "measured on some clients only"]


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


def test_titles_are_no_wider_than_their_plots():
    figure, (wide, narrow) = grid(2, 2)
    long = "The accuracy of a good many methods after all of their rounds of training"
    for ax, title in ((wide, long), (narrow, "Short")):
        ax.plot([0, 1], label="A method with a name of some length")
        ax.set_title(title, fontsize=10)
    legend(figure, [wide, narrow])
    fit_titles(figure, [wide, narrow])
    figure.draw_without_rendering()
    assert wide.title.get_window_extent().width <= wide.get_window_extent().width
    first, *more = wide.title.get_text().split("\n")
    assert " ".join([first, *more]) == long and all(len(line) > 0.6 * len(first) for line in more)
    assert narrow.title.get_text() == "Short"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("CIFAR-10, Dirichlet 0.6, 2 % of 500", ["CIFAR-10, Dirichlet 0.6,", "2 % of 500"]),
        ("A, and more that has no comma in it", ["A, and more that", "has no comma in it"]),
    ],
)
def test_titles_are_broken_after_commas_where_they_can_be(text, lines):
    figure, (ax,) = grid(1, 1)
    ax.set_title(text, fontsize=17)
    fit_titles(figure, [ax])
    assert ax.title.get_text().split("\n") == lines


def test_columns_need_neither_numpy_nor_matplotlib():
    code = "import sys, undrift.plots.columns; print({'numpy', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
