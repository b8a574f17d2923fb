"""The loss and the metrics of a network, chosen by what it makes of two samples."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn

from undrift.core.params import BadParameters, about
from undrift.data.files import brief
from undrift.objectives.base import Objective
from undrift.objectives.crossentropy import CrossEntropy
from undrift.problems.neural import input as given
from undrift.problems.neural import loss as losses
from undrift.problems.neural.loss import LocalLoss, OwnLoss
from undrift.problems.neural.measure import (
    Classes,
    Judge,
    Metric,
    accuracy,
    chosen,
    cross_entropy,
    ignoring,
    thresholded,
    try_metrics,
)
from undrift.problems.neural.network import FlatNetwork
from undrift.problems.neural.oracle import Placed
from undrift.problems.neural.table import (
    Fields,
    Held,
    Rows,
    count,
    leaves,
    mapped,
    shown,
    versions,
)


class Choice(NamedTuple):
    """What is minimised, what is measured, and the names of the classes, if samples have some."""

    loss: LocalLoss
    judge: Judge
    classes: tuple[str, ...]


def choose(
    placed: Placed,
    names: tuple[str, ...] | None,
    loss: object,
    objective: object,
    metrics: object,
) -> Choice:
    """Refuses what the network, the loss and the metrics cannot do with these samples.

    ``names`` are those of the classes, where they are known.
    """
    if loss is not None and objective is not None:
        raise BadParameters("Neural", {"loss": "loss and objective are both losses: give one"})
    network, rows = placed.network, placed.few()
    _try_tokens(placed)
    with about("Neural", "module"):
        output, trained = _outputs(network, rows)
        if names is not None:
            for logits in (trained, output):
                given.refuse_logits(logits, count(rows.x), len(names))
        single = _single(network, rows, output)
    classes = _classes(output, rows.y) if names is None else names
    usual = classes and losses.plain_cross_entropy(loss, [placed.samples.train.y, *_judged(placed)])
    wanted = None if metrics is None else _chosen(metrics)
    if objective is not None or loss is None or usual:
        with about("Neural", "objective" if objective is not None else "loss"):
            local: LocalLoss = _objective(placed, objective, output, rows, classes)
        judge = Classes() if wanted is None else Judge(cross_entropy, wanted)
    else:
        with about("Neural", "loss"):
            local = own = given.repeatable(
                "the loss", lambda: _own(placed, loss, trained, rows), "draw them in the network"
            )
        judge = _judge(own, wanted, output, rows.y)
    with about("Neural", "metrics"):
        judge.counted |= try_metrics(judge.metrics, output, rows.y)
        try_metrics(judge.metrics, single, rows.mapped(lambda v: v[:1]).y)
    if placed.samples.test is not None:
        with about("Neural", "test", "test data: "):
            _try_test(placed, local, judge)
    return Choice(local, judge, classes if _in_range(placed, len(classes)) else ())


def try_placed(placed: Placed) -> None:
    """Refuse what does not work in the precision and on the device that all was moved to."""
    rows, judge = placed.few(), placed.judge
    where = f"in {str(placed.dtype).removeprefix('torch.')} on {placed.device}: "
    with about("Neural", "module", where):
        output = placed.network.trial(rows.x, training=False, moved=True)
    if isinstance(placed.objective, OwnLoss):
        with about("Neural", "loss", where), torch.no_grad():
            try:
                placed.objective.function(output, rows.y)
            except Exception as error:  # a user's function may fail in any way
                losses.refuse_failed(placed.objective.name, error, output, rows.y, HELD)
    with about("Neural", "metrics", where), torch.no_grad():
        try_metrics(judge.metrics, output, rows.y, HELD)


HELD = (
    "a tensor that a function holds stays as it was: write tensor.to(outputs), or give it by "
    "functools.partial to a loss"
)
"""What to do where a function does not follow to another precision or device."""


def _try_test(placed: Placed, local: LocalLoss, judge: Judge) -> None:
    """Refuse test samples that are not of the same kind."""
    rows, table = placed.few(test=True), placed.samples.test
    output = placed.network.trial(rows.x, training=False)
    if isinstance(local, OwnLoss):
        losses.own(local.function, output, rows.y, None if table is None else table.y)
    elif not _classes(output, rows.y):
        _refuse_targets(type(local).__name__, True, output, rows.y)
    try_metrics(judge.metrics, output, rows.y)


def _try_tokens(placed: Placed) -> None:
    """Refuse whole numbers that the network has no place for, such as tokens without embedding."""
    tables = {"train": placed.samples.train, "test": placed.samples.test}
    for name, table in tables.items():
        if not isinstance(table, Held):
            continue
        for v in leaves(table.rows.x):
            if v.dtype in (torch.uint8, torch.bool) or v.is_floating_point() or not v.numel():
                continue
            rows = v.reshape(len(v), -1).long()
            ends = torch.stack([rows.amin(1).argmin(), rows.amax(1).argmax()])
            x = placed.prepared(table.take(ends)).x
            failure = placed.network.failure(x)
            zeros = mapped(lambda v: v if v.is_floating_point() else torch.zeros_like(v), x)
            if failure is None or placed.network.failure(zeros) is not None:
                continue
            low, high = int(rows.min()), int(rows.max())
            remedy = "number them from 0" if low < 0 else f"give its embedding {high + 1} rows"
            text = (
                f"inputs of {name} are {low} to {high}, which the network does not take: "
                f"{brief(failure)}; {remedy}"
            )
            raise BadParameters("Neural", {name: text})


def _chosen(metrics: object) -> dict[str, Metric]:
    with about("Neural", "metrics"):
        return chosen(metrics)


def _outputs(network: FlatNetwork, rows: Rows) -> tuple[object, object]:
    """What the network makes of some samples when it is judged, and when it is trained."""
    output = given.repeatable(
        "the network in evaluation mode",
        lambda: network.trial(rows.x, training=False),
        "let it draw only while self.training, as F.dropout(x, p, self.training) does",
    )
    trained, network.draws = given.drawing(
        "the network", lambda: network.trial(rows.x, training=True)
    )
    given.refuse_memory(network.net, network.own(training=True))
    return output, trained


def _single(network: FlatNetwork, rows: Rows, output: object) -> object:
    """What the network makes of the first sample by itself; ``output`` is that of two."""
    single = network.trial(rows.mapped(lambda v: v[:1]).x, training=False)
    if isinstance(single, Tensor) and isinstance(output, Tensor) and single.dim() != output.dim():
        raise ValueError(
            f"the network gives {list(single.shape)} for one sample and {list(output.shape)} for "
            f"{len(output)}; keep the first axis, as by .squeeze(1) in the place of .squeeze()"
        )
    return single


def _classes(output: object, targets: Fields) -> tuple[str, ...]:
    """The numbers of the classes, where targets look like classes."""
    if not isinstance(targets, Tensor) or targets.dim() != 1 or targets.dtype != torch.int64:
        return ()
    if not isinstance(output, Tensor) or output.dim() != 2:
        return ()
    return tuple(map(str, range(output.shape[1])))


def _in_range(placed: Placed, classes: int) -> bool:
    return all(low >= 0 and high < classes for low, high in _labels(placed))


def _labels(placed: Placed) -> list[tuple[int, int]]:
    """The smallest and the largest label of each table whose labels are known."""
    tables = [table for table in (placed.samples.train, placed.samples.test) if table is not None]
    known = [table.y for table in tables if isinstance(table.y, Tensor)]
    return [(int(y.min()), int(y.max())) for y in known if not y.is_floating_point()]


def _objective(
    placed: Placed, wanted: object, output: object, rows: Rows, classes: tuple[str, ...]
) -> Objective:
    """One of undrift's own losses, all of which are for classes."""
    objective = CrossEntropy() if wanted is None else given.objective(wanted)
    if not classes:
        _refuse_targets(type(objective).__name__, wanted is None, output, rows.y)
    if not _in_range(placed, len(classes)):
        low, high = min(low for low, _ in _labels(placed)), max(high for _, high in _labels(placed))
        raise ValueError(losses.refused_classes(low, high, len(classes)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a trial is nobody's business
        trained, _ = _differentiable(placed, rows)
    if not trained.requires_grad:
        raise ValueError(
            "the network's outputs do not depend on its weights: nothing to train; leave out "
            ".detach() and torch.no_grad() in its forward"
        )
    given.refuse_inside(placed.network.net, objective)
    return objective


def _refuse_targets(name: str, default: bool, output: object, targets: Fields) -> NoReturn:
    """Why there are no classes, and what to do."""
    shape, got = shown(targets), shown(output)
    text = f"{name} needs a class for each sample, whole numbers [n], and outputs [n, classes]"
    other = "a loss that takes yours, such as loss=torch.nn.functional.mse_loss"
    remedy = f"give {other}"
    if not isinstance(output, Tensor):
        remedy = "let the network return the logits alone, or give a loss that takes what it does"
    elif isinstance(targets, Tensor) and targets.dim() == 2 and targets.shape[1] == 1:
        remedy = f"if they are classes, give targets.squeeze(1).long(), else {other}"
    elif isinstance(targets, Tensor) and targets.shape == output.shape and _one_hot(targets):
        remedy = "give targets.argmax(1)"
    elif isinstance(targets, Tensor) and targets.dim() == 2 and targets.dtype == torch.int64:
        remedy = "give loss=torch.nn.functional.cross_entropy for a class at each position"
    elif isinstance(targets, Tensor) and targets.dim() == 1 and targets.dtype != torch.int64:
        remedy = f"if they are classes, give targets.long(), else {other}"
    elif isinstance(targets, Tensor) and targets.dim() == 1 and output.dim() != 2:
        remedy = "let the network return a row of scores for each sample"
    text = f"{text}; these targets are {shape} and outputs {got}: {remedy}"
    raise BadParameters("Neural", {"loss" if default else "objective": text})


def _one_hot(targets: Tensor) -> bool:
    ones = targets.dim() == 2 and bool((targets.sum(1) == 1).all())
    return ones and bool((targets.square() == targets).all())


def _differentiable(placed: Placed, rows: Rows) -> tuple[Any, Tensor]:
    """What the network makes of some samples in training, and its weights, to differentiate by."""
    network, key = placed.network, torch.zeros((), dtype=torch.int64)
    with torch.enable_grad():
        leaf = network.start.to(placed.dtype).requires_grad_()
        return network.bound(leaf, network.own(training=True), key)(rows.x), leaf


def _judged(placed: Placed) -> list[Fields | None]:
    """All targets of test data, if there are some."""
    return [] if placed.samples.test is None else [placed.samples.test.y]


def _own(placed: Placed, function: object, outputs: object, rows: Rows) -> OwnLoss:
    """A user's loss, after it was differentiated once."""
    own = losses.own(function, outputs, rows.y, placed.samples.train.y, _judged(placed))
    own = own.to(placed.dtype, placed.device)
    outputs, leaf = _differentiable(placed, rows)
    with torch.enable_grad():
        before = versions(outputs, rows.y)
        try:
            value = own.function(outputs, rows.y)
        except Exception as error:  # a user's function may fail in any way
            losses.refuse_failed(own.name, error, outputs, rows.y)
        if versions(outputs, rows.y) != before:
            raise ValueError(
                f"{own.name} writes to its outputs or targets, which metrics need too; "
                "compute without operations in place"
            )
        losses.refuse_value(own.name, value, own.counts(rows.y))
        try:
            torch.autograd.grad(value, leaf)
        except Exception as error:
            losses.refuse_failed(f"the gradient of {own.name}", error, outputs, rows.y)
    return own


def _scored(outputs: object, targets: Fields) -> bool:
    """Whether outputs have a score for each class along their second axis."""
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        return False
    axes = outputs.dim() == targets.dim() + 1 and targets.dtype == torch.int64
    return axes and outputs.shape[:1] + outputs.shape[2:] == targets.shape


def _judge(
    own: OwnLoss, metrics: Mapping[str, Metric] | None, outputs: object, targets: Fields
) -> Judge:
    kind = losses.comparing(own.function)
    answers = kind in losses.PROBABILITIES
    scored = _scored(outputs, targets)
    one = isinstance(targets, Tensor) and targets.dim() == 1
    known = scored and (one or losses.is_cross_entropy(own.function))
    wanted: Mapping[str, Metric] = {"accuracy": accuracy} if answers or known else {}
    if metrics is not None:
        wanted = metrics
        if accuracy in wanted.values() and not (answers or scored):
            remedy = "for measured numbers there are mse, rmse and mae"
            measured = isinstance(targets, Tensor) and targets.is_floating_point()
            if not measured or not isinstance(outputs, Tensor):
                remedy = "give a function of yours"
            text = (
                "accuracy needs targets that are classes, with a score for each class along the "
                f"second axis of outputs, not {shown(targets)} with {shown(outputs)}; {remedy}"
            )
            raise BadParameters("Neural", {"metrics": text})
    if kind is nn.BCELoss:
        wanted = thresholded(wanted, 0.5)
    if own.settings is not None:
        wanted = ignoring(wanted, own.settings.ignore_index)
    return Judge.of(own, wanted)
