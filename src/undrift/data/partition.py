"""Ways to split a data set among clients.

Every function returns an ascending index array per client; each sample has exactly one client.
``seed`` is a number, or a NumPy generator to draw from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from undrift.core.params import BadParameters, not_allowed
from undrift.core.streams import Streams

Parts = list[NDArray[np.int64]]
Seed = int | Generator


def iid(samples: ArrayLike, clients: int, seed: Seed = 0, *, allow_empty: bool = False) -> Parts:
    """Shuffled and cut into equal parts (sizes differ by at most one).

    ``samples`` is how many there are, or their labels.
    """
    total = sample_count(samples, clients, allow_empty)
    return ascending(np.array_split(generator(seed).permutation(total), clients))


def by_size(
    samples: ArrayLike,
    clients: int,
    seed: Seed = 0,
    beta: float = 0.5,
    *,
    allow_empty: bool = False,
) -> Parts:
    """Shuffled and cut into parts whose sizes are drawn from Dir(beta): smaller is more uneven.

    ``samples`` is how many there are, or their labels.
    """
    total = sample_count(samples, clients, allow_empty)
    return dirichlet(np.zeros(total), clients, seed, beta, allow_empty=allow_empty)


def by_group(groups: ArrayLike) -> Parts:
    """A client for every group, in ascending order: the users, sites or days that samples are from.

    >>> [part.tolist() for part in by_group(["b", "a", "b"])]
    [[1], [0, 2]]
    """
    names = _array(groups)
    return [np.flatnonzero(names == name) for name in np.unique(names)]


def dirichlet(
    labels: ArrayLike,
    clients: int,
    seed: Seed = 0,
    beta: float = 0.5,
    *,
    allow_empty: bool = False,
) -> Parts:
    """Each class is shared out in proportions drawn from Dir(beta); clients have different sizes.

    Unless ``allow_empty``, a client left with nothing takes a random sample from the largest one.
    """
    total, rng = sample_count(labels, clients, allow_empty), generator(seed)
    _refuse_continuous(labels)
    owner = np.empty(total, dtype=np.int64)
    for members in by_group(labels):
        share = dirichlet_rows(rng, beta, clients, 1)[0]
        cuts = np.rint(np.cumsum(share)[:-1] * len(members)).astype(np.int64)
        for client, mine in enumerate(np.split(rng.permutation(members), cuts)):
            owner[mine] = client
    sizes = np.bincount(owner, minlength=clients)
    for empty in [] if allow_empty else np.flatnonzero(sizes == 0).tolist():
        donor = int(sizes.argmax())
        owner[rng.choice(np.flatnonzero(owner == donor))] = empty
        sizes[donor] -= 1
        sizes[empty] = 1
    return [np.flatnonzero(owner == client) for client in range(clients)]


def dirichlet_balanced(
    labels: ArrayLike,
    clients: int,
    seed: Seed = 0,
    beta: float = 0.5,
    *,
    allow_empty: bool = False,
) -> Parts:
    """Clients of equal size (within one), each with class frequencies drawn from Dir(beta).

    All clients draw their classes at once. A class drawn more often than it has samples is dealt at
    random among those who drew it, and the others draw again from what is left, so that every
    sample is used.
    """
    total, rng = sample_count(labels, clients, allow_empty), generator(seed)
    _refuse_continuous(labels)
    classes = by_group(labels)
    prior = dirichlet_rows(rng, beta, len(classes), clients)
    left = np.array([len(members) for members in classes])
    wanted = np.full(clients, total // clients)
    wanted[rng.permutation(clients)[: total % clients]] += 1
    given = np.zeros((clients, len(classes)), dtype=np.int64)
    while wanted.any():
        chances = prior * (left > 0)
        chances = np.where(chances.sum(1, keepdims=True) > 0, chances, left)
        drawn = rng.multinomial(wanted, chances / chances.sum(1, keepdims=True))
        for k in np.flatnonzero(drawn.sum(0) > left):
            drawn[:, k] = rng.multivariate_hypergeometric(drawn[:, k], left[k])
        given += drawn
        left -= drawn.sum(0)
        wanted -= drawn.sum(1)
    dealt = [np.split(rng.permutation(m), np.cumsum(given[:-1, k])) for k, m in enumerate(classes)]
    return ascending([np.concatenate(mine) for mine in zip(*dealt, strict=True)])


def by_label(
    labels: ArrayLike, clients: int, seed: Seed = 0, shards: int = 2, *, allow_empty: bool = False
) -> Parts:
    """Sorted by label and cut into equal shards; every client gets ``shards`` random ones."""
    total, rng = sample_count(labels, clients, allow_empty), generator(seed)
    if not _whole(shards) or shards < 1:
        raise _refused("shards", not_allowed("shards", shards, "whole number >= 1"))
    if clients * shards > total and not allow_empty:
        raise _refused(
            "shards",
            f"{clients} clients of {shards} shards need {clients * shards} samples "
            f"but there are {total}; lower clients or shards",
        )
    pieces = np.array_split(
        np.concatenate([rng.permutation(m) for m in by_group(labels)]), clients * shards
    )
    order = rng.permutation(clients * shards).reshape(clients, shards)
    return ascending([np.concatenate([pieces[k] for k in mine]) for mine in order])


def hold_out(parts: Sequence[ArrayLike], share: float, seed: Seed = 0) -> tuple[Parts, Parts]:
    """``share`` of every client's samples set aside at random: what is left, and what was taken.

    Of a client with two samples or more at least one is taken, and at least one is left.

    >>> left, taken = hold_out([range(10), range(10, 14)], 0.25)
    >>> [len(part) for part in left], [len(part) for part in taken]
    ([8, 3], [2, 1])
    """
    if not _real(share) or not 0 < share < 1:
        raise _refused("share", not_allowed("share", share, "number > 0 and < 1"))
    rng, left, taken = generator(seed), [], []
    for part in parts:
        order = rng.permutation(np.asarray(part, dtype=np.int64))
        size = min(max(round(share * len(order)), 1), len(order) - 1)
        left.append(np.sort(order[size:]))
        taken.append(np.sort(order[:size]))
    return left, taken


def label_counts(parts: Sequence[ArrayLike], labels: ArrayLike) -> NDArray[np.int64]:
    """Samples per client and class ``[clients, classes]``, the classes in ascending order."""
    names, which = np.unique(np.asarray(labels), return_inverse=True)
    held = (which[np.asarray(part, dtype=np.int64)] for part in parts)
    return np.stack([np.bincount(mine, minlength=len(names)) for mine in held])


def generator(seed: Seed) -> Generator:
    """What a split draws from; the same numbers as a named problem's with that seed."""
    if isinstance(seed, Generator):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        allowed = "whole number >= 0 or a NumPy generator; give beta and shards by name"
        raise _refused("seed", not_allowed("seed", seed, allowed))
    return Streams(int(seed)).at("data")


