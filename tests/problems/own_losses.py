"""Losses of users, on a small federation for each."""

import copy
import functools

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import undrift as ud
from tests.objectives.world import CPU
from undrift.models.net import seeded
from undrift.problems import Neural

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
    "a mean by partial": (plain, NUMBERS, functools.partial(F.mse_loss, reduction="mean"), False),
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


def single(outputs=1):
    return net(lambda: nn.Linear(4, outputs))


def make(module=plain, targets=NUMBERS, loss=F.mse_loss, **options):
    return lambda: Neural(module(), (X, targets), SPLIT, loss=loss, **options)
