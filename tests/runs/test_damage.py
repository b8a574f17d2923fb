"""Checkpoints that are damaged at random; more of them: tests/faults/folder.py."""

from tests.faults import folder


def test_damaged_checkpoints():
    found, silent = folder.fuzz_checkpoints(300)
    assert not silent and found.total() == 300
