"""How each client fares: the numbers of every client, and how they are spread."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from undrift.core.params import BadParameters
from undrift.core.problem import OF_CLIENTS, OF_OWN_MODELS, Problem, Sums, taken
from undrift.core.stopping import usual_mode
from undrift.records.rows import Row
from undrift.report.numbers import count

if TYPE_CHECKING:
    import torch

    from undrift.engines import Engine

Floats = NDArray[np.float64]
ABOUT = ("label", "seed", "round", "of")
SHARE = 0.1
"""The clients that ``worst10`` is the mean of: the worst tenth of them, at least one."""


class RowColumns(Mapping[str, Floats]):
    """The columns of some rows by name, but for those that are not numbers of their own."""

    about: ClassVar[Collection[str]] = ()

    def __init__(self, rows: Iterable[Row]):
        self._rows = [*rows]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(n for row in self._rows for n in row if n not in self.about))

    def __len__(self) -> int:
        return len([*iter(self)])


class ClientHistory(RowColumns):
    """Metrics by name, each ``[rows, clients]``: those of the server's model on every client's own
    samples, and as ``local_loss`` and so on those of the client's own model.

    A client's own model is the one that the method keeps for it (``Method.own_point``), else its
    local model at the end of a round that it took part in. NaN is what was not measured: a client
    without test samples where others have some, or without a model of its own.
    """

    about = ABOUT

    @property
    def of(self) -> str:
        """Which samples: ``test`` where clients have test samples of their own, else ``train``."""
        return str(self._rows[-1]["of"])

    @property
    def rounds(self) -> NDArray[np.int64]:
        """The round of every row."""
        return np.array([row["round"] for row in self._rows])

    @property
    def clients(self) -> int:
        return len(self._rows[-1]["loss"])

    @property
    def last(self) -> dict[str, Floats]:
        """Metric -> the numbers of all clients ``[clients]`` at the end."""
        return {name: values[-1] for name, values in self.items()}

    def __getitem__(self, metric: str) -> Floats:
        if metric not in list(self):
            raise KeyError(f"{metric} was not measured; there are {', '.join(self)}")
        nothing = [math.nan] * self.clients
        found = [row.get(metric, nothing) for row in self._rows]
        return np.array(found, dtype=np.float64)

    def __repr__(self) -> str:
        known = {name: v[~np.isnan(v)] for name, v in self.last.items()}
        ends = ", ".join(f"{name} {v.mean():.4g}" for name, v in known.items() if len(v))
        what = (
            f"{self.clients} clients on their {self.of} samples, {count(len(self._rows), 'round')}"
        )
        return f"ClientHistory({what}; means at the end: {ends})"


def measured_clients(engine: Engine) -> Row:
    """A row with a list of all clients' numbers for every metric."""
    found = _lists(engine.client_metrics())
    refuse_names(found)
    members, own = engine.own_metrics([*found])
    if len(members):
        for name, values in _lists(own).items():
            everyone = np.full(engine.problem.clients, np.nan)
            everyone[members] = values
            if _sign(name) < 0:  # with samples, NaN is the loss of a model that is not finite
                failed = np.isnan(everyone[members]) & ~np.isnan(np.array(found[name])[members])
                everyone[members[failed]] = np.inf
            found[OF_OWN_MODELS + name] = everyone.tolist()
    return {"round": engine.round, "of": engine.problem.own_samples, **found}


def refuse_names(metrics: Iterable[str]) -> None:
    """Refuse metrics of a problem that are called like other columns of rows."""
    for name in metrics:
        if why := taken(name):
            raise BadParameters("run", {"problem": f"{why}; give it another name in the problem"})


def at_model(problem: Problem, x: torch.Tensor, round: int) -> Row:
    """Such a row for a model ``x`` of the server, without the clients' own models."""
    return {"round": round, "of": problem.own_samples, **_lists(problem.client_metrics(x))}


def spreads(row: Row) -> dict[str, float]:
    """Columns about the clients that were measured: mean, standard deviation, the quantiles at
    10, 50 and 90 %, and the mean of the worst tenth, where it is known which end is the worst.
    """
    found: dict[str, float] = {}
    for name, numbers in row.items():
        if name in ABOUT:
            continue
        values = np.array(numbers)
        values = values[~np.isnan(values)]
        if not len(values):
            continue
        with np.errstate(invalid="ignore"):  # infinite losses of a run that diverges
            low, middle, high = map(float, np.quantile(values, (0.1, 0.5, 0.9)))
            found |= {
                f"{OF_CLIENTS}{name}_mean": float(values.mean()),
                f"{OF_CLIENTS}{name}_std": float(values.std()),
                f"{OF_CLIENTS}{name}_p10": low,
                f"{OF_CLIENTS}{name}_p50": middle,
                f"{OF_CLIENTS}{name}_p90": high,
            }
        if _sign(name):
            found[f"{OF_CLIENTS}{name}_worst10"] = worst(values, name)
    return found


def worst(values: Floats, metric: str) -> float:
    """The mean of the worst tenth of some clients, at least of one.

    >>> worst(np.array([0.9, 0.2, 0.8]), "accuracy")
    0.2
    """
    number = math.ceil(round(SHARE * len(values), 9))
    ordered = np.sort(_sign(metric) * values)[:number]
    return float(_sign(metric) * ordered.mean())


def _sign(metric: str) -> int:
    """1 where low values are the worst, -1 where high ones are, 0 where that is not known."""
    mode = usual_mode(metric.removeprefix(OF_OWN_MODELS))
    return (mode == "max") - (mode == "min")


def _lists(found: Sums) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in found.items()}
