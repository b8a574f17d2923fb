"""Each client's numbers against NumPy, written out from the definitions."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import undrift as ud
from tests.problems.own_data import OneByOne
from undrift import Neural
from undrift.core.params import BadParameters
from undrift.engines import Ledger
from undrift.problems import LeastSquares, Logistic, Quadratic, Softmax
from undrift.problems.regression import BLOCK

CLOSE = {"rtol": 1e-12, "atol": 1e-12}
SIZES = (3, 17, 1, 8, 40)
"""Samples of each client."""


def parts(sizes=SIZES, seed=0):
    order = np.random.default_rng(seed).permutation(sum(sizes))
    return np.split(order, np.cumsum(sizes)[:-1])


def point(dim, seed=7):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=dim))


def compare(problem, expected, x):
    """Of all clients, of some, and of a model for each."""
    found = problem.client_metrics(x)
    assert list(found) == list(expected(0, x.numpy()))
    for name, values in found.items():
        assert values.dtype == torch.float64 and values.shape == (problem.clients,)
        wanted = [expected(i, x.numpy())[name] for i in range(problem.clients)]
        np.testing.assert_allclose(values, wanted, **CLOSE)
        some = problem.client_metrics(x, np.array([1, 3]))[name]
        np.testing.assert_allclose(some, [wanted[1], wanted[3]], **CLOSE)
    several = torch.stack([(k + 1) / 2 * x for k in range(2)])
    own = problem.client_metrics(several, np.array([3, 1]))
    for name, values in own.items():
        wanted = [expected(i, (k + 1) / 2 * x.numpy())[name] for k, i in enumerate((3, 1))]
        np.testing.assert_allclose(values, wanted, **CLOSE)


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("diagonal", [False, True])
def test_quadratics(diagonal, components):
    rng = np.random.default_rng(1)
    A = rng.uniform(0.5, 2, (5, components, 4, 4))
    A = A + A.swapaxes(-1, -2)
    if diagonal:
        A = A * np.eye(4)
    q, c = rng.normal(size=(5, components, 4)), rng.normal(size=(5, components))

    def expected(i, x):
        terms = [x @ A[i, j] @ x / 2 - q[i, j] @ x + c[i, j] for j in range(components)]
        return {"loss": np.mean(terms) + 0.3 * (x**2 / (1 + x**2)).sum()}

    given = A.diagonal(0, -2, -1) if diagonal else A
    if components == 1:
        problem = Quadratic(given[:, 0], q[:, 0], c[:, 0], beta=0.3)
    else:
        problem = Quadratic(given, q, c, beta=0.3)
    compare(problem, expected, point(4))
    row = problem.metrics(point(4))["loss"]
    assert problem.client_metrics(point(4))["loss"].mean() == pytest.approx(row, rel=1e-12)


@pytest.mark.parametrize("rows", [3, 9])
def test_least_squares(rows):
    rng = np.random.default_rng(2)
    A, b = rng.normal(size=(5, rows, 6)), rng.normal(size=(5, rows))
    problem = LeastSquares(A, b)
    compare(problem, lambda i, x: {"loss": ((A[i] @ x - b[i]) ** 2).sum() / 2}, point(6))
    assert problem.client_metrics(point(6))["loss"].mean() == pytest.approx(
        problem.metrics(point(6))["loss"], rel=1e-12
    )


@pytest.mark.parametrize("sizes", [SIZES, (5, BLOCK + 3, 2, 30, 6)])
def test_logistic(sizes):
    rng = np.random.default_rng(3)
    features, split = rng.normal(size=(sum(sizes), 4)), parts(sizes)
    labels = np.where(features[:, 0] + rng.normal(size=sum(sizes)) > 0, 1.0, -1.0)
    problem = Logistic(features, labels, split, l2=0.2)

    def expected(i, x):
        margins = labels[split[i]] * (features[split[i]] @ x)
        loss = np.log1p(np.exp(-margins)).mean() + 0.1 * x @ x
        return {"loss": loss, "accuracy": (margins > 0).mean()}

    compare(problem, expected, point(4))
    weights = np.array(sizes) / sum(sizes)
    found, row = problem.client_metrics(point(4)), problem.metrics(point(4))
    for name, values in found.items():  # f is the loss of all samples together
        assert weights @ values.numpy() == pytest.approx(row[name], rel=1e-12)


def test_softmax():
    rng = np.random.default_rng(4)
    features, split = rng.normal(size=(sum(SIZES), 3)), parts()
    labels = rng.integers(4, size=sum(SIZES))
    problem = Softmax(features, labels, split, l2=0.2)

    def expected(i, x):
        W = x.reshape(4, 4)
        scores = features[split[i]] @ W[:, :3].T + W[:, 3]
        own = scores[np.arange(len(scores)), labels[split[i]]]
        loss = (np.log(np.exp(scores).sum(1)) - own).mean() + 0.1 * x @ x
        return {"loss": loss, "accuracy": (scores.argmax(1) == labels[split[i]]).mean()}

    compare(problem, expected, point(16))
    found, row = problem.client_metrics(point(16)), problem.metrics(point(16))
    assert found["loss"].mean() == pytest.approx(row["loss"], rel=1e-12)
    shares = np.array(SIZES) / sum(SIZES)
    assert shares @ found["accuracy"].numpy() == pytest.approx(row["accuracy"], rel=1e-12)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))


def classes(rng, number):
    return rng.normal(size=(number, 3)), rng.integers(4, size=number)


def judged(x, features, labels):
    """Cross-entropy and accuracy of the network in NumPy, layer by layer."""
    W, b, V, c = np.split(x, np.cumsum([15, 5, 20]))
    scores = np.tanh(features @ W.reshape(5, 3).T + b) @ V.reshape(4, 5).T + c
    own = scores[np.arange(len(scores)), labels]
    loss = (np.log(np.exp(scores).sum(1)) - own).mean()
    return {"loss": loss, "accuracy": (scores.argmax(1) == labels).mean()}


def test_a_network_on_training_samples():
    X, y = classes(np.random.default_rng(5), sum(SIZES))
    split = parts()
    problem = Neural(network(), (X, y), split, train_metrics=True).to(
        torch.float64, torch.device("cpu")
    )
    assert problem.own_samples == problem.metric_samples == "train"
    compare(problem, lambda i, x: judged(x, X[split[i]], y[split[i]]), point(problem.dim))
    found, row = problem.client_metrics(point(problem.dim)), problem.metrics(point(problem.dim))
    assert found["loss"].mean() == pytest.approx(row["train_loss"], rel=1e-12)


def test_a_network_on_the_clients_own_test_samples():
    rng = np.random.default_rng(6)
    clients = [classes(rng, size) for size in SIZES]
    tests = [classes(rng, size) for size in (600, 2, 9, 1, 30)]  # more than one pass has
    problem = Neural(network(), clients, test=tests).to(torch.float64, torch.device("cpu"))
    assert problem.own_samples == problem.metric_samples == "test"
    compare(problem, lambda i, x: judged(x, *tests[i]), point(problem.dim))
    found, row = problem.client_metrics(point(problem.dim)), problem.metrics(point(problem.dim))
    shares = np.array([600, 2, 9, 1, 30]) / 642
    for name in ("loss", "accuracy"):
        assert shares @ found[name].numpy() == pytest.approx(row[name], rel=1e-12)


def test_a_client_without_test_samples_is_not_measured():
    X, y = classes(np.random.default_rng(5), sum(SIZES))
    problem = Neural(network(), (X, y), parts(), test=0.2)
    sizes = [len(part) for part in problem.placed.samples.test_parts]
    assert problem.own_samples == "test" and sizes[2] == 0 < sizes[1]
    x = problem.start()
    for found in (problem.client_metrics(x), problem.client_metrics(x.expand(5, -1))):
        for values in found.values():
            assert values.isnan().tolist() == [size == 0 for size in sizes]
    broken = problem.client_metrics(torch.full_like(x, torch.nan))["loss"]
    assert broken.isinf().tolist() == [size > 0 for size in sizes]


@pytest.mark.parametrize("nothing", ["none", "pair", "dataset", "subset"])
def test_a_site_may_have_no_test_samples(nothing):
    X, y = classes(np.random.default_rng(5), sum(SIZES))
    shelf = OneByOne(X, y)
    missing = {
        "none": None,
        "pair": (X[:0], y[:0]),
        "dataset": OneByOne(X[:0], y[:0]),
        "subset": torch.utils.data.Subset(shelf, []),
    }[nothing]
    held = [(X[k : k + 3], y[k : k + 3]) for k in range(3)]
    if nothing == "subset":
        held = [torch.utils.data.Subset(shelf, range(k, k + 3)) for k in range(3)]
    problem = Neural(network(), (X, y), parts(), test=[missing, held[0], held[1], missing, held[2]])
    sizes = [len(part) for part in problem.placed.samples.test_parts]
    assert sizes == [0, 3, 3, 0, 3]
    x = problem.start()
    found = problem.client_metrics(x)["loss"]
    assert found.isnan().tolist() == [size == 0 for size in sizes]
    for site, first in ((1, 0), (2, 1), (4, 2)):
        rows = slice(first, first + 3)
        want = judged(x.numpy(), X[rows], y[rows])
        assert found[site] == pytest.approx(want["loss"], rel=1e-5)
    assert problem.metrics(x)["loss"] == pytest.approx(float(found.nanmean()), rel=1e-6)


def test_own_losses_and_metrics():
    """Means over a client's samples, roots after them, and a loss that compares samples."""
    rng = np.random.default_rng(8)
    X, y, split = rng.normal(size=(69, 3)), rng.normal(size=(69, 4)), parts()

    def spread(outputs, targets):
        return (outputs - targets).square().mean() + outputs.var(0, correction=0).sum()

    problem = Neural(network(), (X, y), split, loss=spread, metrics=["rmse", "mae"])
    problem = problem.to(torch.float64, torch.device("cpu"))

    def expected(i, x):
        W, b, V, c = np.split(x, np.cumsum([15, 5, 20]))
        out = np.tanh(X[split[i]] @ W.reshape(5, 3).T + b) @ V.reshape(4, 5).T + c
        error = out - y[split[i]]
        loss = (error**2).mean() + out.var(0).sum()
        return {"loss": loss, "rmse": (error**2).mean() ** 0.5, "mae": np.abs(error).mean()}

    compare(problem, expected, point(problem.dim))


