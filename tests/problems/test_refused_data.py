"""Data that are refused, in one sentence."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)

from tests.objectives.world import DIGITS, PARTS
from tests.problems.own_data import SPLIT, Counted, X, Y, on_disk, regression
from undrift.problems import Neural


class Random(Counted):
    def __getitem__(self, k):
        return self.x[k] + torch.randn(4), self.y[k]


class Stream(IterableDataset):
    def __iter__(self):
        yield X[0], Y[0]


class Words(Counted):
    def __getitem__(self, k):
        return "a word", self.y[k]


class Table(Counted):
    def __getitem__(self, k):
        return {"x": self.x[k], "y": self.y[k]}


class Ragged(Counted):
    def __getitem__(self, k):
        return self.x[k][: 1 + k % 3], self.y[k]


def holed(where):
    x, y = X.copy(), Y.copy()
    (x if where == "inputs" else y)[7, 0] = np.nan
    return x, y


def apart(samples):
    return [tuple(v[part] for v in samples) for part in SPLIT]


OWNER = next(c for c, part in enumerate(SPLIT) if 7 in part)
PLACE = SPLIT[OWNER].tolist().index(7)
assert OWNER and PLACE != 7
REFUSED = {
    "nothing": (lambda: regression(None), ValueError, "train must be a pair .* got a NoneType"),
    "a tensor": (lambda: regression(torch.tensor(X)), ValueError, "a pair .* got a Tensor"),
    "three": (lambda: regression((X, Y, Y)), ValueError, "a pair .* got a tuple"),
    "a mapping": (lambda: regression({"x": X}), ValueError, "a pair .* got a dict"),
    "data sets in a tuple": (
        lambda: regression((Counted(), Counted())),
        ValueError,
        "give a list with one for each client",
    ),
    "a stream": (lambda: regression(Stream()), ValueError, "IterableDataset, .*__getitem__"),
    "a loader that collates": (
        lambda: regression(DataLoader(Counted(), collate_fn=list)),
        ValueError,
        "collate_fn of its own; give a Dataset",
    ),
    "random samples": (
        lambda: regression(Random()),
        ValueError,
        "reading train draws random numbers",
    ),
    "samples of words": (lambda: regression(Words()), ValueError, "cannot be put into tensors"),
    "samples that are dictionaries": (
        lambda: regression(Table()),
        ValueError,
        r"sample 0 of train is a dict; make it a pair \(input, target\)",
    ),
    "samples of all lengths": (
        lambda: regression(Ragged()),
        ValueError,
        "cannot be put into tensors",
    ),
    "words": (
        lambda: regression((np.array([["a"]] * 90), Y)),
        ValueError,
        "inputs of train are texts, not numbers",
    ),
    "a number": (lambda: regression((3.0, Y)), ValueError, "one row for each sample"),
    "fewer targets": (
        lambda: regression((X, Y[:50])),
        ValueError,
        "train has 90 inputs, but 50 targets; give one row for each sample",
    ),
    "fewer rows of one input": (
        lambda: regression(((X, X[:9]), Y)),
        ValueError,
        r"90 inputs\[0\], but 9 inputs\[1\]",
    ),
    "no samples": (lambda: regression((X[:0], Y[:0])), ValueError, "train has no samples"),
    "an empty Dataset": (lambda: regression(Counted(X[:0], Y[:0])), ValueError, "no samples"),
    "an input that is not a number": (
        lambda: regression(holed("inputs")),
        ValueError,
        f"^Neural: sample 7 of client {OWNER}: its inputs hold numbers that are not finite",
    ),
    "a target that is not a number": (
        lambda: regression(holed("targets")),
        ValueError,
        f"^Neural: sample 7 of client {OWNER}: its targets hold numbers that are not finite",
    ),
    "a test sample that is not a number": (
        lambda: regression(test=holed("inputs")),
        ValueError,
        "^Neural: test sample 7: its inputs hold numbers",
    ),
    "an input of a client that is not a number": (
        lambda: regression(apart(holed("inputs")), None),
        ValueError,
        f"^Neural: sample {PLACE} of client {OWNER}: its inputs hold",
    ),
    "an input of a subset that is not a number": (
        lambda: regression([Subset(Counted(*holed("inputs")), p.tolist()) for p in SPLIT], None),
        ValueError,
        f"^Neural: sample {PLACE} of client {OWNER}: its inputs hold",
    ),
    "an input held out of a client that is not a number": (
        lambda: regression(apart(holed("inputs")), None, test=0.9),
        ValueError,
        f"^Neural: sample {PLACE} of client {OWNER}: its inputs hold",
    ),
    "a client's test sample that is not a number": (
        lambda: regression(test=apart(holed("targets"))),
        ValueError,
        f"^Neural: test sample {PLACE} of client {OWNER}: its targets hold",
    ),
    "no parts": (lambda: regression(parts=None), ValueError, r"parts=undrift.data.iid\("),
    "parts twice": (lambda: regression([(X, Y)]), ValueError, "leave out parts"),
    "nobody": (lambda: regression([], None), ValueError, "at least one client"),
    "clients of other shapes": (
        lambda: regression([(X, Y), (X[:, :3], Y)], None),
        ValueError,
        r"inputs of train\[1\] are torch.float32 \[3\], but those of train\[0\] .* \[4\]",
    ),
    "clients of other structure": (
        lambda: regression([(X, Y), ((X, X), Y)], None),
        ValueError,
        r"train\[1\] has inputs\[0\], inputs\[1\], targets, but train\[0\] has inputs, targets",
    ),
    "a share of all": (lambda: regression(test=1), ValueError, "test = 1 is not allowed"),
    "a negative share": (lambda: regression(test=-0.1), ValueError, "test = -0.1 is not allowed"),
    "tests of fewer clients": (
        lambda: regression(test=[(X, Y)] * 4),
        ValueError,
        "of length 4, but there are 5 clients",
    ),
    "test samples of another shape": (
        lambda: regression(test=(X[:, :3], Y)),
        ValueError,
        r"test data: the network does not take inputs float32 \[n, 3\]",
    ),
    "test targets of another shape": (
        lambda: regression(test=(X, Y[:, 0])),
        ValueError,
        r"^Neural: test data: the network's outputs are \[n, 1\], but targets are \[n\]",
    ),
    "test targets that are whole": (
        lambda: regression(test=(X, Y.astype(int))),
        ValueError,
        "^Neural: test data: targets are torch.int64",
    ),
    "test samples of other structure": (
        lambda: regression(test=((X, X), Y)),
        ValueError,
        r"^Neural: test has inputs\[0\], inputs\[1\], targets, but train has inputs, targets",
    ),
    "test samples that are images": (
        lambda: regression(test=(X.astype(np.uint8), Y)),
        ValueError,
        "inputs of test are torch.uint8, but those of train are torch.float32",
    ),
    "an image set with more test samples": (
        lambda: Neural(nn.Linear(64, 10), DIGITS, PARTS, test=0.2),
        ValueError,
        "leave out test",
    ),
    "an image set without parts": (
        lambda: Neural(nn.Linear(64, 10), DIGITS),
        ValueError,
        "which images each client holds",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_in_one_sentence(what):
    make, kind, sentence = REFUSED[what]
    with pytest.raises(kind, match=sentence) as error:
        make()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("by_rows", [OWNER, OWNER - 1], ids=["itself", "another client's"])
def test_a_sample_that_is_read_later_is_called_by_its_clients_number(by_rows, tmp_path):
    train = apart(holed("inputs"))
    x, y = train[by_rows]
    train[by_rows] = on_disk(x, tmp_path, "x"), y
    problem = regression(train, None)
    with pytest.raises(ValueError) as error:
        problem.at(np.array([OWNER])).grad(problem.start()[None].float(), torch.tensor([[PLACE]]))
    assert f"sample {PLACE} of train[{OWNER}]" in str(error.value)


def test_what_is_read_later_is_looked_at_later(tmp_path):
    x, y = holed("inputs")
    problem = regression((on_disk(x, tmp_path, "x"), y))
    with pytest.raises(ValueError, match=r"^sample 7 of train: its inputs hold"):
        problem.at().grad(problem.start().float().expand(5, -1))


def test_parts_of_random_split():
    pieces = random_split(TensorDataset(torch.tensor(X), torch.tensor(Y)), [30, 60])
    problem = regression(pieces, None)
    assert [part.tolist() for part in problem.parts] == [list(piece.indices) for piece in pieces]
