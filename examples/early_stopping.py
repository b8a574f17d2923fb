"""Early stopping: the run ends when the test loss has not fallen for long; the best model stays.

python examples/early_stopping.py
"""

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import undrift as ud

torch.manual_seed(0)
features, malignant = load_breast_cancer(return_X_y=True)
features = torch.tensor((features - features.mean(0)) / features.std(0))
labels = torch.tensor(malignant)
labels[torch.rand(len(labels)) < 0.2] = 0  # wrong labels, which a network learns by heart in time

net = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 2))
parts = ud.data.dirichlet(labels, clients=6, beta=0.5)
problem = ud.Neural(net, (features, labels), parts, test=0.3)


def weights(moment):  # a callback sees the model, and adds numbers to the row
    return {"weights": moment.x.norm()}


stop = ud.EarlyStopping(metric="loss", patience=15)
run = ud.run(
    ud.Scaffold(lr=0.1), problem, rounds=500, steps=10, batch=16, callbacks=[stop, weights]
)
print(f"{run.status}: {run.note}")
print(f"last model: loss {run.history.last['loss']:.4f}, weights {run.history.last['weights']:.1f}")
net = run.best.module()  # an nn.Module
print(f"best model: loss {run.best.value:.4f}, from round {run.best.round}")
