"""The papers' splits: sizes, reuse, class priors, refusals."""

import numpy as np
import pytest

from undrift.data import paper_partitions as split
from undrift.data.partition import label_counts

LABELS = np.random.default_rng(9).permutation(np.repeat(np.arange(10), 60))
BALANCED = [split.fedspeed, split.feddyn, split.fedacg]
SKEWED = [*BALANCED, split.fedrecu]
named = {"ids": lambda f: f.__name__}


def seed(k):
    return np.random.default_rng(k)


@pytest.mark.parametrize("make", SKEWED, **named)
def test_the_same_generator_gives_the_same_parts(make):
    one, two, other = (make(LABELS, 20, seed(k), 0.6) for k in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    for part in one:
        assert part.dtype == np.int64 and (np.diff(part) >= 0).all()


@pytest.mark.parametrize("make", BALANCED, **named)
@pytest.mark.parametrize("beta", [0.05, 0.6, 10])
def test_balanced_splits_have_equal_sizes(make, beta):
    assert {len(part) for part in make(LABELS, 20, seed(0), beta)} == {30}
    remainder = sorted(len(part) for part in make(LABELS, 70, seed(0), beta))
    assert remainder == [8] * 69 + [48 if make is split.fedspeed else 8]


@pytest.mark.parametrize("make", SKEWED, **named)
def test_only_fedspeed_reuses_samples(make):
    taken = np.concatenate(make(LABELS, 20, seed(0), 0.3))
    assert len(taken) == len(LABELS)
    if make is split.fedspeed:
        assert len(np.unique(taken)) < len(LABELS)
    else:
        np.testing.assert_array_equal(np.sort(taken), np.arange(len(LABELS)))


def test_fedspeed_goes_through_a_class_before_it_begins_again():
    times = np.bincount(
        np.concatenate(split.fedspeed(LABELS, 20, seed(0), 0.3)), minlength=len(LABELS)
    )
    for name in range(10):
        assert np.ptp(times[name == LABELS]) <= 1


@pytest.mark.parametrize("make", BALANCED, **named)
def test_client_shares_follow_the_dirichlet_prior(make):
    """Shares have mean 1/C and the Dirichlet-multinomial's variance; FedACG's, at first."""
    plenty, size, beta = np.repeat(np.arange(4), 1000), 20, 0.5
    runs = [label_counts(make(plenty, 200, seed(k), beta)[:20], plenty) for k in range(30)]
    shares = np.concatenate(runs) / size
    assert shares.mean(0) == pytest.approx(0.25, abs=0.04)
    variance = 0.25 * 0.75 * (size + 4 * beta) / (1 + 4 * beta) / size
    assert shares.var(0).mean() == pytest.approx(variance, rel=0.1)


def test_fedacgs_last_client_takes_what_is_left():
    """What the first one holds follows its prior; what the last one holds does not."""
    wanted = np.stack([split.dirichlet_rows(seed(k), 0.3, 10, 60) for k in range(20)])
    held = np.stack(
        [label_counts(split.fedacg(LABELS, 60, seed(k), 0.3), LABELS) for k in range(20)]
    )
    assert (held.sum(1) == 60).all()
    first, last = (np.corrcoef(wanted[:, i].ravel(), held[:, i].ravel())[0, 1] for i in (0, -1))
    assert first > 0.75 and abs(last) < 0.3


def test_fedrecu_shares_of_a_class_follow_the_dirichlet():
    beta, clients = 1.0, 10
    shares = np.concatenate(
        [label_counts(split.fedrecu(LABELS, clients, seed(k), beta), LABELS) for k in range(60)]
    )
    shares = shares.reshape(60, clients, 10) / 60
    assert shares.mean((0, 2)) == pytest.approx(0.1, abs=0.02)
    assert shares.var((0, 2)).mean() == pytest.approx(0.1 * 0.9 / (1 + clients * beta), rel=0.15)
    sizes = [len(part) for part in split.fedrecu(LABELS, clients, seed(0), 0.3)]
    assert len(set(sizes)) > 1


def test_impossible_requests_are_refused_with_the_reason():
    for make in SKEWED:
        with pytest.raises(ValueError, match="601 clients cannot share 600 samples"):
            make(LABELS, 601, seed(0), 0.6)
        for beta in (0, -1, np.inf, np.nan):
            with pytest.raises(ValueError, match="concentration is a finite number > 0"):
                make(LABELS, 10, seed(0), beta)
        with pytest.raises(ValueError, match="at least one client"):
            make(LABELS, 0, seed(0), 0.6)
    with pytest.raises(ValueError, match=r"left nothing for \d+ of 100 clients"):
        split.fedrecu(LABELS, 100, seed(0), 0.01)
    assert sum(map(len, split.fedrecu(LABELS, 100, seed(0), 0.01, allow_empty=True))) == 600
    with pytest.raises(
        ValueError, match=r"has run out; raise beta, .* fedspeed, which reuses samples"
    ):
        split.feddyn(LABELS, 20, seed(0), 1e-5)
    assert {len(part) for part in split.fedspeed(LABELS, 20, seed(0), 1e-5)} == {30}
