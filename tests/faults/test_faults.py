"""Short versions of the modules here; ``make faults`` runs the whole of them.

Those of frames and folders: engines/test_messages.py, runs/test_damage.py.
"""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.faults import clients, divergence, dropouts, memories, rounds, signs
from tests.faults.__main__ import FAULTS
from tests.faults.tally import Tally
from undrift.engines import Simulate


def short(tally: Tally) -> None:
    assert tally.trials and tally.problems == []


def test_a_tally_that_counts_nothing_or_a_problem_fails(capsys):
    tally = Tally("name", "what")
    assert tally.report() == 1
    tally.add("one", None)
    assert tally.report() == 0
    tally.add("other", "wrong")
    assert tally.report() == 1
    assert capsys.readouterr().out.splitlines()[-1] == "name: what, 1 of 2"


@pytest.mark.whole
def test_kills():
    """In a process of its own, which forks."""
    words = [sys.executable, "-m", "tests.faults.kills", "--count", "12"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", clients.PARTIAL[::4])
def test_clients(name):
    short(clients.one_of_ten(3, 0, [name]))


@pytest.mark.parametrize("name", clients.METHODS[::6])
def test_rounds(name):
    short(rounds.skipped(0, [name]))


def test_memories():
    short(memories.remembered(30, 0, (Simulate,))[0])


def test_dropouts():
    gap, share = dropouts.gap(dropouts.METHODS[0], 40, range(1), dropouts.PROMISED)
    assert 0.25 < share < 0.35 and gap < 0.05


def test_signs():
    short(signs.flipped(range(3))[0])


def test_divergence():
    tally, _ = divergence.seen(["least-squares"])
    divergence.tamed(tally, ["least-squares"], ["FedAvg"])
    assert tally.trials == 4
    short(tally)


def test_every_fault_of_the_table_has_its_module():
    assert [module for module in FAULTS if find_spec(module) is None] == []
