"""The checks of a problem. Each takes what builds it and raises :class:`Failure`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from undrift.check.checks import (
    CPU,
    FINE,
    Inapplicable,
    by_name,
    close,
    drawing_nothing,
    expect,
    expect_slope,
)
from undrift.check.federations import after
from undrift.core.problem import Problem
from undrift.engines import Simulate, Wire
from undrift.methods.scaffold import Scaffold
from undrift.problems.by_file import OwnProblem

Kind = type[OwnProblem]


def builds(kind: Kind) -> None:
    """Its function builds the same problem again from the same parameters."""
    one, two = kind().build(), kind().build()
    expect(one.digest() == two.digest(), "two calls give problems with different digests")
    expect(torch.equal(one.start(), two.start()), "two calls give different first points")
    x = one.start().to(one.dtype)
    same = torch.equal(_grads(one, x), _grads(two, x)) and one.metrics(x) == two.metrics(x)
    expect(same, "two calls give problems with different numbers: seed all that is drawn")


def sizes(kind: Kind) -> None:
    """clients, dim, samples and the first point fit together."""
    problem = kind().build()
    n, samples = problem.clients, problem.samples
    expect(n >= 1 and problem.dim >= 1, f"clients = {n} and dim = {problem.dim}: at least 1")
    expect(len(samples) == n, f"samples has {len(samples)} numbers for {n} clients")
    expect(min(samples) >= 1, f"client {int(np.argmin(samples))} has no sample")
    start = tuple(problem.start().shape)
    expect(start == (problem.dim,), f"start() has the shape {list(start)}, not [{problem.dim}]")
    grads = tuple(_grads(problem, problem.start().to(problem.dtype)).shape)
    expect(
        grads == (n, problem.dim),
        f"gradients of all clients have the shape {list(grads)}, not [{n}, {problem.dim}]",
    )
    asked = vars(kind()).get("clients", n)
    expect(asked == n, f"asked for {asked} clients, it has {n}")


def gradient(kind: Kind) -> None:
    """The mean of the clients' gradients is the slope of the loss, by finite differences."""
    problem = _fine(kind)
    if problem.differentiates:  # and the loss of a row may be that of test samples
        raise Inapplicable("its gradients are torch's")
    x = _points(problem)[0]
    mean = _mean(problem, x)
    expect_slope(lambda x: problem.metrics(x)["loss"], x, mean)
    found = problem.metrics(x).get("grad_norm")
    if found is not None:
        expect(
            abs(found - float(mean.norm())) <= 1e-8 * max(1.0, found),
            f"grad_norm is {found:.6g}, and the norm of the mean gradient {mean.norm():.6g}",
        )


def members(kind: Kind) -> None:
    """Some clients, in any order, have the gradients that they have among all."""
    problem = _fine(kind)
    y = _points(problem, problem.clients)
    whole = problem.at().grad(y)
    for some in ([problem.clients - 1], [*reversed(range(problem.clients))], [0, 0]):
        found = problem.at(np.array(some)).grad(y[some])
        expect(
            close(found, whole[some]),
            f"at({some}) gives other gradients than these clients have among all",
        )


def batches(kind: Kind) -> None:
    """A batch has the mean gradient of its samples; -1 is no sample."""
    problem = _fine(kind)
    y, f = _points(problem, problem.clients), problem.at()
    few = min(problem.samples)
    positions = torch.arange(few).expand(problem.clients, few)
    each = [f.grad(y, positions[:, j : j + 1]) for j in range(min(few, 6))]
    some = positions[:, : len(each)]
    mean = torch.stack(each).mean(0)
    expect(
        close(f.grad(y, some), mean),
        "the gradient on a batch is not the mean of the gradients on its samples: a loss that "
        "divides by the weights of its batch, as F.cross_entropy with weight does, may stay so; "
        'to mend it take reduction="sum" and divide by len(targets)',
    )
    holes = torch.cat([torch.full_like(some[:, :1], -1), some], 1)
    expect(
        close(f.grad(y, holes), mean),
        "positions of -1 in a batch, which stand for no sample, change its gradient",
    )
    if len(set(problem.samples)) == 1:
        expect(
            close(f.grad(y, positions), f.grad(y)),
            "the gradient on all positions is not the gradient without a batch",
        )


def precision(kind: Kind) -> None:
    """to() gives the same problem in another precision, and leaves this one alone."""
    problem = kind().build()
    before, dtype = problem.metrics(problem.start().to(problem.dtype)), problem.dtype
    short, fine = problem.to(torch.float32, CPU), problem.to(FINE, CPU)
    expect(problem.dtype == dtype, "to() changes the problem itself")
    after = problem.metrics(problem.start().to(problem.dtype))
    expect(after == before, "to() changes the numbers of the problem itself")
    x = fine.start().to(FINE)
    for one, wanted in ((short, torch.float32), (fine, FINE)):
        found = _grads(one, x.to(wanted))
        expect(
            one.dtype == found.dtype == wanted,
            f"to({wanted}) has gradients in {found.dtype}, and dtype says {one.dtype}",
        )
    near = close(_grads(short, x.float()).double(), _grads(fine, x), 1e-3)
    expect(near, "gradients in float32 are far from those in float64")


def purity(kind: Kind) -> None:
    """Gradients and metrics give the same twice, change no argument and draw nothing."""
    problem = kind().build()
    y = _points(problem, problem.clients).to(problem.dtype)
    batch, kept = torch.zeros(problem.clients, 2, dtype=torch.int64), y.clone()
    with drawing_nothing():
        f = problem.at()
        first, row = f.grad(y, batch), problem.metrics(y[0])
        copy = first.clone()
        f.grad(y + 1, batch)
        expect(torch.equal(first, copy), "a later gradient is written over an earlier one")
        expect(torch.equal(f.grad(y, batch), copy), "a gradient is another one the second time")
        expect(problem.metrics(y[0]) == row, "metrics are others the second time")
        expect(torch.equal(y, kept) and not batch.any(), "a gradient changes its arguments")


def engines_agree(kind: Kind) -> None:
    """simulate and wire give the same points, with mini-batches and some of the clients."""
    problem = _fine(kind)
    batch, cohort, method = min(2, *problem.samples), max(1, problem.clients - 1), Scaffold(lr=1e-3)
    fast = after(3, Simulate(method, problem, seed=3, steps=2, batch=batch, cohort=cohort))
    slow = after(3, Wire(method, problem, seed=3, steps=2, batch=batch, cohort=cohort))
    expect(close(fast.x, slow.x, 1e-9), "the engines simulate and wire give different points")


CHECKS = by_name(
    builds, sizes, gradient, members, batches, precision, purity, engines_agree
)  # fmt: skip


def _fine(kind: Kind) -> Problem:
    return kind().build().to(FINE, CPU)


def _points(problem: Problem, rows: int = 1) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    away = torch.randn(rows, problem.dim, generator=draw, dtype=FINE)
    return problem.start().to(CPU, FINE) + 0.3 * away


def _grads(problem: Problem, x: Tensor) -> Tensor:
    return problem.at().grad(x.expand(problem.clients, -1).clone())


def _mean(problem: Problem, x: Tensor) -> Tensor:
    grads = _grads(problem, x)
    if not problem.pooled:
        return grads.mean(0)
    weights = torch.tensor(problem.samples, dtype=FINE)
    return weights @ grads / weights.sum()
