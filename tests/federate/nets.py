"""A network with all that a state dict can have; tests put this file beside a spec."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.register_buffer("centre", torch.full((64,), 0.4))
        self.first, self.body = nn.Linear(64, 6), nn.Linear(6, 6)
        self.again = self.body
        self.fixed = nn.Linear(6, 6, bias=False).requires_grad_(False)
        self.last = nn.Linear(6, classes)

    def forward(self, x):
        h = torch.relu(self.first(x.flatten(1) - self.centre))
        return self.last(torch.tanh(self.again(torch.tanh(self.body(h)))) + self.fixed(h))