def test_top5_is_measured_where_it_is_asked_for():
    rng = np.random.default_rng(4)
    X, y, of = rng.normal(size=(40, 3)), rng.integers(8, size=40), parts((12, 28))
    network = nn.Linear(3, 8)
    asked = Neural(network, (X, y), of, metrics=["accuracy", "top5"])
    found = asked.client_metrics(asked.start())
    weight, bias = (v.detach().double().numpy() for v in network.parameters())
    best = np.argsort(-(X @ weight.T + bias), 1)[:, :5]
    wanted = [(best[part] == y[part, None]).any(1).mean() for part in of]
    np.testing.assert_allclose(found["top5"], wanted, **CLOSE)
    plain = Neural(network, (X, y), of)
    assert list(plain.client_metrics(plain.start())) == ["loss", "accuracy"]


@pytest.mark.parametrize(
    "name",
    ["label", "method", "seed", "round", "of", "client", "vectors", "loss", "gap"]
    + ["train_loss", "train_f1", "client_f1", "client_loss_mean", "local_accuracy"]
    + [field.name for field in dataclasses.fields(Ledger)],
)
def test_a_metric_is_not_called_like_a_column_of_rows(name):
    data = np.zeros((4, 2)), np.array([0, 1, 0, 1])
    with pytest.raises(BadParameters) as error:
        Neural(nn.Linear(2, 2), data, [np.arange(4)], metrics={name: "accuracy"})
    assert list(error.value.problems) == ["metrics"]


class Renamed(Quadratic):
    """Metrics of all clients, or of each, under names of a user's."""

    everyone, each = "loss", "loss"

    def metrics(self, x):
        return {**super().metrics(x), self.everyone: 1.0}

    def client_metrics(self, x, members=None):
        found = super().client_metrics(x, members)
        return {**found, self.each: found["loss"]}


@pytest.mark.parametrize(
    ("everyone", "each"),
    [(name, "loss") for name in ("round", "vectors", "drift", "seconds", "client_loss_mean")]
    + [("loss", name) for name in ("of", "round", "local_loss", "client_f1")],
)
def test_a_problem_of_ones_own_does_not_replace_columns_of_rows(everyone, each):
    problem = Renamed(torch.eye(2, dtype=torch.float64).repeat(3, 1, 1), torch.zeros(3, 2))
    setting = {"rounds": 1, "steps": 1, "callbacks": ud.PerClient()}
    assert ud.run(ud.FedAvg(lr=0.1), problem, **setting).status == "done"
    problem.everyone, problem.each = everyone, each
    with pytest.raises(BadParameters) as error:
        ud.run(ud.FedAvg(lr=0.1), problem, **setting)
    assert list(error.value.problems) == ["problem"]
