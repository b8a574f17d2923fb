"""What is measured of a network: on the test samples, and if asked on the clients'."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.objectives.world import DIGITS, PARTS, PIPELINE, close, federation, network, points, seen
from undrift.core.problem import Problem
from undrift.data.augment import ImageAugmentation, Pipeline
from undrift.models import build, unflatten
from undrift.problems import Neural


def scores(problem: Problem, x, images, labels):
    """For each sample its loss, and whether its class is first or among the first five."""
    net = network().double()
    net.load_state_dict(unflatten(x, problem.layout))
    found = []
    with torch.no_grad():
        for image, label in zip(images, labels.tolist(), strict=True):
            s = net(seen(image.unsqueeze(0)))[0].tolist()
            order = sorted(range(10), key=lambda c: -s[c])
            found.append(
                (np.log(np.sum(np.exp(s))) - s[label], order[0] == label, label in order[:5])
            )
    return np.array(found, dtype=float)


def test_metrics_are_those_of_a_loop():
    problem = federation()
    x = points(problem)[0]
    want = scores(problem, x, DIGITS.test_images, DIGITS.test_labels).mean(0)
    got = problem.metrics(x)
    assert got == pytest.approx(
        dict(zip(("loss", "accuracy", "top5"), want, strict=True)), rel=1e-12
    )
    assert 0 < got["accuracy"] < got["top5"] < 1


def test_on_training_samples_each_client_counts_alike():
    plain, problem = federation(), federation(train_metrics=True)
    x = points(problem)[0]
    clients = [
        scores(problem, x, DIGITS.images[part], DIGITS.labels[part]).mean(0)
        for part in map(torch.from_numpy, PARTS)
    ]
    want = np.mean(clients, axis=0)
    named = dict(zip(("train_loss", "train_accuracy", "train_top5"), want, strict=True))
    assert problem.metrics(x) == pytest.approx(plain.metrics(x) | named, rel=1e-12)
    pooled = scores(
        problem, x, *(a[np.concatenate(PARTS)] for a in (DIGITS.images, DIGITS.labels))
    ).mean(0)
    assert abs(pooled[0] - want[0]) > 1e-3, "clients of different sizes"


def test_the_training_loss_is_the_function_whose_gradient_is_followed():
    problem = federation(train_metrics=True, smooth=True)
    x, v = points(problem)[0], points(problem, seed=1)[1]
    step = 1e-5 * v / v.norm()
    slope = (problem.metrics(x + step)["train_loss"] - problem.metrics(x - step)["train_loss"]) / 2
    gradient = problem.at().grad(x.expand(problem.clients, -1)).mean(0)
    assert slope == pytest.approx(float(gradient @ step), rel=1e-6)


def test_few_classes_have_no_top_five_unless_it_is_asked_for():
    few = dataclasses.replace(
        DIGITS,
        classes=("a", "b", "c"),
        labels=DIGITS.labels % 3,
        test_labels=DIGITS.test_labels % 3,
    )
    problem = Neural(build("linear", 1, 8, 3), few, PARTS)
    assert "top5" not in problem.metrics(problem.start())
    asked = Neural(build("linear", 1, 8, 3), few, PARTS, metrics=["top5"])
    assert asked.metrics(asked.start())["top5"] == 1


def test_evaluation_is_neither_augmented_nor_random():
    problem, random = federation(), torch.get_rng_state()
    still = federation(pipeline=Pipeline(ImageAugmentation(), PIPELINE.normalise))
    x = points(problem)[0]
    assert problem.metrics(x) == problem.metrics(x) == still.metrics(x)
    assert torch.equal(torch.get_rng_state(), random)
    close(problem.at().grad(points(problem)), still.at().grad(points(problem)), 0)
