"""Figures: what is drawn, not how it looks."""

import pytest
from tests.report.recorded import comparison

from undrift.report.comparison import Comparison
from undrift.report.figures import panels, save


def rows(label, method, seed=0, rounds=5, column="gap"):
    values = [None if k == 3 else 10.0**-k for k in range(rounds)]
    return [
        {
            "label": label,
            "method": method,
            "seed": seed,
            "round": k,
            "vectors": 2 * k,
            "gradients": k,
            column: v,
        }
        for k, v in enumerate(values)
    ]


def lines(ax):
    return [line for line in ax.lines if not line.get_label().startswith("_")]


def test_a_panel_against_rounds_and_one_against_vectors(tmp_path):
    data = (
        rows("FedAvg", "FedAvg")
        + rows("a $cheap$ one", "Scaffold", 0)
        + rows("a $cheap$ one", "Scaffold", 1)
    )
    figure = panels({"one": comparison(data, 1e-4), "two": comparison(data)})
    top_left, top_right, *_ = figure.axes
    assert len(figure.axes) == 4
    assert [line.get_label() for line in lines(top_left)] == ["FedAvg", r"a \$cheap\$ one"]
    assert list(lines(top_right)[0].get_xdata()) == [0, 2, 4, 6, 8]
    assert top_left.get_yscale() == "log" and top_left.get_xlabel() == "rounds"
    save(figure, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("given", "across"),
    [
        ({"width": 3.3}, ["rounds"]),
        ({"width": 3.3, "x": "vectors"}, ["vectors sent and received per client"]),
        ({"width": 7.0}, ["rounds", "vectors sent and received per client"]),
    ],
)
def test_a_narrow_figure_has_one_panel_whose_words_fit(given, across):
    figure = panels({"one": comparison(rows("FedAvg", "FedAvg"))}, **given)
    figure.canvas.draw()
    assert [ax.get_xlabel() for ax in figure.axes] == across
    for ax in figure.axes:
        words = ax.xaxis.label.get_window_extent()
        assert words.x0 >= 0 and words.x1 <= figure.bbox.x1


def test_biased_methods_are_grey_and_no_two_others_look_the_same():
    data = [row for k, m in enumerate(("FedAvg", "FedRecu", "FedCET")) for row in rows(f"m{k}", m)]
    biased, *others = lines(panels({"one": comparison(data)}).axes[0])
    assert biased.get_color() == "#888888"
    assert len({(line.get_color(), line.get_marker()) for line in others}) == 2


@pytest.mark.parametrize(
    ("changes", "grey"),
    [
        ({}, {"A"}),
        ({"training": {"optimiser": {"name": "momentum"}}}, {"A"}),
        ({"training": {"optimiser": {"name": "adamw"}}}, {"A", "B", "C"}),
        ({"aggregation": {"name": "median"}}, {"A", "B", "C"}),
    ],
)
def test_a_setting_makes_exact_methods_biased(changes, grey):
    methods = {"A": "FedAvg", "B": "FedRecu", "C": "FedCET"}
    data = [row for label, method in methods.items() for row in rows(label, method)]
    tables = [{"label": label, "name": method} for label, method in methods.items()]
    found = {"method": tables, **changes}
    drawn = lines(panels({"one": comparison(data, document=found)}).axes[0])
    assert {line.get_label() for line in drawn if line.get_color() == "#888888"} == grey
    one = {"method": [tables[0], tables[1] | changes, tables[2]]}
    assert ("B" in comparison(data, document=one).biased) == ("B" in grey and "training" in changes)
    judged = [row | {"gap": None} for row in data]
    assert not comparison(judged, document=found).biased


def test_accuracies_are_percent_and_smoothed_as_the_axis_says(monkeypatch):
    data = [row | {"accuracy": 0.1 * row["round"]} for row in rows("A", "FedAvg", column="loss")]
    plain = panels({"one": comparison(data, samples="test")})
    monkeypatch.setattr(Comparison, "smooth", 3)
    smooth = panels({"one": comparison(data, 0.3, "JPEG q80", "test")})
    assert list(lines(plain.axes[0])[0].get_ydata()) == pytest.approx([0, 10, 20, 30, 40])
    assert plain.axes[0].get_ylabel() == "test accuracy, %"
    assert list(lines(smooth.axes[0])[0].get_ydata()) == pytest.approx([0, 5, 10, 20, 30])
    assert smooth.axes[0].get_ylabel() == "test accuracy, % (JPEG q80; mean of the last 3 rows)"
    (target,) = (line for line in smooth.axes[0].lines if line.get_color() == "#bbbbbb")
    assert list(target.get_ydata()) == [30, 30]


@pytest.mark.parametrize("samples", ["test", "train", None])
def test_what_was_measured_on_what(samples):
    """The folder says it, whatever columns there are."""
    more = {"accuracy": 0.5, "train_loss": 2.0, "train_accuracy": 0.25}
    data = [row | more for row in rows("A", "FedAvg", column="loss")]

    def drawn(column):
        return panels({"one": comparison(data, samples=samples)}, y=column).axes[0]

    words = {column: drawn(column).get_ylabel() for column in ("loss", *more)}
    assert words["train_loss"] == "training loss"
    assert words["train_accuracy"] == "training accuracy, %"
    assert words["loss"] == ("test loss" if samples == "test" else "f(x)")
    kind = {"test": "test ", "train": "training ", None: ""}[samples]
    assert words["accuracy"] == f"{kind}accuracy, %"
    assert set(lines(drawn("train_accuracy"))[0].get_ydata()) == {25}


def test_points_of_some_clients_only_are_open_and_the_legend_says_so():
    data = rows("A", "FedAvg") + rows("B", "Scaffold")
    data[1] |= {"measured_clients": 2, "all_clients": 3}
    figure = panels({"one": comparison(data)})
    for ax, at in zip(figure.axes, (1, 2), strict=True):
        (opened,) = (line for line in ax.lines if line.get_label() == "_")
        assert opened.get_xdata().tolist() == [at] and opened.get_ydata().tolist() == [0.1]
        assert opened.get_markerfacecolor() == "white"
        assert opened.get_markeredgecolor() == lines(ax)[0].get_color()
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == ["A", "B", "measured on some clients only"]


def test_another_column_is_neither_smoothed_nor_aimed_at(monkeypatch):
    monkeypatch.setattr(Comparison, "smooth", 3)
    data = [row | {"drift": 0.1 * row["round"]} for row in rows("A", "FedAvg")]
    figure = panels({"one": comparison(data, 1e-3)}, y="drift")
    assert figure.axes[0].get_yscale() == "log"
    values = lines(figure.axes[0])[0].get_ydata()
    assert list(values[1:]) == pytest.approx([0.1, 0.2, 0.3, 0.4]) and values[0] != values[0]
    assert not [line for line in figure.axes[0].lines if line.get_color() == "#bbbbbb"]


def test_a_curve_with_nothing_to_draw_is_left_out(tmp_path):
    nothing = [row | {"gap": 0.0} for row in rows("B", "Scaffold")]
    figure = panels({"one": comparison(rows("A", "FedAvg") + nothing)})
    assert [line.get_label() for line in lines(figure.axes[0])] == ["A"]
    save(figure, tmp_path / "x.png")


def test_a_point_is_the_mean_of_few_rows_of_a_long_curve():
    found = [*rows("one", "FedAvg", 0, 101), *rows("one", "FedAvg", 1, 101)]
    asked = [comparison(found, document={"smooth": smooth}).smooth for smooth in (1, 4, 10)]
    assert asked == [1, 4, 5]
    assert comparison(found[:11]).smooth == comparison([]).smooth == 1
