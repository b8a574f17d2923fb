"""Partitions: every sample once, nobody empty, and the skew that was asked for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.core.streams import Streams
from undrift.data import partition

SPLITS = {
    "iid": partition.iid,
    "dirichlet": lambda *a, **k: partition.dirichlet(*a, beta=0.3, **k),
    "dirichlet tiny": lambda *a, **k: partition.dirichlet(*a, beta=1e-4, **k),
    "dirichlet_balanced": lambda *a, **k: partition.dirichlet_balanced(*a, beta=0.3, **k),
    "dirichlet_balanced tiny": lambda *a, **k: partition.dirichlet_balanced(*a, beta=1e-4, **k),
    "by_label": lambda *a, **k: partition.by_label(*a, shards=1, **k),
}
EQUAL = [name for name in SPLITS if name == "iid" or "balanced" in name]


@st.composite
def cases(draw):
    labels = np.array(draw(st.lists(st.integers(-2, 5), min_size=1, max_size=80)))
    return labels, draw(st.integers(1, len(labels))), draw(st.integers(0, 2**32))


@pytest.mark.parametrize("name", SPLITS)
@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_every_sample_once_and_nobody_empty(name, case):
    labels, clients, seed = case
    parts = SPLITS[name](labels, clients, np.random.default_rng(seed))
    assert len(parts) == clients and all(len(part) for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert all((np.diff(part) > 0).all() for part in parts)
    if name in EQUAL or name == "by_label":
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", SPLITS)
def test_a_pure_function_of_the_generator(name):
    labels = np.arange(200) % 7
    one, two, other = (SPLITS[name](labels, 9, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", SPLITS)
def test_more_clients_than_samples(name):
    with pytest.raises(ValueError, match=r"4 clients .*3 samples"):
        SPLITS[name](np.zeros(3), 4, np.random.default_rng(0))
    parts = SPLITS[name](np.zeros(3), 4, np.random.default_rng(0), allow_empty=True)
    assert sorted(np.concatenate(parts)) == [0, 1, 2] and any(not len(part) for part in parts)


@pytest.mark.parametrize("split", [partition.dirichlet, partition.dirichlet_balanced])
def test_beta_sets_the_skew(split):
    labels = np.arange(4000) % 10

    def largest_share(beta):
        counts = partition.label_counts(
            split(labels, 20, np.random.default_rng(0), beta=beta), labels
        )
        return (counts.max(1) / counts.sum(1)).mean()

    assert largest_share(0.05) > 0.6 > 0.35 > largest_share(2.0) > 0.14 > largest_share(1e4)


def test_dirichlet_shares_follow_their_law():
    """A share of a class of Dir(beta) has mean 1/N and variance (1/N)(1-1/N)/(N beta+1)."""
    n, beta = 4, 0.5
    labels = np.repeat(np.arange(400), 50)
    parts = partition.dirichlet(labels, n, np.random.default_rng(3), beta=beta)
    shares = partition.label_counts(parts, labels) / 50
    np.testing.assert_allclose(shares.mean(1), 1 / n, atol=0.05)
    np.testing.assert_allclose(shares.var(1), (1 / n) * (1 - 1 / n) / (n * beta + 1), rtol=0.2)


def test_dirichlet_fills_empty_clients_from_the_largest():
    labels = np.zeros(50)
    free = partition.dirichlet(labels, 10, np.random.default_rng(0), beta=1e-3, allow_empty=True)
    assert sum(not len(part) for part in free) >= 5
    kept = partition.dirichlet(labels, 10, np.random.default_rng(0), beta=1e-3)
    assert min(len(part) for part in kept) == 1
    assert max(len(part) for part in kept) == max(len(part) for part in free) - sum(
        not len(part) for part in free
    )


def test_by_label_gives_few_labels_to_each_client():
    labels = np.random.default_rng(0).permutation(np.arange(1000) % 10)
    for shards in (1, 2, 5):
        counts = partition.label_counts(
            partition.by_label(labels, 20, np.random.default_rng(1), shards), labels
        )
        assert (counts > 0).sum(1).max() <= 2 * shards
    assert ((counts > 0).sum(1) > 2).any()


def test_by_label_needs_a_sample_per_shard():
    with pytest.raises(ValueError, match="lower clients or shards"):
        partition.by_label(np.zeros(9), 5, np.random.default_rng(0), shards=2)
    with pytest.raises(ValueError, match="shards = 0 is not allowed"):
        partition.by_label(np.zeros(9), 5, np.random.default_rng(0), shards=0)


def test_label_counts():
    assert partition.label_counts([[0, 3], [1], [2, 4]], ["b", "a", "b", "c", "b"]).tolist() == [
        [0, 1, 1],
        [1, 0, 0],
        [0, 2, 0],
    ]


@pytest.mark.parametrize("beta", [0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("split", [partition.dirichlet, partition.dirichlet_balanced])
def test_bad_concentrations(split, beta):
    with pytest.raises(ValueError, match="concentration"):
        split(np.zeros(5), 2, np.random.default_rng(0), beta=beta)


@pytest.mark.parametrize(("labels", "clients"), [([], 1), ([[1, 2]], 1), ([1, 2], 0)])
def test_impossible_requests(labels, clients):
    with pytest.raises(ValueError, match=r"labels must be|at least one client"):
        partition.iid(labels, clients, np.random.default_rng(0))


def test_a_seed_is_that_of_a_named_problem():
    labels = np.arange(90) % 7
    for split in (partition.iid, partition.dirichlet, partition.by_label, partition.by_size):
        named = split(labels, 5, Streams(3).at("data"))
        assert all(map(np.array_equal, split(labels, 5, seed=3), named))
        assert not all(map(np.array_equal, split(labels, 5), named))


@pytest.mark.parametrize("seed", [0.1, True, -1, "a", None])
def test_other_seeds_are_refused(seed):
    """A beta in the place of the seed is not taken for one."""
    with pytest.raises(ValueError, match=r"seed = .* give beta and shards by name"):
        partition.dirichlet(np.arange(9) % 2, 3, seed)


def test_measured_numbers_are_not_classes():
    numbers = np.random.default_rng(0).normal(size=50)
    for split in (partition.dirichlet, partition.dirichlet_balanced):
        with pytest.raises(ValueError, match="not classes; put them into groups"):
            split(numbers, 3)
        assert len(split(np.digitize(numbers, [-0.5, 0.5]), 3)) == 3
    assert len(partition.by_label(numbers, 3)) == 3


def test_sizes_are_uneven_and_samples_are_not():
    labels = np.arange(3000) % 3
    parts = partition.by_size(labels, 10, seed=1, beta=0.5)
    sizes = np.array([len(part) for part in parts])
    assert sizes.max() > 4 * sizes.min() and sizes.min() >= 1
    shares = partition.label_counts(parts, labels)[sizes > 200] / sizes[sizes > 200, None]
    np.testing.assert_allclose(shares, 1 / 3, atol=0.1)
    assert all(map(np.array_equal, parts, partition.by_size(3000, 10, seed=1, beta=0.5)))
    with pytest.raises(ValueError, match="4 clients cannot share 3 samples"):
        partition.iid(3, 4)


def test_every_group_is_a_client():
    parts = partition.by_group(np.array(["rome", "oslo", "rome", "bern"]))
    assert [part.tolist() for part in parts] == [[3], [1], [0, 2]]
    with pytest.raises(ValueError, match="one label per sample"):
        partition.by_group(np.zeros((2, 2)))


def test_a_share_of_every_client_is_held_out():
    parts = partition.dirichlet(np.arange(400) % 4, 9, beta=0.1)
    left, taken = partition.hold_out(parts, 0.2, seed=2)
    for part, kept, held in zip(parts, left, taken, strict=True):
        assert np.array_equal(np.sort(np.concatenate([kept, held])), part) and len(kept)
        if len(part) > 1:
            assert len(held) == min(max(round(0.2 * len(part)), 1), len(part) - 1)
    assert not all(map(np.array_equal, taken, partition.hold_out(parts, 0.2, seed=3)[1]))
    for share in (0, 1, 1.5):
        with pytest.raises(ValueError, match="share"):
            partition.hold_out(parts, share)


def test_who_gets_a_sample_more_is_drawn_at_random():
    """Of 10 clients who share 23 samples three hold one more, by chance."""
    larger = []
    for seed in range(60):
        parts = partition.dirichlet_balanced(np.arange(23) % 3, 10, seed)
        larger += [client for client, part in enumerate(parts) if len(part) == 3]
    counts = np.bincount(larger, minlength=10)
    assert counts.sum() == 180 and counts.min() > 5 and counts.max() < 35
