"""The checks of a network. Each takes what makes it and raises :class:`Failure`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undrift.check.checks import Failure, by_name, close, drawing_nothing, expect, shape_of, stopped
from undrift.core.params import BadParameters
from undrift.models.net import own_net
from undrift.problems.neural.problem import Neural

CLASSES = 5
SHAPES = ((3, 32, 32), (1, 28, 28), (1, 8, 8), (10,))
"""Images, and rows of a table; the first that a network takes is what it is checked with."""
Make = Callable[..., object]


class NetworkTrial(NamedTuple):
    """A network and samples for it."""

    net: nn.Module
    x: Tensor
    y: Tensor


def outputs(make: Make) -> None:
    """It maps samples to a number for each class, however many samples there are."""
    net, x, _ = trial(make)
    for k in (1, 2, len(x)):
        found = net(x[:k])
        expect(
            isinstance(found, Tensor) and tuple(found.shape) == (k, CLASSES),
            f"{k} samples and {CLASSES} classes give {shape_of(found)}, not [{k}, {CLASSES}]",
        )
        expect(found.isfinite().all(), "it gives numbers that are not finite")


def repeats(make: Make) -> None:
    """First weights follow from torch's seed alone, and a trained network draws nothing."""
    with drawing_nothing(allowed="torch", remedy=": draw weights by torch"):
        (net, x, _), again, other = trial(make), trial(make).net, trial(make, seed=1).net
    expect(_equal(net, again), "the same seed gives other first weights")
    expect(not _equal(net, other), "another seed gives the same first weights")
    expect(
        torch.equal(net(x), net(x)),
        "in evaluation mode, two passes differ: leave randomness to training mode",
    )


def samples_apart(make: Make) -> None:
    """What it gives for a sample does not depend on the others in its batch."""
    net, x, _ = trial(make)
    alone = torch.cat([net(x[k : k + 1]) for k in range(len(x))])
    expect(close(alone, net(x), 1e-3), "a sample alone gives other numbers than in a batch")


def parameters(make: Make) -> None:
    """Every parameter has a part in what it gives."""
    net, x, y = trial(make)
    expect(any(p.requires_grad for p in net.parameters()), "it has no parameter to train")
    F.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
    unused = [n for n, p in net.named_parameters() if p.requires_grad and p.grad is None]
    expect(not unused, f"{', '.join(unused)}: never used, and yet sent in every round")


def precision(make: Make) -> None:
    """It computes in float64 as well as in float32."""
    net, x, _ = trial(make)
    short, fine = net(x), net.double()(x.double())
    expect(
        fine.dtype == torch.float64, f"with weights and samples in float64 it gives {fine.dtype}"
    )
    expect(close(fine, short.double(), 1e-2), "its numbers in float64 are others")


def learns(make: Make) -> None:
    """In a federation, which refuses batch statistics, its gradients lower the loss."""
    net, x, y = trial(make)
    parts = [list(range(len(x) // 2)), list(range(len(x) // 2, len(x)))]
    try:
        problem = Neural(net, (x, y), parts)
    except BadParameters as error:
        raise Failure("; ".join(error.problems.values())) from None
    start = problem.start().to(problem.dtype)
    slope = problem.at().grad(start.expand(2, -1).clone()).mean(0)
    expect(slope.isfinite().all() and slope.any(), "its gradient is zero, or not finite")
    before = problem.metrics(start)["loss"]
    step = 1e-3 / max(1.0, float(slope.norm()))
    after = problem.metrics(start - step * slope)["loss"]
    expect(
        after <= before,
        f"a small step along its gradient raises the loss from {before:.6g} to {after:.6g}",
    )


CHECKS = by_name(outputs, repeats, samples_apart, parameters, precision, learns)


def trial(make: Make, seed: int = 0) -> NetworkTrial:
    """The network in evaluation mode, with samples of the first shape for which it gives a number
    for each class, or of the first that it takes at all.
    """
    taken, errors = list[NetworkTrial](), dict[tuple[int, ...], Exception]()
    for shape in _shapes(make):
        x = torch.rand(6, *shape, generator=torch.Generator().manual_seed(0))
        try:
            net = _made(make, shape, seed)
            with torch.random.fork_rng(devices=[]):
                found = net.train(False)(x)
        except Failure:
            raise
        except Exception as error:
            errors[shape] = error
            continue
        taken.append(NetworkTrial(net, x, torch.arange(6) % CLASSES))
        if isinstance(found, Tensor) and tuple(found.shape) == (6, CLASSES):
            return taken[-1]
    if taken:
        return taken[0]
    shapes = ", ".join(f"[{', '.join(['n', *map(str, shape)])}]" for shape in errors)
    first = next(iter(errors.values()))
    raise Failure(
        f"it takes no samples of {shapes}: with the first {stopped(first)}; a network for others "
        "is checked with its problem, a function -> undrift.Problem"
    ) from first


def _shapes(make: Make) -> Iterator[tuple[int, ...]]:
    """Those that are tried: at last rows as long as the network's first linear layer takes."""
    yield from SHAPES
    try:
        layers = _made(make, SHAPES[-1], seed=0).modules()
    except Exception:  # a network for images alone
        return
    widths = [layer.in_features for layer in layers if isinstance(layer, nn.Linear)]
    yield from ((width,) for width in widths[:1] if (width,) not in SHAPES)


def _made(make: Make, shape: tuple[int, ...], seed: int) -> nn.Module:
    """The network for samples of that shape, told what a spec would tell it."""
    net = own_net(make, shape, CLASSES, seed)
    if not isinstance(net, nn.Module):
        raise Failure(f"it gives a {type(net).__name__}, not an nn.Module")
    return net


def _equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
