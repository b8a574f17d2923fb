"""The loss and the metrics of a network, tried on its first samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undrift.core.params import BadParameters, about
from undrift.data.files import brief
from undrift.objectives.base import Objective
from undrift.objectives.crossentropy import CrossEntropy
from undrift.problems.neural.checks import FirstPass, refuse_first, refuse_memory, repeatable
from undrift.problems.neural.data import InMemory
from undrift.problems.neural.loss import (
    PROBABILITIES,
    LocalLoss,
    OwnLoss,
    called,
    comparing,
    own_loss,
    plain_cross_entropy,
    refuse_value,
    settings_of,
)
from undrift.problems.neural.metrics import (
    ClassScoring,
    Metric,
    Scoring,
    accuracy,
    adapted,
    chosen,
    cross_entropy,
    try_metrics,
    unwritten,
)
from undrift.problems.neural.oracle import Placed
from undrift.problems.neural.samples import Output, SampleRows, leaves, shown


class Choice(NamedTuple):
    """What is minimised, what is measured, and the names of the classes, if samples have some."""

    loss: LocalLoss
    scoring: Scoring
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
    samples = placed.samples
    tables = [table for table in (samples.train, samples.test) if table is not None]
    targets = [table.y for table in tables]
    known = [y for y in targets if y is not None]
    with about("Neural", "metrics"):
        wanted = None if metrics is None else chosen(metrics)
    with about("Neural", "module"):
        first = _first_pass(placed, placed.few())
    first = first._replace(loss=loss, objective=objective, known=known, names=names)
    refuse_first(first)
    _refuse_tokens(placed)
    local: LocalLoss
    if loss is None or (first.classes and plain_cross_entropy(loss, targets)):
        local = objective if isinstance(objective, Objective) else CrossEntropy()
        scoring = ClassScoring() if wanted is None else Scoring(cross_entropy, wanted)
        _try_loss(placed, F.cross_entropy, first.rows)
    else:
        own = own_loss(loss, first.rows.y, targets)  # type: ignore[arg-type]  # refuse_first
        local, scoring = own, _scoring(own, wanted, first)
        with about("Neural", "loss"):
            function = own.to(placed.dtype, placed.device).function
            repeatable("the loss", lambda: _try_loss(placed, function, first.rows))
    with about("Neural", "metrics"):
        scoring.counted |= try_metrics(scoring.metrics, first.outputs, first.rows.y)
        try_metrics(scoring.metrics, first.single, first.rows.mapped(lambda v: v[:1]).y)
    if samples.test is not None:
        with about("Neural", "test", "test data: "):
            rows = placed.few(test=True)
            outputs = placed.network.trial(rows.x, training=False)
            refuse_first(first._replace(rows=rows, outputs=outputs))
            try_metrics(scoring.metrics, outputs, rows.y)
    labelled = first.classes and first.in_range()
    return Choice(local, scoring, first.classes if labelled else ())


def _first_pass(placed: Placed, rows: SampleRows) -> FirstPass:
    """What the network makes of some samples when it is judged; tried in training too."""
    network = placed.network
    outputs, _ = repeatable(
        "the network in evaluation mode", lambda: network.trial(rows.x, training=False)
    )
    _, network.draws = repeatable(
        "the network", lambda: network.trial(rows.x, training=True), draws=True
    )
    refuse_memory(network.net, network.own(training=True))
    single = network.trial(rows.mapped(lambda v: v[:1]).x, training=False)
    return FirstPass(network.net, None, None, rows, outputs, single, [])


def _refuse_tokens(placed: Placed) -> None:
    """Refuse whole numbers that the network has no place for, such as tokens without embedding.

    On a GPU they would end the process: the samples with the smallest and the largest are tried.
    """
    for field, table in (("train", placed.samples.train), ("test", placed.samples.test)):
        if not isinstance(table, InMemory):
            continue
        for v in leaves(table.rows.x):
            if v.dtype not in (torch.uint8, torch.bool) and not v.is_floating_point() and v.numel():
                rows = v.reshape(len(v), -1).long()
                ends = torch.stack([rows.amin(1).argmin(), rows.amax(1).argmax()])
                with about("Neural", field):
                    placed.network.trial(placed.prepared(table.take(ends)).x, training=False)


def _try_loss(placed: Placed, function: Callable[..., Tensor], rows: SampleRows) -> None:
    """Refuse a loss that cannot be differentiated by the weights of the network."""
    network, key, name = placed.network, torch.zeros((), dtype=torch.int64), called(function)
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # training warns too, where the user sees it
        weights = network.start.to(placed.dtype).requires_grad_()
        outputs: Output = network.bound(weights, network.own(training=True), key)(rows.x)
        try:
            with unwritten(name, outputs, rows.y):
                value = function(outputs, rows.y)
            refuse_value(name, value)
            torch.autograd.grad(value, weights)
        except Exception as error:  # a user's function may fail in any way
            text = (
                f"{name} is called as loss(outputs, targets) and cannot be differentiated by the "
                f"network's weights for {shown(outputs)} and {shown(rows.y)}: {brief(error)}"
            )
            raise BadParameters("Neural", {"loss": text}) from error


def _scoring(own: OwnLoss, metrics: Mapping[str, Metric] | None, first: FirstPass) -> Scoring:
    """Of a user's loss: by default with accuracy, where that is known to mean something."""
    outputs, y, settings = first.outputs, first.rows.y, settings_of(own.function)
    answers = comparing(own.function) in PROBABILITIES
    scored = False
    if isinstance(outputs, Tensor) and isinstance(y, Tensor) and y.dtype == torch.int64:
        axes = outputs.dim() == y.dim() + 1
        scored = axes and outputs.shape[:1] + outputs.shape[2:] == y.shape
    usual = answers or (scored and (first.classes or settings is not None))
    wanted = metrics if metrics is not None else {"accuracy": accuracy} if usual else {}
    if accuracy in wanted.values() and not (answers or scored):
        text = (
            "accuracy needs targets that are classes, with a score for each class along the second "
            f"axis of outputs, not {shown(y)} with {shown(outputs)}; give another metric"
        )
        raise BadParameters("Neural", {"metrics": text})
    ignored = None if own.settings is None else own.settings.ignore_index
    limit = 0.5 if comparing(own.function) is nn.BCELoss else 0.0
    return Scoring.of(own, adapted(wanted, limit, ignored))
