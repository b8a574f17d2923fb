"""Losses and metrics that go wrong later than on the first samples."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import undrift as ud
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


def beyond(outputs, targets):
    """Fails in a word of torch's own."""
    return outputs[:, targets.long().max() + 9].mean()


@pytest.mark.parametrize("late", [lambda o, t: None, lambda o, t: (o - t).square(), beyond])
def test_a_loss_that_goes_wrong_later_is_named(late):
    def tired(outputs, targets):
        return F.mse_loss(outputs, targets) if len(targets) <= 20 else late(outputs, targets)

    problem = make(loss=tired, test=(X, NUMBERS))()
    with pytest.raises(BadParameters) as error:
        problem.metrics(problem.start())
    assert "tired" in error.value.problems["loss"]


@pytest.mark.parametrize(
    "given", [None, F.cross_entropy, nn.NLLLoss(), lambda o, t: F.cross_entropy(o, t)]
)
@pytest.mark.parametrize("test", [None, 0.2])
def test_a_label_without_an_output_is_named_with_its_client(given, test):
    labels = torch.arange(40) % 4
    labels[33] = 4
    parts = [range(20), range(20, 40)]
    with pytest.raises(BadParameters) as error:
        ud.Neural(nn.Linear(3, 4), (torch.ones(40, 3), labels), parts, loss=given, test=test)
    said = "sample 33 of train (client 1) has target 4 where outputs are float32 [n, 4]: "
    assert error.value.problems["loss"].startswith(said)


def test_a_label_without_an_output_may_mean_something_to_a_loss_of_ones_own():
    labels = torch.tensor([0, 1, -1, 3])
    for test in (None, (torch.ones(1, 3), torch.tensor([-1]))):
        problem = ud.Neural(
            nn.Linear(3, 4),
            [(torch.ones(4, 3), labels)],
            loss=lambda o, t: F.cross_entropy(o, t, ignore_index=-1),
            test=test,
        )
        assert problem.class_names == ()
    with pytest.raises(BadParameters, match=r"sample 0 of test has target 4 where"):
        ud.Neural(
            nn.Linear(3, 4),
            [(torch.ones(4, 3), labels.abs())],
            loss=lambda o, t: F.cross_entropy(o, t),
            test=(torch.ones(1, 3), torch.tensor([4])),
        )


def test_nothing_is_said_aloud():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for what in LOSSES:
            problem = federation(what, test=0.2)
            problem.metrics(problem.start())
