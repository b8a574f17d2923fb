"""What a network is refused for, before anything is trained: tables of (when, field, text).

Each rule says one thing for all inputs that break it. Refused is what torch would not refuse itself
when the first samples pass through: what would train on other numbers than the user means. Then
:func:`choose` tries network, loss and metrics on these samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from undrift.core.params import BadParameters, about
from undrift.data.augment import Pipeline
from undrift.models.batch_norm import refuse_batch_statistics
from undrift.models.net import Net, where
from undrift.objectives.base import Objective
from undrift.objectives.crossentropy import CrossEntropy
from undrift.problems.neural.data import ClientData, Output, SampleRows, cat, count, shown
from undrift.problems.neural.loss import (
    ANSWERS,
    LocalLoss,
    OwnLoss,
    about_loss,
    alike,
    called,
    comparing,
    own_loss,
    refuse_value,
    settings_of,
    target_weights,
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
)
from undrift.problems.neural.network import FlatNetwork
from undrift.problems.neural.oracle import Placed
from undrift.problems.neural.overall import OVERALL, Overall
from undrift.problems.randomness import Result, watched


class Mistake(NamedTuple):
    """A mistake: when it is made, in which argument, and what to do about it."""

    when: Callable[[Any], object]
    field: str
    text: str
    """May name the words that :func:`refuse` is given, in braces."""


def refuse(rules: Sequence[Mistake], given: object, **words: object) -> None:
    """Raise :class:`BadParameters` for the first mistake that was made."""
    for rule in rules:
        if rule.when(given):
            raise BadParameters("Neural", {rule.field: rule.text.format(**words)})


INPUTS = (
    Mistake(
        lambda pair: any(v.dtype == torch.uint8 and v.dim() < 3 for v in tree_leaves(pair[0])),
        "train",
        "uint8 inputs are images, which are scaled to [0, 1], and these are none; give .float() of "
        "numbers, .long() of tokens, .bool() of a mask",
    ),
    Mistake(
        lambda pair: not isinstance(pair[1], Pipeline | None),
        "pipeline",
        "pipeline must be an undrift.data.augment.Pipeline",
    ),
    Mistake(
        lambda pair: pair[1] is not None and getattr(pair[0], "dtype", None) != torch.uint8,
        "pipeline",
        "a pipeline normalises uint8 images; leave it out: other inputs reach the network as they "
        "are",
    ),
)


NETWORK = (
    Mistake(
        lambda module: not isinstance(module, nn.Module),
        "module",
        "the network, the first argument, must be a torch.nn.Module, as nn.Linear(4, 1) is",
    ),
    Mistake(
        lambda module: (
            isinstance(
                module,
                nn.DataParallel | nn.parallel.DistributedDataParallel | torch.jit.ScriptModule,
            )
            or hasattr(module, "_orig_mod")
        ),
        "module",
        "the network was wrapped or compiled; give the module that was, before DataParallel, "
        "torch.jit or torch.compile",
    ),
)
LAYER = (
    Mistake(
        lambda layer: "forward" in vars(layer),
        "module",
        "the {layer} had its forward replaced on the object, which the copies that train would not "
        "follow; write a subclass with that forward",
    ),
    Mistake(
        lambda layer: (
            isinstance(layer, nn.Embedding | nn.EmbeddingBag)
            and (layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse)
        ),
        "module",
        "the {layer} has max_norm, scale_grad_by_freq or sparse, with which its gradient is that "
        "of no loss; leave them out",
    ),
)
WEIGHT = (
    Mistake(
        is_lazy,
        "module",
        "the parameter {name!r} has no shape before its layer has seen a sample; run the module on "
        "one first",
    ),
    Mistake(
        lambda weight: weight._backward_hooks or weight._post_accumulate_grad_hooks,
        "module",
        "the parameter {name!r} has a hook on its gradient, which nothing here would call; mask or "
        "scale in forward instead",
    ),
    Mistake(
        lambda weight: weight.is_meta or weight.is_complex() or not weight.isfinite().all(),
        "module",
        "the parameter {name!r} must hold finite real numbers, from which training can start",
    ),
)


def refuse_network(module: nn.Module) -> None:
    """Refuse what cannot be trained here at all."""
    # In this order: what was wrapped or compiled hides its layers from the checks that follow.
    refuse(NETWORK, module)
    refuse_batch_statistics(module)
    for name, layer in module.named_modules():
        refuse(LAYER, layer, layer=where(name, layer))
    for name, weight in module.named_parameters():
        refuse(WEIGHT, weight, name=name)


def refuse_memory(before: nn.Module, after: nn.Module) -> None:
    """Refuse a network whose buffers a pass in training mode changes."""
    # All clients train copies of one network: a buffer that one changes would be everybody's.
    for (name, buffer), kept in zip(after.named_buffers(), before.buffers(), strict=True):
        if not torch.equal(buffer, kept):
            raise ValueError(
                f"the network changes its buffer {name!r} in training, which clients do not share; "
                "leave out the layer that does so"
            )


class FirstPass(NamedTuple):
    """Some samples, what the network makes of them, and the loss that it is to be trained with."""

    net: nn.Module
    loss: object
    objective: object
    rows: SampleRows
    outputs: Output
    """In evaluation mode."""
    samples: ClientData
    names: tuple[str, ...] | None = None
    """Those of the classes, where the data have them."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; empty unless targets and outputs are those of classes."""
        y, outputs = self.rows.y, self.outputs
        numbered = isinstance(y, Tensor) and y.dim() == 1 and y.dtype == torch.int64
        if not numbered or not isinstance(outputs, Tensor) or outputs.dim() != 2:
            return ()
        return self.names or tuple(map(str, range(outputs.shape[1])))

    def stray(self, ignored: int | None = None) -> tuple[str, SampleRows] | None:
        """The first sample whose target is not ``ignored`` and numbers no output; in words too."""
        # On a GPU a class that is out of range breaks the process, without a word about which.
        outputs = self.outputs
        if not isinstance(outputs, Tensor) or outputs.dim() < 2:
            return None
        for table in filter(None, (self.samples.train, self.samples.test)):
            y = table.y
            if not isinstance(y, Tensor) or y.is_floating_point():
                continue
            wrong = (y < 0) | (y >= outputs.shape[1])
            if ignored is not None:
                wrong &= y != ignored
            if len(places := wrong.nonzero()):
                which, label = places[0, :1], int(y[tuple(places[0])])
                where = self.samples.named(table, int(which))
                said = f"{where} has target {label} where outputs are {shown(outputs)}"
                return said, table.take(which)
        return None


