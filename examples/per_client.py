"""How each client fares: the mean hides who is left behind.

python examples/per_client.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import undrift as ud

torch.manual_seed(0)
digits = load_digits()
X, y = digits.data.astype("float32") / 16, digits.target
problem = ud.Neural(
    nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
    (X, y),
    ud.data.dirichlet(y, clients=20, beta=0.1),
    test=0.2,  # of every client's samples, so that each is judged by its own test samples
)
setting = {"rounds": 40, "steps": 10, "batch": 20, "cohort": 5, "every": 20}
setting["callbacks"] = ud.PerClient()
runs = ud.run([ud.FedAvg(lr=0.1), ud.FedDyn(lr=0.1, alpha=0.1)], problem, seed=[0], **setting)
for (label, _), run in runs.items():
    clients = run.per_client
    accuracy = clients["accuracy"]  # [rows, clients]
    tenth = run.history["client_accuracy_worst10"][-1]
    print(f"{label}: mean {accuracy[-1].mean():.1%}, worst tenth {tenth:.1%}")
    last = int(np.nanargmin(accuracy[-1]))
    share = problem.label_counts(np.array([last]))[0]
    print(f"  client {last} has {accuracy[-1, last]:.0%}, and most of the digit {share.argmax()}")
