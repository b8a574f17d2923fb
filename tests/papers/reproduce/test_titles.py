"""Titles are no wider than their plots."""

import pytest

from undrift.plots.curves import grid
from undrift_papers.reproduce.titles import fit_titles


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