CLASSES = (
    "is for targets that are classes, whole numbers [n], with outputs [n, classes]; these are "
    "{targets} with {outputs}"
)
LOSS = (
    Mistake(
        lambda first: first.loss is not None and first.objective is not None,
        "loss",
        "loss and objective are both losses; give one",
    ),
    Mistake(
        lambda first: (
            isinstance(first.loss, type | Objective)
            or not (first.loss is None or callable(first.loss))
        ),
        "loss",
        "loss must be a function of outputs and targets, as torch.nn.functional.mse_loss and "
        "nn.MSELoss() are; one of undrift.objectives is given as objective=",
    ),
    Mistake(
        lambda first: not isinstance(first.objective, Objective | None),
        "objective",
        "objective must be one of undrift.objectives, such as CrossEntropy()",
    ),
    Mistake(
        lambda first: (
            isinstance(first.loss, nn.Module) and any(True for _ in first.loss.parameters())
        ),
        "loss",
        "{loss} has parameters, which nobody would train; put them into the network",
    ),
    Mistake(
        lambda first: settings_of(first.loss).get("reduction") == "sum",
        "loss",
        "{loss} adds up over the samples, so that larger batches make larger steps; give "
        'reduction="mean"',
    ),
    Mistake(
        lambda first: (
            first.names is not None
            and getattr(first.outputs, "shape", None) != (count(first.rows.x), len(first.names))
        ),
        "module",
        "the network must return one tensor with an output for each class of the data; got "
        "{outputs}",
    ),
    Mistake(
        lambda first: first.loss is None and first.objective is None and not first.classes,
        "loss",
        f"give loss=, such as torch.nn.functional.mse_loss: left out, it is the cross-entropy, "
        f"which {CLASSES}",
    ),
    Mistake(
        lambda first: first.objective is not None and not first.classes,
        "objective",
        f"objective {CLASSES}; give loss= for others",
    ),
    Mistake(
        lambda first: (
            comparing(first.loss) is not None
            and getattr(first.outputs, "shape", 0) != getattr(first.rows.y, "shape", 1)
        ),
        "loss",
        "{loss} compares outputs with targets number by number, not {outputs} with {targets}; give "
        "them the same shape",
    ),
    Mistake(
        lambda first: (
            (
                {"features", "blocks"} & {*getattr(first.objective, "needs", ())}
                and not isinstance(first.net, Net)
            )
            or (
                "blocks" in getattr(first.objective, "needs", ())
                and not len(getattr(first.net, "trunk", ()))
            )
        ),
        "objective",
        "the objective looks inside the network; make it an undrift.models.Net with several "
        "blocks, or use another objective",
    ),
)
"""In this order: later ones take for granted what earlier ones refuse."""


def refuse_first(first: FirstPass) -> None:
    """Refuse a loss that does not go with the network and its data."""
    words = {"targets": shown(first.rows.y), "outputs": shown(first.outputs)}
    refuse(LOSS, first, loss=called(first.loss), **words)
    counted = target_weights(first.loss)
    classes = first.loss is None or counted is not None
    if classes and (stray := first.stray(None if counted is None else counted.ignore_index)):
        text = f"{stray[0]}: number classes from 0, and give the network an output for each"
        raise BadParameters("Neural", {"loss": text})


