"""Tabular regression: five clinics whose patients differ in age.

python examples/regression.py
"""

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.nn import functional as F

import undrift as ud

torch.manual_seed(0)
features, progress = load_diabetes(return_X_y=True)
features = features / features.std(0)
progress = ((progress - progress.mean()) / progress.std()).reshape(-1, 1)
clinics = np.digitize(features[:, 0], np.quantile(features[:, 0], [0.2, 0.4, 0.6, 0.8]))

net = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))
problem = ud.Neural(
    net,
    (features, progress),
    ud.data.by_group(clinics),
    test=0.2,  # of every clinic's patients
    loss=F.mse_loss,
    metrics=["mae"],
)
run = ud.run(ud.Scaffold(lr=0.05), problem, rounds=30, steps=10, batch=16)
for row in (run.history.rows[0], run.history.last):
    print(
        f"round {row['round']:2}: mean squared error {row['loss']:.3f}, mean error {row['mae']:.3f}"
    )
