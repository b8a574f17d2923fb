"""Natural federations that come with undrift: data whose clients are where they are from.

What is known of each is in ``embedded/federations.toml``, the numbers are in an npz file beside it.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from undrift.core.params import unknown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PLACE = Path(__file__).with_name("embedded")


@dataclasses.dataclass(frozen=True)
class NaturalCard:
    """What is known of a federation without its numbers."""

    name: str
    title: str
    problem: str
    """The named problem that its task is."""
    clients: int
    samples: int
    features: int
    client: str
    """What a client is."""
    differ: str
    """What clients differ in."""
    target: str
    classes: tuple[str, ...]
    """Names of what ``target`` counts, empty where it is a measured number."""
    prepared: str
    licence: str
    source: str
    citation: str


@dataclasses.dataclass(frozen=True)
class NaturalFederation:
    """The numbers of a federation, over all clients, and who has which."""

    features: NDArray[np.float64]
    """``[samples, features]``."""
    target: NDArray[np.generic]
    """``[samples]``: classes from 0 on, or numbers."""
    groups: NDArray[np.str_]
    """The name of the client that has it, for each sample."""
    parts: list[NDArray[np.int64]]
    """The samples of each client, in the order of their names."""
    columns: tuple[str, ...]
    """The names of the features."""
    card: NaturalCard

    def shares(self) -> NDArray[np.float64]:
        """Of each client, the share of the class that is most frequent overall, or the mean of a
        measured target.
        """
        import numpy as np

        kinds = self.card.classes
        values = self.target == np.bincount(self.target).argmax() if kinds else self.target
        return np.array([values[part].mean() for part in self.parts])

    def between(self) -> tuple[float, float]:
        """Which share of the variance of the target, and of the features, is between clients.

        0 if all clients have the same mean, 1 if nothing varies within a client.
        """
        import numpy as np

        kinds, numbers = len(self.card.classes), self.target.astype(np.float64)[:, None]
        wanted = np.eye(kinds)[self.target] if kinds else numbers

        def share(values: NDArray[np.float64]) -> float:
            away = [len(part) * (values[part].mean(0) - values.mean(0)) ** 2 for part in self.parts]
            return float(np.sum(away) / (len(values) * values.var(0).sum()))

        return share(wanted), share(self.features)


@cache
def cards() -> Mapping[str, NaturalCard]:
    """Every natural federation by name."""
    tables = tomllib.loads((PLACE / "federations.toml").read_text(encoding="utf-8"))
    return {
        name: NaturalCard(name=name, **table | {"classes": tuple(table["classes"])})
        for name, table in tables.items()
    }


def federation(name: str, scaled: bool = True) -> NaturalFederation:
    """A natural federation by name: ``undrift list data`` has them all.

    Features have mean 0 and standard deviation 1 over all clients together, and so has a measured
    target. Where a feature is missing it is 0, its mean; a column more says where, if more than a
    tenth of the samples lack it. With ``scaled=False`` features and target are as they were
    measured, NaN where they are missing.

    >>> heart = federation("heart")
    >>> heart.features.shape, [len(part) for part in heart.parts]
    ((920, 17), [303, 294, 123, 200])
    """
    import numpy as np

    from undrift.data.partition import by_group

    if name not in cards():
        raise ValueError(unknown("natural federation", name, cards()))
    card = cards()[name]
    with np.load(PLACE / f"{name}.npz", allow_pickle=False) as file:
        values = file["values"].astype(np.float64)
        target = file["target"].astype(np.int64 if card.classes else np.float64)
        columns, groups = file["columns"], file["clients"][file["owner"]]
    if scaled:
        gaps = np.isnan(values)
        often = gaps.mean(0) > 0.1
        values = (values - np.nanmean(values, 0)) / np.nanstd(values, 0)
        values = np.hstack([np.where(gaps, 0.0, values), gaps[:, often]])
        columns = [*columns, *(f"{column} missing" for column in columns[often])]
        if not card.classes:
            target = (target - target.mean()) / target.std()
    return NaturalFederation(
        values, target, groups, by_group(groups), tuple(map(str, columns)), card
    )
