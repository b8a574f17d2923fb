"""A Dataset for each client, as federations in the wild have them: here, sensors that drift.

python examples/dataset_per_client.py
"""

import torch
from torch import nn
from torch.utils.data import Dataset

import undrift as ud


class Sensor(Dataset):
    """Readings of one device, whose scale and offset are its own; is the machine in good order?"""

    def __init__(self, number, readings):
        draw = torch.Generator().manual_seed(number)
        self.good = torch.randint(2, (readings,), generator=draw)
        noise = torch.randn(readings, 6, generator=draw)
        self.values = (1 + number / 8) * (noise + 2 * self.good[:, None] - 1) + number / 4

    def __len__(self):
        return len(self.good)

    def __getitem__(self, k):
        return self.values[k], self.good[k]


torch.manual_seed(0)
train = [Sensor(number, readings=20 + 10 * number) for number in range(8)]
test = [Sensor(number, readings=200) for number in range(8)]
problem = ud.Neural(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)), train, test=test)
runs = ud.run([ud.FedAvg(lr=0.1), ud.Scaffold(lr=0.1)], problem, rounds=20, steps=5, batch=16)
print(runs.table())
