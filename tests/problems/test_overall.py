"""Metrics of all outputs at once: as scikit-learn has them, of everybody and of each client."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torch import nn
from torch.nn import functional as F

import undrift as ud
from undrift.core.params import BadParameters
from undrift.core.problem import Unsupported

NAMES = ["f1", "auc", "balanced_accuracy"]


def data(classes, total=1300, seed=0):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(total, 4, generator=draw)
    return x, (x[:, 0] * 1.5 + torch.randn(total, generator=draw)).abs().long().clamp(
        max=classes - 1
    )


def problem(classes, metrics=NAMES, **more):
    """A linear network whose outputs are its inputs, more or less; test samples of each client."""
    torch.manual_seed(1)
    x, y = data(classes)
    parts = ud.data.dirichlet(y.numpy(), clients=5, beta=0.3)
    return ud.Neural(nn.Linear(4, classes), (x, y), parts, test=0.8, metrics=metrics, **more)


def by_sklearn(outputs, targets):
    """The three by another library; of more than two classes by the same choice of mean."""
    logits, labels = outputs.double().numpy(), targets.numpy()
    binary = logits.shape[1] == 2
    scores = torch.softmax(torch.from_numpy(logits), 1).numpy()
    return {
        "f1": sk.f1_score(labels, logits.argmax(1), average="binary" if binary else "macro"),
        "auc": sk.roc_auc_score(labels, scores[:, 1] if binary else scores, multi_class="ovr"),
        "balanced_accuracy": sk.balanced_accuracy_score(labels, logits.argmax(1)),
    }


@pytest.mark.parametrize("classes", [2, 4])
def test_rows_have_what_scikit_learn_finds_over_all_test_samples(classes):
    found = problem(classes)
    run = ud.run(ud.FedAvg(lr=0.1), found, rounds=2, steps=2, batch=8)
    outputs, targets = run.predictions()
    assert len(targets) > 1000  # several passes: no mean over them is right
    for name, number in by_sklearn(outputs, targets).items():
        assert run.history.last[name] == pytest.approx(number, abs=1e-12), name
    net = run.module()
    held = found.placed.samples
    numbers = np.concatenate(held.test_parts)
    torch.testing.assert_close(outputs, net(held.test.x[numbers]).detach())
    assert torch.equal(targets, held.test.y[numbers])


def test_each_client_is_judged_on_its_own_samples():
    run = ud.run(ud.FedAvg(lr=0.1), problem(2), rounds=1, steps=2, callbacks=ud.PerClient())
    held, net = run.problem.placed.samples, run.module()
    for k, part in enumerate(held.test_parts):
        labels, logits = held.test.y[part], net(held.test.x[part]).detach()
        if len(labels.unique()) == 2:
            wanted = by_sklearn(logits, labels)
            for name in NAMES:
                assert run.per_client.last[name][k] == pytest.approx(wanted[name], abs=1e-12)
    assert run.history.last["client_f1_worst10"] <= run.history.last["client_f1_mean"]


def test_training_samples_are_judged_together():
    run = ud.run(ud.FedAvg(lr=0.1), problem(3, train_metrics=True), rounds=1, steps=1)
    held, parts = run.problem.placed.samples.train, np.concatenate(run.problem.parts)
    wanted = by_sklearn(run.module()(held.x[parts]).detach(), held.y[parts])
    for name in NAMES:
        assert run.history.last[f"train_{name}"] == pytest.approx(wanted[name], abs=1e-12)


def test_ties_count_half_and_certainty_does_not_tie():
    from undrift.problems.neural.overall import auc

    flat = torch.zeros(6, 2)
    labels = torch.tensor([0, 1, 0, 1, 1, 0])
    assert auc(flat, labels) == 0.5
    sure = torch.tensor([[0.0, 50.0], [0.0, 60.0], [0.0, 70.0]])  # all have probability 1
    assert auc(sure, torch.tensor([0, 1, 1])) == 1.0
    assert math.isnan(auc(sure, torch.tensor([1, 1, 1])))


def test_answers_of_yes_and_no():
    torch.manual_seed(0)
    x = torch.randn(400, 3)
    y = (x + torch.randn(400, 3) > 0.4).float()
    parts = ud.data.iid(400, clients=4)
    net, loss = nn.Linear(3, 3), nn.BCEWithLogitsLoss()
    found = ud.Neural(net, (x, y), parts, test=0.5, loss=loss, metrics=NAMES)
    outputs, targets = (v.numpy() for v in found.predictions(found.start()))
    row = found.metrics(found.start())
    assert row["f1"] == pytest.approx(sk.f1_score(targets, outputs > 0, average="macro"))
    assert row["auc"] == pytest.approx(sk.roc_auc_score(targets, outputs, average="macro"))
    each = [sk.balanced_accuracy_score(targets[:, k], outputs[:, k] > 0) for k in range(3)]
    assert row["balanced_accuracy"] == pytest.approx(np.mean(each))


def test_targets_that_the_loss_ignores_are_left_out():
    x, y = data(3, 60)
    y[::3] = -1
    loss = nn.CrossEntropyLoss(ignore_index=-1)
    found = ud.Neural(nn.Linear(4, 3), (x, y), [range(60)], loss=loss, metrics=["f1"])
    outputs, targets = found.predictions(found.start())
    kept = targets >= 0
    wanted = sk.f1_score(targets[kept], outputs[kept].argmax(1), average="macro")
    assert found.metrics(found.start())["train_f1"] == pytest.approx(wanted)


def test_a_function_of_the_users_sees_everything_once():
    seen = []

    def correlation(outputs, targets):
        seen.append(len(targets))
        return np.corrcoef(outputs[:, 0], targets[:, 0])[0, 1]

    x = torch.randn(1300, 2)
    metrics = {"rho": ud.Overall(correlation), "mae": "mae"}
    data = x, x[:, :1] - x[:, 1:]
    parts = ud.data.iid(1300, clients=2)
    found = ud.Neural(nn.Linear(2, 1), data, parts, loss=F.mse_loss, metrics=metrics)
    assert not seen  # not with a few samples, of which one class may be missing
    row = found.metrics(found.start())
    outputs, targets = found.predictions(found.start())
    assert seen == [1300]
    assert row["train_rho"] == pytest.approx(np.corrcoef(outputs[:, 0], targets[:, 0])[0, 1])


def test_what_does_not_fit_is_refused_in_one_sentence():
    x, y = data(3, 60)
    with pytest.raises(BadParameters, match=r"f1 is called once .* targets that are classes"):
        ud.Neural(nn.Linear(4, 4), (x, x), [range(60)], loss=F.mse_loss, metrics=["f1"])
    failing = ud.Neural(
        nn.Linear(4, 3), (x, y), [range(60)], metrics={"mine": ud.Overall(lambda o, t: o)}
    )
    with pytest.raises(BadParameters, match="the metric mine is called once"):
        ud.run(ud.FedAvg(lr=0.1), failing, rounds=1)
    with pytest.raises(BadParameters, match=r"is that of undrift.Overall\(mean\)"):
        ud.Neural(nn.Linear(4, 3), (x, y), [range(60)], metrics={"mean": lambda o, t: o.mean()})
    with pytest.raises(Unsupported, match="f1 is of all samples at once, and no mean"):
        problem(2).weight_of("f1")
    with pytest.raises(Unsupported, match="Quadratic is not a network, and has no predictions"):
        ud.run(ud.FedAvg(lr=0.01), "quadratic", rounds=1).predictions()


def test_outputs_that_are_not_finite_have_no_number_and_no_error():
    called = []
    strict = ud.Overall(lambda outputs, targets: called.append(1) or 1.0)
    outputs = torch.tensor([[0.0, 1.0], [math.inf, 0.0]])
    assert math.isnan(strict.of("strict", outputs, torch.tensor([0, 1]))) and not called
    assert strict.of("strict", outputs.nan_to_num(), torch.tensor([0, 1])) == 1.0


def test_early_stopping_and_callbacks_can_use_them():
    def confusion(moment):
        outputs, targets = moment.predictions()
        table = sk.confusion_matrix(targets, outputs.argmax(1))
        return {"right": float(table.trace() / table.sum())}

    stop = ud.EarlyStopping(metric="f1", target=0.0)
    found = problem(3, ["f1", "accuracy"])
    run = ud.run(ud.FedAvg(lr=0.1), found, rounds=3, callbacks=[confusion, stop])
    assert run.status == "reached" and run.history.last["right"] == run.history.last["accuracy"]
    assert run.best.metric == "f1"


@pytest.mark.parametrize(("classes", "there"), [(2, False), (5, False), (6, True)])
def test_top5_is_recorded_where_it_says_something(classes, there):
    row = problem(classes, None).metrics(problem(classes).start())
    assert ("top5" in row) == there and "accuracy" in row
    assert "top5" in problem(classes, ["top5"]).metrics(problem(classes).start())
