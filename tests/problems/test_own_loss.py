"""Any loss and any metric: gradients and means are those of plain torch on a client's samples."""

import copy
import functools
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import undrift as ud
from tests.objectives.world import CPU, DIGITS, PARTS, close, points
from undrift.check.federations import example, quadratic
from undrift.core.params import BadParameters
from undrift.engines import Simulate, Wire
from undrift.methods import FedAvg, Scaffold, registry
from undrift.models import Net
from undrift.models.net import seeded
from undrift.objectives import MOON, FedLC
from undrift.problems import Neural
from undrift.problems.neural import dataset, measure

RNG = np.random.default_rng(3)
X = torch.tensor(RNG.normal(size=(60, 4)))
NUMBERS = torch.tensor(RNG.normal(size=(60, 3)))
ANSWERS = torch.tensor(RNG.integers(0, 2, (60, 3))).double()
CLASSES = torch.tensor(RNG.integers(0, 3, 60))
LETTERS = torch.tensor(RNG.integers(0, 3, (60, 5)))
SOME = LETTERS.masked_fill(torch.tensor(RNG.random((60, 5)) < 0.4), -100)
SPLIT = ud.data.by_size(60, clients=4, seed=0, beta=1.0)
BATCH = torch.tensor([[0, 2, 1, -1, -1], [3, 0, 1, 2, 4], [1, 0, -1, -1, -1], [2, 5, 3, 1, 0]])


def net(*layers):
    with seeded(0):
        return nn.Sequential(*(layer() for layer in layers))


def plain():
    return net(lambda: nn.Linear(4, 6), nn.Tanh, lambda: nn.Linear(6, 3))


def positive():
    return net(lambda: nn.Linear(4, 3), nn.Sigmoid)


def writer():
    """Scores of three letters at five places."""
    return net(lambda: nn.Linear(4, 15), lambda: nn.Unflatten(1, (3, 5)))


def correlated(outputs, targets):
    """Compares samples with one another."""
    a, b = outputs - outputs.mean(0), targets - targets.mean(0)
    return -(a * b).sum() / (a.norm() * b.norm() + 1e-3)


def focal(outputs, targets):
    right = outputs.softmax(1).gather(1, targets.unsqueeze(1))
    return (-((1 - right) ** 2) * right.log()).mean()


WEIGHTS = torch.tensor([0.2, 1.0, 3.0])
LOSSES = {
    "mse": (plain, NUMBERS, F.mse_loss, False),
    "MSELoss": (plain, NUMBERS, nn.MSELoss(), False),
    "l1": (plain, NUMBERS, F.l1_loss, False),
    "huber": (plain, NUMBERS, nn.HuberLoss(delta=0.3), False),
    "huber by partial": (plain, NUMBERS, functools.partial(F.huber_loss, delta=0.3), False),
    "multi-label": (plain, ANSWERS, F.binary_cross_entropy_with_logits, False),
    "weighted multi-label": (plain, ANSWERS, nn.BCEWithLogitsLoss(pos_weight=WEIGHTS), False),
    "probabilities": (positive, ANSWERS, nn.BCELoss(), False),
    "own mean": (plain, NUMBERS, lambda o, t: ((o - t) ** 4).mean(), True),
    "own that compares samples": (plain, NUMBERS, correlated, True),
    "own of classes": (plain, CLASSES, focal, True),
    "weighted classes": (plain, CLASSES, nn.CrossEntropyLoss(weight=WEIGHTS), True),
    "weighted classes by partial": (
        plain,
        CLASSES,
        functools.partial(F.cross_entropy, weight=WEIGHTS),
        True,
    ),
    "weighted rows": (plain, ANSWERS, nn.BCEWithLogitsLoss(weight=WEIGHTS), True),
    "smooth classes": (plain, CLASSES, nn.CrossEntropyLoss(label_smoothing=0.2), False),
    "classes, some ignored": (
        plain,
        CLASSES.masked_fill(X[:, 0] > 0.5, -100),
        F.cross_entropy,
        True,
    ),
    "letters": (writer, LETTERS, F.cross_entropy, False),
    "letters, some ignored": (writer, SOME, F.cross_entropy, True),
    "a mean by partial": (plain, NUMBERS, functools.partial(F.mse_loss, reduction="mean"), True),
}
COUNTED = (
    "weighted classes",
    "weighted classes by partial",
    "classes, some ignored",
    "letters, some ignored",
)
"""Their means over all samples are not those of the clients' means."""


def federation(what, **options):
    make, targets, loss, _ = LOSSES[what]
    return Neural(make(), (X, targets), SPLIT, loss=loss, **options).to(torch.float64, CPU)


def by_module(problem, y, rows, what):
    _, targets, loss, _ = LOSSES[what]
    module = problem.module(y).double()
    nn.utils.vector_to_parameters(y, module.parameters())
    loss = copy.deepcopy(loss).double() if isinstance(loss, nn.Module) else loss
    if "weight" in getattr(loss, "keywords", {}):
        loss = functools.partial(loss, weight=WEIGHTS.double())
    value = loss(module(X[rows]), targets[rows])
    return value, torch.cat(
        [g.reshape(-1) for g in torch.autograd.grad(value, module.parameters())]
    )


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
    for _ in range(4):
        fast.run_round()
        slow.run_round()
    close(fast.x, slow.x, 1e-11)


