"""Mini-batches, the same for every engine."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from undrift.core.streams import Streams


class Batches:
    """``size`` samples of a client's own, without replacement, anew at each local step."""

    def __init__(self, streams: Streams, samples: list[int], size: int, device: torch.device):
        self.streams, self.samples, self.size, self.device = streams, samples, size, device

    def draw(self, members: Iterable[int], round: int, step: int) -> Tensor:
        """Positions ``[C, size]`` among each client's samples; -1 fills the rows of clients that have fewer."""
        rows = []
        for client in members:
            n = self.samples[client]
            row = np.full(self.size, -1)
            if n <= self.size:
                row[:n] = np.arange(n)
            else:
                row[:] = self.streams.at("batches", round, int(client), step).choice(n, self.size, replace=False)
            rows.append(row)
        return torch.from_numpy(np.stack(rows)).to(self.device)
