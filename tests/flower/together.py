"""The clients of a Flower app on one machine, to compare it with ``Simulate``."""

import torch
from torch.nn import functional as F

from undrift.core.problem import Oracle, Problem
from undrift.flower.client_training import ModuleProblem


class Together(Problem):
    """The same clients on one machine, one after another."""

    differentiates = keyed = True

    def __init__(self, net, datasets, loss=F.cross_entropy):
        self.parts = [ModuleProblem(net(), data, loss) for data in datasets]
        self.clients, self.samples = len(datasets), [part.samples[0] for part in self.parts]
        self.dim, self.dtype = self.parts[0].dim, self.parts[0].dtype
        self.device = torch.device("cpu")

    def at(self, members=None):
        members = range(self.clients) if members is None else members
        return Rows([self.parts[i].at() for i in members])

    def to(self, dtype, device):
        return self

    def start(self):
        return self.parts[0].start()


class Rows(Oracle):
    def __init__(self, oracles):
        self.oracles = oracles

    def grad(self, y, *given):
        rows = []
        for k, oracle in enumerate(self.oracles):
            own = [None if part is None else part[k : k + 1] for part in given]
            rows.append(oracle.grad(y[k : k + 1], *own))
        return torch.cat(rows)
