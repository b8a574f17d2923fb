"""AdamW in local steps; lr warms up, then falls as a cosine over the rounds.

python examples/local_adamw.py
"""

import torch
from torch import nn

import undrift as ud

torch.manual_seed(0)
digits = ud.data.load_images("digits")
net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 10))
problem = ud.Neural(net, digits, ud.data.dirichlet(digits.labels, clients=5, beta=0.5))

rounds = 15
run = ud.run(
    ud.FedAvg(lr=0.01),
    problem,
    rounds=rounds,
    schedule=ud.schedules.Cosine(rounds=rounds, warmup=2, last=0.1),
    steps=10,
    batch=16,
    training={"optimiser": ud.AdamW(weight_decay=0.05), "accumulate": 2},
)
for row in run.history.rows[::5]:
    print(f"round {row['round']:2}: accuracy {row['accuracy']:.1%}, {row['gradients']} gradients")
