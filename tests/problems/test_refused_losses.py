"""Losses and metrics that go wrong later than on the first samples."""

import warnings

import pytest
from torch.nn import functional as F

from tests.problems.own_losses import LOSSES, NUMBERS, X, federation, make
from undrift.core.params import BadParameters


def fussy(outputs, targets):
    """A metric of up to twenty samples."""
    return None if len(targets) > 20 else targets[:, 0]


def short(outputs, targets):
    return targets[:20, 0]


def failing(outputs, targets):
    return (outputs - targets)[:, 0] if len(targets) <= 20 else outputs @ targets


@pytest.mark.parametrize("metric", [fussy, short, failing])
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
