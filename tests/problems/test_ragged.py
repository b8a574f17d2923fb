"""Samples of many clients in one table."""

import numpy as np
import pytest
import torch

from undrift.problems.ragged import Ragged, owned, take


def table(sizes):
    order, held = owned(np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]), sum(sizes))
    return held, torch.cat(
        [
            torch.stack([torch.as_tensor(order), -torch.as_tensor(order)], 1),
            torch.zeros(1, 2).long(),
        ]
    )


@pytest.mark.parametrize("sizes", [(3, 3, 3, 3), (1, 4, 2, 3), (2, 2, 5, 2)])
@pytest.mark.parametrize("members", [[0], [3], [1, 2], [0, 1, 2, 3], [3, 1], [2, 2, 0], [0, 3]])
def test_rows_of_some_clients(sizes, members):
    held, rows = table(sizes)
    part, ends = held[np.array(members)], np.cumsum(sizes)
    want = torch.zeros(len(members), max(sizes[i] for i in members), 2, dtype=torch.int64)
    for c, i in enumerate(members):
        want[c, : sizes[i]] = rows[ends[i] - sizes[i] : ends[i]]
    assert torch.equal(part.stack(rows), want)
    batch = torch.tensor([[sizes[i] - 1, -1, 0] for i in members])
    drawn = torch.stack(
        [torch.stack([rows[ends[i] - 1], rows[-1], rows[ends[i] - sizes[i]]]) for i in members]
    )
    assert torch.equal(part.drawn(rows, batch), drawn)


def test_neighbours_of_equal_size_are_not_copied():
    held, rows = table((3, 3, 3, 3))
    assert held[1:3].stack(rows).data_ptr() == rows[3:].data_ptr()
    assert held.stack(rows)._base is rows


def test_waste():
    assert not table((4, 4, 1, 1))[0].wasteful and table((16, 1, 1, 1, 1))[0].wasteful


def test_take_is_indexing():
    rows, index = torch.randn(7, 2, 3), torch.tensor([[0, 6], [3, 3], [1, 0]])
    assert torch.equal(take(rows, index), rows[index])


def test_blocks():
    held = Ragged.blocks(np.array([2, 0]), 3)
    assert held.first.tolist() == [6, 0] and held.sizes.tolist() == [3, 3]
