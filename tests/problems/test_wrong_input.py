"""Whatever is wrong with what a network is made of: one line, with the field as data.

The tables say which field each mistake is told about. The same mistakes in arguments of
``undrift.run`` are in tests/runs/test_arguments.py.
"""

import dataclasses
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
)

import undrift as ud
from tests.objectives.world import DIGITS
from tests.objectives.world import PARTS as IMAGES
from undrift.core import BadParameters
from undrift.models import build
from undrift.models.net import seeded

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype(np.float32)
Y = 2 * X[:, :1]
LABELS = (X[:, 0] > 0).astype(np.int64)
PARTS = ud.data.iid(60, clients=4)
NAMES = np.array(["no", "yes"])[LABELS]


def line(outputs=1):
    with seeded(0):
        return nn.Linear(4, outputs)


def numbers(train=(X, Y), parts=PARTS, module=None, **options):
    """A regression."""
    return ud.Neural(
        line() if module is None else module, train, parts, **{"loss": F.mse_loss, **options}
    )


def classes(targets=LABELS, module=None, **options):
    return ud.Neural(line(2) if module is None else module, (X, targets), PARTS, **options)


class Samples(Dataset):
    def __init__(self, x=X, y=Y, length=None):
        self.x, self.y = torch.tensor(x), torch.tensor(y)
        self.length = len(self.x) if length is None else length

    def __len__(self):
        return self.length

    def __getitem__(self, k):
        return self.x[k], self.y[k]


class ByName(Samples):
    def __getitem__(self, k):
        return {"x": self.x[k], "y": self.y[k]}


class Broken(Samples):
    def __getitem__(self, k):
        if k == 7:
            raise OSError("no such file")
        return super().__getitem__(k)


class Endless(Dataset):
    def __getitem__(self, k):
        return X[k], Y[k]


class Stream(IterableDataset):
    def __iter__(self):
        yield X[0], Y[0]


class Changed(nn.Linear):
    """Returns something else."""

    def __init__(self, change, outputs=1):
        super().__init__(4, outputs)
        self.change = change

    def forward(self, x):
        return self.change(super().forward(x))


class Sum(nn.Linear):
    def forward(self, a, b):
        return super().forward(a + b)


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(4, 1, dtype=torch.complex64))

    def forward(self, x):
        return (x.to(torch.complex64) @ self.w).real


