"""Whatever is wrong with what a network is made of: one line, with the field as data.

The tables say which field each mistake is told about, and what the line must hold of cause and
remedy. The same mistakes in arguments of ``undrift.run`` are in tests/runs/test_arguments.py.
"""

import re
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

import undrift as ud
from undrift.core import BadParameters
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
    "tokens beyond the vocabulary": (
        lambda: ud.Neural(reader(5), ((X > -9) * 5, LABELS), PARTS),
        "inputs of train are 5 to 5, .*give its embedding 6 rows",
    ),
    "tokens below zero": (
        lambda: ud.Neural(reader(5), ((X > -9) * -1, LABELS), PARTS),
        "inputs of train are -1 to -1, .*number them from 0",
    ),
    "a table of bytes": (
        lambda: numbers(((X > 0).astype(np.uint8), Y)),
        r"inputs are uint8 \[n, 4\]: .*give .float\(\)",
    ),
    "a mask of bytes": (
        lambda: numbers(({"a": X, "b": (X > 0).astype(np.uint8)}, Y), module=Sum(4, 1)),
        r"inputs\['b'\] are uint8 \[n, 4\]: .*.bool\(\)",
    ),
    "nothing": (lambda: numbers(None), "a pair .inputs, targets.*NoneType"),
    "inputs alone": (lambda: numbers(torch.tensor(X)), "a pair .*Tensor"),
    "three": (lambda: numbers((X, Y, Y)), "a tuple of 3: a list has the data of each client"),
    "a list for a tuple": (lambda: numbers([X, Y], None), "a list, .*give a tuple"),
    "a list of samples": (
        lambda: numbers(list(zip(X, Y, strict=True)), None),
        r"the data of each client: train\[0\] has 4 inputs, but 1 targets",
    ),
    "clients by name": (lambda: numbers({"a": (X, Y)}, None), r"list\(train.values\(\)\)"),
    "a generator": (lambda: numbers(((X, Y) for _ in "ab"), None), r"once: give list\(train\)"),
    "a path": (lambda: numbers(Path("data.csv")), "a pair .*Path"),
    "a name": (lambda: numbers("digits"), "a pair .*str"),
    "the network again": (lambda: numbers(line()), "the network is the first argument"),
    "a stream": (lambda: numbers(Stream()), "IterableDataset, .*give a Dataset with"),
    "no length": (lambda: numbers(Endless()), "without __len__: add it"),
    "samples by name": (lambda: numbers(ByName()), r"is a dict; make it a pair"),
    "one tensor": (
        lambda: numbers(TensorDataset(torch.tensor(X))),
        r"a tuple of 1; make it a pair",
    ),
    "a length too large": (
        lambda: numbers(Samples(length=70)),
        "sample 60 of train cannot be read: IndexError, .* each of its 70",
    ),
    "a file that is gone": (lambda: numbers(Broken()), "sample 7 .*OSError, no such file"),
    "a loader of some": (
        lambda: numbers(DataLoader(Samples(), sampler=SubsetRandomSampler(range(9)))),
        "SubsetRandomSampler chooses .*; give the Dataset, or a Subset",
    ),
    "a loader of some at random": (
        lambda: numbers(DataLoader(Samples(), sampler=RandomSampler(X, num_samples=9))),
        "RandomSampler chooses",
    ),
    "a loader in batches of its own": (
        lambda: numbers(DataLoader(Samples(), batch_sampler=[[0, 1], [2]])),
        "chooses among its samples; give the Dataset",
    ),
    "a loader of a stream": (lambda: numbers(DataLoader(Stream())), "IterableDataset"),
    "fewer targets": (lambda: numbers((X, Y[:9])), "60 inputs, but 9 targets; give one row"),
    "nobody": (lambda: numbers((X[:0], Y[:0])), "no samples; give some"),
    "a site without samples": (
        lambda: numbers([(X, Y), (X[:0], Y[:0])], None),
        r"train\[1\] has no samples; leave out that client",
    ),
    "texts": (lambda: classes(NAMES), r"targets of train are texts, .*np.unique\("),
    "a list of texts": (lambda: classes(NAMES.tolist()), r"are texts, .*np.unique\("),
    "texts among objects": (lambda: classes(NAMES.astype(object)), "are texts"),
    "objects": (lambda: numbers((X.astype(object), Y)), "Python objects, .* dtype=np.float32"),
    "missing objects": (
        lambda: numbers((np.array([[None] * 4] * 60), Y)),
        "Python objects, .*dtype=np.float32",
    ),
    "dates": (lambda: numbers((np.zeros((60, 4), "datetime64[s]"), Y)), "dates, .*give numbers"),
    "records": (lambda: numbers((np.zeros(60, "f4,f4"), Y)), "records, .*columns"),
    "ragged lists": (
        lambda: numbers(([[1.0], [2.0, 3.0]] * 30, Y)),
        "rows of different lengths; pad them",
    ),
    "complex numbers": (lambda: numbers((X.astype(complex), Y)), "complex .*view_as_real"),
    "a sparse tensor": (lambda: numbers((torch.tensor(X).to_sparse(), Y)), "a dense tensor"),
    "a masked array": (lambda: numbers((np.ma.masked_less(X, 0), Y)), "masked array; fill it"),
    "infinite inputs": (lambda: numbers(holed(0)), "sample 7 of client .*inputs .*remove it"),
    "infinite targets": (lambda: numbers(holed(1)), "sample 7 of client .*targets .*remove it"),
    "clients of other shapes": (
        lambda: numbers([(X, Y), (X[:, :2], Y)], None),
        r"inputs of train\[1\] are .*; give the same everywhere",
    ),
    "a token without a place": (
        lambda: ud.Neural(
            reader(5), (np.where(np.arange(60)[:, None] == 50, 9, X > 0), LABELS), PARTS
        ),
        "inputs of train are 0 to 9, .*index out of range .*give its embedding 10 rows",
    ),
}
FRAME_OF_PARTS = {"a": [0], "b": [1]}
SPLITS = {
    "none": (lambda: numbers(parts=None), r"parts=undrift.data.iid\("),
    "a number": (lambda: numbers(parts=4), r"int: as undrift.data.iid\("),
    "a name": (lambda: numbers(parts="iid"), r"str: as undrift.data.iid\("),
    "a function": (lambda: numbers(parts=ud.data.iid), r"function: as undrift.data.iid\("),
    "by name": (lambda: numbers(parts=FRAME_OF_PARTS), r"give list\(parts.values\(\)\)"),
    "a label each": (lambda: numbers(parts=LABELS), r"60 single numbers; .*by_group\(parts\)"),
    "nobody": (lambda: numbers(parts=[]), "at least one client"),
    "an empty client": (lambda: numbers(parts=[[0], []]), "client 1 has no samples; use another"),
    "an empty mask": (
        lambda: numbers(parts=[X[:, 0] > 9]),
        "client 0 has no samples; use another",
    ),
    "too many": (lambda: numbers(parts=[[0], [60]]), "client 1 holds sample 60, .*0 to 59"),
    "negative": (lambda: numbers(parts=[[-1]]), "client 0 holds sample -1, .*0 to 59"),
    "fractions": (lambda: numbers(parts=[[0.5]]), "float64 array .*; give an array of whole"),
    "a short mask": (lambda: numbers(parts=[X[:9, 0] < 9]), "9 entries, .*60 samples; give"),
    "a table": (lambda: numbers(parts=[[0], [[1], [2]]]), r"client 1 are a int64 array of shape"),
    "ragged": (lambda: numbers(parts=[[[1], [2, 3]]]), "client 0 are a list; give an array"),
    "a slice": (lambda: numbers(parts=[slice(9)]), "client 0 are a slice; give an array"),
    "a set": (lambda: numbers(parts=[{1, 2}]), "client 0 are a set; give an array"),
    "subsets": (lambda: numbers(parts=[Subset(Samples(), [0])]), "are a Subset; give an array"),
    "with clients' data": (lambda: numbers([(X, Y)]), "leave out parts, or give a tuple"),
    "swapped with the data": (lambda: numbers(PARTS, (X, Y)), "leave out parts, or give a tuple"),
}
TEST = {
    "all": (lambda: numbers(test=1), "test = 1 is not allowed: a share"),
    "more than all": (lambda: numbers(test=1.5), "test = 1.5 is not allowed: a share"),
    "none of it": (lambda: numbers(test=0.0), "test = 0.0 is not allowed: a share"),
    "yes": (lambda: numbers(test=True), "test = True is not allowed: a share"),
    "no number": (lambda: numbers(test=np.float32(np.nan)), "is not allowed: a share"),
    "per cent": (lambda: numbers(test="20%"), "a pair .*got a str"),
    "of fewer clients": (lambda: numbers(test=[(X, Y)] * 3), "length 3, .*4 clients; a tuple"),
    "a list for a tuple": (lambda: numbers(test=[X, Y]), "length 2, .*4 clients; a tuple"),
    "a share each": (lambda: numbers(test=[0.1] * 4), r"test\[0\] must be a pair .*float"),
    "no samples": (lambda: numbers(test=(X[:0], Y[:0])), "no samples; .*leave out test"),
    "no samples anywhere": (
        lambda: numbers(test=[(X[:0], Y[:0]), None] * 2),
        "no samples; .*leave out test",
    ),
    "other inputs of the second site": (
        lambda: numbers(test=[None, (X, Y), (X[:, :3], Y), None]),
        r"test\[2\].* test\[1\]",
    ),
    "nothing to hold out": (
        lambda: numbers(parts=[[k] for k in range(60)], test=0.2),
        "no client has two samples .*give test data",
    ),
    "trained on too": (
        lambda: numbers(parts=[[0, 1, 2], [2, 3]], test=0.2),
        "sample 2 is held 2 times, .*give test data of its own",
    ),
    "other inputs": (
        lambda: numbers(test=(X[:, :3], Y)),
        r"test data: the network does not take inputs float32 \[n, 3\]",
    ),
    "other targets": (lambda: numbers(test=(X, Y[:, 0])), r"test data: .*reshape\(-1, 1\)"),
    "other lengths": (lambda: numbers(test=(X, Y[:9])), "60 inputs, but 9 targets; give one row"),
    "other structure": (lambda: numbers(test=((X, X), Y)), "test has .*give the same everywhere"),
    "measured classes": (
        lambda: classes(test=(X, LABELS.astype(np.float32))),
        r"test data: CrossEntropy needs .*give targets.long\(\)",
    ),
    "infinite": (lambda: numbers(test=holed(0)), "test sample 7: .*remove it"),
    "a token without a place": (
        lambda: ud.Neural(
            reader(5), ((X > 0).astype(int), LABELS), PARTS, test=((X > 0) * 9, LABELS)
        ),
        "inputs of test are 0 to 9, .*give its embedding 10 rows",
    ),
}
MODULE = {
    "a class": (lambda: ud.Neural(nn.Linear, (X, Y), PARTS), r"a class: give Linear\("),
    "a function": (lambda: ud.Neural(torch.relu, (X, Y), PARTS), "must be a torch.nn.Module"),
    "the data": (lambda: ud.Neural((X, Y), line(), PARTS), "the first argument, .*got a tuple"),
    "no shape yet": (
        lambda: numbers(module=nn.LazyLinear(1)),
        "no shape .*run the module on one first",
    ),
    "no parameters": (lambda: numbers(module=nn.Flatten()), "nothing to train .*no parameters"),
    "all frozen": (
        lambda: numbers(module=line().requires_grad_(False)),
        "frozen; set requires_grad of some",
    ),
    "complex weights": (lambda: numbers(module=Complex()), "'w' has complex .*; give real"),
    "weights without values": (
        lambda: numbers(module=nn.Linear(4, 1, device="meta")),
        "'weight' has no values.*load the weights",
    ),
    "weights that are not numbers": (
        lambda: numbers(module=without_values()),
        "'weight' has numbers that are not finite.*reset them",
    ),
    "a parallel one": (
        lambda: numbers(module=nn.DataParallel(line())),
        "DataParallel; give its .module",
    ),
    "a compiled one": (
        lambda: numbers(module=torch.compile(line())),
        "give the module before torch.compile",
    ),
    "batch statistics": (
        lambda: numbers(module=nn.Sequential(nn.BatchNorm1d(4), line())),
        "to_group_norm.*freeze_batch_norm",
    ),
    "statistics of batches alone": (
        lambda: numbers(module=nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), line())),
        r"'0' normalises by its batches, .*to_group_norm\(net\)$",
    ),
    "an embedding that writes to its weights": (
        lambda: ud.Neural(
            nn.Sequential(nn.Embedding(9, 3, max_norm=1.0), nn.Flatten(), nn.Linear(12, 2)),
            ((X > 0).astype(int), LABELS),
            PARTS,
        ),
        "Embedding at '0' has a max_norm, .*leave it out",
    ),
    "a bag that writes to its weights": (
        lambda: ud.Neural(nn.EmbeddingBag(9, 2, max_norm=1.0), ((X > 0) * 1, LABELS), PARTS),
        "EmbeddingBag has a max_norm, .*leave it out",
    ),
    "an embedding that counts tokens": (
        lambda: ud.Neural(
            nn.EmbeddingBag(9, 2, scale_grad_by_freq=True), ((X > 0) * 1, LABELS), PARTS
        ),
        "EmbeddingBag divides gradients by how often .*leave out scale_grad_by_freq",
    ),
    "an embedding with sparse gradients": (
        lambda: ud.Neural(nn.EmbeddingBag(9, 2, sparse=True), ((X > 0) * 1, LABELS), PARTS),
        "EmbeddingBag has sparse gradients; leave out sparse",
    ),
    "a forward on an object": (
        lambda: numbers(module=nn.Sequential(doubled(line()))),
        "Linear at '0' had its forward replaced on the object, .*write a subclass",
    ),
    "a forward on the network": (
        lambda: numbers(module=doubled(line())),
        "Linear had its forward replaced on the object, .*write a subclass",
    ),
    "a hook on a gradient": (
        lambda: numbers(module=hooked("register_hook")),
        "'weight' has a hook on its gradient, .*in forward instead",
    ),
    "a hook on a gradient that was added up": (
        lambda: numbers(module=hooked("register_post_accumulate_grad_hook")),
        "'weight' has a hook on its gradient, .*in forward instead",
    ),
    "one that cannot be copied": (
        lambda: numbers(module=Changed(threading.Lock())),
        "cannot be copied: .*deepcopy",
    ),
    "other inputs": (
        lambda: numbers(module=nn.Linear(5, 1)),
        r"does not take inputs float32 \[n, 4\]: .*runs on a batch of two",
    ),
    "one input too few": (lambda: numbers(module=Sum(4, 1)), r"does not take .*missing 1 required"),
    "another name": (
        lambda: numbers(({"a": X, "c": X}, Y), module=Sum(4, 1)),
        "does not take .*unexpected keyword argument 'c'",
    ),
    "whole numbers to a layer": (
        lambda: numbers((X.astype(int), Y)),
        r"int64 \[n, 4\]: .*give inputs.float\(\)",
    ),
    "masks to a layer": (lambda: numbers((X > 0, Y)), r"bool \[n, 4\]: .*give inputs.float\(\)"),
    "measurements to an embedding": (
        lambda: ud.Neural(reader(9), (np.abs(X), LABELS), PARTS),
        r"float32 \[n, 4\]: .*tokens, give inputs.long\(\)",
    ),
}
LOSS = {
    "scores along the last axis": (
        lambda: ud.Neural(
            nn.Sequential(nn.Embedding(9, 7)),
            ((X > 0) * 1, (X > 0) * 1 + 5),
            PARTS,
            loss=F.cross_entropy,
        ),
        r"\[n, 4, 7\] .*return outputs.transpose\(1, 2\)",
    ),
    "a class": (lambda: numbers(loss=nn.MSELoss), r"give MSELoss\(\)"),
    "a name": (lambda: numbers(loss="mse"), "a function of outputs and targets, .*'mse'"),
    "an objective": (lambda: classes(loss=ud.objectives.MOON()), r"give objective=MOON\(\)"),
    "a number for each": (
        lambda: numbers(loss=lambda o, t: (o - t).square().mean(1)),
        r"returns \[2\] numbers; make it return one",
    ),
    "a list of one": (
        lambda: numbers(loss=lambda o, t: (o - t).square().mean()[None]),
        r"returns \[1\] numbers; make it return one",
    ),
    "a float": (lambda: numbers(loss=lambda o, t: (o - t).mean().item()), "float; .*without .item"),
    "a whole number": (lambda: numbers(loss=lambda o, t: 3), "a int; make it return a tensor"),
    "nothing": (lambda: numbers(loss=lambda o, t: None), "NoneType; make it return a tensor"),
    "a count": (lambda: numbers(loss=lambda o, t: (o > t).sum()), "nothing to train; compute it"),
    "detached": (
        lambda: numbers(loss=lambda o, t: (o - t).square().mean().detach()),
        "nothing to train; .*without .detach",
    ),
    "complex": (lambda: numbers(loss=lambda o, t: (o - t).mean() * 1j), "return a real one"),
    "not a number": (
        lambda: numbers(loss=lambda o, t: (o - t).mean() * np.nan),
        "not a number .*make it finite",
    ),
    "one argument": (lambda: numbers(loss=lambda o: o.mean()), r"called as loss\(outputs, targets"),
    "swapped arguments": (
        lambda: classes(loss=lambda t, o: F.cross_entropy(o, t)),
        r"called as loss\(outputs, targets",
    ),
    "in place": (
        lambda: numbers(loss=lambda o, t: o.sub_(t).square().mean()),
        "writes to its outputs .*without operations in place",
    ),
    "targets in place": (
        lambda: numbers(loss=lambda o, t: (o - t.add_(1)).square().mean()),
        "writes to its outputs or targets",
    ),
    "random": (
        lambda: numbers(loss=lambda o, t: (o - t + torch.rand(1)).square().mean()),
        "draws random numbers, .*; draw them in the network",
    ),
    "a sum": (lambda: numbers(loss=nn.MSELoss(reduction="sum")), 'give reduction="mean"'),
    "two": (
        lambda: classes(loss=F.cross_entropy, objective=ud.objectives.MOON()),
        "both losses: give one",
    ),
    "no logarithms": (lambda: classes(loss=F.nll_loss), "logarithms .*functional.cross_entropy"),
    "no probabilities": (
        lambda: numbers((X, LABELS[:, None].astype(np.float32)), loss=nn.BCELoss()),
        "not probabilities, .*binary_cross_entropy_with_logits",
    ),
    "answers above one": (
        lambda: numbers((X, 3 * Y**2), loss=nn.BCEWithLogitsLoss()),
        "probabilities from 0 to 1; scale",
    ),
    "answers in whole numbers": (
        lambda: numbers((X, LABELS[:, None]), loss=nn.BCEWithLogitsLoss()),
        r"int64, .*give targets.float\(\)",
    ),
    "a column too few": (lambda: numbers((X, Y[:, 0])), r"give targets.reshape\(-1, 1\)"),
    "bytes to measure": (
        lambda: numbers((X, np.ones((60, 1), np.uint8))),
        r"give targets.float\(\)",
    ),
    "more outputs": (lambda: numbers(module=line(3)), r"\[n, 3\], but targets are \[n, 1\]; give"),
    "classes as floats": (lambda: classes(LABELS.astype(float)), r"give targets.long\(\), else"),
    "classes as answers": (lambda: classes(LABELS > 0), r"give targets.long\(\), else"),
    "a column of classes": (lambda: classes(LABELS[:, None]), r"give targets.squeeze\(1\)"),
    "rows of one": (lambda: classes(np.eye(2)[LABELS]), r"give targets.argmax\(1\)"),
    "whole rows of one": (lambda: classes(np.eye(2, dtype=int)[LABELS]), r"targets.argmax\(1\)"),
    "rows of classes": (
        lambda: classes(np.stack([LABELS] * 3, 1)),
        "cross_entropy for a class at each position",
    ),
    "negative classes": (lambda: classes(LABELS - 1), "-1 to 0, .*2 outputs.*; number .* from 0"),
    "classes from 1": (lambda: classes(LABELS + 1), "1 to 2, .*2 outputs.*; give targets - 1"),
    "more classes": (lambda: classes(3 * LABELS), "0 to 3, .*2 outputs.*; give it 4"),
    "more classes by torch": (
        lambda: classes(3 * LABELS, loss=nn.CrossEntropyLoss(label_smoothing=0.1)),
        "0 to 3, .*2 outputs.*; give it 4",
    ),
    "no output": (
        lambda: classes(module=Changed(lambda o: None, 2)),
        "outputs a NoneType: let the network return the logits",
    ),
    "outputs by name": (
        lambda: classes(module=Changed(lambda o: {"o": o}, 2)),
        "outputs a dict: let the network return the logits",
    ),
    "a pair of outputs": (
        lambda: classes(module=Changed(lambda o: (o, o), 2)),
        "outputs a tuple: let the network return the logits",
    ),
    "a pair to measure": (
        lambda: numbers(module=Changed(lambda o: (o, o))),
        "not a tuple with .*; give a loss that takes yours",
    ),
    "an array": (
        lambda: numbers(module=Changed(lambda o: o.detach().numpy())),
        "not a ndarray with .*; give a loss that takes yours",
    ),
    "a mean of outputs": (
        lambda: classes(module=Changed(lambda o: o.mean(0), 2)),
        "return a row of scores for each sample",
    ),
    "outputs without a gradient": (
        lambda: classes(module=Changed(torch.Tensor.detach, 2)),
        "nothing to train; leave out .detach",
    ),
}
OBJECTIVE = {
    "a name": (lambda: classes(objective="MOON"), "one of undrift.objectives, .*got str"),
    "a class": (lambda: classes(objective=ud.objectives.MOON), r"give MOON\("),
    "of measurements": (
        lambda: numbers(loss=None, objective=ud.objectives.CrossEntropy()),
        "a class for each sample",
    ),
    "one that looks inside": (
        lambda: classes(objective=ud.objectives.MOON()),
        "make it an undrift.models.Net",
    ),
}


