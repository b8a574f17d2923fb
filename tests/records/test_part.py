"""Parts of a run: they are even, and together they are all of it."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from undrift.core.params import BadParameters
from undrift.records.folder import Folder
from undrift.records.part import WHOLE, RunPart


@given(st.integers(1, 12), st.integers(1, 6), st.data())
def test_parts_are_even_and_together_the_whole(methods, seeds, data):
    labels, seeds = [f"m{k}" for k in range(methods)], [*range(5, 5 + seeds)]
    whole = WHOLE.deal(labels, seeds)
    assert whole == [(label, seed) for seed in seeds for label in labels]
    of = data.draw(st.integers(1, len(whole)))
    parts = [RunPart(k, of).deal(labels, seeds) for k in range(1, of + 1)]
    assert sorted(key for part in parts for key in part) == sorted(whole)
    assert {len(part) for part in parts} <= {len(whole) // of, -(-len(whole) // of)}
    assert all(part == [key for key in whole if key in part] for part in parts)
    # What no seed changes is then run once.
    spread = Counter(label for part in parts for label in {label for label, _ in part})
    assert sum(times > 1 for times in spread.values()) <= methods % of


@pytest.mark.parametrize("given", ["0/3", "4/3", "2", "2/", "a/b", "1/2/3", "", (0, 2), (1,), 2])
def test_what_is_no_part_is_refused(given):
    with pytest.raises(BadParameters, match=r"as 2/4; in Python \(2, 4\)") as caught:
        RunPart.read(given)
    assert caught.value.problems.keys() == {"part"}


def test_a_folder_with_a_part_that_is_none_is_refused(tmp_path):
    (tmp_path / "environment.json").write_text('{"part": [3, 2]}')
    with pytest.raises(BadParameters, match=r"part = \[3, 2\] is not allowed"):
        _ = Folder(tmp_path).part