class Counting(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.seen += len(x)
        return super().forward(x.flatten(1))


def digits(module=None, test=None, **changes):
    """Images, some of them changed."""
    images = dataclasses.replace(DIGITS, **changes)
    return ud.Neural(
        build("linear", 1, 8, 10) if module is None else module, images, IMAGES, test=test
    )


def reader(words):
    with seeded(0):
        return nn.Sequential(nn.Embedding(words, 3), nn.Flatten(), nn.Linear(12, 2))


def without_values():
    net = line()
    with torch.no_grad():
        net.weight[0, 0] = np.nan
    return net


def doubled(layer):
    """Shims of this kind mask weights or quantise them."""
    layer.forward = lambda x: 2 * nn.functional.linear(x, layer.weight, layer.bias)
    return layer


def hooked(register):
    net = line()
    getattr(net.weight, register)(lambda g: None)
    return net


def holed(part):
    pair = [X.copy(), Y.copy()]
    pair[part][7, 0] = np.inf
    return tuple(pair)


TRAIN = {
    "data sets in a tuple": lambda: numbers((Samples(), Samples())),
    "an empty Dataset": lambda: numbers(Samples(X[:0], Y[:0])),
    "a client's infinite input": lambda: numbers([(X, Y), holed(0)], None),
    "fewer labels than images": lambda: digits(labels=DIGITS.labels[:50]),
    "a table of bytes": lambda: numbers(((X > 0).astype(np.uint8), Y)),
    "a mask of bytes": lambda: numbers(
        ({"a": X, "b": (X > 0).astype(np.uint8)}, Y), module=Sum(4, 1)
    ),
    "nothing": lambda: numbers(None),
    "inputs alone": lambda: numbers(torch.tensor(X)),
    "three": lambda: numbers((X, Y, Y)),
    "a list for a tuple": lambda: numbers([X, Y], None),
    "a list of samples": lambda: numbers(list(zip(X, Y, strict=True)), None),
    "clients by name": lambda: numbers({"a": (X, Y)}),
    "a generator": lambda: numbers((X, Y) for _ in "ab"),
    "a path": lambda: numbers(Path("data.csv")),
    "a name": lambda: numbers("digits"),
    "the network again": lambda: numbers(line()),
    "a stream": lambda: numbers(Stream()),
    "no length": lambda: numbers(Endless()),
    "samples by name": lambda: numbers(ByName()),
    "one tensor": lambda: numbers(TensorDataset(torch.tensor(X))),
    "a length too large": lambda: numbers(Samples(length=70)),
    "a file that is gone": lambda: numbers(Broken()),
    "a loader": lambda: numbers(DataLoader(Samples())),
    "fewer targets": lambda: numbers((X, Y[:9])),
    "nobody": lambda: numbers((X[:0], Y[:0])),
    "a site without samples": lambda: numbers([(X, Y), (X[:0], Y[:0])], None),
    "texts": lambda: classes(NAMES),
    "texts among objects": lambda: classes(NAMES.astype(object)),
    "objects": lambda: numbers((X.astype(object), Y)),
    "ragged lists": lambda: numbers(([[1.0], [2.0, 3.0]] * 30, Y)),
    "complex numbers": lambda: numbers((X.astype(complex), Y)),
    "a masked array": lambda: numbers((np.ma.masked_less(X, 0), Y)),
    "infinite inputs": lambda: numbers(holed(0)),
    "infinite targets": lambda: numbers(holed(1)),
    "clients of other shapes": lambda: numbers([(X, Y), (X[:, :2], Y)], None),
}
FRAME_OF_PARTS = {"a": [0], "b": [1]}
SPLITS = {
    "none": lambda: numbers(parts=None),
    "a number": lambda: numbers(parts=4),
    "a name": lambda: numbers(parts="iid"),
    "a function": lambda: numbers(parts=ud.data.iid),
    "by name": lambda: numbers(parts=FRAME_OF_PARTS),
    "a label each": lambda: numbers(parts=LABELS),
    "nobody": lambda: numbers(parts=[]),
    "an empty client": lambda: numbers(parts=[[0], []]),
    "an empty mask": lambda: numbers(parts=[X[:, 0] > 9]),
    "too many": lambda: numbers(parts=[[0], [60]]),
    "negative": lambda: numbers(parts=[[-1]]),
    "fractions": lambda: numbers(parts=[[0.5]]),
    "a short mask": lambda: numbers(parts=[X[:9, 0] < 9]),
    "a table": lambda: numbers(parts=[[0], [[1], [2]]]),
    "ragged": lambda: numbers(parts=[[[1], [2, 3]]]),
    "a slice": lambda: numbers(parts=[slice(9)]),
    "a set": lambda: numbers(parts=[{1, 2}]),
    "subsets": lambda: numbers(parts=[Subset(Samples(), [0])]),
    "with clients' data": lambda: numbers([(X, Y)]),
    "swapped with the data": lambda: numbers(PARTS, (X, Y)),
}
TEST = {
    "of images twice": lambda: digits(test=0.2),
    "fewer test labels": lambda: digits(test_labels=DIGITS.test_labels[:3]),
    "a column of test labels": lambda: digits(test_labels=DIGITS.test_labels.unsqueeze(1)),
    "floats beside bytes": lambda: digits(test_images=DIGITS.test_images / 255),
    "no test images": lambda: digits(
        test_images=DIGITS.test_images[:0], test_labels=DIGITS.test_labels[:0]
    ),
    "all": lambda: numbers(test=1),
    "more than all": lambda: numbers(test=1.5),
    "none of it": lambda: numbers(test=0.0),
    "yes": lambda: numbers(test=True),
    "no number": lambda: numbers(test=np.float32(np.nan)),
    "per cent": lambda: numbers(test="20%"),
    "of fewer clients": lambda: numbers(test=[(X, Y)] * 3),
    "a list for a tuple": lambda: numbers(test=[X, Y]),
    "a share each": lambda: numbers(test=[0.1] * 4),
    "no samples": lambda: numbers(test=(X[:0], Y[:0])),
    "no samples anywhere": lambda: numbers(test=[(X[:0], Y[:0]), None] * 2),
    "other inputs of the second site": lambda: numbers(test=[None, (X, Y), (X[:, :3], Y), None]),
    "nothing to hold out": lambda: numbers(parts=[[k] for k in range(60)], test=0.2),
    "trained on too": lambda: numbers(parts=[[0, 1, 2], [2, 3]], test=0.2),
    "other inputs": lambda: numbers(test=(X[:, :3], Y)),
    "other targets": lambda: numbers(test=(X, Y[:, 0])),
    "other lengths": lambda: numbers(test=(X, Y[:9])),
    "other structure": lambda: numbers(test=((X, X), Y)),
    "measured classes": lambda: classes(test=(X, LABELS.astype(np.float32))),
    "infinite": lambda: numbers(test=holed(0)),
    "a token without a place": lambda: ud.Neural(
        reader(5), ((X > 0).astype(int), LABELS), PARTS, test=((X > 0) * 9, LABELS)
    ),
}
MODULE = {
    "a buffer that changes": lambda: digits(module=Counting(64, 10)),
    "spectral normalisation": lambda: digits(
        module=nn.Sequential(nn.Flatten(), spectral_norm(nn.Linear(64, 10)))
    ),
    "fewer outputs than classes": lambda: digits(module=build("linear", 1, 8, 7)),
    "outputs of another shape": lambda: digits(module=nn.Conv2d(1, 10, 8)),
    "a network of other channels": lambda: digits(module=build("cnn", 3, 32, 10)),
    "one that loses the axis of samples": lambda: numbers(
        (X, Y[:, 0]), module=Changed(torch.Tensor.squeeze)
    ),
    "tokens beyond the vocabulary": lambda: ud.Neural(reader(5), ((X > -9) * 5, LABELS), PARTS),
    "tokens below zero": lambda: ud.Neural(reader(5), ((X > -9) * -1, LABELS), PARTS),
    "a class": lambda: ud.Neural(nn.Linear, (X, Y), PARTS),
    "a function": lambda: ud.Neural(torch.relu, (X, Y), PARTS),
    "the data": lambda: ud.Neural((X, Y), line(), PARTS),
    "no shape yet": lambda: numbers(module=nn.LazyLinear(1)),
    "no parameters": lambda: numbers(module=nn.Flatten()),
    "all frozen": lambda: numbers(module=line().requires_grad_(False)),
    "complex weights": lambda: numbers(module=Complex()),
    "weights without values": lambda: numbers(module=nn.Linear(4, 1, device="meta")),
    "weights that are not numbers": lambda: numbers(module=without_values()),
    "a parallel one": lambda: numbers(module=nn.DataParallel(line())),
    "a compiled one": lambda: numbers(module=torch.compile(line())),
    "batch statistics": lambda: numbers(module=nn.Sequential(nn.BatchNorm1d(4), line())),
    "statistics of batches alone": lambda: numbers(
        module=nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), line())
    ),
    "an embedding that writes to its weights": lambda: ud.Neural(
        nn.Sequential(nn.Embedding(9, 3, max_norm=1.0), nn.Flatten(), nn.Linear(12, 2)),
        ((X > 0).astype(int), LABELS),
        PARTS,
    ),
    "a bag that writes to its weights": lambda: ud.Neural(
        nn.EmbeddingBag(9, 2, max_norm=1.0), ((X > 0) * 1, LABELS), PARTS
    ),
    "an embedding that counts tokens": lambda: ud.Neural(
        nn.EmbeddingBag(9, 2, scale_grad_by_freq=True), ((X > 0) * 1, LABELS), PARTS
    ),
    "an embedding with sparse gradients": lambda: ud.Neural(
        nn.EmbeddingBag(9, 2, sparse=True), ((X > 0) * 1, LABELS), PARTS
    ),
    "a forward on an object": lambda: numbers(module=nn.Sequential(doubled(line()))),
    "a forward on the network": lambda: numbers(module=doubled(line())),
    "a hook on a gradient": lambda: numbers(module=hooked("register_hook")),
    "a hook on a gradient that was added up": lambda: numbers(
        module=hooked("register_post_accumulate_grad_hook")
    ),
    "one that cannot be copied": lambda: numbers(module=Changed(threading.Lock())),
    "other inputs": lambda: numbers(module=nn.Linear(5, 1)),
    "one input too few": lambda: numbers(module=Sum(4, 1)),
    "another name": lambda: numbers(({"a": X, "c": X}, Y), module=Sum(4, 1)),
    "whole numbers to a layer": lambda: numbers((X.astype(int), Y)),
    "masks to a layer": lambda: numbers((X > 0, Y)),
    "measurements to an embedding": lambda: ud.Neural(reader(9), (np.abs(X), LABELS), PARTS),
}
LOSS = {
    "random numbers": lambda: numbers(loss=lambda o, t: (o - t + torch.rand(1)).square().mean()),
    "two losses": lambda: classes(loss=F.cross_entropy, objective=ud.objectives.CrossEntropy()),
    "weights of its own": lambda: numbers(loss=nn.Linear(1, 1)),
    "float labels of images": lambda: digits(labels=DIGITS.labels.float()),
    "classes that images have not": lambda: digits(labels=DIGITS.labels + 1),
    "classes that test images have not": lambda: digits(test_labels=DIGITS.test_labels - 1),
    "scores along the last axis": lambda: ud.Neural(
        nn.Sequential(nn.Embedding(9, 7)),
        ((X > 0) * 1, (X > 0) * 1 + 5),
        PARTS,
        loss=F.cross_entropy,
    ),
    "a class": lambda: numbers(loss=nn.MSELoss),
    "a name": lambda: numbers(loss="mse"),
    "an objective": lambda: classes(loss=ud.objectives.MOON()),
    "a number for each": lambda: numbers(loss=lambda o, t: (o - t).square().mean(1)),
    "a list of one": lambda: numbers(loss=lambda o, t: (o - t).square().mean()[None]),
    "a float": lambda: numbers(loss=lambda o, t: (o - t).mean().item()),
    "a whole number": lambda: numbers(loss=lambda o, t: 3),
    "nothing": lambda: numbers(loss=lambda o, t: None),
    "a count": lambda: numbers(loss=lambda o, t: (o > t).sum()),
    "detached": lambda: numbers(loss=lambda o, t: (o - t).square().mean().detach()),
    "complex": lambda: numbers(loss=lambda o, t: (o - t).mean() * 1j),
    "one argument": lambda: numbers(loss=lambda o: o.mean()),
    "swapped arguments": lambda: classes(loss=lambda t, o: F.cross_entropy(o, t)),
    "random": lambda: numbers(loss=lambda o, t: (o - t + torch.rand(1)).square().mean()),
    "a sum": lambda: numbers(loss=nn.MSELoss(reduction="sum")),
    "a sum inside a partial": lambda: numbers(loss=partial(F.mse_loss, reduction="sum")),
    "targets in place": lambda: numbers(loss=lambda o, t: (o - t.add_(1)).square().mean()),
    "two": lambda: classes(loss=F.cross_entropy, objective=ud.objectives.MOON()),
    "no logarithms": lambda: classes(loss=F.nll_loss),
    "no probabilities": lambda: numbers((X, LABELS[:, None].astype(np.float32)), loss=nn.BCELoss()),
    "answers in whole numbers": lambda: numbers((X, LABELS[:, None]), loss=nn.BCEWithLogitsLoss()),
    "a column too few": lambda: numbers((X, Y[:, 0])),
    "more outputs": lambda: numbers(module=line(3)),
    "classes as floats": lambda: classes(LABELS.astype(float)),
    "classes as answers": lambda: classes(LABELS > 0),
    "a column of classes": lambda: classes(LABELS[:, None]),
    "rows of one": lambda: classes(np.eye(2)[LABELS]),
    "whole rows of one": lambda: classes(np.eye(2, dtype=int)[LABELS]),
    "rows of classes": lambda: classes(np.stack([LABELS] * 3, 1)),
    "negative classes": lambda: classes(LABELS - 1),
    "classes from 1": lambda: classes(LABELS + 1),
    "more classes": lambda: classes(3 * LABELS),
    "more classes by torch": lambda: classes(
        3 * LABELS, loss=nn.CrossEntropyLoss(label_smoothing=0.1)
    ),
    "no output": lambda: classes(module=Changed(lambda o: None, 2)),
    "outputs by name": lambda: classes(module=Changed(lambda o: {"o": o}, 2)),
    "a pair of outputs": lambda: classes(module=Changed(lambda o: (o, o), 2)),
    "a pair to measure": lambda: numbers(module=Changed(lambda o: (o, o))),
    "an array": lambda: numbers(module=Changed(lambda o: o.detach().numpy())),
    "a mean of outputs": lambda: classes(module=Changed(lambda o: o.mean(0), 2)),
    "outputs without a gradient": lambda: classes(module=Changed(torch.Tensor.detach, 2)),
}
OBJECTIVE = {
    "a name": lambda: classes(objective="MOON"),
    "a class": lambda: classes(objective=ud.objectives.MOON),
    "of measurements": lambda: numbers(loss=None, objective=ud.objectives.CrossEntropy()),
    "one that looks inside": lambda: classes(objective=ud.objectives.MOON()),
}