def repeatable(who: str, work: Callable[[], Result], draws: bool = False) -> tuple[Result, bool]:
    """What ``work`` gives, and whether it draws from torch's generator; refused unless it ``draws``
    from nothing else.
    """
    found, drawn = watched(work)
    if drawn - ({"torch"} if draws else set()):
        raise ValueError(
            f"{who} draws random numbers, so that no run could be repeated; only a network may, by "
            "torch and in training mode, as F.dropout(x, p, self.training) does"
        )
    return found, bool(drawn)


def choose(
    placed: Placed,
    names: tuple[str, ...] | None,
    loss: object,
    objective: object,
    metrics: object,
) -> tuple[LocalLoss, Scoring, tuple[str, ...]]:
    """What is minimised, what is measured, and the names of the classes, if samples have some.

    Refuses what the network, the loss and the metrics cannot do with these samples. ``names`` are
    those of the classes, where they are known.
    """
    samples, rows = placed.samples, placed.few()
    targets = [table.y for table in (samples.train, samples.test) if table is not None]
    with about("Neural", "metrics"):
        wanted = None if metrics is None else chosen(metrics)
    with about("Neural", "module"):
        outputs = _outputs(placed.network, rows)
    first = FirstPass(placed.network.net, loss, objective, rows, outputs, samples, names)
    refuse_first(first)
    stray = first.stray()
    # A plain cross-entropy becomes undrift's own, whatever it was given as: that one is compiled,
    # stacked and, for an MLP, differentiated by formula.
    local: LocalLoss
    smoothed = settings_of(loss).get("label_smoothing")
    if loss is None or (first.classes and not smoothed and alike(loss, targets)):
        local = objective if isinstance(objective, Objective) else CrossEntropy()
        usual = ClassScoring(len(first.classes))
        scoring = usual if wanted is None else Scoring(cross_entropy, wanted)
        _try_loss(placed, F.cross_entropy, first.rows)
    else:
        # Tried on a copy in the precision of the run: weights of classes must follow it there.
        own = own_loss(loss, targets)  # type: ignore[arg-type]  # refuse_first
        local, scoring = own, _scoring(own, wanted, first)
        with about("Neural", "loss"):
            function = own.to(placed.dtype, placed.device).function
            repeatable("the loss", lambda: _try_loss(placed, function, first.rows))
        # Such a target may mean something to a loss of one's own: only trying it tells.
        if stray is not None:
            with about("Neural", "loss", f"{stray[0]}: "):
                _try_loss(placed, function, cat([first.rows, placed.prepared(stray[1])]))
    with about("Neural", "metrics"):
        scoring.counted |= try_metrics(scoring.metrics, first.outputs, first.rows.y)
        # Not the user's own, which may need more samples than these, as one of each class.
        for name in scoring.overall.keys() & OVERALL:
            scoring.overall[name].of(name, first.outputs, first.rows.y)
    # Test data are tried too: a run of hours must not fail at its first row.
    if samples.test is not None:
        with about("Neural", "test", "test data: "):
            rows = placed.few(test=True)
            outputs = placed.network.trial(rows.x, training=False)
            refuse_first(first._replace(rows=rows, outputs=outputs))
            try_metrics(scoring.metrics, outputs, rows.y)
    return local, scoring, () if stray else first.classes


def _outputs(network: FlatNetwork, rows: SampleRows) -> Output:
    """What the network makes of some samples when it is judged; tried in training too."""
    # Really run, in both modes: what a forward draws or changes can be read from no attribute.
    outputs, _ = repeatable(
        "the network in evaluation mode", lambda: network.trial(rows.x, training=False)
    )
    _, network.draws = repeatable(
        "the network", lambda: network.trial(rows.x, training=True), draws=True
    )
    refuse_memory(network.net, network.own(training=True))
    return outputs


def _try_loss(placed: Placed, function: Callable[..., Tensor], rows: SampleRows) -> None:
    """Refuse a loss that cannot be differentiated by the weights of the network."""
    network, key = placed.network, torch.zeros((), dtype=torch.int64)
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # training warns too, where the user sees it
        weights = network.start.to(placed.dtype).requires_grad_()
        outputs: Output = network.bound(weights, network.own(training=True), key)(rows.x)
        with about_loss(function, outputs, rows.y):
            value = function(outputs, rows.y)
            refuse_value(called(function), value)
            # A loss of detached outputs has a value and no gradient: training would stand still.
            torch.autograd.grad(value, weights)


def _scoring(
    own: OwnLoss, metrics: Mapping[str, Metric | Overall] | None, first: FirstPass
) -> Scoring:
    """Of a user's loss: by default with accuracy, where targets are answers or classes."""
    kind, y = comparing(own.function), first.rows.y
    whole = isinstance(y, Tensor) and y.dtype == torch.int64
    scores = first.classes or target_weights(own.function) is not None
    usual: dict[str, Metric | Overall] = (
        {"accuracy": accuracy} if kind in ANSWERS or (whole and scores) else {}
    )
    ignored = None if own.counted is None else own.counted.ignore_index
    limit = 0.5 if kind in ANSWERS[2:] else 0.0
    wanted = adapted(usual if metrics is None else metrics, limit, ignored)
    return Scoring(own.values, wanted, frozenset() if own.counted is None else frozenset({"loss"}))
