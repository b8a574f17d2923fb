"""Start from given weights: what was trained at one place is trained on where the others' data are.

python examples/given_weights.py
"""

import torch
from torch import nn
from torch.nn import functional as F

import undrift as ud

torch.manual_seed(0)
digits = ud.data.load_images("digits")
parts = ud.data.dirichlet(digits.labels, clients=10, beta=0.2)

net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
own = torch.as_tensor(parts[0])  # the one place: PyTorch as usual, on images scaled to [0, 1]
images, labels = digits.images[own] / 255, digits.labels[own]
optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
for _ in range(100):
    optimizer.zero_grad()
    F.cross_entropy(net(images), labels).backward()
    optimizer.step()

problem = ud.Neural(net, digits, parts)  # starts from the weights that net has
run = ud.run(ud.Scaffold(lr=0.2), problem, rounds=15, steps=10, batch=16)
for row in (run.history.rows[0], run.history.last):
    print(f"round {row['round']:2}: accuracy {row['accuracy']:.1%}")
