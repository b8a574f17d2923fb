"""Metrics by name and by function, and how they are averaged."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.objectives.world import CPU, DIGITS, PARTS, points
from tests.problems.own_losses import (
    ANSWERS,
    CLASSES,
    LETTERS,
    LOSSES,
    NUMBERS,
    SOME,
    SPLIT,
    X,
    federation,
    make,
    single,
)
from undrift.core.params import BadParameters
from undrift.models.net import seeded
from undrift.problems import Neural
from undrift.problems.neural import metrics


def rows_of(problem, x, targets):
    module = problem.module(x).double()
    nn.utils.vector_to_parameters(x, module.parameters())
    with torch.no_grad():
        return module(X).numpy(), targets.numpy()


def test_metrics_by_name_and_by_function(monkeypatch):
    def worst(outputs, targets):
        return (outputs - targets).abs().amax(1)

    wanted = {"mse": "mse", "rmse": "rmse", "mae": "mae", "worst": worst}
    for passes in (512, 7):
        monkeypatch.setattr(metrics, "PASS", passes)
        problem = federation("mse", test=(X, NUMBERS), metrics=wanted, train_metrics=True)
        x = points(problem)[0]
        out, aim = rows_of(problem, x, NUMBERS)
        away = np.abs(out - aim)
        row = problem.metrics(x)
        assert {name: row[name] for name in wanted} == pytest.approx(
            {
                "mse": (away**2).mean(),
                "rmse": np.sqrt((away**2).mean()),
                "mae": away.mean(),
                "worst": away.max(1).mean(),
            },
            rel=1e-12,
        )
        clients = [(away[part] ** 2).mean() for part in SPLIT]
        assert row["train_rmse"] == pytest.approx(np.sqrt(np.mean(clients)), rel=1e-12)
    assert list(federation("mse", metrics=["mae", worst]).metrics(x)) == [
        "loss", "train_loss", "train_mae", "train_worst",
    ]  # fmt: skip


def test_a_root_is_taken_of_the_metric_rmse_whatever_it_is_called():
    def rmse(outputs, targets):
        return (outputs - targets).square().mean(1).sqrt()

    wanted = {"err": "rmse", "rmse": rmse}
    problem = federation("mse", test=[(X[p], NUMBERS[p]) for p in SPLIT], metrics=wanted)
    x = points(problem)[0]
    out, aim = rows_of(problem, x, NUMBERS)
    squares = (out - aim) ** 2
    row = problem.metrics(x)
    assert row["err"] == pytest.approx(np.sqrt(squares.mean()), rel=1e-12)
    assert row["rmse"] == pytest.approx(np.sqrt(squares.mean(1)).mean(), rel=1e-12)
    each = problem.client_metrics(x)
    for client, part in enumerate(SPLIT):
        assert each["err"][client] == pytest.approx(np.sqrt(squares[part].mean()), rel=1e-12)
        assert each["rmse"][client] == pytest.approx(
            np.sqrt(squares[part].mean(1)).mean(), rel=1e-12
        )
    with pytest.raises(BadParameters) as error:
        make(module=lambda: single(2), targets=NUMBERS, loss=spread, metrics={"err": "rmse"})()
    assert [*error.value.problems] == ["metrics"]


def spread(outputs, targets):
    return (outputs.sum(1) - targets.sum(1)).square().mean()


def test_accuracy_of_classes_answers_and_letters():
    def found(what, targets, right, limit=None):
        problem = federation(what, test=(X, targets))
        x = points(problem)[0]
        out, aim = rows_of(problem, x, targets)
        assert problem.metrics(x)["accuracy"] == pytest.approx(right(out, aim), rel=1e-12)

    found("own of classes", CLASSES, lambda out, aim: (out.argmax(1) == aim).mean())
    found("multi-label", ANSWERS, lambda out, aim: ((out > 0) == (aim == 1)).mean())
    found("probabilities", ANSWERS, lambda out, aim: ((out > 0.5) == (aim == 1)).mean())
    found("letters", LETTERS, lambda out, aim: (out.argmax(1) == aim).mean())
    kept = (SOME != -100).numpy()
    found("letters, some ignored", SOME, lambda out, aim: (out.argmax(1) == aim)[kept].mean())


def test_a_metric_may_say_how_much_each_number_counts():
    def large(outputs, targets):
        """The error of targets above one half."""
        counts = (targets > 0.5).double()
        return ((outputs - targets).abs() * counts).sum(1) / counts.sum(1), counts.sum(1)

    assert not (NUMBERS > 0.5).any(1).all()  # some give 0 / 0, with no weight
    problem = federation("mse", test=(X, NUMBERS), metrics=[large])
    x = points(problem)[0]
    out, aim = rows_of(problem, x, NUMBERS)
    assert problem.metrics(x)["large"] == pytest.approx(np.abs(out - aim)[aim > 0.5].mean())
    weights = np.arange(60.0)
    many = federation(
        "mse",
        test=(X, NUMBERS),
        metrics={"late": lambda o, t: ((o - t)[:, 0], torch.arange(len(t)))},
    )
    want = np.average((out - aim)[:, 0], weights=weights)
    assert many.metrics(x)["late"] == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("passes", [512, 7])
@pytest.mark.parametrize("what", ["mse", "own that compares samples"])
def test_on_training_samples_each_client_has_one_weighted_mean(what, passes, monkeypatch):
    def large(outputs, targets):
        counts = (targets > 0.5).double().sum(1)
        return (outputs - targets).abs().mean(1), counts

    monkeypatch.setattr(metrics, "PASS", passes)
    targets = NUMBERS.clone()
    targets[SPLIT[1]] -= 10  # nothing of this client counts
    module, _, loss, _ = LOSSES[what]
    problem = Neural(module(), (X, targets), SPLIT, loss=loss, metrics=[large, "mae"])
    problem = problem.to(torch.float64, CPU)
    x = points(problem)[0]
    out, aim = rows_of(problem, x, targets)
    away, counts = np.abs(out - aim).mean(1), (aim > 0.5).sum(1)
    means = [np.average(away[p], weights=counts[p]) for p in SPLIT if counts[p].any()]
    assert len(means) == len(SPLIT) - 1
    row = problem.metrics(x)
    assert row["train_large"] == pytest.approx(np.mean(means), rel=1e-12)
    assert row["train_mae"] == pytest.approx(np.mean([away[p].mean() for p in SPLIT]), rel=1e-12)
    assert problem.of_pieces(problem.pieces(x), x) == row


def test_metrics_of_classes_may_be_chosen():
    digits = (DIGITS.images, DIGITS.labels)
    with seeded(0):
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    both = Neural(module, digits, PARTS, test=digits)
    one = Neural(module, digits, PARTS, test=digits, metrics="accuracy")
    x = both.start()
    row = both.metrics(x)
    assert set(row) == {"loss", "accuracy", "top5"}
    assert one.metrics(x) == pytest.approx({name: row[name] for name in ("loss", "accuracy")})


@pytest.mark.parametrize("what", ["mse", "own that compares samples", "weighted classes"])
@pytest.mark.parametrize("test", [0.2, "nobody's", None])
def test_metrics_come_in_pieces_that_processes_can_share(what, test):
    nobodys = X, LOSSES[what][1]
    problem = federation(what, test=nobodys if test == "nobody's" else test, train_metrics=True)
    x = points(problem)[0]
    for n in (1, 2, 5):
        pieces = torch.cat([problem.pieces(x, k, n) for k in range(n)])
        assert problem.of_pieces(pieces, x) == problem.metrics(x)
