"""The next character of a text: the chapters of Python's own manual are the clients.

python examples/text.py
"""

from pydoc_data.topics import topics

import torch
from torch import nn
from torch.nn import functional as F

import undrift as ud

torch.manual_seed(0)
chapters = sorted(topics.values(), key=len)[-4:]
letters = sorted(set("".join(chapters)))
number = {letter: k for k, letter in enumerate(letters)}


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.read, self.think = nn.Embedding(len(letters), 16), nn.GRU(16, 32, batch_first=True)
        self.write = nn.Linear(32, len(letters))

    def forward(self, tokens):
        return self.write(self.think(self.read(tokens))[0]).transpose(1, 2)


def lines(text, length=24):
    tokens = torch.tensor([number[letter] for letter in text[: 100 * (length + 1)]])
    rows = tokens[: len(tokens) // (length + 1) * (length + 1)].view(-1, length + 1)
    return rows[:, :-1], rows[:, 1:]  # what comes next, at every place


problem = ud.Neural(Writer(), [lines(text) for text in chapters], test=0.1, loss=F.cross_entropy)
run = ud.run(ud.FedAvg(lr=2.0), problem, rounds=9, steps=10, batch=16, every=3)
for row in run.history.rows:
    print(f"round {row['round']:2}: loss {row['loss']:.3f}, right {row['accuracy']:.1%}")
