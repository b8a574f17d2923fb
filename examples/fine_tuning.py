"""A network that knows the digits 0 to 4 learns 5 to 9: frozen body, new head.

python examples/fine_tuning.py
"""

import torch
from torch import nn

import undrift as ud

torch.manual_seed(0)
digits = ud.data.load_images("digits")
low, low_test = digits.labels < 5, digits.test_labels < 5
known = (digits.images[low], digits.labels[low])
new = (digits.images[~low], digits.labels[~low] - 5)
test = (digits.test_images[~low_test], digits.test_labels[~low_test] - 5)

net = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 5))
first = ud.Neural(net, known, ud.data.iid(known[1], clients=5))
net = ud.run(ud.FedAvg(lr=0.3), first, rounds=8, steps=10, batch=16).module()

net[1].requires_grad_(False)  # neither trained nor sent
net[3] = nn.Linear(48, 5)
problem = ud.Neural(net, new, ud.data.dirichlet(new[1], clients=5, beta=0.3), test=test)
run = ud.run(ud.Scaffold(lr=0.3), problem, rounds=15, steps=10, batch=16)
before, after = run.history.rows[0]["accuracy"], run.history.last["accuracy"]
print(f"{problem.dim} of 3365 numbers sent: accuracy {before:.1%} -> {after:.1%}")
