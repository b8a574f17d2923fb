"""Any loss and any metric: gradients and means are those of plain torch on a client's samples."""

import functools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import undrift as ud
from tests.objectives.world import CPU, close, points
from tests.problems.own_losses import (
    BATCH,
    CLASSES,
    COUNTED,
    LETTERS,
    LOSSES,
    SOME,
    SPLIT,
    WEIGHTS,
    X,
    by_module,
    federation,
    make,
    net,
    plain,
    writer,
)
from tests.rounds import after
from undrift.core.params import BadParameters
from undrift.engines import Simulate, Wire
from undrift.methods import FedAvg, Scaffold
from undrift.problems import Neural
from undrift.problems.neural import metrics


@pytest.mark.parametrize("stacked", [None, False])
@pytest.mark.parametrize("what", LOSSES)
def test_gradients_are_those_of_a_clients_own_samples(what, stacked):
    """Padding takes no part, whatever the loss does with a mini-batch."""
    problem = federation(what, stacked=stacked)
    assert problem.placed.alone == LOSSES[what][-1]
    assert problem.placed.stacked == (stacked is None)
    y = points(problem)
    got, full = problem.at().grad(y, BATCH), problem.at().grad(y)
    for c, part in enumerate(SPLIT):
        mine = torch.from_numpy(part)
        drawn = mine[BATCH[c][BATCH[c] >= 0]]
        close(got[c], by_module(problem, y[c], drawn, what)[1])
        close(full[c], by_module(problem, y[c], mine, what)[1])


@pytest.mark.parametrize("what", LOSSES)
def test_engines_agree_where_clients_have_fewer_samples_than_a_batch(what):
    problem = federation(what)
    assert min(problem.samples) < 16 < max(problem.samples)
    fast, slow = (kind(Scaffold(lr=0.05), problem, steps=3, batch=16) for kind in (Simulate, Wire))
    after(4, fast, slow)
    close(fast.x, slow.x, 1e-11)


@pytest.mark.parametrize("what", LOSSES)
def test_the_loss_of_a_row_is_that_of_each_client(what):
    problem = federation(what, train_metrics=True, test=[(X[p], LOSSES[what][1][p]) for p in SPLIT])
    x = points(problem)[0]
    each = [by_module(problem, x, torch.from_numpy(part), what)[0].item() for part in SPLIT]
    row = problem.metrics(x)
    assert row["train_loss"] == pytest.approx(np.mean(each), rel=1e-12)
    want = np.average(each, weights=problem.samples)
    if what in COUNTED:
        want = by_module(problem, x, torch.arange(60), what)[0].item()
    assert row["loss"] == pytest.approx(want, rel=1e-12)


RARE = {"weight": WEIGHTS}
PADDED = {
    "letters": (writer, SOME, {}),
    "letters, another number": (writer, LETTERS, {"ignore_index": 0}),
    "weighted letters": (writer, SOME, RARE),
    "weighted and smooth letters": (writer, SOME, {**RARE, "label_smoothing": 0.2}),
    "classes": (plain, CLASSES.masked_fill(X[:, 0] > 0.5, -100), {}),
    "classes, another number": (plain, CLASSES, {"ignore_index": 2}),
    "weighted classes": (plain, CLASSES, RARE),
}


def by_settings(form, settings):
    if form is nn.CrossEntropyLoss:
        return nn.CrossEntropyLoss(**settings)
    return functools.partial(F.cross_entropy, **settings) if settings else F.cross_entropy


@pytest.mark.parametrize("letters", [3, 5])
def test_scores_along_the_last_axis_have_no_accuracy_that_nobody_asked_for(letters):
    def module():
        return net(lambda: nn.Linear(4, 5 * letters), lambda: nn.Unflatten(1, (5, letters)))

    def loss(outputs, targets):
        return F.cross_entropy(outputs.transpose(1, 2), targets)

    def right(outputs, targets):
        return (outputs.argmax(2) == targets).double().mean(1)

    problem = make(module, LETTERS, loss, test=(X, LETTERS))().to(torch.float64, CPU)
    with torch.no_grad():
        out = module().double()(X)
    want = {"loss": loss(out, LETTERS).item()}
    assert problem.metrics(problem.start()) == pytest.approx(want, rel=1e-12)
    own = make(module, LETTERS, loss, test=(X, LETTERS), metrics={"accuracy": right})()
    found = own.to(torch.float64, CPU).metrics(own.start())
    want["accuracy"] = (out.argmax(2) == LETTERS).double().mean().item()
    assert found == pytest.approx(want, rel=1e-12)
    if letters != 5:  # else the two axes cannot be told from one another
        with pytest.raises(BadParameters) as error:
            make(module, LETTERS, loss, metrics=["accuracy"])()
        assert [*error.value.problems] == ["metrics"]


