"""Figures: what is drawn, not how it looks."""

from undrift.report.figures import panels, save


def rows(label, method, seed=0, rounds=5, column="gap"):
    values = [None if k == 3 else 10.0**-k for k in range(rounds)]
    return [
        {"label": label, "method": method, "seed": seed, "round": k, "vectors": 2 * k, "gradients": k, column: v}
        for k, v in enumerate(values)
    ]


def lines(ax):
    return [line for line in ax.lines if not line.get_label().startswith("_")]


def test_a_panel_against_rounds_and_one_against_vectors(tmp_path):
    data = rows("FedAvg", "FedAvg") + rows("a $cheap$ one", "Scaffold", 0) + rows("a $cheap$ one", "Scaffold", 1)
    figure = panels({"one": data, "two": data}, target=1e-4)
    top_left, top_right, *_ = figure.axes
    assert len(figure.axes) == 4
    assert [line.get_label() for line in lines(top_left)] == ["FedAvg", r"a \$cheap\$ one"]
    assert list(lines(top_right)[0].get_xdata()) == [0, 2, 4, 6, 8]
    assert top_left.get_yscale() == "log" and top_left.get_xlabel() == "rounds"
    save(figure, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_biased_methods_are_grey_and_no_two_others_look_the_same():
    data = [row for k, m in enumerate(("FedAvg", "FedRecu", "FedCET")) for row in rows(f"m{k}", m)]
    biased, *others = lines(panels({"one": data}).axes[0])
    assert biased.get_color() == "#888888"
    assert len({(line.get_color(), line.get_marker()) for line in others}) == 2


def test_the_loss_has_a_linear_axis():
    figure = panels({"one": rows("A", "FedAvg", column="loss")})
    assert figure.axes[0].get_yscale() == "linear" and figure.axes[0].get_ylabel() == "f(x)"
