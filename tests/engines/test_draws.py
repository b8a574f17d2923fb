"""What is drawn for many clients at once is what NumPy draws for each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.core.streams import Streams
from undrift.engines import Simulate, batches
from undrift.engines.batches import CohortDraws
from undrift.methods import FedAvg
from undrift.problems import Softmax

PLACES = st.integers(0, 2**32)


@pytest.fixture(params=[True, False], ids=["side by side", "as is faster"])
def side_by_side(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(batches, "FEW", -(10**9))


def clients_with(data, least, most):
    """Their numbers, and how many samples each holds."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    count = data.draw(st.integers(1, 120))
    return rng.integers(0, 2**40, count), rng.integers(least, most, count, endpoint=True)


EVERY = settings(max_examples=60, deadline=None)


@pytest.mark.usefixtures("side_by_side")
@EVERY
@given(st.data(), st.integers(1, 70), st.sampled_from([1, 9, 600, 20_000]), PLACES, PLACES)
def test_choices_are_numpys(data, size, more, round, step):
    clients, held = clients_with(data, size + 1, size + more)
    streams = Streams(step)
    found = CohortDraws(streams, "batches", (round, step), clients, held).choice(size)
    for client, n, row in zip(clients.tolist(), held, found, strict=True):
        want = streams.at("batches", round, client, step).choice(n, size, replace=False)
        assert row.tolist() == want.tolist()


@pytest.mark.usefixtures("side_by_side")
@EVERY
@given(st.data(), st.integers(1, 70), PLACES, PLACES)
def test_permutations_are_numpys(data, most, round, step):
    clients, held = clients_with(data, 1, most)
    streams = Streams(round)
    found = CohortDraws(streams, "batches", (round, step), clients, held).permutation()
    for client, n, row in zip(clients.tolist(), held, found, strict=True):
        want = streams.at("batches", round, client, step).permutation(n)
        assert row[:n].tolist() == want.tolist() and (row[n:] == -1).all()


@EVERY
@given(st.data(), st.integers(1, 11), PLACES, PLACES)
def test_words_are_those_that_numpy_draws_from(data, count, round, step):
    clients, _ = clients_with(data, 1, 1)
    streams = Streams(round)
    found = streams.words("masks", round, clients, step, count)
    for client, own in zip(clients.tolist(), found.T, strict=True):
        bits = streams.at("masks", round, client, step).bit_generator
        assert own.tolist() == bits.random_raw(count).tolist()
        key = streams.at("masks", round, client, step).integers(2**63, dtype=np.int64)
        assert own[0] >> np.uint64(1) == key


def test_a_word_that_numpy_draws_again():
    """Client 20593 is the first of this seed who has one among his words."""
    clients, streams = np.arange(20_500, 20_600), Streams(0)
    found = CohortDraws(streams, "batches", (0, 0), clients, np.full(100, 9999)).choice(20)
    for client, row in zip(clients.tolist(), found, strict=True):
        want = streams.at("batches", client=client).choice(9999, 20, replace=False)
        assert row.tolist() == want.tolist()


def test_permutations_that_take_more_words_than_there_are(monkeypatch):
    words = CohortDraws._words
    monkeypatch.setattr(CohortDraws, "_words", lambda self, count: words(self, count // 3))
    clients, streams = np.arange(100), Streams(0)
    found = CohortDraws(streams, "batches", (0, 0), clients, np.full(100, 10)).permutation()
    for client, row in enumerate(found):
        want = streams.at("batches", client=client).permutation(10)
        assert row.tolist() == want.tolist()


@pytest.mark.parametrize("epochs", [None, 2])
def test_a_cohort_draws_what_its_clients_draw_alone(epochs):
    """Also where they hold unequally many samples, some of them fewer than a mini-batch."""
    sizes = np.random.default_rng(0).integers(1, 12, 90)
    parts = np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])
    problem = Softmax(np.ones((sizes.sum(), 1)), np.arange(sizes.sum()) % 2, parts)
    engine = Simulate(FedAvg(lr=0.1), problem, batch=4, epochs=epochs, seed=3)
    members = np.arange(1, 90)
    for step in range(6):
        (together,) = engine.batches.draw(members, 2, step)
        for client, row in zip(members.tolist(), together.tolist(), strict=True):
            n, place = int(sizes[client]), step
            if epochs:
                epoch, place = divmod(step, -(-n // 4))
                order = Streams(3).at("batches", 2, client, epoch).permutation(n)
                want = order[4 * place : 4 * place + 4].tolist()
            elif n <= 4:
                want = [*range(n)]
            else:
                rng = Streams(3).at("batches", 2, client, step)
                want = rng.choice(n, 4, replace=False).tolist()
            assert row == want + [-1] * (4 - len(want))
