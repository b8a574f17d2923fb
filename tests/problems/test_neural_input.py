"""What a network is trained on: never changed, taken as it is meant, or refused in one sentence."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.parametrizations import spectral_norm

from tests.objectives.world import CPU, DIGITS, PARTS, PIPELINE, network, points
from undrift.engines import Simulate, Wire
from undrift.methods import FedAvg
from undrift.models import build
from undrift.models.net import seeded
from undrift.objectives import MOON
from undrift.problems import Logistic, Neural


def images(**changes):
    return dataclasses.replace(DIGITS, **changes)


def floats(dtype=torch.float32, shape=(1, 8, 8)):
    """Standardised inputs, some of them negative."""
    x, test = (
        (pixels.to(dtype) / 40 - 3).reshape(-1, *shape)
        for pixels in (DIGITS.images, DIGITS.test_images)
    )
    return images(images=x, test_images=test)


def tokens(dtype=torch.int64):
    x, test = (
        (pixels.flatten(1) // 20).to(dtype) for pixels in (DIGITS.images, DIGITS.test_images)
    )
    return images(images=x, test_images=test)


def made(*layers):
    with seeded(0):
        return nn.Sequential(*(layer() for layer in layers))


def dense():
    return made(nn.Flatten, lambda: nn.Linear(64, 10))


def writing():
    """Its first layer writes over its input."""
    return made(lambda: nn.ReLU(inplace=True), nn.Flatten, lambda: nn.Linear(64, 10))


# -- data that is taken


@pytest.mark.parametrize("make", [dense, writing, network], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "data", [DIGITS, floats(), floats(torch.float64)], ids=["uint8", "float32", "float64"]
)
def test_the_callers_data_are_never_written(make, data):
    kept = [v.clone() for v in (data.images, data.labels, data.test_images, data.test_labels)]
    problem = Neural(make(), data, PARTS, training=True)
    engine = Simulate(FedAvg(lr=0.1), problem, steps=2, batch=4)
    engine.run_round()
    problem.metrics(engine.x)
    problem.at().grad(points(problem))
    problem.to(torch.float64, CPU).metrics(engine.x)
    after = data.images, data.labels, data.test_images, data.test_labels
    assert all(torch.equal(a, b) for a, b in zip(kept, after, strict=True))


@pytest.mark.parametrize("given", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("make", [dense, network], ids=lambda make: make.__name__)
def test_floats_are_not_scaled(make, given):
    data = floats(given)
    problem = Neural(make(), data, PARTS).to(torch.float64, CPU)
    assert torch.equal(problem.placed.prepare(data.images), data.images.double())
    y = points(problem)
    got = problem.at().grad(y, torch.tensor([[0, 1]] * 6))
    for i, part in enumerate(PARTS):
        module = problem.module(y[i]).double()
        nn.utils.vector_to_parameters(y[i], module.parameters())
        cross_entropy(module(data.images[part[:2]].double()), DIGITS.labels[part[:2]]).backward()
        want = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
        torch.testing.assert_close(got[i], want, rtol=1e-11, atol=1e-12)


def test_bytes_are_scaled_as_ever():
    for dtype in (torch.float32, torch.float64):
        problem = Neural(dense(), DIGITS, PARTS).to(dtype, CPU)
        assert torch.equal(
            problem.placed.prepare(DIGITS.images), DIGITS.images.to(dtype) * (1 / 255)
        )


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_tokens_stay_whole_numbers(dtype):
    net = made(lambda: nn.Embedding(13, 3), nn.Flatten, lambda: nn.Linear(192, 10))
    problem = Neural(net, tokens(dtype), PARTS).to(torch.float64, CPU)
    assert problem.placed.prepare(problem.placed.samples.train.x).dtype == dtype
    fast, slow = (kind(FedAvg(lr=0.5), problem, steps=3, batch=8) for kind in (Simulate, Wire))
    before = problem.metrics(fast.x)["loss"]
    for _ in range(5):
        fast.run_round()
        slow.run_round()
    assert problem.metrics(fast.x)["loss"] < before
    torch.testing.assert_close(fast.x, slow.x, rtol=1e-11, atol=1e-12)


def test_convolutions_on_inputs_without_channels():
    class Lifting(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 2, 3), nn.Linear(72, 10)

        def forward(self, x):
            return self.head(self.conv(x.unsqueeze(1)).flatten(1))

    problem = Neural(Lifting(), floats(shape=(8, 8)), PARTS)
    assert problem.at().grad(points(problem), torch.tensor([[0, 1]] * 6)).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int16])
def test_labels_of_any_whole_numbers(dtype):
    data = images(labels=DIGITS.labels.to(dtype), test_labels=DIGITS.test_labels.to(dtype))
    problem, same = Neural(network(), data, PARTS), Neural(network(), DIGITS, PARTS)
    assert problem.metrics(problem.start()) == same.metrics(same.start())
    y = points(problem)
    assert torch.equal(problem.at().grad(y), same.at().grad(y))


# -- parts


def test_masks_are_the_samples_they_mark():
    first = np.arange(60) < 25
    for parts in ([first, ~first], [torch.from_numpy(first), list(~first)]):
        problem = Neural(dense(), DIGITS, parts)
        assert [part.tolist() for part in problem.parts] == [list(range(25)), list(range(25, 60))]
        assert problem.samples == [25, 35]
    features, labels = DIGITS.images.flatten(1).double() / 255, DIGITS.labels.double() % 2 * 2 - 1
    masked, numbered = (
        Logistic(features, labels, parts)
        for parts in ([first, ~first], np.split(np.arange(60), [25]))
    )
    assert torch.equal(masked.rows, numbered.rows)


class Labels(np.ndarray):
    """As an Index of pandas: labels of rows, not their positions."""

    def get_indexer(self, labels):
        return np.flatnonzero(np.isin(self, labels))


def labelled(rows):
    """As ``frame.groupby(column)`` gives them: names of groups, and the labels of their rows."""
    return [("even", rows[::2].view(Labels)), ("odd", rows[1::2].view(Labels))]


NOT_PARTS = {
    "floats": ([[0.5, 1.5], [3, 4]], "client 0"),
    "exact floats": ([[1, 2], np.array([3.0, 4.0])], "client 1"),
    "words": ([[0, 1], ["a", "b"]], "client 1"),
    "short mask": (
        [np.ones(60, bool), np.ones(59, bool)],
        "mask of client 1 has 59 entries, but there are 60",
    ),
    "empty mask": ([np.ones(60, bool), np.zeros(60, bool)], "client 1 has no samples"),
    "empty": ([[0], []], "client 1 has no samples"),
    "table": ([[0], [[1, 2], [3, 4]]], "client 1"),
    "ragged": ([[0], [[1, 2], [3]]], "client 1"),
    "numbers": (np.arange(8), "8 single numbers; .*by_group"),
    "nothing": ([[0], None], "client 1"),
    "outside": ([[0], [60]], "client 1 holds sample 60, but samples are numbered 0 to 59"),
    "a count": (5, "list of the samples of every client"),
    "labels of rows": (
        [rows for _, rows in labelled(np.arange(60)[::-1])],
        r"client 0 are labels of rows, .*by_group\(frame\[column\]\)",
    ),
}


@pytest.mark.parametrize("what", NOT_PARTS)
def test_other_parts_are_refused(what):
    parts, sentence = NOT_PARTS[what]
    labels = DIGITS.labels.double() % 2 * 2 - 1
    for make in (
        lambda: Neural(dense(), DIGITS, parts),
        lambda: Logistic(DIGITS.images.flatten(1).double(), labels, parts),
    ):
        with pytest.raises((ValueError, TypeError), match=sentence) as error:
            make()
        assert "\n" not in str(error.value)


# -- what is refused


class Pair(nn.Linear):
    def forward(self, x):
        return super().forward(x.flatten(1)), x


class Counting(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.seen += len(x)
        return super().forward(x.flatten(1))


WRONG = {
    "floats with a pipeline": (
        lambda: Neural(network(), floats(), PARTS, pipeline=PIPELINE),
        ValueError,
        "normalises uint8 images, but these are torch.float32; .* leave pipeline out",
    ),
    "bytes to train on, floats to test": (
        lambda: Neural(network(), images(test_images=DIGITS.test_images / 255), PARTS),
        ValueError,
        "images are torch.uint8, but test_images are torch.float32",
    ),
    "float labels": (
        lambda: Neural(network(), images(labels=DIGITS.labels.float()), PARTS),
        ValueError,
        r"labels are torch.float32, but classes are whole numbers; give labels.long\(\)",
    ),
    "a column of labels": (
        lambda: Neural(network(), images(test_labels=DIGITS.test_labels.unsqueeze(1)), PARTS),
        ValueError,
        r"test_labels must be \[n\].*not \[30, 1\]; squeeze a column",
    ),
    "fewer labels": (
        lambda: Neural(network(), images(labels=DIGITS.labels[:50]), PARTS),
        ValueError,
        "there are 60 images, but 50 labels",
    ),
    "fewer test images": (
        lambda: Neural(network(), images(test_images=DIGITS.test_images[:3]), PARTS),
        ValueError,
        "there are 3 test images, but 30 test labels",
    ),
    "arrays": (
        lambda: Neural(network(), images(images=DIGITS.images.numpy()), PARTS),
        ValueError,
        "images must be a torch tensor .*; got a ndarray",
    ),
    "a number of classes": (
        lambda: Neural(network(), images(classes=10), PARTS),
        ValueError,
        "classes are the names .*; got 10",
    ),
    "a loss of torch": (
        lambda: Neural(network(), DIGITS, PARTS, objective=nn.MSELoss()),
        ValueError,
        "undrift.objectives.*; got MSELoss",
    ),
    "an objective's class": (
        lambda: Neural(network(), DIGITS, PARTS, objective=MOON),
        ValueError,
        r"class MOON; give MOON\(",
    ),
    "a pair of outputs": (
        lambda: Neural(Pair(64, 10), DIGITS, PARTS),
        ValueError,
        "returns a tuple; .* the logits",
    ),
    "a lazy layer": (
        lambda: Neural(nn.Sequential(nn.Flatten(), nn.LazyLinear(10)), DIGITS, PARTS),
        ValueError,
        "the LazyLinear at '1' has no shape .* run the module on one first",
    ),
    "statistics of its own": (
        lambda: Neural(Counting(64, 10), DIGITS, PARTS),
        ValueError,
        "changes its buffer 'seen' in training, which clients do not share",
    ),
    "spectral normalisation": (
        lambda: Neural(
            nn.Sequential(nn.Flatten(), spectral_norm(nn.Linear(64, 10))), DIGITS, PARTS
        ),
        ValueError,
        r"changes its buffer '1.parametrizations.weight.0._u' in training",
    ),
    "a lazy module": (
        lambda: Neural(nn.LazyLinear(10), DIGITS, PARTS),
        ValueError,
        "the LazyLinear has no shape",
    ),
    "no parameters": (
        lambda: Neural(nn.Flatten(), DIGITS, PARTS),
        ValueError,
        "it has no parameters",
    ),
    "a function": (
        lambda: Neural(torch.relu, DIGITS, PARTS),
        ValueError,
        "must be a torch.nn.Module",
    ),
    "a class": (lambda: Neural(nn.Flatten, DIGITS, PARTS), ValueError, "must be a torch.nn.Module"),
}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    ("name", "sentence"),
    {
        "images": "^Neural: sample 7 of client {}: its inputs hold",
        "test_images": "^Neural: test sample 7: its inputs hold",
    }.items(),
)
def test_inputs_that_are_not_finite_are_refused_by_sample_and_client(name, sentence, number):
    data = floats()
    getattr(data, name)[7, 0, 2, 3] = number
    client = next(c for c, part in enumerate(PARTS) if 7 in part)
    with pytest.raises(ValueError, match=sentence.format(client)):
        Neural(network(), data, PARTS)


@pytest.mark.parametrize("what", WRONG)
def test_refused_in_one_sentence(what):
    make, kind, sentence = WRONG[what]
    with pytest.raises(kind, match=sentence) as error:
        make()
    assert "\n" not in str(error.value)


# -- networks that torch would stack one by one


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.LSTM(8, 5, batch_first=True), nn.Linear(5, 10)

    def forward(self, x):
        return self.head(self.body(x.squeeze(1))[0][:, -1])


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 10)

    def forward(self, x):
        rows = x.squeeze(1)
        return self.head(self.body(rows, rows, rows, need_weights=False)[0].mean(1))


class Choosing(nn.Linear):
    """A branch that looks at a number, which no stacked network can."""

    def forward(self, x):
        h = super().forward(x.flatten(1))
        return h if float(h.sum()) > 0 else 2 * h


@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("make", [Recurrent, Attentive, lambda: Choosing(64, 10)])
def test_networks_that_cannot_be_stacked_run_one_by_one_and_quietly(make, dtype, tol):
    with seeded(0):
        net = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem = Neural(net, DIGITS, PARTS).to(dtype, CPU)
        fast, slow = (kind(FedAvg(lr=0.1), problem, steps=2, batch=4) for kind in (Simulate, Wire))
        for _ in range(2):
            fast.run_round()
            slow.run_round()
    torch.testing.assert_close(fast.x, slow.x, rtol=tol, atol=tol)
    assert not torch.equal(fast.x, fast.x0)


def test_networks_that_can_be_stacked_are():
    assert Neural(
        made(nn.Flatten, lambda: nn.Linear(64, 5), nn.Tanh, lambda: nn.Linear(5, 10)), DIGITS, PARTS
    ).placed.stacked
    assert Neural(build("mlp", 1, 8, 10), DIGITS, PARTS, objective=MOON()).placed.stacked
