"""Low-rank adapters: large layers stay as they were given, small corrections of them are trained.

python examples/low_rank.py
"""

import torch
from torch import nn

import undrift as ud


class Adapted(nn.Module):
    """A frozen layer, and a correction of low rank that starts from zero."""

    def __init__(self, layer, rank=4):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features)
        for p in self.up.parameters():
            nn.init.zeros_(p)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


torch.manual_seed(0)
digits = ud.data.load_images("digits")
given = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
net = nn.Sequential(given[0], Adapted(given[1]), given[2], Adapted(given[3]))
problem = ud.Neural(net, digits, ud.data.dirichlet(digits.labels, clients=5, beta=0.3))
run = ud.run(ud.Scaffold(lr=0.2), problem, rounds=15, steps=10, batch=16)
before, after = run.history.rows[0]["accuracy"], run.history.last["accuracy"]
print(f"{problem.dim} of 19210 numbers sent: accuracy {before:.1%} -> {after:.1%}")