def sample_count(samples: ArrayLike, clients: int, allow_empty: bool) -> int:
    """How many samples there are, by their number or by their labels."""
    count = max(samples, 0) if _whole(samples) else len(_array(samples))
    if not _whole(clients) or clients < 1:
        raise _refused(
            "clients", not_allowed("clients", clients, "whole number >= 1: at least one client")
        )
    if clients > count and not allow_empty:
        raise _refused(
            "clients",
            f"{clients} clients cannot share {count} samples; lower clients or allow empty ones",
        )
    return count


def _refused(field: str, text: str) -> BadParameters:
    return BadParameters("split", {field: text})


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _real(value: object) -> TypeGuard[float]:
    return _whole(value) or isinstance(value, float | np.floating)


def _array(labels: ArrayLike) -> NDArray[np.generic]:
    """Labels of any kind as an array, one for each sample."""
    try:
        found = np.asarray(labels)
        # NaN, of all values, differs from itself. What cannot be sorted has other kinds in it, as
        # None or the NA of pandas.
        sound = found.ndim == 1 and len(np.unique(found)) and not (found != found).any()
    except Exception:  # ragged lists, tensors of a GPU: NumPy says so in many ways
        sound = False
    if not sound:
        raise _refused(
            "labels",
            "labels must be an array, one label per sample, all of one type and none missing; "
            f"got {type(labels).__name__}",
        )
    return found


def _refuse_continuous(labels: ArrayLike) -> None:
    """Refuse measured numbers, which would be as many classes as there are samples."""
    labels = np.asarray(labels)
    if labels.dtype.kind == "f" and (labels != np.rint(labels)).any():
        raise _refused(
            "labels",
            "these labels are measured numbers, not classes; put them into groups first, as by "
            "np.digitize, or split them by size or at random",
        )


def dirichlet_rows(rng: Generator, beta: float, size: int, draws: int) -> NDArray[np.float64]:
    """Rows of Dir(beta); where a tiny beta underflows, its limit: all mass on one random entry."""
    if not _real(beta) or not 0 < beta < np.inf:
        allowed = "the Dirichlet concentration is a finite number > 0"
        raise _refused("beta", not_allowed("beta", beta, allowed))
    shares = rng.dirichlet(np.full(size, beta), draws)
    lost = ~np.isclose(shares.sum(1), 1)
    shares[lost] = np.eye(size)[rng.integers(size, size=draws)][lost]
    return shares


def ascending(parts: Sequence[NDArray[np.int64]]) -> Parts:
    return [np.sort(part) for part in parts]
