"""The model and the data: put yours here."""

import torch
from torch import nn
from torch.utils.data import TensorDataset


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def samples(part: int) -> TensorDataset:
    """The data of one node; no two nodes have alike ones."""
    rng = torch.Generator().manual_seed(part)
    x = torch.randn(60, 8, generator=rng) + part
    return TensorDataset(x, (x[:, :3] - part).argmax(1))
