"""What every problem promises, checked against its definition written out as a loop."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.problems.cases import CASES, Case
from undrift.core.problem import Unsupported

CPU = torch.device("cpu")


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]()


@pytest.fixture
def y(case) -> torch.Tensor:
    return points(case, 0)


def points(case: Case, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(
        case.problem.clients, case.problem.dim, dtype=torch.float64, generator=generator
    )


def close(got, want, tol=1e-12):
    torch.testing.assert_close(got, want, rtol=tol, atol=tol)


def test_full_gradients(case, y):
    close(case.problem.at().grad(y), case.grads(y))


def test_gradients_leave_their_input_alone(case, y):
    before = y.clone()
    f = case.problem.at()
    first = f.grad(y)
    kept = first.clone()
    f.grad(y + 1)
    f.grad(y, torch.zeros(case.problem.clients, 1, dtype=torch.int64))
    close(y, before, 0)
    close(first, kept, 0)


def test_single_sample_batches_average_to_the_full_gradient(case, y):
    f = case.problem.at()
    for i, m in enumerate(case.problem.samples):
        each = [
            f.grad(y, torch.full((case.problem.clients, 1), -1).index_fill(0, torch.tensor(i), j))
            for j in range(m)
        ]
        close(torch.stack(each)[:, i].mean(0), case.grad(i, y[i]))


def test_a_batch_is_the_mean_of_its_samples_and_minus_one_is_none(case, y):
    f, last = case.problem.at(), [m - 1 for m in case.problem.samples]
    batch = torch.tensor([[0, m, m // 2] for m in last])
    want = torch.stack([case.grad(i, y[i], [0, m, m // 2]) for i, m in enumerate(last)])
    close(f.grad(y, batch), want)
    holes = torch.stack(
        [torch.full_like(batch[:, 0], -1), batch[:, 0], batch[:, 1], batch[:, 2]], dim=1
    )
    close(f.grad(y, holes), want)


@pytest.mark.parametrize("members", [[0], [2], [1, 2], [2, 0], [1, 1, 0], [0, 0, 2]])
def test_some_clients(case, members):
    f, y = case.problem.at(np.array(members)), points(case, 1)[members]
    close(f.grad(y), torch.stack([case.grad(i, row) for i, row in zip(members, y, strict=True)]))
    ends = [case.problem.samples[i] - 1 for i in members]
    want = [case.grad(i, row, [j]) for i, row, j in zip(members, y, ends, strict=True)]
    close(f.grad(y, torch.tensor(ends).unsqueeze(1)), torch.stack(want))


def test_all_clients_are_gathered_once(case):
    assert (
        case.problem.at()
        is case.problem.at(None)
        is case.problem.at(np.arange(case.problem.clients))
    )


@pytest.mark.parametrize("members", [None, [2, 0]])
def test_solve_meets_its_optimality_condition(case, members):
    f = case.problem.at(None if members is None else np.array(members))
    v = 3 * points(case, 2)[slice(None) if members is None else members]
    if not case.convex:
        with pytest.raises(Unsupported, match="beta"):
            f.solve(v, 1.0)
        return
    for lam in (0.7, 20.0, 0.7):
        y = f.solve(v, lam)
        close(f.grad(y) - v + lam * y, torch.zeros_like(y), 1e-11)


def test_optimum_has_zero_gradient(case):
    best = case.problem.optimum
    if not case.convex:
        assert best is None
        return
    assert best.dtype == torch.float64
    close(case.grads(best.expand(case.problem.clients, -1)).mean(0), torch.zeros_like(best), 1e-12)


def test_metrics(case):
    problem, x = case.problem, points(case, 3)[0]

    def loss(x):
        return float(sum(case.value(i, x) for i in range(problem.clients)) / problem.clients)

    got = problem.metrics(x)
    want = {
        "loss": loss(x),
        "grad_norm": float(case.grads(x.expand(problem.clients, -1)).mean(0).norm()),
    }
    if problem.optimum is not None:
        want["gap"] = loss(x) - loss(problem.optimum)
    for key, value in want.items():
        assert got[key] == pytest.approx(value, rel=1e-10, abs=1e-12), key
    assert ("gap" in got) == ("distance" in got) == case.convex


def test_gap_and_gradient_do_not_cancel_near_the_optimum(case):
    """At distance 1e-11 a difference of losses would be pure rounding."""
    problem = case.problem
    if not case.convex:
        assert problem.optimum is None and "gap" not in problem.metrics(points(case, 4)[0])
        return
    direction = points(case, 4)[0]
    far, near = (problem.metrics(problem.optimum + h * direction) for h in (1e-4, 1e-11))
    assert near["gap"] == pytest.approx(far["gap"] * 1e-14, rel=1e-3)
    assert near["grad_norm"] == pytest.approx(far["grad_norm"] * 1e-7, rel=1e-3, abs=1e-15)
    assert near["distance"] == pytest.approx(far["distance"] * 1e-7, rel=1e-3)
    assert problem.metrics(problem.optimum)["gap"] == 0


def test_constants_bound_the_curvature(case):
    problem, c = case.problem, case.problem.constants
    f = problem.at()
    for seed in range(40):
        # Short steps from random points, so that local curvature is seen, not its average along a
        # long segment.
        x = points(case, seed)[:1].expand(problem.clients, -1)
        step = 1e-3 * points(case, 100 + seed)[:1].expand(problem.clients, -1)
        change, size = f.grad(x + step) - f.grad(x), step.norm(dim=1)
        slack = 1 + 1e-6
        assert (change.norm(dim=1) <= c.L * size * slack).all()
        assert ((change * step).sum(1) >= c.mu * size**2 - 1e-6 * c.L * size**2).all()
        assert change.mean(0).norm() <= c.L_mean * size[0] * slack
        assert change.mean(0) @ step[0] >= c.mu_mean * size[0] ** 2 - 1e-6 * c.L * size[0] ** 2
    assert c.mu <= c.mu_mean <= c.L_mean <= c.L
    assert 0 <= c.delta_A <= c.delta_B * (1 + 1e-12) <= 2 * c.L


def test_deltas_are_those_of_the_hessians(case):
    """Hessians by automatic differentiation at the optimum (anywhere, for quadratics)."""
    problem = case.problem
    x = (
        torch.zeros(problem.dim, dtype=torch.float64)
        if problem.optimum is None
        else problem.optimum
    )
    H = np.stack(
        [
            torch.func.hessian(lambda z, i=i: case.value(i, z))(x).numpy()
            for i in range(problem.clients)
        ]
    )
    D = H - H.mean(0)
    assert problem.constants.delta_B == pytest.approx(
        max(np.linalg.norm(d, 2) for d in D), rel=1e-9
    )
    mean_square = sum(d @ d for d in D) / len(D)
    assert problem.constants.delta_A == pytest.approx(
        np.linalg.norm(mean_square, 2) ** 0.5, rel=1e-9
    )


def test_float32(case, y):
    case.problem.at().grad(y)
    problem = case.problem.to(torch.float32, CPU)
    f, single = problem.at(), y.float()
    batch = torch.zeros(problem.clients, 1, dtype=torch.int64)
    for got, want in (
        (f.grad(single), case.grads(y)),
        (f.grad(single, batch), case.problem.at().grad(y, batch)),
    ):
        assert got.dtype == torch.float32
        close(got.double(), want, 1e-5)
    if case.convex:
        got = f.solve(single, 1.0)
        assert got.dtype == torch.float32
        close(got.double(), case.problem.at().solve(y, 1.0), 1e-5)
    exact = case.problem.metrics(single[0].double())
    assert problem.metrics(single[0]) == exact
    assert problem.constants == case.problem.constants
    if case.convex:
        close(problem.optimum, case.problem.optimum, 0)


def test_precision_can_come_back(case, y):
    back = case.problem.to(torch.float32, CPU).to(torch.float64, CPU)
    assert back is not case.problem
    close(back.at().grad(y), case.problem.at().grad(y), 0)


def test_moving_leaves_the_original_alone(case, y):
    before = case.problem.at()
    case.problem.metrics(y[0])
    case.problem.to(torch.float32, CPU)
    assert case.problem.at() is before and case.problem.at().grad(y).dtype == torch.float64


def test_start(case):
    start = case.problem.start()
    assert start.shape == (case.problem.dim,) and not start.any()
    assert all(np.isfinite(v) for v in case.problem.metrics(start).values())


def test_constants_are_complete(case):
    assert all(isinstance(v, float) for v in dataclasses.asdict(case.problem.constants).values())


def test_facts_that_only_networks_have_are_declared(case):
    problem, x = case.problem, case.problem.start()
    assert (problem.note, problem.class_names, problem.precision) == ("", (), None)
    assert problem.label_counts() is None and problem.augmentation is None
    assert not (problem.keyed or problem.remembers or problem.differentiates)
    assert list(problem.tensors(x)) == ["x"] and problem.tensors(x)["x"] is x
