"""Whatever is wrong with what a network is made of: one line, with the field as data."""

import dataclasses
import threading
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import Dataset

import undrift as ud
from tests.objectives.world import DIGITS
from tests.objectives.world import PARTS as IMAGES
from undrift.core import BadParameters
from undrift.models import build
from undrift.models.net import seeded

X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
Y = 2 * X[:, :1]
LABELS = (X[:, 0] > 0).astype(np.int64)
TOKENS = (X > 0).astype(int)
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


def read(module, tokens=TOKENS, test=None):
    return ud.Neural(module, (tokens, LABELS), PARTS, test=test)


def digits(module=None, test=None, **changes):
    """Images, some of them changed."""
    images = dataclasses.replace(DIGITS, **changes)
    return ud.Neural(
        build("linear", 1, 8, 10) if module is None else module, images, IMAGES, test=test
    )


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


class Counting(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.seen += len(x)
        return super().forward(x.flatten(1))


class Labels(np.ndarray):
    """As an Index of pandas: labels of rows, not their positions."""

    def get_indexer(self, labels):
        return np.flatnonzero(np.isin(self, labels))


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


def square(outputs, targets):
    return (outputs - targets).square()


WRONG = {
    "train": [
        lambda: numbers(None),
        lambda: numbers([X, Y], None),
        lambda: numbers("digits"),
        lambda: numbers((Samples(), Samples())),
        lambda: numbers(Samples(X[:0], Y[:0])),
        lambda: numbers(ByName()),
        lambda: numbers(Broken()),
        lambda: numbers((X, Y[:9])),
        lambda: numbers((X[:0], Y[:0])),
        lambda: numbers([(X, Y), (X[:0], Y[:0])], None),
        lambda: numbers([(X, Y), (X[:, :2], Y)], None),
        lambda: numbers([(X, Y), ((X > 0).astype(np.uint8), Y)], None),
        lambda: numbers(holed(0)),
        lambda: numbers(holed(1)),
        lambda: numbers(([[1.0], [2.0, 3.0]] * 30, Y)),
        lambda: numbers((X.astype(complex), Y)),
        lambda: numbers((np.ma.masked_less(X, 0), Y)),
        lambda: numbers(((X > 0).astype(np.uint8), Y)),
        lambda: numbers(({"a": X, "b": (X > 0).astype(np.uint8)}, Y), module=Sum(4, 1)),
        lambda: classes(NAMES),
        lambda: digits(labels=DIGITS.labels[:50]),
    ],
    "parts": [
        lambda: numbers(parts=None),
        lambda: numbers([(X, Y)]),
        *(
            partial(numbers, parts=given)
            for given in (
                4,
                {"a": [0], "b": [1]},
                [],
                [[0], []],
                [X[:, 0] > 9],
                [[0], [60]],
                [[-1]],
                [[0.5]],
                [["a"]],
                [[[1], [2, 3]]],
                [np.arange(60)[::-1].view(Labels)],
            )
        ),
    ],
    "test": [
        lambda: digits(test=0.2),
        lambda: digits(test_labels=DIGITS.test_labels[:3]),
        lambda: digits(test_labels=DIGITS.test_labels.unsqueeze(1)),
        lambda: digits(test_images=DIGITS.test_images / 255),
        lambda: numbers(parts=[[k] for k in range(60)], test=0.2),
        lambda: numbers(parts=[[0, 1, 2], [2, 3]], test=0.2),
        lambda: read(reader(5), test=(9 * TOKENS, LABELS)),
        lambda: classes(test=(X, LABELS.astype(np.float32))),
        *(
            partial(numbers, test=given)
            for given in (
                1,
                0.0,
                "20%",
                [(X, Y)] * 3,
                (X[:0], Y[:0]),
                [(X[:0], Y[:0]), None] * 2,
                (X[:, :3], Y),
                ((X, X), Y),
                holed(0),
            )
        ),
    ],
    "module": [
        lambda: digits(module=Counting(64, 10)),
        lambda: digits(module=nn.Sequential(nn.Flatten(), spectral_norm(nn.Linear(64, 10)))),
        lambda: digits(module=build("linear", 1, 8, 7)),
        lambda: digits(module=nn.Conv2d(1, 10, 8)),
        lambda: digits(module=build("cnn", 3, 32, 10)),
        lambda: ud.Neural((X, Y), line(), PARTS),
        lambda: numbers(({"a": X, "c": X}, Y), module=Sum(4, 1)),
        lambda: numbers((X.astype(int), Y)),
        lambda: read(reader(5), 5 * np.ones_like(TOKENS)),
        lambda: read(reader(9), np.abs(X)),
        lambda: read(nn.EmbeddingBag(9, 2, max_norm=1.0)),
        lambda: read(nn.EmbeddingBag(9, 2, scale_grad_by_freq=True)),
        lambda: read(nn.EmbeddingBag(9, 2, sparse=True)),
        *(
            partial(lambda make: numbers(module=make()), make)
            for make in (
                lambda: nn.Linear,
                lambda: nn.LazyLinear(1),
                nn.Flatten,
                lambda: line().requires_grad_(False),
                lambda: line().to(torch.complex64),
                lambda: nn.Linear(4, 1, device="meta"),
                without_values,
                lambda: nn.DataParallel(line()),
                lambda: torch.compile(line()),
                lambda: nn.Sequential(nn.BatchNorm1d(4), line()),
                lambda: nn.Sequential(doubled(line())),
                lambda: doubled(line()),
                lambda: hooked("register_hook"),
                lambda: hooked("register_post_accumulate_grad_hook"),
                lambda: Changed(threading.Lock()),
                lambda: nn.Linear(5, 1),
            )
        ),
    ],
    "loss": [
        lambda: classes(loss=F.cross_entropy, objective=ud.objectives.CrossEntropy()),
        lambda: classes(loss=ud.objectives.MOON()),
        lambda: classes(loss=lambda t, o: F.cross_entropy(o, t)),
        lambda: digits(labels=DIGITS.labels.float()),
        lambda: digits(labels=DIGITS.labels + 1),
        lambda: digits(test_labels=DIGITS.test_labels - 1),
        lambda: numbers((X, LABELS[:, None].astype(np.float32)), loss=nn.BCELoss()),
        lambda: numbers((X, LABELS[:, None]), loss=nn.BCEWithLogitsLoss()),
        lambda: numbers((X, Y[:, 0])),
        lambda: numbers(module=line(3)),
        lambda: numbers(module=Changed(lambda o: (o, o))),
        lambda: classes(X[:, 0]),
        lambda: classes(np.stack([LABELS] * 3, 1)),
        lambda: classes(LABELS - 1),
        lambda: classes(3 * LABELS, loss=nn.CrossEntropyLoss(label_smoothing=0.1)),
        lambda: classes(module=Changed(lambda o: {"o": o}, 2)),
        lambda: classes(module=Changed(lambda o: o.mean(0), 2)),
        lambda: classes(module=Changed(torch.Tensor.detach, 2)),
        *(
            partial(numbers, loss=given)
            for given in (
                None,
                nn.MSELoss,
                nn.Linear(1, 1),
                nn.MSELoss(reduction="sum"),
                square,
                lambda o, t: square(o, t).mean().item(),
                lambda o, t: square(o, t).mean().detach(),
                lambda o, t: (o - t).mean() * 1j,
                lambda o: o.mean(),
                lambda o, t: square(o, t + torch.rand(1)).mean(),
            )
        ),
    ],
    "objective": [
        lambda: classes(objective="MOON"),
        lambda: classes(objective=ud.objectives.MOON),
        lambda: numbers(loss=None, objective=ud.objectives.CrossEntropy()),
        lambda: classes(objective=ud.objectives.MOON()),
    ],
    "metrics": [
        lambda: classes(metrics="acuracy"),
        lambda: classes(metrics=["mse"]),
        *(
            partial(numbers, metrics=given)
            for given in (
                3,
                [nn.L1Loss],
                {"loss": "mae"},
                [lambda o, t: o[:, 0], lambda o, t: t[:, 0]],
                [nn.L1Loss()],
                {"m": square},
                {"m": lambda o, t: 0.5},
                {"m": lambda o, t: (o[:, 0],) * 3},
                {"m": lambda o: o},
            )
        ),
    ],
    "precision": [lambda: numbers(precision="fp16")],
    "pipeline": [lambda: numbers(pipeline=torch.relu)],
}


@pytest.mark.parametrize(
    ("field", "make"), [(field, make) for field, makers in WRONG.items() for make in makers]
)
def test_one_line_about_the_field(field, make):
    with pytest.raises(BadParameters) as error:
        make()
    assert set(error.value.problems) == {field}
    (text,) = error.value.problems.values()
    assert "\n" not in text and str(error.value) == f"Neural: {text}" and len(text) < 600


TAKEN = {
    "lists of tensors": lambda: numbers((list(torch.tensor(X)), Y)),
    "rows backwards": lambda: numbers((X[::-1], Y[::-1])),
    "other bytes": lambda: numbers((X.astype(">f4"), Y.astype(">f8"))),
    "half weights": lambda: numbers(module=line().half()),
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


def test_a_frame_of_pandas():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    frame["y"], frame["name"] = Y[:, 0], NAMES
    assert numbers((frame[list("abcd")], frame[["y"]])).clients == 4
    assert numbers(parts=[frame.name == "yes", frame.name == "no"]).clients == 2
    assert len(ud.data.by_group(frame.name)) == 2
    for make in (
        lambda: numbers(frame),
        lambda: numbers((frame, frame[["y"]])),
        lambda: classes(frame.name.astype("category")),
        lambda: classes(pandas.array([0, 1, None] * 20, dtype="Int64")),
    ):
        with pytest.raises(BadParameters) as error:
            make()
        assert set(error.value.problems) == {"train"}


def test_clients_of_the_first_samples_alone_are_told():
    x, y = torch.randn(50, 3), torch.arange(50) % 2
    first = ud.data.by_group(["a", "b"] * 20)
    with pytest.warns(UserWarning, match="the last 10 of 50 samples belong to no client"):
        ud.Neural(torch.nn.Linear(3, 2), (x, y), first)
    with pytest.warns(UserWarning, match="the last 10 of 50 samples belong to no client"):
        ud.problems.Logistic(x, y, first)
    with pytest.raises(ValueError, match="from 0 to 49, not 58, or a mask"):
        ud.problems.Logistic(x, y, ud.data.by_group(["a", "b"] * 30))
