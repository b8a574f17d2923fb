"""Vectors stored and sent, read off the declarations, against a table written by hand from the
papers.

Where a cell differs from that table, the row says why.
"""

import numpy as np
import pytest
import torch

from undrift.core.cohort import Cohort
from undrift.core.costs import Costs, costs, placeholder
from undrift.core.method import Round
from undrift.methods import __all__, find

#       server client down up syncs
TABLE = {
    "GD": (1, 0, 1, 1, 1),
    "FedAvg": (1, 0, 1, 1, 1),
    "FedProx": (1, 0, 1, 1, 1),
    "Scaffold": (2, 1, 2, 2, 1),
    "FedLin": (1, 0, 2, 2, 2),
    "FedLinTopK": (2, 1, 2, 2, 2),  # the table's "+1 EF" on either side
    "FedTrack": (1, 0, 2, 2, 2),
    "FedRecu": (1, 2, 2, 2, 2),
    "FedCET": (1, 2, 1, 1, 1),
    "EXTRA": (1, 2, 1, 1, 1),
    "Scaffnew": (1, 2, 1, 1, 1),
    "DANE": (1, 0, 2, 2, 2),
    "DANEPlus": (1, 0, 2, 2, 2),
    "DANEPlusDual": (1, 1, 1, 1, 1),
    # the table's 3 are x_i and, within a round only, the reference point and h_i
    "FedRed": (1, 1, 2, 2, 2),
    # the table's third is the reference point, received with every round
    "FedRedDual": (1, 2, 1, 1, 1),
    "FedAvgM": (2, 0, 1, 1, 1),
    "FedAdam": (3, 0, 1, 1, 1),
    "FedYogi": (3, 0, 1, 1, 1),
    "FedAdagrad": (3, 0, 1, 1, 1),
    "FedACG": (2, 0, 1, 1, 1),
    "FedCM": (2, 0, 2, 1, 1),
    "ScaffoldM": (3, 1, 2, 2, 1),
    "FedDyn": (2, 1, 1, 1, 1),
    # the table's 1 (paper) or 2 (code): the second serves server_dual = all
    "FedSpeed": (2, 1, 1, 1, 1),
    "FedPD": (1, 2, 1, 1, 1),
    "FedPDVR": (1, 3, 1, 1, 1),  # oracle II also carries its gradient
    "FedADMM": (1, 2, 1, 1, 1),
    "FedDC": (3, 2, 2, 2, 1),  # the table's 2 forget mean_N h, which follows from neither x nor c
    "InexactDANE": (1, 0, 2, 2, 2),
    "SONATA": (1, 0, 2, 2, 2),
    "Mime": (2, 0, 3, 2, 2),
    "MimeLite": (2, 0, 2, 2, 1),
    # up 3: two gradients and the model; the table's 2 is that of MimeLite's form
    "MimeMVR": (3, 0, 3, 3, 2),
    # the walking client may be outside the cohort, so it is sent x as well
    "CELGD": (3, 0, 4, 2, 2),
    "SVRP": (3, 0, 3, 2, 2),  # in a round that renews the anchor; else down 2, up 1
}


def test_every_method_has_a_row():
    assert sorted(TABLE) == __all__, "TABLE has a row of every method, from its paper"


@pytest.mark.parametrize("name", TABLE)
def test_declared_costs(name):
    server, client, down, up, syncs = TABLE[name]
    assert costs(placeholder(find(name))) == Costs(
        down=down, up=up, syncs=syncs, server=server, client=client
    )


@pytest.mark.parametrize("members", [2, 4])
def test_no_two_vectors_would_do_for_the_server_of_feddc(members):
    """What it sends (x and c) answers to one client's move as a system of order 3: its Hankel
    matrix has that rank.
    """
    method, cohort = find("FedDC")(lr=0.5), Cohort(np.arange(members), 4, 0)
    s, move, answers = method.server(torch.zeros(1, dtype=torch.float64)), 1.0, []
    for _ in range(9):
        dy = torch.full((1,), move, dtype=torch.float64)
        s, move = method.merge(s, method.Up(dy=dy, dc=-s.c - dy / method.lr), cohort), 0.0
        answers.append([float(v) for _, v in method.send(s).items()])
    hankel = np.array([np.concatenate(answers[k : k + 5]) for k in range(5)])
    assert np.linalg.matrix_rank(hankel) == 3


def test_mimemvr_lite_sends_its_two_gradients_as_one():
    found = costs(find("MimeMVR")(lr=0.1, lite=True))
    assert (found.down, found.up) == (3, 2)


def test_svrp_between_two_anchors():
    later = Round(1, [1], lambda: np.random.default_rng(0))
    (phase,) = find("SVRP")(eta=0.1, p=1e-9).phases(later)
    assert (len(phase.Down.vectors), len(phase.Up.vectors)) == (2, 1)


def test_fedrecu_with_one_local_step_needs_one_exchange():
    found = costs(placeholder(find("FedRecu")), steps=1)
    assert (found.down, found.up, found.syncs) == (1, 1, 1)
