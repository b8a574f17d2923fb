"""How good a model is on some samples: sums over them, which add up over batches and clients."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from undrift._threads import one_thread
from undrift.core.params import BadParameters, about, unknown
from undrift.core.problem import taken
from undrift.core.stopping import EVERYBODY, MEASURED
from undrift.data.files import brief
from undrift.problems.neural.loss import IGNORED, OwnLoss, Totals, called
from undrift.problems.neural.table import Fields, Output, Rows, Table, count, shown, versions

PASS = 512
"""Samples per forward pass on a CPU; ten times as many on a GPU."""
NOBODY = np.array([], dtype=np.int64)
OF_TRAINING = "train_"
"""What the names of metrics on training samples begin with."""
OURS = ("loss", "gap", "distance", "grad_norm", MEASURED, EVERYBODY)
"""Metrics that have a meaning of their own."""

Columns = tuple[Tensor, Tensor | None]
"""For each sample a number per metric ``[n, k]``, and how much those count (``None``: 1)."""
Values = Tensor | tuple[Tensor, Tensor] | Totals
Metric = Callable[[Output, Output], Values]
"""Of outputs and targets: a number for each sample; or numbers and weights, for a weighted mean."""


class Judge:
    """A loss and metrics, by name.

    Of those that are ``counted`` a mean is a sum over counts; of the others every sample counts
    alike.
    """

    def __init__(
        self,
        loss: Callable[[Output, Output], Values],
        metrics: Mapping[str, Metric],
        counted: frozenset[str] = frozenset(),
    ):
        self.loss, self.metrics, self.counted = loss, dict(metrics), counted
        self.names = ("loss", *metrics)
        self.roots = {name for name, metric in metrics.items() if metric is root_mean_square}

    @classmethod
    def of(
        cls, own: OwnLoss, metrics: Mapping[str, Metric], counted: frozenset[str] = frozenset()
    ) -> Judge:
        return cls(own.values, metrics, counted | {"loss"} if own.counted else counted)

    @property
    def by_counts(self) -> list[int]:
        """The columns of those that are counted."""
        return [k for k, name in enumerate(self.names) if name in self.counted]

    def columns(self, outputs: Output, targets: Output) -> Columns:
        found, total = [self.loss(outputs, targets)], count(targets)
        for name, metric in self.metrics.items():
            with about("Neural", "metrics"):
                values = _found(name, metric, outputs, targets, total)
                if isinstance(values, tuple) != (name in self.counted):
                    raise ValueError(
                        f"the metric {name} gives weights for some samples and none for others; "
                        "make it give them always"
                    )
            found.append(values)
        values, counts = (torch.stack(part, -1) for part in zip(*map(_totals, found), strict=True))
        return values, counts if self.counted else None

    def means(self, totals: Tensor) -> dict[str, float]:
        """What :func:`added` has found, by name."""
        found = dict(zip(self.names, (totals[0] / totals[1]).tolist(), strict=True))
        return {name: v**0.5 if name in self.roots else v for name, v in found.items()}


def _totals(found: Values) -> Totals:
    """Sums and counts; a number that does not count may be anything."""
    if isinstance(found, Totals):
        return Totals(*(v.double() for v in found))
    if not isinstance(found, tuple):
        return Totals(found.double(), torch.ones_like(found, dtype=torch.float64))
    values, weights = (v.double() for v in found)
    return Totals((values * weights).where(weights != 0, 0.0), weights)


class Classes(Judge):
    """Cross-entropy, accuracy, and how often a label is among the five largest logits."""

    def __init__(self) -> None:
        super().__init__(cross_entropy, {"accuracy": accuracy, "top5": top5})

    def columns(self, outputs: Output, targets: Output) -> Columns:
        logits = outputs.double()
        best = _best(logits, targets)
        shares = [cross_entropy(logits, targets), best[:, 0].double(), best.any(-1).double()]
        return torch.stack(shares, dim=-1), None


class Judged(NamedTuple):
    """Samples of a table that are judged, each with its weight, and how they are passed on."""

    table: Table
    numbers: np.ndarray
    weights: np.ndarray
    passes: list[slice]
    passes_of_parts: list[int] | None = None
    """How many passes each part has, where a mean by counts is the mean of the parts' means."""

    @classmethod
    def of(
        cls,
        table: Table,
        parts: Sequence[np.ndarray],
        weights: Sequence[float],
        alone: bool,
        device: torch.device,
        alike: bool = False,
    ) -> Judged:
        """Every sample of ``parts[i]`` weighs ``weights[i]``; where they are seen ``alone``, or
        the means of parts by counts count ``alike``, no pass has samples of several parts.
        """
        sizes = [len(part) for part in parts]
        each = np.repeat(np.asarray(weights, dtype=float), sizes)
        size = PASS if device.type == "cpu" else 10 * PASS
        passes = _pieces(sizes if alone or alike else [sum(sizes)], size)
        of_parts = [-(-n // size) for n in sizes] if alike else None
        return cls(table, np.concatenate([NOBODY, *parts]), each, passes, of_parts)


@torch.no_grad()
def judged(
    model: Callable[[Fields], Output],
    prepare: Callable[[Rows], Rows],
    judge: Judge,
    given: Judged,
    device: torch.device,
    which: slice = slice(None),
) -> Tensor:
    """Weighted sums ``[P, 2 k]`` of every forward pass, or of some: of what ``judge`` finds, and of
    how much it counts, where that is counted.
    """
    found = [torch.zeros(0, 2 * len(judge.names), dtype=torch.float64, device=device)]
    for piece in given.passes[which]:
        chosen, share = (
            torch.from_numpy(a[piece]).to(device) for a in (given.numbers, given.weights)
        )
        x, targets = prepare(given.table.take(chosen))
        values, counts = judge.columns(model(x), targets)
        with one_thread():  # some libraries add up in an order that follows from their threads
            total = share @ values
            counted = torch.zeros_like(total) if counts is None else share @ counts
        found.append(torch.cat([total, counted]).unsqueeze(0))
    return torch.cat(found)


@torch.no_grad()
def of_each_part(
    model: Callable[[Fields], Output],
    prepare: Callable[[Rows], Rows],
    judge: Judge,
    given: Judged,
    sizes: Sequence[int],
    device: torch.device,
) -> dict[str, Tensor]:
    """Means ``[C]`` over each of the parts of these sizes that ``given`` was made of.

    NaN where nothing counts, as in a part without samples; a loss that is not a number is infinite.
    """
    found = [torch.zeros(0, 2 * len(judge.names), dtype=torch.float64, device=device)]
    for piece in given.passes:
        chosen = torch.from_numpy(given.numbers[piece]).to(device)
        x, targets = prepare(given.table.take(chosen))
        values, counts = judge.columns(model(x), targets)
        found.append(torch.cat([values, torch.ones_like(values) if counts is None else counts], 1))
    lengths = torch.tensor(sizes, device=device)
    values, counts = torch.segment_reduce(torch.cat(found), "sum", lengths=lengths).chunk(2, 1)
    values[:, 0].masked_fill_(values[:, 0].isnan(), torch.inf)
    means = dict(zip(judge.names, (values / counts).unbind(1), strict=True))
    return {name: v.sqrt() if name in judge.roots else v for name, v in means.items()}


def added(pieces: Tensor, judge: Judge, given: Judged) -> Tensor:
    """The sums of all passes, one after another, and how much they count: ``[2, k]``."""
    totals = torch.zeros(pieces.shape[1], dtype=torch.float64, device=pieces.device)
    for piece in pieces:
        totals += piece
    totals = totals.view(2, -1)
    size = totals.shape[1]
    for k in set(range(size)) - set(judge.by_counts):
        totals[1, k] = given.weights.sum()
    if given.passes_of_parts is not None:
        lengths = torch.tensor(given.passes_of_parts, device=pieces.device)
        for k in judge.by_counts:
            of_parts = torch.segment_reduce(pieces[:, [k, size + k]], "sum", lengths=lengths)
            sums, counts = of_parts.unbind(1)
            known = counts != 0
            totals[0, k], totals[1, k] = (sums[known] / counts[known]).sum(), known.sum()
    return totals


def _pieces(sizes: Sequence[int], most: int) -> list[slice]:
    """Parts of these sizes, one after another, in pieces of at most so many."""
    ends = np.cumsum([0, *sizes]).tolist()
    spans = itertools.pairwise(ends)
    return [slice(k, min(k + most, end)) for start, end in spans for k in range(start, end, most)]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.double(), labels, reduction="none")


def accuracy(
    outputs: Tensor, targets: Tensor, limit: float = 0.0, ignored: int | None = None
) -> Values:
    """How many answers of each sample are right, and of how many.

    Classes are whole numbers, their scores along the second axis. Where targets are numbers from 0
    to 1, an output above ``limit`` is a yes. Targets that the loss has ``ignored`` do not count;
    at positions these are cross-entropy's usual ones unless told otherwise.
    """
    if targets.is_floating_point():
        return _each((outputs > limit) == (targets > 0.5))
    if targets.dim() == 1:
        return _counted(_best(outputs, targets)[:, 0], targets, ignored)
    counted = targets != (IGNORED if ignored is None else ignored)
    right = (outputs.argmax(1) == targets) & counted
    return Totals(right.flatten(1).sum(1).double(), counted.flatten(1).sum(1).double())


def top5(outputs: Tensor, targets: Tensor, ignored: int | None = None) -> Values:
    """Whether a label is among the five largest logits."""
    return _counted(_best(outputs, targets).any(-1), targets, ignored)


def _counted(right: Tensor, targets: Tensor, ignored: int | None) -> Values:
    """Whether each sample is right, of those whose target is not ``ignored``."""
    if ignored is None:
        return right.double()
    counted = targets != ignored
    return Totals((right & counted).double(), counted.double())


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return _each((outputs - targets).square())


def root_mean_square(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squares, of whose mean over all samples the root is taken."""
    return squared_error(outputs, targets)


def absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return _each((outputs - targets).abs())


METRICS: Mapping[str, Metric] = {
    "accuracy": accuracy,
    "top5": top5,
    "mse": squared_error,
    "rmse": root_mean_square,
    "mae": absolute_error,
}
COMPARING = (squared_error, root_mean_square, absolute_error)
"""Metrics of outputs and targets of the same shape."""


def chosen(given: object) -> dict[str, Metric]:
    """Metrics by their names; functions are called what Python calls them."""
    if isinstance(given, str) or callable(given):
        given = [given]
    if isinstance(given, Mapping):
        named = dict(given)
    elif isinstance(given, Sequence):
        named = {one if isinstance(one, str) else called(one): one for one in given}
        if len(named) < len(given):
            names = [one if isinstance(one, str) else called(one) for one in given]
            twice = next(name for name in names if names.count(name) > 1)
            text = f"two metrics are called {twice!r}: give {{name: metric}} with other names"
            raise BadParameters("Neural", {"metrics": text})
    else:
        raise TypeError(f"metrics must be names or functions; got {given!r}")
    found: dict[str, Metric] = {}
    for name, metric in named.items():
        if isinstance(metric, str) and metric not in METRICS:
            raise BadParameters("Neural", {"metrics": unknown("metric", metric, METRICS)})
        if isinstance(metric, type):
            raise TypeError(f"metric {name!r} is a class; give {name}()")
        if not isinstance(metric, str) and not callable(metric):
            raise TypeError(f"metric {name!r} must be a name or a function; got {metric!r}")
        if why := _misnamed(name):
            text = f"{why}; give {{name: function}} with another name"
            raise BadParameters("Neural", {"metrics": text})
        found[name] = METRICS[metric] if isinstance(metric, str) else metric
    return found


def _misnamed(name: object) -> str:
    """Why a metric of the user's cannot be called so; empty if it can."""
    if not isinstance(name, str) or not name.isidentifier():
        return f"a metric cannot be called {name!r}: names are letters, digits and _"
    if name in OURS:
        return f"a metric cannot be called {name!r}: rows have another column of that name"
    if name.startswith(OF_TRAINING):
        return f"a metric cannot be called {name!r}: those on training samples begin with train_"
    return taken(name)


CALLED = "it is called as metric(outputs, targets)"


def try_metrics(
    metrics: Mapping[str, Metric], outputs: Output, targets: Fields, remedy: str = CALLED
) -> frozenset[str]:
    """Refuse a metric that does not give a number for each of these samples.

    ``remedy`` is what to do about one that fails. Returns those that give weights, or counts, too.
    """
    counted = set[str]()
    for name, metric in metrics.items():
        alike = isinstance(targets, Tensor) and getattr(outputs, "shape", None) == targets.shape
        if metric in COMPARING and not alike:
            raise ValueError(
                f"{name} compares outputs with targets of the same shape, not {shown(outputs)} "
                f"with {shown(targets)}; give a function of yours, or another metric"
            )
        before = versions(outputs, targets)
        found = _found(name, metric, outputs, targets, count(targets), remedy)
        if versions(outputs, targets) != before:
            raise ValueError(
                f"the metric {name} writes to its outputs or targets, which others need too; "
                "compute without operations in place"
            )
        if isinstance(found, tuple):
            counted.add(name)
    return frozenset(counted)


def _found(
    name: str,
    metric: Metric,
    outputs: Output,
    targets: Fields,
    total: int,
    remedy: str = CALLED,
) -> Values:
    """What a metric gives for so many samples; refused unless that is a number for each."""
    try:
        found = metric(outputs, targets)
    except Exception as error:  # a user's function may fail in any way
        raise ValueError(
            f"the metric {name} does not take outputs {shown(outputs)} and targets "
            f"{shown(targets)}: {brief(error)}; {remedy}"
        ) from error
    if isinstance(found, tuple) and len(found) != 2:
        raise ValueError(
            f"the metric {name} gives a tuple of {len(found)}; make it give a tensor, or a "
            "pair of numbers and their weights"
        )
    for values in found if isinstance(found, tuple) else (found,):
        if not isinstance(values, Tensor) or tuple(values.shape) != (total,):
            got = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            samples = "one sample" if total == 1 else f"{total} samples"
            remedy = "make it give a tensor with one number for each: their mean is taken here"
            if total == 1 and isinstance(values, Tensor) and not values.dim():
                remedy = "make it give [1], as by .squeeze(1) in the place of .squeeze()"
            raise ValueError(f"the metric {name} gives {got} for {samples}; {remedy}")
    return found


def _best(logits: Tensor, labels: Tensor) -> Tensor:
    """Whether each of the five largest logits is the label's."""
    return logits.topk(min(5, logits.shape[-1])).indices == labels.unsqueeze(-1)


def _each(values: Tensor) -> Tensor:
    """A number for each sample, the mean of its own."""
    return values.double().flatten(1).mean(1) if values.dim() > 1 else values.double()


def thresholded(metrics: Mapping[str, Metric], limit: float) -> dict[str, Metric]:
    """The same where an output above ``limit`` is a yes."""
    at = functools.partial(accuracy, limit=limit)
    return {name: at if metric is accuracy else metric for name, metric in metrics.items()}


def ignoring(metrics: Mapping[str, Metric], ignored: int) -> dict[str, Metric]:
    """The same without the targets that a loss leaves out."""
    known = (accuracy, top5)
    return {
        name: functools.partial(metric, ignored=ignored) if metric in known else metric
        for name, metric in metrics.items()
    }
