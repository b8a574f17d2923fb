"""The data of a federation: all samples in one table, and whose they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import Subset

from undrift.core.params import BadParameters, about, not_allowed
from undrift.data.partition import hold_out
from undrift.problems.neural.given import as_table, is_empty
from undrift.problems.neural.table import Held, Read, Rows, Table, cat, too_large, unfinite
from undrift.problems.ragged import positions


class Federation(NamedTuple):
    """All samples of a federation, and whose they are."""

    train: Table
    parts: list[np.ndarray]
    """The numbers of every client's training samples."""
    test: Table | None
    test_parts: list[np.ndarray] | None
    """Of its test samples; ``None`` where those are nobody's."""
    apart: bool = False
    """Whether the clients' training samples were given apart, each with numbers of its own."""

    def to(self, dtype: torch.dtype, device: torch.device) -> Federation:
        train = self.train.to(dtype, device)
        test = train if self.test is self.train else self.test and self.test.to(dtype, device)
        return self._replace(train=train, test=test)

    def refuse_overflow(self, dtype: torch.dtype) -> None:
        """Refuse numbers that are infinite in ``dtype``; raises :class:`BadParameters`."""
        refuse_unfinite("train", self.train, self.parts, self.apart, dtype)
        if self.test is not None and self.test is not self.train:
            refuse_unfinite("test", self.test, self.test_parts, True, dtype)


def federation(train: object, parts: Sequence[ArrayLike] | None, test: object) -> Federation:
    """What was given as data, with every client's share of it. Nothing is copied if it can stay."""
    if isinstance(train, list):
        if parts is not None:
            text = (
                "train is a list, the data of each client: leave out parts, or give a tuple "
                "(inputs, targets) of all samples"
            )
            raise BadParameters("Neural", {"parts": text})
        with about("Neural", "train"):
            table, held = _joined("train", dict(enumerate(train)))
    else:
        with about("Neural", "train"):
            table = as_table("train", train)
        if parts is None:
            text = (
                "parts must say which samples each client holds, as "
                "parts=undrift.data.iid(len(inputs), clients=10); or give train as a list with "
                "the data of each client"
            )
            raise BadParameters("Neural", {"parts": text})
        with about("Neural", "parts"):
            held = positions(parts, len(table))
    refuse_unfinite("train", table, held, apart=isinstance(train, list))
    with about("Neural", "test"):
        return _with_test(table, held, test)._replace(apart=isinstance(train, list))


def _with_test(table: Table, parts: list[np.ndarray], test: object) -> Federation:
    if test is None:
        return Federation(table, parts, None, None)
    if isinstance(test, float | int | np.floating | np.integer):
        if not 0 < test < 1:
            allowed = "a share of every client's samples, > 0 and < 1, or test data"
            raise ValueError(not_allowed("test", test, allowed))
        return _held_out(table, parts, float(test))
    if isinstance(test, list) and len(test) != len(parts):
        raise ValueError(
            f"test is a list, the data of each client, of length {len(test)}, but there are "
            f"{len(parts)} clients; a tuple (inputs, targets) is everyone's"
        )
    sites = dict(enumerate(test)) if isinstance(test, list) else {0: test}
    known = {site: data for site, data in sites.items() if not is_empty(data)}
    if sites and not known:
        raise ValueError("test has no samples; give some, or leave out test")
    owners: list[np.ndarray] | None = None
    if isinstance(test, list):
        tested, found = _joined("test", known)
        owners = [np.array([], dtype=np.int64)] * len(test)
        for site, part in zip(known, found, strict=True):
            owners[site] = part
    else:
        tested = as_table("test", test)
    first, like = (t.take(torch.tensor([0])) for t in (tested, table))
    _refuse_structure("test", first, "train", like)
    for (name, v), (_, other) in zip(first.tensors(), like.tensors(), strict=True):
        if (v.dtype == torch.uint8) != (other.dtype == torch.uint8):
            raise ValueError(
                f"{name} of test are {v.dtype}, but those of train are {other.dtype}; uint8 are "
                "images, which are scaled: give both in one dtype"
            )
    refuse_unfinite("test", tested, owners, apart=True)
    return Federation(table, parts, tested, owners)


def _held_out(table: Table, parts: list[np.ndarray], share: float) -> Federation:
    times = np.bincount(np.concatenate(parts))
    if times.max() > 1:
        raise ValueError(
            f"sample {times.argmax()} is held {times.max()} times, so that a share held out would "
            "be trained on too; give test data of its own"
        )
    left, taken = hold_out(parts, share)
    if not any(map(len, taken)):
        raise ValueError(
            "no client has two samples or more, of which one could be held out; give test data"
        )
    return Federation(table, left, table, taken)