def score(outputs, targets):
    return (outputs - targets)[:, 0]


def another():
    def score(outputs, targets):
        return outputs[:, 0]

    return score


METRICS = {
    "one that loses the axis of samples": lambda: numbers(
        metrics={"m": lambda o, t: (o - t).squeeze()}
    ),
    "accuracy of a pair": lambda: numbers(
        module=Changed(lambda o: (o, o)),
        loss=lambda o, t: F.mse_loss(o[0], t),
        metrics=["accuracy"],
    ),
    "misspelt": lambda: numbers(metrics=["maee"]),
    "misspelt alone": lambda: classes(metrics="acuracy"),
    "a number": lambda: numbers(metrics=3),
    "nothing": lambda: numbers(metrics=[None]),
    "a class": lambda: numbers(metrics=[nn.L1Loss]),
    "no name": lambda: numbers(metrics=[lambda o, t: o]),
    "a name that is taken": lambda: numbers(metrics={"loss": "mae"}),
    "the same name twice": lambda: numbers(metrics=[score, another()]),
    "a mean": lambda: numbers(metrics=[nn.L1Loss()]),
    "a table": lambda: numbers(metrics={"m": lambda o, t: o - t}),
    "a float": lambda: numbers(metrics={"m": lambda o, t: 0.5}),
    "an array": lambda: numbers(metrics={"m": lambda o, t: np.ones(len(o))}),
    "three": lambda: numbers(metrics={"m": lambda o, t: (o[:, 0],) * 3}),
    "one that fails": lambda: numbers(metrics={"m": lambda o: o}),
    "errors of classes": lambda: classes(metrics=["mse"]),
    "accuracy of measurements": lambda: numbers(metrics=["accuracy"]),
}
OPTIONS = {
    "precision": lambda: numbers(precision="fp16"),
    "pipeline": lambda: numbers(pipeline=torch.relu),
}
TABLES = {
    "train": TRAIN,
    "parts": SPLITS,
    "test": TEST,
    "module": MODULE,
    "loss": LOSS,
    "objective": OBJECTIVE,
    "metrics": METRICS,
    **{field: {field: case} for field, case in OPTIONS.items()},
}