def score(outputs, targets):
    return (outputs - targets)[:, 0]


def another():
    def score(outputs, targets):
        return outputs[:, 0]

    return score


METRICS = {
    "accuracy of a pair": (
        lambda: numbers(
            module=Changed(lambda o: (o, o)),
            loss=lambda o, t: F.mse_loss(o[0], t),
            metrics=["accuracy"],
        ),
        "not float32 .* with a tuple; give a function of yours",
    ),
    "misspelt": (lambda: numbers(metrics=["maee"]), "did you mean mae"),
    "misspelt alone": (lambda: classes(metrics="acuracy"), "did you mean accuracy"),
    "a number": (lambda: numbers(metrics=3), "names or functions; got 3"),
    "nothing": (lambda: numbers(metrics=[None]), "a name or a function; got None"),
    "a class": (lambda: numbers(metrics=[nn.L1Loss]), r"is a class; give L1Loss\(\)"),
    "no name": (lambda: numbers(metrics=[lambda o, t: o]), "give {name: function}"),
    "a name that is taken": (lambda: numbers(metrics={"loss": "mae"}), "with another name"),
    "the same name twice": (lambda: numbers(metrics=[score, another()]), "two .* called 'score'"),
    "a mean": (
        lambda: numbers(metrics=[nn.L1Loss()]),
        r"gives \[\] for 2 samples; .*one number for each",
    ),
    "a table": (
        lambda: numbers(metrics={"m": lambda o, t: o - t}),
        r"gives \[2, 1\] for 2 samples; .*one number for each",
    ),
    "a float": (
        lambda: numbers(metrics={"m": lambda o, t: 0.5}),
        "gives float for 2 samples; .*one number for each",
    ),
    "an array": (
        lambda: numbers(metrics={"m": lambda o, t: np.ones(len(o))}),
        "gives ndarray for 2 samples; .*one number for each",
    ),
    "three": (
        lambda: numbers(metrics={"m": lambda o, t: (o[:, 0],) * 3}),
        "a tuple of 3; .*a pair of numbers",
    ),
    "one that fails": (
        lambda: numbers(metrics={"m": lambda o: o}),
        r"does not take .*called as metric\(outputs, targets\)",
    ),
    "in place": (
        lambda: numbers(metrics={"m": lambda o, t: o.sub_(t)[:, 0]}),
        "writes to its outputs",
    ),
    "errors of classes": (lambda: classes(metrics=["mse"]), "same shape, .*another metric"),
    "accuracy of measurements": (lambda: numbers(metrics=["accuracy"]), "mse, rmse and mae"),
}
OPTIONS = {
    "precision": (lambda: numbers(precision="fp16"), "'fp16' is not allowed"),
    "stacked": (lambda: numbers(stacked="yes"), "'yes' is not allowed"),
    "compiled": (lambda: numbers(compiled=None), "None is not allowed"),
    "training": (lambda: numbers(training=0.5), "0.5 is not allowed"),
    "pipeline": (lambda: numbers(pipeline=torch.relu), "an undrift.data.augment.Pipeline"),
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
    make, sentence = TABLES[field][what]
    with pytest.raises(BadParameters) as error:
        make()
    assert set(error.value.problems) == {field}
    (text,) = error.value.problems.values()
    assert re.search(sentence, text), text
    assert "\n" not in text and str(error.value) == f"Neural: {text}" and len(text) < 400


# -- what is meant well is taken


TAKEN = {
    "classes of 32 bits": lambda: classes(LABELS.astype(np.int32)),
    "classes of 8 bits": lambda: classes(LABELS.astype(np.uint8)),
    "classes in a list": lambda: classes(LABELS.tolist()),
    "lists of rows": lambda: numbers((list(X), list(Y))),
    "lists of tensors": lambda: numbers((list(torch.tensor(X)), Y)),
    "rows backwards": lambda: numbers((X[::-1], Y[::-1])),
    "other bytes": lambda: numbers((X.astype(">f4"), Y.astype(">f8"))),
    "long doubles": lambda: numbers((X.astype("g"), Y)),
    "half precision": lambda: numbers((X.astype(np.float16), Y)),
    "half weights": lambda: numbers(module=line().half()),
    "double weights": lambda: numbers(module=line().double()),
    "ranges": lambda: numbers(parts=[range(30), range(30, 60)]),
    "a tensor of parts": lambda: numbers(parts=torch.arange(60).view(4, 15)),
    "parts one by one": lambda: numbers(parts=(part for part in PARTS)),
    "a sample held twice": lambda: numbers(parts=[[0, 0, 1]]),
    "a share of NumPy's": lambda: numbers(test=np.float32(0.2)),
    "a loader that shuffles": lambda: numbers(
        DataLoader(Samples(), batch_size=7, shuffle=True, drop_last=True)
    ),
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
    for make, sentence in {
        lambda: numbers(frame): r"DataFrame: give its columns, as \(frame",
        lambda: numbers((frame, frame[["y"]])): "are texts, not numbers",
        lambda: classes(frame.name): r"are texts, .*np.unique\(",
        lambda: classes(frame.name.astype("category")): r"are texts, .*np.unique\(",
        lambda: classes(pandas.array([0, 1, None] * 20, dtype="Int64")): "not finite|objects",
    }.items():
        with pytest.raises(BadParameters, match=sentence) as error:
            make()
        assert set(error.value.problems) == {"train"}