def refuse_unfinite(
    field: str,
    table: Table,
    parts: Sequence[np.ndarray] | None,
    apart: bool = False,
    dtype: torch.dtype = torch.float64,
) -> None:
    """Refuse NaN and numbers that are infinite in ``dtype`` among samples in memory.

    A sample is called by its number in the table, or, where the clients' data were given
    ``apart``, by that in the data of its client.
    """
    for name, v in table.rows.tensors() if isinstance(table, Held) else ():
        if (number := unfinite(v, dtype)) is None:
            continue
        why, of = too_large(name, v[number], dtype), ""
        for client, part in enumerate(parts or ()):
            if len(places := np.flatnonzero(part == number)):
                of, number = f" of client {client}", int(places[0]) if apart else number
                break
        kind = "test sample" if field == "test" else "sample"
        text = f"{kind} {number}{of}: {why}"
        raise BadParameters("Neural", {field: text})


def _joined(name: str, given: Mapping[int, object]) -> tuple[Table, list[np.ndarray]]:
    """One table of several clients' data, and which samples are whose."""
    if not given:
        raise ValueError(f"{name} is empty; a federation needs at least one client")
    if len(given) == 2 and all(isinstance(part, Tensor | np.ndarray) for part in given.values()):
        raise TypeError(
            f"{name} is a list, the data of each client; give a tuple (inputs, targets) instead"
        )
    for client, part in given.items():
        if is_empty(part):
            raise ValueError(f"{name}[{client}] has no samples; leave out that client")
    subsets = [part for part in given.values() if isinstance(part, Subset)]
    if len(subsets) == len(given) and all(s.dataset is subsets[0].dataset for s in subsets):
        whole = as_table(name, subsets[0].dataset)
        return whole, positions([list(s.indices) for s in subsets], len(whole))
    with about("Neural", name, "a list has the data of each client: "):
        tables = [as_table(f"{name}[{client}]", part) for client, part in given.items()]
    clients = list(given)
    ends = np.cumsum([len(table) for table in tables])
    parts = np.split(np.arange(ends[-1]), ends[:-1])
    samples = [table.take(torch.tensor([0])) for table in tables]
    for client, sample in zip(clients, samples, strict=True):
        _refuse_other(f"{name}[{client}]", sample, f"{name}[{clients[0]}]", samples[0])
    held = [table.rows for table in tables if isinstance(table, Held)]
    if len(held) == len(tables):
        return Held(cat(held)), parts

    def read(numbers: Tensor) -> Rows:
        """Those of each client together, then in the order they were asked for."""
        owners = np.searchsorted(ends, numbers.numpy(), side="right")
        order = torch.from_numpy(np.argsort(owners, kind="stable"))
        pieces = [
            tables[c].take(numbers[owners == c] - int(ends[c] - len(tables[c])))
            for c in np.unique(owners)
        ]
        back = torch.argsort(order)
        return cat(pieces).mapped(lambda v: v.index_select(0, back))

    def called(number: int) -> str:
        place = int(np.searchsorted(ends, number, side="right"))
        return f"sample {number - parts[place][0]} of {name}[{clients[place]}]"

    return Read(read, int(ends[-1]), called), parts


def _refuse_structure(name: str, one: Rows, like_name: str, like: Rows) -> None:
    """Refuse samples of other fields."""
    mine, others = dict(one.tensors()), dict(like.tensors())
    if type(one.x) is not type(like.x) or type(one.y) is not type(like.y) or [*mine] != [*others]:
        raise ValueError(
            f"{name} has {', '.join(mine)}, but {like_name} has {', '.join(others)}; "
            "give the same everywhere"
        )


def _refuse_other(name: str, one: Rows, like_name: str, like: Rows) -> None:
    """Refuse samples that are not of the same kind as others."""
    _refuse_structure(name, one, like_name, like)
    for (field, v), (_, other) in zip(one.tensors(), like.tensors(), strict=True):
        if (v.dtype, v.shape[1:]) != (other.dtype, other.shape[1:]):
            raise ValueError(
                f"{field} of {name} are {v.dtype} {list(v.shape[1:])}, but those of {like_name} "
                f"are {other.dtype} {list(other.shape[1:])}; give the same everywhere"
            )
