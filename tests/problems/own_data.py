"""A line through random points, whoever holds them."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import undrift as ud
from tests.objectives.world import CPU
from tests.rounds import after
from undrift.engines import Simulate
from undrift.methods import Scaffold
from undrift.models.net import seeded
from undrift.problems import Neural

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 4)).astype(np.float32)
Y = (X @ [[1.0], [-2.0], [0.5], [3.0]] + RNG.normal(size=(90, 1))).astype(np.float32)
SPLIT = ud.data.by_size(90, clients=5, seed=1, beta=1.0)


def line(bias=True):
    with seeded(0):
        return nn.Linear(4, 1, bias=bias)


class OneByOne(Dataset):
    def __init__(self, x=X, y=Y):
        self.x, self.y = torch.tensor(x), torch.tensor(y)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, k):
        return self.x[k], self.y[k]


def regression(train=(X, Y), parts=SPLIT, module=None, **options):
    return Neural(module or line(), train, parts, **{"loss": F.mse_loss, **options})


def trained(problem, rounds=3, kind=Simulate, batch=8, method=None):
    method = method or Scaffold(lr=0.05)
    engine = kind(method, problem.to(torch.float64, CPU), steps=3, batch=batch)
    after(rounds, engine)
    return engine.x


def on_disk(array, folder, name):
    file = np.memmap(folder / name, array.dtype, "w+", shape=array.shape)
    file[:] = array
    file.flush()
    return np.memmap(folder / name, array.dtype, "r", shape=array.shape)