@pytest.mark.parametrize(
    ("field", "what"), [(field, what) for field, cases in TABLES.items() for what in cases]
)
def test_one_line_about_the_field(field, what):
    with pytest.raises(BadParameters) as error:
        TABLES[field][what]()
    assert set(error.value.problems) == {field}
    (text,) = error.value.problems.values()
    assert "\n" not in text and str(error.value) == f"Neural: {text}" and len(text) < 600


# -- what is meant well is taken


TAKEN = {
    "classes of 32 bits": lambda: classes(LABELS.astype(np.int32)),
    "classes of 8 bits": lambda: classes(LABELS.astype(np.uint8)),
    "classes in a list": lambda: classes(LABELS.tolist()),
    "lists of rows": lambda: numbers((list(X), list(Y))),
    "lists of tensors": lambda: numbers((list(torch.tensor(X)), Y)),
    "rows backwards": lambda: numbers((X[::-1], Y[::-1])),
    "other bytes": lambda: numbers((X.astype(">f4"), Y.astype(">f8"))),
    "half precision": lambda: numbers((X.astype(np.float16), Y)),
    "half weights": lambda: numbers(module=line().half()),
    "double weights": lambda: numbers(module=line().double()),
    "ranges": lambda: numbers(parts=[range(30), range(30, 60)]),
    "a tensor of parts": lambda: numbers(parts=torch.arange(60).view(4, 15)),
    "parts one by one": lambda: numbers(parts=(part for part in PARTS)),
    "a sample held twice": lambda: numbers(parts=[[0, 0, 1]]),
    "a share of NumPy's": lambda: numbers(test=np.float32(0.2)),
    "answers as a metric": lambda: numbers(metrics={"m": lambda o, t: (o > t)[:, 0]}),
}


