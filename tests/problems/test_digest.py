"""A problem's digest tells its data from others."""

import dataclasses

import numpy as np
import pytest
import torch

from undrift.data.images import load_images
from undrift.problems import LeastSquares, Logistic, Quadratic, Softmax
from undrift.problems import named as catalog
from undrift.problems.neural.problem import Neural

SMALL = {
    "ridge": {"partition": "iid"},
    "softmax": {"partition": "iid"},
    "quadratic": {"clients": 3, "dim": 4},
    "fedred": {"dim": 6},
    "fedcet": {"dim": 5},
    "least-squares": {"clients": 3},
    "logistic": {"clients": 3},
    "softmax-synthetic": {"clients": 3, "features": 4, "classes": 3},
    "images": {"train": 60, "test": 20, "clients": 3, "model": "linear"},
}


@pytest.mark.parametrize("name", list(catalog.registry))
def test_the_same_data_have_the_same_digest_and_others_another(name):
    first, again, other = (catalog.build(name, **SMALL[name], seed=seed) for seed in (0, 0, 1))
    assert len(first.digest()) == 64 and first.digest() == again.digest() != other.digest()
    assert first.to(torch.float32, torch.device("cpu")).digest() == first.digest()


def changed(values, place, value):
    values = np.array(values)
    values[place] = value
    return values


def test_every_part_counts():
    A, q = np.array([[[2.0, 0], [0, 1]], [[3, 0], [0, 1]]]), np.array([[1.0, 2], [3, 4]])
    quadratics = [Quadratic(A, q), Quadratic(2 * A, q), Quadratic(A, 2 * q), Quadratic(A, q, 1.0)]
    quadratics += [Quadratic(A, q, beta=1.0)]
    rows = [LeastSquares(A, q), LeastSquares(2 * A, q), LeastSquares(A, 2 * q)]
    x, y, parts = np.arange(8.0).reshape(4, 2), np.array([1.0, -1, 1, -1]), [[0, 1], [2, 3]]
    splits = [parts, [[0, 2], [1, 3]], [[0, 1, 2], [3]]]
    logistic = [Logistic(x, y, part) for part in splits]
    logistic += [
        Logistic(x, -y, parts),
        Logistic(changed(x, (3, 1), 7.5), y, parts),
        Logistic(x, y, parts, l2=0.5),
    ]
    labels = np.array([0, 1, 2, 0])
    softmax = [Softmax(x, labels, part) for part in splits]
    softmax += [
        Softmax(x, labels[::-1].copy(), parts),
        Softmax(changed(x, (0, 0), 1), labels, parts),
    ]
    softmax += [Softmax(x, labels, parts, classes=4)]
    found = [problem.digest() for problem in (*quadratics, *rows, *logistic, *softmax)]
    assert len(set(found)) == len(found)


def test_images_labels_partition_and_weights_count():
    data = load_images("digits", None, (60, 20))
    parts = [np.arange(30), np.arange(30, 60)]

    def digest(change=None, split=parts, seed=0, shape=64):
        torch.manual_seed(seed)
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(shape, 10))
        return Neural(net, dataclasses.replace(data, **(change or {})), split).digest()

    others = {
        name: {name: torch.from_numpy(changed(getattr(data, name).numpy(), 3, 1))}
        for name in ("images", "labels", "test_images", "test_labels")
    }
    found = [digest(), digest(seed=1), digest(split=parts[::-1]), *map(digest, others.values())]
    assert len(set(found)) == len(found) == 7 and digest() == found[0]


def test_what_another_machine_rounds_otherwise_is_the_same_data():
    A, q = np.array([[[2.0, 0.1], [0.1, 1 / 3]]]), np.array([[0.1, 0.7]])
    assert (
        Quadratic(A, q).digest() == Quadratic(np.nextafter(A, 9), np.nextafter(q, 9), 0.0).digest()
    )
    assert Quadratic(A, q).digest() != Quadratic(A * (1 + 1e-6), q).digest()
