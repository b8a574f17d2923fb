"""Metrics of a model on some samples: sums over them, which add up over passes and clients."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from undrift._threads import one_thread
from undrift.core.params import about, unknown
from undrift.core.problem import taken
from undrift.core.stopping import EVERYBODY, MEASURED
from undrift.data.files import brief
from undrift.problems.neural.data import Fields, Output, SampleRows, cat, count, shown
from undrift.problems.neural.loss import IGNORED, Totals, called, sample_means
from undrift.problems.neural.overall import OVERALL, Overall

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


class Scoring:
    """A loss and metrics, by name.

    Of those that are ``counted`` a mean is a sum over counts; of the others every sample counts
    alike. Those that are ``overall`` are no means.
    """

    def __init__(
        self,
        loss: Callable[[Output, Output], Values],
        metrics: Mapping[str, Metric | Overall],
        counted: frozenset[str] = frozenset(),
    ):
        self.loss, self.counted = loss, counted
        self.overall = {name: one for name, one in metrics.items() if isinstance(one, Overall)}
        self.metrics = {n: one for n, one in metrics.items() if not isinstance(one, Overall)}
        self.names = ("loss", *self.metrics)
        self.roots = {name for name, metric in metrics.items() if metric is root_mean_square}

    def columns(self, outputs: Output, targets: Output) -> Columns:
        found, total = [self.loss(outputs, targets)], count(targets)
        for name, metric in self.metrics.items():
            with about("Neural", "metrics"):
                found.append(_found(name, metric, outputs, targets, total))
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
    # 0 * NaN is NaN: a sample that has no weight must not spoil the sum.
    return Totals((values * weights).where(weights != 0, 0.0), weights)


class ClassScoring(Scoring):
    """Cross-entropy, accuracy, and with more than five ``classes`` how often a label is among the
    five largest logits.
    """

    def __init__(self, classes: int) -> None:
        usual = {"accuracy": accuracy} | ({"top5": top5} if classes > 5 else {})
        super().__init__(cross_entropy, usual)

    def columns(self, outputs: Output, targets: Output) -> Columns:
        logits = outputs.double()
        # The five largest once, for both metrics.
        best = _best(logits, targets)
        shares = [cross_entropy(logits, targets), best[:, 0].double(), best.any(-1).double()]
        return torch.stack(shares[: len(self.names)], dim=-1), None


class EvaluationSet(NamedTuple):
    """Samples of a table that are judged, each with its weight, and how they are passed on."""

    table: SampleRows
    numbers: np.ndarray
    weights: np.ndarray
    passes: list[slice]
    passes_of_parts: list[int] | None = None
    """How many passes each part has, where a mean by counts is the mean of the parts' means."""

    @classmethod
    def of(
        cls,
        table: SampleRows,
        parts: Sequence[np.ndarray],
        weights: Sequence[float],
        alone: bool,
        device: torch.device,
        alike: bool = False,
    ) -> EvaluationSet:
        """Every sample of ``parts[i]`` weighs ``weights[i]``; where they are seen ``alone``, or
        the means of parts by counts count ``alike``, no pass has samples of several parts.
        """
        sizes = [len(part) for part in parts]
        each = np.repeat(np.asarray(weights, dtype=float), sizes)
        # The size of a pass depends on nothing else, so that sums are the same in every run.
        size = PASS if device.type == "cpu" else 10 * PASS
        passes = _pieces(sizes if alone or alike else [sum(sizes)], size)
        of_parts = [-(-n // size) for n in sizes] if alike else None
        return cls(table, np.concatenate([NOBODY, *parts]), each, passes, of_parts)


@torch.no_grad()
def evaluated(
    model: Callable[[Fields], Output],
    prepare: Callable[[SampleRows], SampleRows],
    scoring: Scoring,
    given: EvaluationSet,
    piece: slice,
    device: torch.device,
) -> Tensor:
    """Weighted sums ``[2 k]`` of a forward pass: of what is measured, and of how much it counts,
    where that is counted.
    """
    chosen, share = (torch.from_numpy(a[piece]).to(device) for a in (given.numbers, given.weights))
    x, targets = prepare(given.table.take(chosen))
    values, counts = scoring.columns(model(x), targets)
    with one_thread():  # some libraries add up in an order that follows from their threads
        total = share @ values
        counted = torch.zeros_like(total) if counts is None else share @ counts
    return torch.cat([total, counted])


@torch.no_grad()
def of_each_part(
    model: Callable[[Fields], Output],
    prepare: Callable[[SampleRows], SampleRows],
    scoring: Scoring,
    given: EvaluationSet,
    sizes: Sequence[int],
    device: torch.device,
) -> dict[str, Tensor]:
    """Means ``[C]`` over each of the parts of these sizes that ``given`` was made of.

    NaN where nothing counts, as in a part without samples; a loss that is not a number is infinite.
    """
    found = [torch.zeros(0, 2 * len(scoring.names), dtype=torch.float64, device=device)]
    for piece in given.passes:
        chosen = torch.from_numpy(given.numbers[piece]).to(device)
        x, targets = prepare(given.table.take(chosen))
        values, counts = scoring.columns(model(x), targets)
        found.append(torch.cat([values, torch.ones_like(values) if counts is None else counts], 1))
    lengths = torch.tensor(sizes, device=device)
    values, counts = torch.segment_reduce(torch.cat(found), "sum", lengths=lengths).chunk(2, 1)
    # NaN is left for parts without samples: a loss that is not a number must not look like one.
    values[:, 0].masked_fill_(values[:, 0].isnan(), torch.inf)
    means = dict(zip(scoring.names, (values / counts).unbind(1), strict=True))
    return {name: v.sqrt() if name in scoring.roots else v for name, v in means.items()}


@torch.no_grad()
def predicted(
    model: Callable[[Fields], Output],
    prepare: Callable[[SampleRows], SampleRows],
    given: EvaluationSet,
    device: torch.device,
) -> SampleRows:
    """All outputs in the place of the inputs, and the targets, on the CPU."""
    # On the CPU pass by pass: all outputs at once may be more than a GPU has room for.
    found = []
    for piece in given.passes:
        x, targets = prepare(given.table.take(torch.from_numpy(given.numbers[piece]).to(device)))
        found.append(SampleRows(model(x), targets).to(torch.device("cpu")))
    return cat(found)


def added(pieces: Tensor, scoring: Scoring, given: EvaluationSet) -> Tensor:
    """The sums of all passes, one after another, and how much they count: ``[2, k]``."""
    # One after another, not by sum(): ranks hold some of the passes each, and the order of the
    # additions must not tell how many ranks there are.
    size = len(scoring.names)
    totals = torch.zeros(2, size, dtype=torch.float64, device=pieces.device)
    for piece in pieces:
        totals += piece.view(2, size)
    by_counts = [k for k, name in enumerate(scoring.names) if name in scoring.counted]
    for k in set(range(size)) - set(by_counts):
        totals[1, k] = given.weights.sum()
    if given.passes_of_parts is not None:
        lengths = torch.tensor(given.passes_of_parts, device=pieces.device)
        for k in by_counts:
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
        return sample_means(((outputs > limit) == (targets > 0.5)).double())
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
    return sample_means((outputs - targets).square().double())


def root_mean_square(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squares, of whose mean over all samples the root is taken."""
    return squared_error(outputs, targets)


def absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return sample_means((outputs - targets).abs().double())


METRICS: Mapping[str, Metric | Overall] = {
    "accuracy": accuracy,
    "top5": top5,
    "mse": squared_error,
    "rmse": root_mean_square,
    "mae": absolute_error,
    **OVERALL,
}
COMPARING = (squared_error, root_mean_square, absolute_error)
"""Metrics of outputs and targets of the same shape."""


def chosen(given: object) -> dict[str, Metric | Overall]:
    """Metrics by their names; functions are called what Python calls them."""
    several = given if isinstance(given, Mapping | list | tuple) else [given]
    pairs = [(one if isinstance(one, str) else called(one), one) for one in several]
    if isinstance(several, Mapping):
        pairs = [*several.items()]
    found: dict[str, Metric | Overall] = {}
    for name, metric in pairs:
        function = METRICS.get(metric) if isinstance(metric, str) else metric
        if isinstance(function, type) or not (callable(function) or isinstance(function, Overall)):
            raise ValueError(unknown("metric", str(metric), METRICS) + ", or give a function")
        used = name in OURS or name.startswith(OF_TRAINING) or taken(name)
        if used or not name.isidentifier() or name in found:
            raise ValueError(
                f"a metric cannot be called {name!r}: names are words that rows use for nothing "
                "else; give {name: metric}"
            )
        found[name] = function
    return found


def try_metrics(metrics: Mapping[str, Metric], outputs: Output, targets: Fields) -> frozenset[str]:
    """Refuse a metric that does not give a number for each of these samples.

    Returns those that give weights, or counts, too.
    """
    counted = set[str]()
    for name, metric in metrics.items():
        alike = isinstance(targets, Tensor) and getattr(outputs, "shape", None) == targets.shape
        if metric in COMPARING and not alike:  # torch would broadcast them
            raise ValueError(
                f"{name} compares outputs with targets of the same shape, not {shown(outputs)} "
                f"with {shown(targets)}; give a function of yours, or another metric"
            )
        if isinstance(_found(name, metric, outputs, targets, count(targets)), tuple):
            counted.add(name)
    return frozenset(counted)


def _found(name: str, metric: Metric, outputs: Output, targets: Fields, total: int) -> Values:
    """What a metric gives for so many samples; refused unless that is a number for each."""
    try:
        found = metric(outputs, targets)
    except Exception as error:  # a user's function may fail in any way
        raise ValueError(
            f"the metric {name} is called as metric(outputs, targets) and does not take "
            f"{shown(outputs)} and {shown(targets)}: {brief(error)}"
        ) from error
    parts = found if isinstance(found, tuple) and len(found) == 2 else (found,)
    if not all(isinstance(v, Tensor) and v.shape == (total,) for v in parts):
        raise ValueError(
            f"the metric {name} must give a tensor with one number for each sample, here [{total}],"
            f" or a pair of numbers and their weights; got {[*map(shown, parts)]}. One number of "
            f"all samples is that of undrift.Overall({name})"
        )
    return found


def _best(logits: Tensor, labels: Tensor) -> Tensor:
    """Whether each of the five largest logits is the label's."""
    return logits.topk(min(5, logits.shape[-1])).indices == labels.unsqueeze(-1)


def adapted(
    metrics: Mapping[str, Metric | Overall], limit: float = 0.0, ignored: int | None = None
) -> dict[str, Metric | Overall]:
    """The same where an output above ``limit`` is a yes, and targets that are ``ignored`` do not
    count.
    """
    if not limit and ignored is None:
        return dict(metrics)
    changed: dict[Metric | Overall, Metric | Overall] = {
        accuracy: functools.partial(accuracy, limit=limit, ignored=ignored),
        top5: functools.partial(top5, ignored=ignored),
        **{
            one: Overall(functools.partial(one.function, limit=limit, ignored=ignored))
            for one in OVERALL.values()
        },
    }
    return {name: changed.get(metric, metric) for name, metric in metrics.items()}