@pytest.mark.parametrize("passes", [512, 7])
@pytest.mark.parametrize("form", [nn.CrossEntropyLoss, F.cross_entropy])
@pytest.mark.parametrize("what", PADDED)
def test_targets_that_are_ignored_or_weighted_are_counted_as_torch_does(
    what, form, passes, monkeypatch
):
    monkeypatch.setattr(metrics, "PASS", passes)
    module, targets, settings = PADDED[what]
    ignored = settings.get("ignore_index", -100)
    full = torch.where(targets == ignored, 1, targets)  # training ignores nothing

    def problem(train, test):
        loss = by_settings(form, settings)
        return Neural(
            module(), (X.float(), train), SPLIT, test=test, loss=loss, metrics=["accuracy"],
            train_metrics=True,
        )  # fmt: skip

    net = module().double()
    nothing = targets.clone()
    nothing[SPLIT[0]] = ignored
    nothing[:2] = ignored
    with torch.no_grad():
        out = net(X.float().double())

    def want(rows, targets):
        exact = settings | ({"weight": WEIGHTS.double()} if "weight" in settings else {})
        loss = F.cross_entropy(out[rows], targets[rows], **exact)
        kept = targets[rows] != ignored
        right = (out[rows].argmax(1) == targets[rows])[kept].double().mean()
        return loss.item(), right.item()

    everyone = torch.arange(60)
    for train in (full, targets):
        made = problem(train, (X.float(), targets))
        row = made.metrics(made.start())
        assert (row["loss"], row["accuracy"]) == pytest.approx(want(everyone, targets), rel=1e-5)
        each = np.mean([want(part, train) for part in SPLIT], axis=0)
        assert (row["train_loss"], row["train_accuracy"]) == pytest.approx(each, rel=1e-5)
    made = problem(nothing, [(X[p].float(), nothing[p]) for p in SPLIT])
    row, each = made.metrics(made.start()), made.client_metrics(made.start())
    assert (row["loss"], row["accuracy"]) == pytest.approx(want(everyone, nothing), rel=1e-5)
    known = [want(part, nothing) for part in SPLIT[1:]]
    trained = row["train_loss"], row["train_accuracy"]
    assert trained == pytest.approx(np.mean(known, axis=0), rel=1e-5)
    assert each["loss"][0].isnan() and each["accuracy"][0].isnan()
    found = torch.stack([each["loss"], each["accuracy"]], 1)[1:]
    np.testing.assert_allclose(found, known, rtol=1e-5)


# -- with all of undrift


def test_a_folder_keeps_own_metrics_and_goes_on(tmp_path):
    problem = federation("mse", metrics=["mae"], test=0.2)
    settings = {"steps": 2, "batch": 4, "save": tmp_path / "run"}
    first = ud.run(FedAvg(lr=0.1), problem, rounds=3, **settings)
    again = ud.run(FedAvg(lr=0.1), problem, rounds=3, **settings)
    assert [row["mae"] for row in again.history.rows] == [row["mae"] for row in first.history.rows]
    assert [row["mae"] for row in ud.load(tmp_path / "run").records] == list(first.history["mae"])
    with pytest.raises(ValueError, match="other loss"):
        ud.run(FedAvg(lr=0.1), federation("l1", metrics=["mae"], test=0.2), rounds=3, **settings)


def test_the_loss_follows_the_run():
    """Its tensors take the precision of the run, and the caller's stay what they are."""
    loss = nn.CrossEntropyLoss(weight=WEIGHTS.clone())
    problem = Neural(plain(), (X, CLASSES), SPLIT, loss=loss).to(torch.float64, CPU)
    assert problem.metrics(problem.start())["loss"] > 0 and loss.weight.dtype == torch.float32
