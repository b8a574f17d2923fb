"""The pictures of docs/drift.md can still be made, by runs that do what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tools import drift_pictures as pictures

DOCS = Path(__file__).parents[2] / "docs"


def test_paths_are_local_steps_of_the_library():
    for method in (pictures.WatchedFedAvg(lr=0.3), pictures.WatchedScaffold(lr=0.3)):
        found = pictures.paths(method)
        assert np.array_equal(found[1:, 0, 0], found[1:, 0, 1])  # a round begins at one point
        assert np.allclose(found[1:, 0, 0], found[:-1, -1].mean(1))  # the mean of where they ended
        first = found[0, 0] - 0.3 * pictures.H * (found[0, 0] - pictures.B)
        assert np.allclose(found[0, 1], first)
    ends = [pictures.paths(kind(lr=0.3))[-1, -1].mean(0) for kind in (pictures.WatchedFedAvg,)]
    assert np.allclose(ends[0], pictures.biased(10, 0.3), atol=0.02)


@pytest.mark.thorough
def test_the_script_draws_them(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "ROUNDS", 1)
    monkeypatch.setattr(pictures, "MANY", 20)
    pictures.main(tmp_path)
    named = set(re.findall(r"pictures/(drift[\w.-]+)", (DOCS / "drift.md").read_text()))
    assert {path.name for path in tmp_path.iterdir()} == named
    for name in named:
        assert (DOCS / "pictures" / name).stat().st_size < 400_000
        with Image.open(DOCS / "pictures" / name) as kept, Image.open(tmp_path / name) as drawn:
            assert kept.size == drawn.size
