"""Softmax regression: gradients against autograd and wire, extreme scores, refusals."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from tests.problems.cases import softmax
from tests.rounds import after
from undrift.engines import Simulate, Wire
from undrift.methods import FedAvg, FedLin, FedSpeed, Scaffold
from undrift.problems import Softmax, build, small_matmul
from undrift.problems.softmax import divergence
from undrift.problems.softmax_steps import AFRESH

CPU = torch.device("cpu")


def data(total=40, dim=3, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((total, dim))
    return a, rng.integers(classes, size=total), np.split(rng.permutation(total), [5, 20])


@pytest.mark.covering(6)
@pytest.mark.parametrize("batch", [None, 6])
@pytest.mark.parametrize("sizes", ["equal", "lognormal"])
@pytest.mark.parametrize(
    "method", [FedAvg(lr=0.05), Scaffold(lr=0.05), FedLin(lr=0.05), FedSpeed(lr=0.05)], ids=repr
)
def test_simulate_follows_wire(method, sizes, batch):
    problem = build(
        "softmax-synthetic", clients=8, samples=9, features=5, classes=3, sizes=sizes, l2=0.01
    )
    setting = {"steps": [1, 2, 3, 4] * 2, "batch": batch, "seed": 3}
    if method.participation == "partial":
        setting["cohort"] = 5
    if method.weighted:
        setting["aggregation"] = "weighted-mean"
    fast, slow = Simulate(method, problem, **setting), Wire(method, problem, **setting)
    after(20, fast, slow)
    scale = max(1.0, float(slow.x.abs().max()))
    assert float((fast.x - slow.x).abs().max()) < 1e-12 * scale and fast.ledger == slow.ledger


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("batch", [None, [[0, 2, 4], [3, -1, -1], [1, 11, 7]]])
@pytest.mark.parametrize("sizes", [(5, 20), (14, 27)])
def test_gradients_by_numpy_and_by_torch_are_the_formula(monkeypatch, sizes, batch, l2, one_by_one):
    """In float64 to a few last bits, float32 likewise, with clients of unequal sizes."""
    monkeypatch.setattr(small_matmul, "ONE_BY_ONE", one_by_one)
    a, y, _ = data()
    parts = np.split(np.arange(40), sizes)
    problem = Softmax(a, y, parts, l2=l2)
    assert problem.at().is_small == one_by_one
    W = np.random.default_rng(5).standard_normal((3, 4, 4))
    want = []
    for client, mine in enumerate(parts):
        if batch is not None:
            mine = mine[[j for j in batch[client] if j >= 0]]
        rows = np.column_stack([a[mine], np.ones(len(mine))])
        powers = np.exp(rows @ W[client].T)
        share = powers / powers.sum(1, keepdims=True) - np.eye(4)[y[mine]]
        want.append(share.T @ rows / len(mine) + l2 * W[client])
    given = None if batch is None else torch.tensor(batch)
    for dtype, bound in ((torch.float64, 2e-15), (torch.float32, 1e-6)):
        point = torch.from_numpy(W.reshape(3, -1)).to(dtype)
        got = problem.to(dtype, CPU).at().grad(point, given)
        assert got.dtype == dtype and np.abs(got.view(3, 4, 4).numpy() - want).max() < bound


@pytest.mark.filterwarnings("error")
def test_extreme_scores_by_numpy_are_those_by_torch(monkeypatch):
    """Where all powers but one vanish, where scores are not finite, and without a warning."""
    a, y, _ = data()
    parts, found = [[*range(20)], [*range(20, 40)]], []
    point = 1e4 * torch.from_numpy(np.random.default_rng(5).standard_normal((2, 16)))
    point[1, 3] = math.inf
    for one_by_one in (True, False):
        monkeypatch.setattr(small_matmul, "ONE_BY_ONE", one_by_one)
        found.append(Softmax(a, y, parts).at().grad(point))
    assert found[0][0].isfinite().all() and found[0][1].isnan().any()
    torch.testing.assert_close(*(grad[0] for grad in found), rtol=1e-14, atol=1e-14)


@pytest.mark.skipif(not small_matmul.ONE_BY_ONE, reason="torch has MKL: no products by NumPy")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_client_has_the_same_bits_whoever_is_beside_it(dtype):
    """Several processes share a cohort in parts of any size."""
    features, labels, _ = data(total=7 * 5)
    parts = [[*range(5 * c, 5 * c + 5)] for c in range(7)]
    problem = Softmax(features, labels, parts).to(dtype, torch.device("cpu"))
    y = torch.randn(7, problem.dim, dtype=dtype, generator=torch.Generator().manual_seed(3))
    batch = torch.arange(3).repeat(7, 1)
    for given in ((), (batch,)):
        together = problem.at().grad(y, *given)
        for c in range(7):
            alone = problem.at(np.array([c])).grad(y[c : c + 1], *(b[c : c + 1] for b in given))
            assert torch.equal(together[c], alone[0])


@pytest.mark.covering(48)
@pytest.mark.parametrize("steps", [0, 1, 4, 2 * AFRESH + 5])
@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize("dtype, bound", [(torch.float32, 2e-5), (torch.float64, 2e-14)])
@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize("sizes", [[5, 5, 5], [9, 3, 6], [1, 1, 40]])
@pytest.mark.parametrize("width", [3, 12])
def test_a_descent_is_its_steps_in_turn(
    width, sizes, l2, dtype, bound, one_by_one, steps, monkeypatch
):
    """By gradients, and by inner products where clients have no more samples than features."""
    monkeypatch.setattr(small_matmul, "ONE_BY_ONE", one_by_one)
    features, labels, _ = data(total=sum(sizes), dim=width)
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    problem = Softmax(features, labels, parts, l2=l2, classes=4).to(dtype, CPU)
    assert problem._inner.pays == (max(sizes) <= width + 1)
    drawn = torch.Generator().manual_seed(3)
    start = torch.randn(3, problem.dim, dtype=dtype, generator=drawn)
    expected = start.clone()
    for _ in range(steps):
        expected -= 0.3 * problem.at().grad(expected)
    for y in (start.clone(), start.T.contiguous().T):  # row by row and column by column
        assert problem.at().descend_(y, 0.3, iter(range(steps))) is y
        assert float((y - expected).abs().max()) < bound
    for some in (np.array([2, 0]), np.array([1, 2])):  # with the largest client, and without it
        few = problem.at(some).descend_(start[some].clone(), 0.3, range(steps))
        assert float((few - expected[some]).abs().max()) < bound


def test_float32_at_rest_computes_in_double():
    """Features given in float32 stay so; a run in float64 is as exact as with a float64 copy."""
    a, y, parts = data()
    kept, copied = (
        Softmax(a.astype(np.float32), y, parts),
        Softmax(a.astype(np.float32).astype(float), y, parts),
    )
    x = torch.randn(3, kept.dim, dtype=torch.float64)
    assert kept._table.rows.dtype == torch.float32 and kept.at().grad(x).dtype == torch.float64
    torch.testing.assert_close(kept.at().grad(x), copied.at().grad(x), rtol=1e-14, atol=1e-14)
    assert kept.metrics(x[0]) == copied.metrics(x[0]) and kept.constants == copied.constants
    single = kept.to(torch.float32, CPU)
    assert (
        single._table.rows is kept._table.rows
        and single.at().grad(x.float()).dtype == torch.float32
    )


def test_samples_are_gone_through_in_parts(monkeypatch):
    a, y, parts = data()
    whole, x = Softmax(a, y, parts), torch.randn(16, dtype=torch.float64)
    want = whole.metrics(x), whole.constants.L_mean
    monkeypatch.setattr("undrift.problems.softmax.PASS", 7)
    monkeypatch.setattr("undrift.problems.softmax.ROOM", 1)
    parted = Softmax(a, y, parts)
    assert parted.metrics(x) == pytest.approx(want[0], rel=1e-12)
    assert (parted.constants.L_mean, parted.constants.L) == pytest.approx(
        (want[1], whole.constants.L), rel=1e-12
    )


def test_solve_in_pieces(monkeypatch):
    case = softmax((5, 5, 5, 5))
    v = torch.randn(4, case.problem.dim, dtype=torch.float64)
    want = case.problem.at().solve(v, 0.3)
    monkeypatch.setattr("undrift.problems.softmax.ROOM", 3 * case.problem.dim**2)
    torch.testing.assert_close(case.problem.at().solve(v, 0.3), want, rtol=1e-11, atol=1e-11)


def test_optimum_against_scipy():
    a, y, parts = data()
    problem = Softmax(a, y, parts, l2=0.05)

    def loss(x):
        return problem.metrics(torch.as_tensor(x))["loss"]

    want = minimize(loss, np.zeros(problem.dim), tol=1e-10)
    np.testing.assert_allclose(problem.optimum, want.x, atol=1e-5)
    assert problem.metrics(problem.optimum)["grad_norm"] < 1e-13


def test_no_optimum_is_promised_where_there_are_several_or_it_takes_too_long(monkeypatch):
    a, y, parts = data()
    flat = Softmax(a, y, parts, l2=0.0)
    assert flat.optimum is None and flat.constants.mu == 0 and flat.constants.delta_A is None
    assert flat.metrics(flat.start()).keys() == {"loss", "grad_norm", "accuracy"}
    monkeypatch.setattr("undrift.problems.softmax.REACH", 100)
    assert Softmax(a, y, parts, l2=0.1).optimum is None


@pytest.mark.parametrize("score", [25.0, 800.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_scores_do_not_overflow(score, dtype):
    problem = Softmax([[1.0]], [1], [[0]], l2=0.0, classes=3).to(dtype, CPU)
    for x in (score, -score):
        point = torch.tensor([0.0, 0.0, x, 0.0, 0.0, 0.0], dtype=dtype)
        at = problem.metrics(point)
        others = math.log1p(2 * math.exp(-x)) if x > 0 else math.log(2) - x
        assert at["loss"] == pytest.approx(others, rel=1e-9, abs=1e-15)
        g = problem.at().grad(point.unsqueeze(0))
        assert g.isfinite().all() and float(g[0, 2]) == pytest.approx(
            0.0 if x > 0 else -1.0, abs=1e-7
        )


def bregman(t, s):
    """log sum p exp(t - s) less the mean of t - s under p = softmax(s), in 60 digits."""
    with localcontext(prec=60):
        t, s = ([Decimal(v) for v in values] for values in (t, s))
        p = [(v - max(s)).exp() for v in s]
        d = [a - b for a, b in zip(t, s, strict=True)]
        mean = sum(w * v for w, v in zip(p, d, strict=True)) / sum(p)
        return (sum(w * v.exp() for w, v in zip(p, d, strict=True)) / sum(p)).ln() - mean


def test_divergence_against_sixty_digits():
    rng = np.random.default_rng(0)
    s = rng.standard_normal((5, 40)) * np.repeat([0.1, 3.0, 30.0, 1.0], 10)
    for size in (1e-9, 1e-4, 0.3, 0.99, 2.0, 40.0):
        t = s + size * rng.uniform(-1, 1, s.shape)
        want = [float(bregman(*pair)) for pair in zip(t.T.tolist(), s.T.tolist(), strict=True)]
        np.testing.assert_allclose(
            divergence(torch.as_tensor(t), torch.as_tensor(s)), want, rtol=1e-9, atol=1e-30
        )


def test_smoothness_bounds_the_hessian_and_is_met_by_two_classes():
    problem = Softmax([[3.0], [-1.0]], [0, 1], [[0, 1]], l2=0.25)
    f = problem.at().regularised(torch.zeros(1, 4, dtype=torch.float64), 0.0)

    def largest(x):
        return float(torch.linalg.eigvalsh(f.derivatives(x.unsqueeze(0))[1][0])[-1])

    assert largest(problem.optimum) <= problem.constants.L
    assert largest(problem.start()) == pytest.approx(problem.constants.L, rel=1e-12)


@pytest.mark.parametrize(
    ("features", "labels", "parts", "options", "message"),
    [
        ([[1.0], [2.0]], [1, -1], [[0, 1]], {}, "whole numbers from 0"),
        ([[1.0], [2.0]], [0.0, 1.0], [[0, 1]], {}, "whole numbers from 0"),
        ([[1.0], [2.0]], [0, 2], [[0, 1]], {"classes": 2}, "classes - 1 = 1"),
        ([[1.0], [np.inf]], [1, 0], [[0, 1]], {}, "finite"),
        ([[1.0], [np.nan]], [1, 0], [[0, 1]], {}, "finite"),
        (np.float32([[1.0], [np.inf]]), [1, 0], [[0, 1]], {}, "finite"),
    ],
)
def test_refusals(features, labels, parts, options, message):
    with pytest.raises(ValueError, match=message):
        Softmax(features, labels, parts, **options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("batch", [5, None])
@pytest.mark.parametrize("sizes", ["equal", "lognormal"])
def test_cuda_follows_the_cpu_and_waits_for_nothing_but_the_judgement(sizes, batch, monkeypatch):
    """Also by inner products, which whole batches of equal clients take."""
    problem = build("softmax-synthetic", clients=40, samples=9, sizes=sizes)
    assert problem._inner.pays == (sizes == "equal")
    for dtype, near in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        cpu, gpu = (
            Simulate(
                FedAvg(lr=0.01), problem.to(dtype, torch.device(d)), steps=3, cohort=30, batch=batch
            )
            for d in ("cpu", "cuda")
        )
        gpu.judge = lambda order, down, work: {}
        monkeypatch.setattr(gpu, "_check_server", lambda order, server: None)
        gpu.run_round()
        torch.cuda.set_sync_debug_mode("error")
        try:
            after(4, gpu)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        after(5, cpu)
        assert float((cpu.x - gpu.x.cpu()).abs().max()) < near
        assert cpu.problem.metrics(cpu.x) == pytest.approx(gpu.problem.metrics(cpu.x), rel=1e-9)
