"""Each local loss against its transcription, and what all of them promise."""

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import vmap

from tests.objectives import transcription
from undrift import objectives
from undrift.core.params import BadParameters
from undrift.models import Net, flatten, unflatten
from undrift.objectives import MOON, Batch, CrossEntropy, FedDecorr, FedLC, FedMLB, FedNTD, Others
from undrift.objectives.crossentropy import weighted_cross_entropy
from undrift.objectives.feddecorr import correlation
from undrift.problems.neural.network import Bound

WIDTHS = (5, 4, 6, 3, 4)
N = 7
FORMS = [
    (CrossEntropy(), transcription.plain),
    (MOON(), transcription.moon),
    (MOON(mu=0.3, tau=0.1), transcription.moon),
    (FedMLB(), transcription.fedmlb),
    (FedMLB(lam1=0.5, lam2=2.0, lam3=0.7, T=3.0), transcription.fedmlb),
    (FedLC(), transcription.fedlc),
    (FedLC(tau=0.1), transcription.fedlc),
    (FedNTD(), transcription.fedntd),
    (FedNTD(beta=0.4, tau=2.0), transcription.fedntd),
    (FedNTD(beta=0.3, tau=2.0, form="mix"), transcription.fedntd),
    (FedDecorr(), transcription.feddecorr),
    (FedDecorr(beta=2.0), transcription.feddecorr),
]
OFF = [
    MOON(mu=0),
    FedMLB(lam2=0, lam3=0),
    FedLC(tau=0),
    FedNTD(beta=0),
    FedNTD(beta=0, form="mix"),
    FedDecorr(beta=0),
]
every = pytest.mark.parametrize("objective", [form for form, _ in FORMS], ids=str)


def test_every_objective_is_tried_here():
    assert {type(form).__name__ for form, _ in FORMS} == set(objectives.registry)
    assert {type(form).__name__ for form in OFF} == set(objectives.registry) - {"CrossEntropy"}


def network():
    layers = [nn.Linear(inner, outer) for inner, outer in pairwise(WIDTHS)]
    return Net(
        [nn.Sequential(layer, nn.Tanh()) for layer in layers[:-1]], nn.Identity(), layers[-1]
    )


NET = network()
SPEC = flatten(NET)[1]


def place(seed=0, n=N):
    """Class 2 is missing."""
    rng = np.random.default_rng(seed)
    labels = rng.choice([0, 1, 3], n)
    return transcription.Place(
        x=rng.normal(size=(n, WIDTHS[0])),
        labels=labels,
        received=rng.normal(size=SPEC.dim),
        previous=rng.normal(size=SPEC.dim),
        counts=np.array([5, 81, 0, 2]),
        widths=WIDTHS,
    )


def point(seed=0):
    return torch.from_numpy(np.random.default_rng(100 + seed).normal(size=SPEC.dim))


def tensors(at, dtype=torch.float64):
    """x, labels, weights, received, previous, label counts."""
    n = len(at.x)
    parts = (at.x, at.labels, np.full(n, 1 / n), at.received, at.previous, at.counts)
    kinds = (dtype, torch.int64, dtype, dtype, dtype, dtype)
    return tuple(torch.as_tensor(part, dtype=kind) for part, kind in zip(parts, kinds, strict=True))


def bound(weights):
    return Bound(NET, unflatten(weights, SPEC))


def value(objective, y, x, labels, weights, received, previous, counts):
    others = Others(bound(received), bound(previous), counts)
    return objective.loss(bound(y), Batch(x, labels, weights), others)


def value_and_grad(objective, y, arguments):
    leaf = y.clone().requires_grad_()
    loss = value(objective, leaf, *arguments)
    return loss.detach(), torch.autograd.grad(loss, leaf)[0]


def close(got, want, tol=1e-12):
    torch.testing.assert_close(got, want, rtol=tol, atol=tol)


@pytest.mark.parametrize(
    ("objective", "written_out"), FORMS, ids=lambda v: getattr(v, "__name__", str(v))
)
@pytest.mark.parametrize("n", [1, 2, N])
def test_loss_and_gradient_are_those_written_out(objective, written_out, n):
    at, y = place(n=n), point()
    loss, gradient = value_and_grad(objective, y, tensors(at))
    assert float(loss) == pytest.approx(written_out(objective, y.numpy(), at), rel=1e-12)
    h = 1e-5
    for k, unit in enumerate(np.eye(SPEC.dim)):
        slope = [written_out(objective, y.numpy() + sign * h * unit, at) for sign in (1, -1)]
        assert float(gradient[k]) == pytest.approx(
            (slope[0] - slope[1]) / (2 * h), rel=1e-5, abs=1e-7
        )


@every
@pytest.mark.parametrize("n", [1, N])
def test_padding_changes_nothing(objective, n):
    """Rows of weight 0 may hold a label the client does not have, or large numbers."""
    y, (x, labels, weights, *others) = point(), tensors(place(n=n))
    want = value_and_grad(objective, y, (x, labels, weights, *others))
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(n + 4, generator=generator)
    junk = 100 * torch.randn(4, x.shape[1], dtype=x.dtype, generator=generator)
    padded = (
        torch.cat([x, junk])[rows],
        torch.cat([labels, torch.tensor([2, 0, 1, 2])])[rows],
        torch.cat([weights, torch.zeros(4, dtype=x.dtype)])[rows],
    )
    for got, expected in zip(value_and_grad(objective, y, (*padded, *others)), want, strict=True):
        close(got, expected, 1e-13)


