"""Text classification: which chapter of Python's own manual are twenty words from?

python examples/text_classification.py
"""

import zlib
from pydoc_data.topics import topics

import torch
from torch import nn

import undrift as ud

chapters = sorted(topics.values(), key=len)[-6:]
passages, labels = [], []
for label, text in enumerate(chapters):
    words = [1 + zlib.crc32(word.encode()) % 1999 for word in text.lower().split()]
    rows = [words[k : k + 20] for k in range(0, len(words) - 20, 20)]
    passages += rows
    labels += [label] * len(rows)

torch.manual_seed(0)
net = nn.Sequential(nn.EmbeddingBag(2000, 32), nn.Linear(32, len(chapters)))
parts = ud.data.dirichlet(labels, clients=8, beta=0.3)  # every client has read other chapters
problem = ud.Neural(net, (passages, labels), parts, test=0.2)
run = ud.run(ud.Scaffold(lr=10.0), problem, rounds=20, steps=10, batch=16, every=5)
for row in run.history.rows:
    print(f"round {row['round']:2}: loss {row['loss']:.3f}, right {row['accuracy']:.1%}")
