"""The papers' splits as their codes make them; :mod:`undrift.data.partition` has the tidy ones.

Every function returns an ascending index array per client. Probabilities are the codes', random
numbers are not. ``beta`` is the Dirichlet concentration, which FedACG and FedSpeed call alpha.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from undrift.data.partition import (
    Parts,
    ascending,
    by_group,
    dirichlet_rows,
    sample_count,
)


def fedspeed(labels: ArrayLike, clients: int, rng: Generator, beta: float) -> Parts:
    """FL-Simulator: equal sizes, each client's classes drawn from its Dir(beta).

    The first client takes the remainder. A client that draws a class that has run out refills it
    and draws again: **samples are reused**, so some appear several times, within one client or
    among many, and others never.
    """
    sizes = np.full(clients, sample_count(labels, clients, allow_empty=False) // clients)
    sizes[0] += len(np.asarray(labels)) - sizes.sum()
    return _fill(labels, sizes, rng, beta, refill=True)


def feddyn(labels: ArrayLike, clients: int, rng: Generator, beta: float) -> Parts:
    """FedDyn: as FedSpeed's, but instead of a class that has run out another one is drawn.

    No sample is used twice; the remainder of the division by the number of clients is not used.
    """
    sizes = np.full(clients, sample_count(labels, clients, allow_empty=False) // clients)
    return _fill(labels, sizes, rng, beta, refill=False)


def fedacg(labels: ArrayLike, clients: int, rng: Generator, beta: float) -> Parts:
    """FedACG: clients in turn draw samples without replacement, weighted by their class's prior.

    Classes that earlier clients have thinned out are drawn less often than the client's Dir(beta)
    says, and the last client takes what is left. The remainder of the division by the number of
    clients is not used.
    """
    share = sample_count(labels, clients, allow_empty=False) // clients
    names, which = np.unique(np.asarray(labels), return_inverse=True)
    pool = np.arange(len(which))
    parts = []
    for prior in dirichlet_rows(rng, beta, len(names), clients):
        # The first arrivals of Poisson processes are a weighted draw without replacement; the floor
        # ranks weight 0 last.
        arrivals = rng.exponential(size=len(pool)) / np.maximum(prior, 1e-300)[which[pool]]
        order = np.argpartition(arrivals, share - 1)
        parts.append(pool[order[:share]])
        pool = pool[order[share:]]
    return ascending(parts)


def fedrecu(
    labels: ArrayLike, clients: int, rng: Generator, beta: float, *, allow_empty: bool = False
) -> Parts:
    """FedRecu: each class is cut in proportions from Dir(beta), cuts rounded down; sizes differ.

    Where a client is left with nothing the code fails; so does this, unless ``allow_empty``.
    """
    sample_count(labels, clients, allow_empty)
    dealt = []
    for members in by_group(labels):
        cuts = np.cumsum(dirichlet_rows(rng, beta, clients, 1)[0])[:-1] * len(members)
        dealt.append(np.split(rng.permutation(members), cuts.astype(np.int64)))
    parts = ascending([np.concatenate(mine) for mine in zip(*dealt, strict=True)])
    if empty := 0 if allow_empty else sum(not len(part) for part in parts):
        raise ValueError(
            f"Dir({beta:g}) left nothing for {empty} of {clients} clients; "
            "raise beta, lower clients, take another seed or allow empty ones"
        )
    return parts


def _fill(
    labels: ArrayLike, sizes: NDArray[np.int64], rng: Generator, beta: float, *, refill: bool
) -> Parts:
    """Random clients that are not full draw a class from their prior, one sample at a time."""
    stock = [rng.permutation(members).tolist() for members in by_group(labels)]
    left = [len(members) for members in stock]
    priors = dirichlet_rows(rng, beta, len(stock), len(sizes))
    ladders = [_ladder(prior) for prior in priors]
    parts: list[list[int]] = [[] for _ in sizes]
    hungry = list(range(len(sizes)))
    while hungry:
        seat = int(rng.random() * len(hungry))
        client = hungry[seat]
        while not left[k := bisect_left(ladders[client], rng.random())]:
            if refill:
                left[k] = len(stock[k])
            else:  # drawing until a class is found is drawing among those that are left
                among = priors[client] * np.minimum(left, 1)
                if not among.any():
                    raise ValueError(
                        f"every class that client {client} can have under Dir({beta:g}) has run "
                        "out; raise beta, take another seed, or take fedspeed, which reuses samples"
                    )
                ladders[client] = _ladder(among)
        left[k] -= 1
        parts[client].append(stock[k][left[k]])
        if len(parts[client]) == sizes[client]:
            hungry[seat] = hungry[-1]
            hungry.pop()
    return [np.sort(np.array(part, dtype=np.int64)) for part in parts]


def _ladder(chances: NDArray[np.float64]) -> list[float]:
    """Cumulative sums that end at exactly 1; an entry of probability 0 is never found in them."""
    sums = np.cumsum(chances)
    steps: list[float] = (sums / sums[-1]).tolist()
    return steps
