"""Recorded columns: their names on an axis, their scale, and which of them a run is judged by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SHARES = ("accuracy", "top5", "train_accuracy")
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
    "top5": "accuracy among five, %",
    "train_loss": "training loss",
    "train_accuracy": "training accuracy, %",
    "drift": "mean squared distance of the local models",
    "bytes_up": "bytes uploaded",
    "gradients": "gradients, all clients",
    "iterations": "local iterations",
    "seconds": "seconds",
}
TESTED = {
    "loss": "test loss",
    "accuracy": "test accuracy, %",
    "top5": "test accuracy among five, %",
}
"""Replace ``WORDS`` for networks that are measured on test samples."""


def metric(rows: Iterable[Mapping[str, object]]) -> str:
    """The column that judges a run: the gap if the optimum is known, else accuracy, else loss."""
    rows = list(rows)
    known = (name for name in ("gap", "accuracy") if any(row.get(name) is not None for row in rows))
    return next(known, "loss")


def tested(rows: Iterable[Mapping[str, object]]) -> bool:
    """Whether losses and accuracies are of test samples.

    Those are networks, which record no gradient; without test samples their loss is the training
    loss.
    """
    rows = list(rows)
    if (judged := metric(rows)) != "loss":
        return judged == "accuracy"
    found = [row for row in rows if row.get("loss") is not None]
    of_training = all(row["loss"] == row.get("train_loss") for row in found)
    return not of_training and not any("grad_norm" in row for row in rows)


def axis(y: str, smooth: int = 1, note: str = "", *, tested: bool = False) -> str:
    """The title of an axis that shows column ``y``."""
    words = WORDS | TESTED if tested else WORDS
    if y not in SHARES:
        return words.get(y, y)
    details = [note] if note else []
    if smooth > 1:
        details.append(f"mean of the last {smooth} rows")
    return f"{words[y]} ({'; '.join(details)})" if details else words[y]
