"""How a named problem splits the samples of a data set among its clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from undrift.data.partition import Parts

Split = Literal["iid", "dirichlet", "dirichlet-balanced", "by-label"]


def split(
    labels: NDArray[np.generic], clients: int, how: str, beta: float, shards: int, seed: int
) -> Parts:
    """The samples of each client."""
    from undrift.core.streams import Streams
    from undrift.data import paper_partitions, partition

    rng = Streams(seed).at("data")
    if how == "iid":
        return partition.iid(labels, clients, rng)
    if how == "by-label":
        return partition.by_label(labels, clients, rng, shards=shards)
    by_dirichlet: dict[str, Callable[..., Parts]] = {
        "dirichlet": partition.dirichlet,
        "dirichlet-balanced": partition.dirichlet_balanced,
        "fedspeed": paper_partitions.fedspeed,
        "feddyn": paper_partitions.feddyn,
        "fedacg": paper_partitions.fedacg,
        "fedrecu": paper_partitions.fedrecu,
    }
    return by_dirichlet[how](labels, clients, rng, beta=beta)


def whole(clients: int, what: str) -> str:
    """Why there is no split to vary; empty if there is one."""
    return "a single client holds all samples" if what == "split" and clients == 1 else ""
