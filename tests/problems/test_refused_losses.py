"""Losses, metrics and networks that are refused, in one sentence."""

import functools
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.objectives.world import CPU, points
from tests.problems.own_losses import (
    ANSWERS,
    BATCH,
    CLASSES,
    LETTERS,
    LOSSES,
    NUMBERS,
    SPLIT,
    X,
    federation,
    focal,
    make,
    plain,
    single,
    writer,
)
from undrift.core.params import BadParameters
from undrift.objectives import MOON, FedLC
from undrift.problems import Neural
from undrift.problems.neural import dataset


class Squeezed(nn.Linear):
    def forward(self, x):
        return super().forward(x).squeeze()


REFUSED = {
    "whole numbers to measure": (
        make(targets=ANSWERS.long()),
        "targets are torch.int64, but mse_loss compares measured numbers; give targets.float",
    ),
    "a column too few": (
        make(single, NUMBERS[:, 0]),
        r"outputs are \[n, 1\], but targets are \[n\]; give targets.reshape\(-1, 1\)",
    ),
    "other columns": (
        make(single),
        r"outputs are \[n, 1\], but targets are \[n, 3\]; give the targets that shape",
    ),
    "no probabilities": (
        make(targets=NUMBERS, loss=nn.BCEWithLogitsLoss()),
        "but BCEWithLogitsLoss compares with probabilities from 0 to 1",
    ),
    "no loss": (make(loss=None), "float32 .n, 3.*such as loss=torch.nn.functional.mse_loss"),
    "a column of classes": (
        make(targets=CLASSES.unsqueeze(1), loss=None),
        r"give targets.squeeze\(1\)",
    ),
    "rows of classes": (make(targets=LETTERS, loss=None), "functional.cross_entropy for a class"),
    "too few outputs": (
        make(single, CLASSES, None),
        "targets are 0 to 2, but the network has 1 outputs, whose classes are numbered 0 to 0",
    ),
    "too few letters": (
        make(writer, LETTERS + 1, F.cross_entropy),
        "targets are 1 to 3, but the network has 3 outputs, whose classes are numbered 0 to 2",
    ),
    "too few classes for test samples": (
        make(plain, CLASSES, None, test=(X, CLASSES + 1)),
        "targets are 0 to 3, but the network has 3 outputs",
    ),
    "a number for each sample": (
        make(loss=lambda o, t: (o - t).square().mean(1)),
        r"<lambda> returns \[2\] numbers; make it return one, the mean",
    ),
    "a sum": (make(loss=nn.MSELoss(reduction="sum")), 'give reduction="mean"'),
    "a sum by partial": (
        make(loss=functools.partial(F.mse_loss, reduction="sum")),
        "mse_loss adds up over the samples",
    ),
    "a sum of old": (
        make(loss=functools.partial(F.mse_loss, size_average=False)),
        "mse_loss adds up over the samples",
    ),
    "a sum inside a partial": (
        make(loss=functools.partial(nn.MSELoss(reduction="sum"))),
        "MSELoss adds up over the samples",
    ),
    "no reduction": (make(loss=nn.MSELoss(reduction="none")), r"returns \[2, 3\] numbers"),
    "no tensor": (make(loss=lambda o, t: 3.0), "returns a float; make it return a tensor"),
    "no gradient": (make(loss=lambda o, t: t.mean()), "does not depend on the network's weights"),
    "a loss that fails": (
        make(loss=lambda o, t: (o @ t).mean()),
        r"<lambda> does not take outputs float32 \[n, 3\] and targets float32 \[n, 3\]: ",
    ),
    "a loss with weights": (
        make(loss=nn.Linear(3, 1)),
        "Linear has parameters, which nobody would train",
    ),
    "a class": (make(loss=nn.MSELoss), r"loss is the class MSELoss; give MSELoss\(\)"),
    "a name": (make(loss="mse"), "must be a function of outputs and targets, .*; got 'mse'"),
    "an objective": (make(loss=MOON()), r"give objective=MOON\(\)"),
    "two losses": (make(objective=MOON()), "give one"),
    "random numbers": (
        make(loss=lambda o, t: (o - t + torch.rand(3)).square().mean()),
        "the loss draws random numbers",
    ),
    "an unknown metric": (make(metrics=["accurac"]), "did you mean accuracy"),
    "a metric that is none": (make(metrics=[3]), "must be a name or a function; got 3"),
    "no metrics": (make(metrics=3), "metrics must be names or functions; got 3"),
    "a metric without a name": (make(metrics=[lambda o, t: o]), "cannot be called '<lambda>'"),
    "a metric called loss": (make(metrics={"loss": "mse"}), "cannot be called 'loss'"),
    "a mean": (
        make(metrics={"mine": lambda o, t: (o - t).mean()}),
        r"the metric mine gives \[\] for 2 samples; .* one number for each",
    ),
    "a metric that fails": (make(metrics={"mine": lambda o, t: o @ t}), "the metric mine does not"),
    "a metric of other shapes": (
        make(targets=CLASSES, loss=focal, metrics=["mse"]),
        r"mse compares .* same shape, not float32 \[n, 3\] with int64 \[n\]",
    ),
    "a metric that loses the axis of samples": (
        make(metrics={"mine": lambda o, t: (o - t)[:, :1].squeeze()}),
        r"the metric mine gives \[\] for one sample; .* .squeeze\(1\)",
    ),
    "a network that loses the axis of samples": (
        make(lambda: Squeezed(4, 1), NUMBERS[:, 0]),
        r"the network gives \[\] for one sample and \[2\] for 2; .* .squeeze\(1\)",
    ),
    "accuracy of measurements": (
        make(metrics=["accuracy"]),
        "accuracy needs targets that are classes",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_in_one_sentence(what):
    refused, sentence = REFUSED[what]
    with pytest.raises((ValueError, TypeError), match=sentence) as error:
        refused()
    assert "\n" not in str(error.value)


class Tied(nn.Linear):
    """Has a tensor that is no buffer."""

    def __init__(self):
        super().__init__(4, 3)
        self.table = torch.ones(3, 3)

    def forward(self, x):
        return super().forward(x) @ self.table


def test_what_does_not_follow_to_another_precision_is_refused_when_a_problem_is_placed():
    weights = torch.ones(3)
    closed = make(targets=CLASSES, loss=lambda o, t: F.cross_entropy(o, t, weights))
    metric = make(metrics={"mine": lambda o, t: (o @ weights.unsqueeze(1)).squeeze(1)})
    for field, problem in (("loss", closed), ("metrics", metric), ("module", make(Tied))):
        with pytest.raises(BadParameters) as error:
            problem().to(torch.float64, CPU)
        assert [*error.value.problems] == [field]
    by_partial = make(targets=CLASSES, loss=functools.partial(F.cross_entropy, weight=weights))
    followed = make(targets=CLASSES, loss=lambda o, t: F.cross_entropy(o, t, weights.to(o)))
    for problem in (by_partial, followed):
        assert problem().to(torch.float64, CPU).dtype == torch.float64


def fussy(outputs, targets):
    """A metric of up to twenty samples."""
    return None if len(targets) > 20 else targets[:, 0]


def short(outputs, targets):
    return targets[:20, 0]


def failing(outputs, targets):
    return (outputs - targets)[:, 0] if len(targets) <= 20 else outputs @ targets


def undecided(outputs, targets):
    values = targets[:, 0]
    return values if len(values) <= 20 else (values, values)


@pytest.mark.parametrize("metric", [fussy, short, failing, undecided])
def test_a_metric_that_goes_wrong_later_is_named(metric):
    problem = make(metrics=[metric], test=(X, NUMBERS))()
    with pytest.raises(BadParameters) as error:
        problem.metrics(problem.start())
    assert metric.__name__ in error.value.problems["metrics"]


@pytest.mark.parametrize("late", [lambda o, t: None, lambda o, t: (o - t).square()])
def test_a_loss_that_goes_wrong_later_is_named(late):
    def tired(outputs, targets):
        return F.mse_loss(outputs, targets) if len(targets) <= 20 else late(outputs, targets)

    problem = make(loss=tired, test=(X, NUMBERS))()
    with pytest.raises(BadParameters) as error:
        problem.metrics(problem.start())
    assert "tired" in error.value.problems["loss"]


def test_nothing_is_said_aloud():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for what in LOSSES:
            problem = federation(what, test=0.2)
            problem.metrics(problem.start())


def test_an_objective_that_counts_classes_needs_to_know_them(monkeypatch):
    monkeypatch.setattr(dataset, "SMALL", 0)
    data = [(x, y) for x, y in zip(X.float(), CLASSES, strict=True)]

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 60

        def __getitem__(self, k):
            return data[k]

    with pytest.raises(BadParameters) as error:
        Neural(plain(), Rows(), SPLIT, objective=FedLC())
    assert [*error.value.problems] == ["objective"]
    problem = Neural(plain(), Rows(), SPLIT)
    assert not problem.labelled and problem.label_counts() is None
    held = Neural(plain(), (X.float(), CLASSES), SPLIT)
    y = points(held)
    assert torch.equal(problem.at().grad(y, BATCH), held.at().grad(y, BATCH))