@pytest.mark.parametrize("objective", OFF, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weight_zero_is_cross_entropy(objective, dtype):
    for seed in range(5):
        arguments, y = tensors(place(seed), dtype), point(seed).to(dtype)
        loss, gradient = value_and_grad(objective, y, arguments)
        plain, slope = value_and_grad(CrossEntropy(), y, arguments)
        assert torch.equal(loss, plain)
        close(gradient, slope, 1e-12)


@every
@pytest.mark.parametrize(("dtype", "tol"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_many_clients_at_once(objective, dtype, tol):
    each = [tensors(place(seed), dtype) for seed in range(4)]
    y = torch.stack([point(seed) for seed in range(4)]).to(dtype)
    stacked = [torch.stack(column) for column in zip(*each, strict=True)]
    together = vmap(torch.func.grad(lambda *a: value(objective, *a)))(y, *stacked)
    alone = torch.stack([value_and_grad(objective, y[k], each[k])[1] for k in range(4)])
    assert together.dtype == dtype
    close(together, alone, tol)


@every
def test_single_precision_is_near_double(objective):
    double, single = (value_and_grad(objective, point().to(t), tensors(place(), t)) for t in
                      (torch.float64, torch.float32))  # fmt: skip
    for got, want in zip(single, double, strict=True):
        close(got.double(), want, 2e-5)


def test_moon_of_two_equal_models_is_log_two():
    """The previous local model is the received one: the contrast says nothing and pulls nowhere."""
    arguments = list(tensors(place()))
    arguments[4] = arguments[3]
    loss, gradient = value_and_grad(MOON(mu=3.0), point(), arguments)
    plain, slope = value_and_grad(CrossEntropy(), point(), arguments)
    close(loss, plain + 3 * np.log(2))
    close(gradient, slope)


def test_moon_bears_features_of_zero():
    arguments, y = list(tensors(place())), point()
    for weights in (torch.zeros_like(y), y):
        for received in (torch.zeros_like(y), arguments[3]):
            loss, gradient = value_and_grad(
                MOON(), weights, [*arguments[:3], received, *arguments[4:]]
            )
            assert loss.isfinite() and gradient.isfinite().all()


def test_hybrid_paths():
    """The last path is local up to the received head; with one model for both, all are local."""
    x, labels, weights, received, *_ = tensors(place())
    batch, here, there = Batch(x, labels, weights), bound(point()), bound(received)
    taps = here.taps(x)
    close(there.resume(taps[-1], len(taps) - 1), there.head(here.features(x)), 0)
    only = FedMLB(lam1=0.0, lam2=1.0, lam3=0.0)
    paths = [
        weighted_cross_entropy(there.resume(tap, level), batch) for level, tap in enumerate(taps)
    ]
    close(only.loss(here, batch, Others(there)), torch.stack(paths).mean())
    same = Others(bound(point()))
    close(
        FedMLB(lam1=0.5, lam2=0.25, lam3=9.0).loss(here, batch, same),
        0.75 * CrossEntropy().loss(here, batch, same),
    )


def test_fedlc_leaves_missing_classes_alone():
    for dtype in (torch.float32, torch.float64):
        arguments = list(tensors(place(), dtype))
        y = 50 * point().to(dtype)
        loss, gradient = value_and_grad(FedLC(), y, arguments)
        assert loss.isfinite() and gradient.isfinite().all()
        head = unflatten(gradient, SPEC)
        assert not head["head.weight"][2].any() and not head["head.bias"][2].any()
        assert head["head.bias"][:2].any()


def test_fedlc_of_one_class_has_nothing_to_learn():
    x, _, weights, *others, _ = tensors(place())
    labels, counts = (
        torch.ones(N, dtype=torch.int64),
        torch.tensor([0.0, 9.0, 0.0, 0.0], dtype=torch.float64),
    )
    loss, gradient = value_and_grad(FedLC(), point(), (x, labels, weights, *others, counts))
    assert float(loss) == 0 and not gradient.any()


def test_fedntd_says_nothing_of_the_true_class():
    """Only the received model's true logit moves: the loss stays."""
    x, labels, weights, received, *rest = tensors(place())
    labels = torch.full_like(labels, 3)
    moved = {name: v.clone() for name, v in unflatten(received, SPEC).items()}
    moved["head.bias"][3] += 5
    other = torch.cat([v.reshape(-1) for v in moved.values()])
    losses = [value(FedNTD(), point(), x, labels, weights, r, *rest) for r in (received, other)]
    close(*losses)


def test_feddecorr_counts_correlated_features():
    """Two equal features: R_12 = n - 1, the penalty is (n - 1)^2 / n; independent ones give 0."""
    column = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    other = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    present = torch.ones(4, dtype=torch.bool)
    close(
        correlation(torch.stack([column, 3 * column], 1), present),
        torch.tensor(9 / 4).double(),
        1e-7,
    )
    assert float(correlation(torch.stack([column, other], 1), present)) < 1e-30
    assert float(correlation(column.unsqueeze(1), present)) == 0


def test_names_and_bad_fields():
    assert [objectives.find(name) for name in ("fed-mlb", "moon", "fed")] == [FedMLB, MOON, None]
    assert all(kind.title and kind.paper for kind in objectives.registry.values())
    for wrong in (
        lambda: MOON(tau=0),
        lambda: FedMLB(lam2=-1),
        lambda: FedNTD(form="other"),
        lambda: FedLC(tau="1"),
    ):
        with pytest.raises(BadParameters, match="is not allowed"):
            wrong()
    with pytest.raises(
        BadParameters, match="FedNTD: beta is a share where form = 'mix': at most 1"
    ):
        FedNTD(beta=1.5, form="mix")
    with pytest.raises(AttributeError, match="no attribute 'FedNothing'"):
        _ = objectives.FedNothing


def test_listing_needs_no_torch():
    script = (
        "import sys, undrift.objectives as o; o.find('moon')(mu=2.0); "
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    subprocess.run(
        [sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": path}
    )
