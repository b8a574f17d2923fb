"""Recorded columns: their names on an axis, and their scale."""

from __future__ import annotations

from collections.abc import Mapping

from undrift.core.problem import Samples

SHARES = ("accuracy", "top5", "train_accuracy", "train_top5")
"""Recorded as fractions, shown in percent."""
LOGARITHMIC = {"gap", "grad_norm", "distance", "drift"}
"""Shrink to zero, so they are drawn on a logarithmic axis."""
WORDS = {
    "round": "rounds",
    "vectors": "vectors sent and received per client",
    "vectors_up": "vectors sent per client",
    "gap": "f(x) − f*",
    "grad_norm": "‖∇f(x)‖",
    "distance": "‖x − x*‖",
    "loss": "f(x)",
    "accuracy": "accuracy, %",
    "top5": "top-5 accuracy, %",
    "train_loss": "training loss",
    "train_accuracy": "training accuracy, %",
    "train_top5": "top-5 training accuracy, %",
    "f1": "F1",
    "auc": "AUC",
    "balanced_accuracy": "balanced accuracy",
    "drift": "mean squared distance of the local models",
    "bytes_up": "bytes uploaded",
    "gradients": "gradients, all clients",
    "iterations": "local iterations",
    "seconds": "seconds",
}
MEASURED_ON: Mapping[Samples | None, Mapping[str, str]] = {
    "test": {
        "loss": "test loss",
        "accuracy": "test accuracy, %",
        "top5": "top-5 test accuracy, %",
    },
    "train": {"accuracy": "training accuracy, %", "top5": "top-5 training accuracy, %"},
    None: {},
}
"""What replaces ``WORDS`` by the samples that were measured on; ``None``: nobody said which."""
BOUND_OF = "bound_of"
"""The key of a row that is a theorem's bound: the label of the method that it is about."""


def axis(y: str, smooth: int = 1, note: str = "", samples: Samples | None = None) -> str:
    """The title of an axis that shows column ``y``, measured on these samples."""
    words = {**WORDS, **MEASURED_ON[samples]}
    if y not in SHARES:
        return words.get(y, y)
    details = [note] if note else []
    if smooth > 1:
        details.append(f"mean of the last {smooth} rows")
    return f"{words[y]} ({'; '.join(details)})" if details else words[y]