@pytest.mark.parametrize("what", TAKEN)
def test_what_is_meant_well_is_taken(what):
    problem = TAKEN[what]()
    row = problem.metrics(problem.start())
    assert np.isfinite([*row.values()]).all()


def test_a_batch_larger_than_a_client_has_samples():
    run = ud.run(ud.FedAvg(lr=0.01), numbers(), rounds=2, steps=2, batch=100)
    assert run.history.last["loss"] < run.history.rows[0]["loss"]


def test_a_cause_is_kept_for_those_who_look():
    with pytest.raises(BadParameters) as error:
        numbers(Broken())
    assert isinstance(error.value.__cause__, OSError)


# -- tables of pandas


def test_a_frame_of_pandas():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    frame["y"], frame["name"] = Y[:, 0], NAMES
    assert numbers((frame[list("abcd")], frame[["y"]])).clients == 4
    assert numbers(parts=[frame.name == "yes", frame.name == "no"]).clients == 2
    assert numbers(parts=list(frame.groupby("name").indices.values())).clients == 2
    assert len(ud.data.by_group(frame.name)) == 2
    assert len(ud.data.dirichlet(frame.name.astype("category"), clients=3)) == 3
    for make in (
        lambda: numbers(frame),
        lambda: numbers((frame, frame[["y"]])),
        lambda: classes(frame.name),
        lambda: classes(frame.name.astype("category")),
        lambda: classes(pandas.array([0, 1, None] * 20, dtype="Int64")),
    ):
        with pytest.raises(BadParameters) as error:
            make()
        assert set(error.value.problems) == {"train"}
