"""The papers' splits as their codes make them; :mod:`undrift.data.partition` has the tidy ones.

Every function returns one ascending index array per client. The chances are the codes'; the random
numbers are ours.
``beta`` is the Dirichlet concentration, which FedACG and FedSpeed call alpha.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from undrift.data.partition import (
    Parts,
    _classes,
    _dirichlet,
    _positive,
    _sorted,
    _total,
    label_counts,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["fedacg", "feddyn", "fedrecu", "fedspeed", "heat_map", "iid", "label_counts"]


def fedspeed(labels: ArrayLike, clients: int, rng: Generator, beta: float) -> Parts:
    """FL-Simulator: equal sizes (the first client takes the remainder), each client's classes drawn
    from its Dir(beta).

    A client that asks for a class that has run out refills it and draws its class anew: **samples
    are reused**, so
    some appear several times, within one client or among many, and others never.
    """
    sizes = np.full(clients, _total(labels, clients, allow_empty=False) // clients)
    sizes[0] += len(np.asarray(labels)) - sizes.sum()
    return _fill(labels, sizes, rng, beta, refill=True)


def feddyn(labels: ArrayLike, clients: int, rng: Generator, beta: float) -> Parts:
    """FedDyn: as FedSpeed's, but a client that asks for a class that has run out draws among those
    that are left.

    No sample is used twice; the remainder of the division by the number of clients is not used.
    """
    sizes = np.full(clients, _total(labels, clients, allow_empty=False) // clients)
    return _fill(labels, sizes, rng, beta, refill=False)


def fedacg(labels: ArrayLike, clients: int, rng: Generator, beta: float) -> Parts:
    """FedACG: one client after another draws its share without replacement, each sample weighted by
    its class's prior.

    Classes that earlier clients have thinned out are drawn less than the client's Dir(beta) says,
    and the last client
    takes what is left. The remainder of the division by the number of clients is not used.
    """
    _positive(beta)
    share = _total(labels, clients, allow_empty=False) // clients
    names, which = np.unique(np.asarray(labels), return_inverse=True)
    pool = np.arange(len(which))
    parts = []
    for prior in _dirichlet(rng, beta, len(names), clients):
        # the first arrivals of Poisson processes are a weighted draw without replacement; the floor
        # ranks weight 0 last
        arrivals = rng.exponential(size=len(pool)) / np.maximum(prior, 1e-300)[which[pool]]
        order = np.argpartition(arrivals, share - 1)
        parts.append(pool[order[:share]])
        pool = pool[order[share:]]
    return _sorted(parts)


def fedrecu(
    labels: ArrayLike, clients: int, rng: Generator, beta: float, *, allow_empty: bool = False
) -> Parts:
    """FedRecu: each class is cut among the clients in proportions from Dir(beta), cuts rounded
    down; sizes differ.

    Where a client is left with nothing the code fails; so does this, unless ``allow_empty``.
    """
    _positive(beta)
    _total(labels, clients, allow_empty)
    dealt = []
    for members in _classes(labels):
        cuts = np.cumsum(_dirichlet(rng, beta, clients, 1)[0])[:-1] * len(members)
        dealt.append(np.split(rng.permutation(members), cuts.astype(np.int64)))
    parts = _sorted([np.concatenate(mine) for mine in zip(*dealt, strict=True)])
    if empty := 0 if allow_empty else sum(not len(part) for part in parts):
        raise ValueError(
            f"Dir({beta:g}) left nothing for {empty} of {clients} clients; "
            "raise beta, lower clients, take another seed or allow empty ones"
        )
    return parts


def iid(labels: ArrayLike, clients: int, rng: Generator, *, by_class: bool = False) -> Parts:
    """Shuffled and cut into equal parts, of equal class counts too where ``by_class`` (FedSpeed's
    CIFAR-100).
    """
    total = _total(labels, clients, allow_empty=False)
    groups = _classes(labels) if by_class else [np.arange(total)]
    uneven = [len(members) for members in groups if len(members) % clients]
    if uneven:
        what = "a class" if by_class else "a set"
        raise ValueError(f"{what} of {uneven[0]} samples cannot be cut into {clients} equal parts")
    return _sorted(
        list(np.concatenate([rng.permutation(m).reshape(clients, -1) for m in groups], axis=1))
    )


def heat_map(parts: Sequence[ArrayLike], labels: ArrayLike, ax: Axes | None = None) -> Axes:
    """FedSpeed's Figure 3: the share of every class (y) in the data of every client (x); bright
    classes dominate.
    """
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(8, 3), layout="constrained")
    counts = label_counts(parts, labels)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    bright = max(np.quantile(shares, 0.99), 2 / shares.shape[1])
    image = ax.imshow(
        shares.T,
        cmap="magma",
        vmin=0,
        vmax=bright,
        aspect="auto",
        origin="lower",
        interpolation="none",
    )
    ax.set_xlabel("client")
    ax.set_ylabel("class")
    for axis, names in ((ax.xaxis, range(len(parts))), (ax.yaxis, np.unique(np.asarray(labels)))):
        ticks = range(0, len(names), 1 + (len(names) - 1) // 10)
        axis.set_ticks(ticks, [str(names[k]) for k in ticks])
    extend = "max" if shares.max() > bright else "neither"
    ax.figure.colorbar(image, ax=ax, label="share of the client's data", extend=extend)
    return ax


def _fill(
    labels: ArrayLike, sizes: NDArray[np.int64], rng: Generator, beta: float, *, refill: bool
) -> Parts:
    """Random clients that are not full ask, one sample at a time, for a class of their prior."""
    _positive(beta)
    stock = [rng.permutation(members).tolist() for members in _classes(labels)]
    left = [len(members) for members in stock]
    priors = _dirichlet(rng, beta, len(stock), len(sizes))
    ladders = [_ladder(prior) for prior in priors]
    parts: list[list[int]] = [[] for _ in sizes]
    hungry = list(range(len(sizes)))
    while hungry:
        seat = int(rng.random() * len(hungry))
        client = hungry[seat]
        while not left[k := bisect_left(ladders[client], rng.random())]:
            if refill:
                left[k] = len(stock[k])
            else:  # to draw until a class is found is to draw among those that are left
                among = priors[client] * np.minimum(left, 1)
                if not among.any():
                    raise ValueError(
                        f"every class that client {client} can have under Dir({beta:g}) has run out; raise beta, "
                        "take another seed, or take fedspeed, which reuses samples"
                    )
                ladders[client] = _ladder(among)
        left[k] -= 1
        parts[client].append(stock[k][left[k]])
        if len(parts[client]) == sizes[client]:
            hungry[seat] = hungry[-1]
            hungry.pop()
    return [np.sort(np.array(part, dtype=np.int64)) for part in parts]


def _ladder(chances: NDArray[np.float64]) -> list[float]:
    """Cumulative sums that end at exactly 1; entries without chance are steps of no height, which
    nobody stands on.
    """
    sums = np.cumsum(chances)
    return (sums / sums[-1]).tolist()
