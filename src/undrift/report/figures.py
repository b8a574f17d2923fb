"""Curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WORDS = {
    "round": "rounds",
    "vectors": "vectors sent and received per client",
    "gap": "f(x) − f*",
    "grad_norm": "‖∇f(x)‖",
    "distance": "‖x − x*‖",
    "loss": "f(x)",
    "bytes_up": "bytes uploaded",
    "gradients": "gradients, all clients",
    "iterations": "local iterations",
    "seconds": "seconds",
}
LOGARITHMIC = {"gap", "grad_norm", "distance", "drift"}


def curve(
    history: Mapping[str, np.ndarray], y: str, x: str = "round", label: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw column ``y`` against column ``x``; quantities that shrink to zero get a logarithmic axis."""
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    values = np.array(history[y], dtype=float)
    if y in LOGARITHMIC:
        values[values <= 0] = np.nan
        ax.set_yscale("log")
    ax.plot(history[x], values, label=label)
    ax.set_xlabel(WORDS.get(x, x))
    ax.set_ylabel(WORDS.get(y, y))
    ax.grid(True, alpha=0.3)
    if label:
        ax.legend(frameon=False, fontsize="small")
    return ax
