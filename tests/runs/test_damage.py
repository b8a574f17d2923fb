"""Folders and checkpoints that are damaged at random; more of them: tests/faults/folder.py."""

from tests.faults import folder


def test_damaged_folders():
    found, silent = folder.fuzz(60)
    assert not silent and found.total() == 60
    assert sum(n for became, n in found.items() if became.startswith("found")) > 40


def test_damaged_checkpoints():
    found, silent = folder.fuzz_checkpoints(300)
    assert not silent and found.total() == 300
