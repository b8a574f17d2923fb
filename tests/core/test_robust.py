"""Robust reductions against transcriptions, and what must hold for any uploads."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import robust as reference

from undrift.core.aggregation import (
    CentredClipping,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    NormClipping,
    Robust,
    TrimmedMean,
    registry,
)
from undrift.core.cohort import Sampling
from undrift.core.params import BadParameters, values

RULES = {
    "median": Median(),
    "trimmed-mean": TrimmedMean(share=0.2),
    "krum": Krum(bad=2),
    "multi-krum": MultiKrum(bad=2),
    "geometric-median": GeometricMedian(),
    "centred-clipping": CentredClipping(radius=0.7, iterations=3),
    "norm-clipping": NormClipping(radius=0.7),
}
EQUIVARIANT = ("median", "trimmed-mean", "krum", "multi-krum", "geometric-median")
SIZE = st.integers(7, 25)
SEED = st.integers(0, 10**6)


def drawn(seed, n, d=3, spread=1.0):
    return spread * np.random.default_rng(seed).normal(size=(n, d))


def applied(rule, rows, **more):
    more = {name: torch.from_numpy(v) for name, v in more.items()}
    return rule.reduce(torch.from_numpy(np.ascontiguousarray(rows)), **more).numpy()


def transcribed(rule, rows, last):
    rows, n = list(rows), len(rows)
    match rule:
        case Median():
            return reference.median(rows)
        case TrimmedMean(share=share):
            return reference.trimmed_mean(rows, int(round(share * n * 1000) // 1000))
        case MultiKrum(bad=bad, keep=keep):
            return reference.multi_krum(rows, bad, n - bad - 2 if keep is None else keep)
        case Krum(bad=bad):
            return reference.krum(rows, bad)
        case GeometricMedian(iterations=iterations, smoothing=nu):
            return reference.weiszfeld(rows, reference.median(rows), nu, iterations)
        case CentredClipping(radius=tau, iterations=iterations):
            return reference.centred_clipping(rows, last, tau, iterations)
        case NormClipping(radius=tau):
            return reference.norm_clipping(rows, tau)


def test_every_rule_is_tested():
    assert RULES.keys() == registry.keys() - {"mean", "weighted-mean"}
    assert all(registry[name] is type(rule) and rule.title for name, rule in RULES.items())


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=60, deadline=None)
@given(n=SIZE, d=st.integers(1, 6), seed=SEED, spread=st.sampled_from([1e-8, 1.0, 1e6]))
def test_as_transcribed(name, n, d, seed, spread):
    rows, last = drawn(seed, n, d, spread), drawn(seed + 1, 1, d, spread)[0]
    rule = RULES[name]
    if isinstance(rule, GeometricMedian):
        # a median that is one of the rows is left by steps as long as the smoothing, whose
        # direction is rounding for a good part
        rule = dataclasses.replace(rule, smoothing=1e-4)
    found = applied(rule, rows, last=last)
    expected = transcribed(rule, rows, last)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * spread)


@pytest.mark.parametrize(
    "rule",
    [
        TrimmedMean(share=0.29),
        Krum(bad=0),
        MultiKrum(bad=3, keep=5),
        GeometricMedian(iterations=3, smoothing=0.5),
        CentredClipping(radius=100.0),
    ],
    ids=repr,
)
@pytest.mark.parametrize("n", [9, 10, 100])
def test_as_transcribed_with_other_parameters(rule, n):
    rows, last = drawn(n, n), drawn(0, 1)[0]
    np.testing.assert_allclose(
        applied(rule, rows, last=last), transcribed(rule, rows, last), atol=1e-12
    )


def test_the_geometric_median_has_the_least_sum_of_distances():
    rows = drawn(3, 15)
    point = applied(GeometricMedian(iterations=500, smoothing=1e-12), rows)
    total = lambda v: np.linalg.norm(rows - v, axis=1).sum()  # noqa: E731
    units = (rows - point) / np.linalg.norm(rows - point, axis=1, keepdims=True)
    assert np.linalg.norm(units.sum(0)) < 1e-9
    assert total(point) < min(total(rows.mean(0)), total(np.median(rows, axis=0)))


@pytest.mark.parametrize("size", [1e-12, 1e-8, 1.0, 1e8])
def test_the_geometric_median_does_not_depend_on_the_scale(size):
    """Four of ten are a hundred times as long: it is where their sum of distances is least."""
    rows = drawn(4, 10)
    rows[:4] *= 100
    exact = reference.weiszfeld(list(rows), reference.median(list(rows)), 1e-14, 2000)
    found = applied(GeometricMedian(), size * rows) / size
    spread = np.median(np.linalg.norm(rows - exact, axis=1))
    assert np.linalg.norm(found - exact) < 1e-3 * spread


def test_a_point_that_half_of_the_uploads_are_is_the_geometric_median():
    rows = drawn(6, 10)
    rows[3:8] = rows[3]
    rows[:3] = rows[3] + 100.0
    rows[8:] = rows[3] - 1.0
    np.testing.assert_array_equal(applied(GeometricMedian(), rows), rows[3])


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=40, deadline=None)
@given(n=SIZE, seed=SEED)
def test_the_order_of_the_clients_does_not_matter(name, n, seed):
    rows = drawn(seed, n)
    other = np.random.default_rng(seed).permutation(n)
    np.testing.assert_allclose(
        applied(RULES[name], rows[other]), applied(RULES[name], rows), atol=1e-12
    )


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=40, deadline=None)
@given(n=SIZE, seed=SEED)
def test_uploads_that_agree_are_their_mean(name, n, seed):
    row = drawn(seed, 1)[0] * 0.1  # shorter than the radius
    np.testing.assert_allclose(applied(RULES[name], np.tile(row, (n, 1))), row, atol=1e-14)


@pytest.mark.parametrize("name", EQUIVARIANT)
@settings(max_examples=40, deadline=None)
@given(n=SIZE, seed=SEED)
def test_what_moves_all_uploads_moves_the_result(name, n, seed):
    rows, shift = drawn(seed, n), drawn(seed + 1, 1)[0] * 10
    moved = applied(RULES[name], rows + shift)
    np.testing.assert_allclose(moved, applied(RULES[name], rows) + shift, atol=1e-10)


@settings(max_examples=40, deadline=None)
@given(n=SIZE, seed=SEED)
def test_clipping_moves_with_its_last_result(n, seed):
    rows, shift = drawn(seed, n), drawn(seed + 1, 1)[0] * 10
    rule, last = RULES["centred-clipping"], drawn(seed + 2, 1)[0]
    moved = applied(rule, rows + shift, last=last + shift)
    np.testing.assert_allclose(moved, applied(rule, rows, last=last) + shift, atol=1e-12)


BAD = st.sampled_from([1e3, 1e30, 1e200, -1e200, np.inf, -np.inf, np.nan])


@settings(max_examples=150, deadline=None)
@given(n=st.integers(9, 31), bad=st.integers(1, 14), seed=SEED, value=BAD, copies=st.booleans())
def test_no_bad_uploads_below_half_lead_far_away(n, bad, seed, value, copies):
    """Bounds that hold for any rows of the bad clients."""
    bad = min(bad, (n - 3) // 2)
    rows = drawn(seed, n)
    good = rows[bad:]
    rows[:bad] = value if copies else value * np.abs(rows[:bad])
    low, high = good.min(0), good.max(0)
    width = max(np.linalg.norm(a - b) for a in good for b in good)
    between = lambda v: bool(((v >= low - 1e-12) & (v <= high + 1e-12)).all())  # noqa: E731
    nearest = lambda v: min(np.linalg.norm(good - v, axis=1))  # noqa: E731

    assert between(applied(Median(), rows))
    assert between(applied(TrimmedMean(share=bad / n), rows))
    assert nearest(applied(Krum(bad=bad), rows)) <= (n - bad - 2) ** 0.5 * width
    for keep in (None, n - bad):
        found = applied(MultiKrum(bad=bad, keep=keep), rows)
        assert nearest(found) <= ((n - bad - 2) ** 0.5 + 1) * width
    # Every step lessens the sum of distances, so it ends near where it begins.
    middle = good.mean(0)
    radius = max(np.linalg.norm(good - middle, axis=1))
    begins = np.linalg.norm(applied(Median(), rows) - middle)
    bound = (n * begins + 2 * (n - bad) * radius) / (n - 2 * bad)
    assert np.linalg.norm(applied(GeometricMedian(), rows) - middle) <= bound + 1e-6 * n
    # Bad clients move a clipped mean by at most 2 radius bad / n.
    clean = rows.copy()
    clean[:bad] = 0
    for rule in (NormClipping(radius=0.5), CentredClipping(radius=0.5)):
        moved = applied(rule, rows) - applied(rule, clean)
        assert np.linalg.norm(moved) <= 2 * 0.5 * bad / n + 1e-12


def test_of_equals_krum_takes_the_lowest_client():
    corners = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    assert applied(Krum(bad=0), corners).tolist() == [0, 0]
    assert applied(Krum(bad=0), corners[::-1]).tolist() == [1, 1]
    assert applied(MultiKrum(bad=0, keep=2), corners).tolist() == [0.5, 0]


def test_small_distances_between_long_uploads_are_told_apart():
    rows = 1e8 + np.array([[0.0, 0], [3, 0], [3.1, 0], [3.3, 0], [9, 0]])
    assert applied(Krum(bad=1), rows).tolist() == rows[2].tolist()


@pytest.mark.parametrize("name", RULES)
def test_single_precision_stays_single(name):
    rows = torch.from_numpy(drawn(1, 12)).float()
    found = RULES[name].reduce(rows)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), RULES[name].reduce(rows.double()), atol=1e-6, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", RULES)
def test_a_gpu_gives_the_same_without_waiting(name):
    rows = torch.from_numpy(drawn(1, 12, 50)).cuda()
    expected = RULES[name].reduce(rows.cpu())
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = RULES[name].reduce(rows)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(found.cpu(), expected, atol=1e-12, rtol=0)


# -- how rules are given


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_a_name_a_table_or_itself(name):
    rule = RULES[name]
    assert Robust.read(rule) is rule
    assert Robust.read({"name": name, **values(rule)}) == rule
    assert Robust.read("geometric-median") == GeometricMedian()
    assert Robust.read({"name": "krum", "bad": np.int64(2)}) == Krum(bad=2)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ("medain", ""),
        (3, ""),
        ({"bad": 3}, "name"),
        ({"name": ["krum"]}, "name"),
        ("krum", "bad"),
        ({"name": "krum", "bad": -1}, "bad"),
        ({"name": "krum", "bad": 1, "keep": 3}, "keep"),
        ({"name": "trimmed-mean", "share": 0.5}, "share"),
        ({"name": "trimmed-mean", "share": 0}, "share"),
        ({"name": "norm-clipping", "radius": 0.0}, "radius"),
        ({"name": "geometric-median", "iterations": 0}, "iterations"),
    ],
)
def test_what_is_wrong_with_a_rule(given, field):
    with pytest.raises(BadParameters) as error:
        Robust.read(given)
    assert list(error.value.problems) == [field]


def test_parameters_are_checked_in_python_too():
    with pytest.raises(BadParameters) as error:
        TrimmedMean(share=0.6)
    assert list(error.value.problems) == ["share"]


@pytest.mark.parametrize(
    ("rule", "cohort", "fields"),
    [
        (Median(), Sampling(1), []),
        (Median(), Sampling(5, dropout=0.5), []),
        (Krum(bad=2), Sampling(7), []),
        (Krum(bad=2), Sampling(6), ["aggregation.bad"]),
        (Krum(bad=2), Sampling(20, dropout=0.1), ["aggregation"]),
        (Krum(bad=2), Sampling(20, sampling="bernoulli"), ["aggregation"]),
        (MultiKrum(bad=2, keep=8), Sampling(10), []),
        (MultiKrum(bad=2, keep=9), Sampling(10), ["aggregation.keep"]),
        (MultiKrum(bad=4, keep=9), Sampling(10), ["aggregation.bad"]),
        (TrimmedMean(share=0.2), Sampling(5), []),
        (TrimmedMean(share=0.2), Sampling(4), ["aggregation.share"]),
    ],
)
def test_which_cohorts_a_rule_refuses(rule, cohort, fields):
    assert [refusal.field for refusal in rule.refuse(cohort)] == fields
    assert bool(fields) or len(drawn(0, cohort.size)) >= rule.least