@pytest.mark.parametrize("what", LOSSES)
def test_the_loss_of_a_row_is_that_of_each_client(what):
    problem = federation(what, training=True, test=[(X[p], LOSSES[what][1][p]) for p in SPLIT])
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
    monkeypatch.setattr(measure, "PASS", passes)
    module, targets, settings = PADDED[what]
    ignored = settings.get("ignore_index", -100)
    full = torch.where(targets == ignored, 1, targets)  # training ignores nothing

    def problem(train, test):
        loss = by_settings(form, settings)
        return Neural(
            module(), (X.float(), train), SPLIT, test=test, loss=loss, metrics=["accuracy"],
            training=True,
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


# -- metrics


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
        monkeypatch.setattr(measure, "PASS", passes)
        problem = federation("mse", test=(X, NUMBERS), metrics=wanted, training=True)
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
        parts = [problem.partial_metrics(x, np.array(some)) for some in ([2, 0], [1, 3])]
        assert problem.combine(parts, x) == pytest.approx(row, rel=1e-12)
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

    monkeypatch.setattr(measure, "PASS", passes)
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
    parts = [problem.partial_metrics(x, np.array(some)) for some in ([2, 0], [1, 3])]
    assert problem.combine(parts, x) == pytest.approx(row, rel=1e-12)
    assert problem.of_pieces(problem.pieces(x), x) == row


def test_weights_that_are_not_numbers_are_the_metrics_own_trouble():
    def odd(outputs, targets):
        first = (targets == 0).to(outputs.dtype)
        return first, first / first

    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))
    wanted = {"accuracy": "accuracy", "odd": odd}
    options = {"loss": loss, "test": (X.float(), CLASSES), "training": True}
    alone, beside = (
        Neural(plain(), (X.float(), CLASSES), SPLIT, metrics=metrics, **options)
        for metrics in (["accuracy"], wanted)
    )
    row = beside.metrics(beside.start())
    assert np.isnan(row.pop("odd")) and np.isnan(row.pop("train_odd"))
    assert row == alone.metrics(alone.start())
    with torch.no_grad():
        want = loss(plain()(X.float()), CLASSES).item()
    assert row["loss"] == pytest.approx(want, rel=1e-5)


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


# -- with all of undrift


def test_objectives_where_there_are_classes():
    with seeded(0):
        body = Net([nn.Sequential(nn.Linear(4, 6), nn.Tanh())], nn.Identity(), nn.Linear(6, 3))
    for objective in (MOON(), FedLC()):
        problem = Neural(body, (X.float(), CLASSES), SPLIT, objective=objective)
        run = ud.run(FedAvg(lr=0.1), problem, rounds=2, steps=3, batch=8)
        assert run.history.last["loss"] < run.history.rows[0]["loss"]
    with pytest.raises(BadParameters) as error:
        Neural(plain(), (X, NUMBERS), SPLIT, objective=FedLC())
    assert [*error.value.problems] == ["objective"]


EXACT = {"DANE", "SONATA", "SVRP"}
"""Methods that need an exact local minimiser, which no network has."""


@pytest.mark.parametrize("name", sorted(set(registry) - EXACT))
def test_every_method_runs_with_a_loss_of_ones_own(name):
    problem, ends = federation("own that compares samples"), []
    method = example(registry[name], quadratic().constants)
    for kind in (Simulate, Wire):
        engine = kind(method, problem, steps=2, batch=8)
        for _ in range(2):
            engine.run_round()
        ends.append(engine.x)
    assert not torch.equal(ends[0], problem.start())
    close(*ends, 1e-10)


def test_a_folder_keeps_own_metrics_and_goes_on(tmp_path):
    problem = federation("mse", metrics=["mae"], test=0.2)
    settings = {"steps": 2, "batch": 4, "save": tmp_path / "run"}
    first = ud.run(FedAvg(lr=0.1), problem, rounds=3, **settings)
    again = ud.run(FedAvg(lr=0.1), problem, rounds=3, **settings)
    assert [row["mae"] for row in again.history.rows] == [row["mae"] for row in first.history.rows]
    assert [row["mae"] for row in ud.load(tmp_path / "run").records] == list(first.history["mae"])
    with pytest.raises(ValueError, match="another loss"):
        ud.run(FedAvg(lr=0.1), federation("l1", metrics=["mae"], test=0.2), rounds=3, **settings)


def test_the_loss_follows_the_run():
    """Its tensors take the precision of the run, and the caller's stay what they are."""
    loss = nn.CrossEntropyLoss(weight=WEIGHTS.clone())
    problem = Neural(plain(), (X, CLASSES), SPLIT, loss=loss).to(torch.float64, CPU)
    assert problem.metrics(problem.start())["loss"] > 0 and loss.weight.dtype == torch.float32


# -- what is refused, in one sentence


def single(outputs=1):
    return net(lambda: nn.Linear(4, outputs))


class Squeezed(nn.Linear):
    def forward(self, x):
        return super().forward(x).squeeze()


def make(module=plain, targets=NUMBERS, loss=F.mse_loss, **options):
    return lambda: Neural(module(), (X, targets), SPLIT, loss=loss, **options)


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


@pytest.mark.parametrize("what", ["mse", "own that compares samples", "weighted classes"])
@pytest.mark.parametrize("test", [0.2, "nobody's", None])
def test_metrics_come_in_pieces_that_processes_can_share(what, test):
    nobodys = X, LOSSES[what][1]
    problem = federation(what, test=nobodys if test == "nobody's" else test, training=True)
    x = points(problem)[0]
    for n in (1, 2, 5):
        pieces = torch.cat([problem.pieces(x, k, n) for k in range(n)])
        assert problem.of_pieces(pieces, x) == problem.metrics(x)
