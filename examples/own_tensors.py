"""Your own tensors, network and loss: FedAvg and SCAFFOLD on clients that see different places.

python examples/own_tensors.py
"""

import torch
from torch import nn
from torch.nn import functional as F

import undrift as ud

torch.manual_seed(0)
X, Xt = torch.randn(1000, 8), torch.randn(200, 8)
Y, Yt = (x[:, :1].sin() + x[:, 1:2] ** 2 for x in (X, Xt))
groups = (X[:, 0] > 0) + 2 * (X[:, 1] > 0)

net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
parts = ud.data.dirichlet(groups, clients=10, beta=0.1)
problem = ud.Neural(net, (X, Y), parts, test=(Xt, Yt), loss=F.mse_loss)
runs = ud.run([ud.FedAvg(lr=0.05), ud.Scaffold(lr=0.05)], problem, rounds=60, steps=10, batch=32)
print(runs.table())

trained = runs["Scaffold", 0].module()  # an nn.Module like net, with the new weights
print(f"test loss {F.mse_loss(net(Xt), Yt):.3f} -> {F.mse_loss(trained(Xt), Yt):.3f}")
