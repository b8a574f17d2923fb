"""A run of your own network that breaks off: the same call continues it, to the same bits.

python examples/resume.py
"""

import torch
from torch import nn

import undrift as ud
from undrift.runs.events import Notice

torch.manual_seed(0)
digits = ud.data.load_images("digits")
net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
problem = ud.Neural(net, digits, ud.data.dirichlet(digits.labels, clients=8, beta=0.3))
broken = True


def power(moment):  # a callback, here one that fails
    if broken and moment.round == 12:
        raise OSError("no power")


def train(folder):
    return ud.run(
        ud.Scaffold(lr=0.2),
        problem,
        rounds=20,
        steps=10,
        batch=16,
        callbacks=[power, ud.Events(lambda event: isinstance(event, Notice) and print(event))],
        save=ud.Save(folder, checkpoint=0),
    )


try:
    train("runs/broken")
except ud.CallbackFailed as error:
    print(error)
broken = False
run, whole = train("runs/broken"), train("runs/whole")
print(f"accuracy {run.history.last['accuracy']:.1%}, same bits: {torch.equal(run.x, whole.x)}")
