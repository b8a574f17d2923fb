"""Samples as rows of tables: tensors and arrays of any kind, or a Dataset that is read by rows."""

from __future__ import annotations

import abc
import dataclasses
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any, ClassVar, NamedTuple, Self, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)
from torch.utils.data import default_collate as collate

from undrift.core.params import BadParameters, about, not_allowed
from undrift.data.files import brief
from undrift.data.partition import hold_out
from undrift.problems.neural.drawing import watched
from undrift.problems.ragged import positions

Fields = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""One tensor or several, whose rows are samples."""
Output = Any
"""What a network returns: whatever its loss and metrics take."""
SMALL = 2**30
"""A Dataset of up to so many bytes is read into memory once; a larger one whenever it is used."""
CPU = torch.device("cpu")
WANTED = "a pair (inputs, targets) of tensors or arrays, or a Dataset of such pairs"


def mapped(change: Callable[[Tensor], Tensor], fields: Fields) -> Fields:
    """The same fields, each one changed."""
    if isinstance(fields, Tensor):
        return change(fields)
    if isinstance(fields, tuple):
        return tuple(map(change, fields))
    return {name: change(field) for name, field in fields.items()}


def leaves(fields: Fields) -> tuple[Tensor, ...]:
    """The tensors themselves."""
    if isinstance(fields, Tensor):
        return (fields,)
    return fields if isinstance(fields, tuple) else tuple(fields.values())


def count(fields: Fields) -> int:
    """How many samples they are of."""
    return len(leaves(fields)[0])


def versions(*values: Output) -> list[int]:
    """How often each tensor in them was written to."""
    found = list[int]()
    for value in values:
        if isinstance(value, Tensor):
            found.append(value._version)
        elif isinstance(value, tuple | list | dict):
            found += versions(*(value.values() if isinstance(value, dict) else value))
    return found


def shown(value: object) -> str:
    """Type and shape of a tensor of samples, in words."""
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    sizes = ", ".join(["n", *map(str, value.shape[1:])])
    return f"{str(value.dtype).removeprefix('torch.')} [{sizes}]"


class Rows(NamedTuple):
    """Samples: their inputs and their targets."""

    x: Fields
    y: Fields

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Rows:
        return Rows(mapped(change, self.x), mapped(change, self.y))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All of them, by name: ``inputs``, or ``inputs[1]`` and ``inputs['mask']``."""
        for name, fields in (("inputs", self.x), ("targets", self.y)):
            if isinstance(fields, Tensor):
                yield name, fields
                continue
            keyed = enumerate(fields) if isinstance(fields, tuple) else fields.items()
            yield from ((f"{name}[{key!r}]", field) for key, field in keyed)


class Table(abc.ABC):
    """Samples by number."""

    held: ClassVar[bool]
    """Whether all of them are on the device of the run."""
    y: Fields | None
    """All targets; ``None`` where they are not known without reading every sample."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def take(self, numbers: Tensor) -> Rows:
        """Some samples, on the device of the run."""

    @abc.abstractmethod
    def to(self, device: torch.device) -> Self: ...


class Held(Table):
    """Samples in memory."""

    held = True

    def __init__(self, rows: Rows):
        self.rows = rows
        self.x, self.y = rows

    def __len__(self) -> int:
        return count(self.x)

    def take(self, numbers: Tensor) -> Rows:
        if isinstance(self.x, Tensor) and isinstance(self.y, Tensor):
            return Rows(self.x.index_select(0, numbers), self.y.index_select(0, numbers))
        return self.rows.mapped(lambda v: v.index_select(0, numbers))

    def to(self, device: torch.device) -> Self:
        return type(self)(self.rows.mapped(lambda v: v.to(device)))


@dataclasses.dataclass(frozen=True)
class Read(Table):
    """Samples that stay where they are, and are looked at as they are read."""

    read: Callable[[Tensor], Rows]
    """Some samples, on the CPU."""
    length: int
    called: Callable[[int], str]
    """What a sample is called, by its number."""
    y: Fields | None = None
    device: torch.device = CPU

    held = False

    def __len__(self) -> int:
        return self.length

    def take(self, numbers: Tensor) -> Rows:
        numbers = numbers.cpu()
        rows = self.read(numbers)
        for name, v in rows.tensors():
            if (wrong := unfinite(v)) is not None:
                raise ValueError(f"{self.called(int(numbers[wrong]))}: {UNFINITE.format(name)}")
        return rows.mapped(lambda v: v.to(self.device))

    def to(self, device: torch.device) -> Self:
        return dataclasses.replace(self, device=device)


UNFINITE = "its {} hold numbers that are not finite; remove it or replace them"


def unfinite(v: Tensor) -> int | None:
    """The first row with a number that is not finite."""
    if not v.is_floating_point() or not v.numel():
        return None
    low, high = v.aminmax()
    if bool(low.isfinite()) and bool(high.isfinite()):
        return None
    return next(k for k in range(len(v)) if not bool(v[k].isfinite().all()))


class Federation(NamedTuple):
    """All samples of a federation, and whose they are."""

    train: Table
    parts: list[np.ndarray]
    """The numbers of every client's training samples."""
    test: Table | None
    test_parts: list[np.ndarray] | None
    """Of its test samples; ``None`` where those are nobody's."""

    def to(self, device: torch.device) -> Federation:
        train = self.train.to(device)
        test = train if self.test is self.train else self.test and self.test.to(device)
        return self._replace(train=train, test=test)


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
            table = _table("train", train)
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
        return _with_test(table, held, test)


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
    known = {site: data for site, data in sites.items() if not _is_empty(data)}
    if sites and not known:
        raise ValueError("test has no samples; give some, or leave out test")
    owners: list[np.ndarray] | None = None
    if isinstance(test, list):
        tested, found = _joined("test", known)
        owners = [np.array([], dtype=np.int64)] * len(test)
        for site, part in zip(known, found, strict=True):
            owners[site] = part
    else:
        tested = _table("test", test)
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
    field: str, table: Table, parts: Sequence[np.ndarray] | None, apart: bool = False
) -> None:
    """Refuse NaN and infinite numbers among samples in memory.

    A sample is called by its number in the table, or, where the clients' data were given
    ``apart``, by that in the data of its client.
    """
    for name, v in table.rows.tensors() if isinstance(table, Held) else ():
        if (number := unfinite(v)) is None:
            continue
        of = ""
        for client, part in enumerate(parts or ()):
            if len(places := np.flatnonzero(part == number)):
                of, number = f" of client {client}", int(places[0]) if apart else number
                break
        kind = "test sample" if field == "test" else "sample"
        text = f"{kind} {number}{of}: {UNFINITE.format(name)}"
        raise BadParameters("Neural", {field: text})


def _rows(array: object) -> int | None:
    """How many samples there are in an array, or in a list."""
    if isinstance(array, Tensor | np.ndarray):
        return int(array.shape[0]) if array.ndim else None
    return len(array) if isinstance(array, list) else None


def _is_empty(given: object) -> bool:
    """Whether these are data without any sample."""
    if isinstance(given, tuple):
        arrays = [array for part in given for array in _arrays(part)]
        return bool(arrays) and all(_rows(array) == 0 for array in arrays)
    if isinstance(given, DataLoader):
        return _is_empty(given.dataset)
    return given is None or (_is_dataset(given) and not len(given))


def _joined(name: str, given: Mapping[int, object]) -> tuple[Table, list[np.ndarray]]:
    """One table of several clients' data, and which samples are whose."""
    if not given:
        raise ValueError(f"{name} is empty; a federation needs at least one client")
    if len(given) == 2 and all(isinstance(part, Tensor | np.ndarray) for part in given.values()):
        raise TypeError(
            f"{name} is a list, the data of each client; give a tuple (inputs, targets) instead"
        )
    for client, part in given.items():
        if _is_empty(part):
            raise ValueError(f"{name}[{client}] has no samples; leave out that client")
    subsets = [part for part in given.values() if isinstance(part, Subset)]
    if len(subsets) == len(given) and all(s.dataset is subsets[0].dataset for s in subsets):
        whole = _table(name, subsets[0].dataset)
        return whole, positions([list(s.indices) for s in subsets], len(whole))
    with about("Neural", name, "a list has the data of each client: "):
        tables = [_table(f"{name}[{client}]", part) for client, part in given.items()]
    clients = list(given)
    ends = np.cumsum([len(table) for table in tables])
    parts = np.split(np.arange(ends[-1]), ends[:-1])
    samples = [table.take(torch.tensor([0])) for table in tables]
    for client, sample in zip(clients, samples, strict=True):
        _refuse_other(f"{name}[{client}]", sample, f"{name}[{clients[0]}]", samples[0])
    held = [table.rows for table in tables if isinstance(table, Held)]
    if len(held) == len(tables):
        return Held(_cat(held)), parts

    def read(numbers: Tensor) -> Rows:
        """Those of each client together, then in the order they were asked for."""
        owners = np.searchsorted(ends, numbers.numpy(), side="right")
        order = torch.from_numpy(np.argsort(owners, kind="stable"))
        pieces = [
            tables[c].take(numbers[owners == c] - int(ends[c] - len(tables[c])))
            for c in np.unique(owners)
        ]
        back = torch.argsort(order)
        return _cat(pieces).mapped(lambda v: v.index_select(0, back))

    def called(number: int) -> str:
        place = int(np.searchsorted(ends, number, side="right"))
        return f"sample {number - parts[place][0]} of {name}[{clients[place]}]"

    return Read(read, int(ends[-1]), called), parts


def _cat(pieces: Sequence[Rows]) -> Rows:
    return Rows(*(_cat_fields(fields) for fields in zip(*pieces, strict=True)))


def _cat_fields(pieces: Sequence[Fields]) -> Fields:
    first = pieces[0]
    if isinstance(first, Tensor):
        return torch.cat(pieces)  # type: ignore[arg-type]
    if isinstance(first, tuple):
        return tuple(map(torch.cat, zip(*pieces, strict=True)))
    return {name: torch.cat([piece[name] for piece in pieces]) for name in first}  # type: ignore[index,call-overload]


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


def _table(name: str, given: object) -> Table:
    if isinstance(given, DataLoader):
        _refuse_loader(name, given)
        given = given.dataset
    if isinstance(given, TensorDataset) and len(given.tensors) > 1:
        *inputs, targets = given.tensors
        given = (inputs[0] if len(inputs) == 1 else tuple(inputs)), targets
    if isinstance(given, tuple) and len(given) == 2:
        return _pair(name, *given)
    if _is_dataset(given):
        return _read(name, given)
    if isinstance(given, IterableDataset):
        raise TypeError(
            f"{name} is an IterableDataset, whose samples have no numbers; give a Dataset with "
            "__len__ and __getitem__, or tensors"
        )
    raise TypeError(f"{name} must be {WANTED}; got {_instead(name, given)}")


def _instead(name: str, given: object) -> str:
    """What was given in the place of data, and what to do about it."""
    kind = type(given).__name__
    if isinstance(given, tuple):
        return f"a tuple of {len(given)}: a list has the data of each client"
    if isinstance(given, Mapping):
        return f"a {kind}: list({name}.values()) would be the data of each client"
    if isinstance(given, Iterator):
        return f"a {kind}, which can be read only once: give list({name})"
    if isinstance(given, Dataset):
        return f"a {kind} without __len__: add it"
    if isinstance(given, nn.Module):
        return f"a {kind}: the network is the first argument, its data the second"
    if _is_frame(given):
        return f"a {kind}: give its columns, as (frame[names].to_numpy(), frame[target].to_numpy())"
    return f"a {kind}"


def _refuse_loader(name: str, given: DataLoader[object]) -> None:
    """Refuse a loader that gives other samples than its Dataset has."""
    if given.collate_fn is not collate:
        raise TypeError(
            f"{name} is a DataLoader with a collate_fn of its own; give a Dataset whose "
            "samples all have the same shape"
        )
    batches: object = given.batch_sampler
    sampler = given.sampler if type(batches) in (BatchSampler, type(None)) else batches
    whole = isinstance(sampler, SequentialSampler)
    if isinstance(sampler, RandomSampler):
        whole = not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    if not whole and not isinstance(given.dataset, IterableDataset):
        raise TypeError(
            f"{name} is a DataLoader whose {type(sampler).__name__} chooses among its samples; "
            "give the Dataset, or a Subset of it"
        )


class _Dataset(Sized):
    def __getitem__(self, number: int) -> object: ...


def _is_dataset(given: object) -> TypeGuard[_Dataset]:
    by_number = hasattr(given, "__getitem__") and hasattr(given, "__len__")
    plain = isinstance(given, tuple | list | Mapping | str | Tensor | np.ndarray | nn.Module)
    return by_number and (isinstance(given, Dataset) or not (plain or _is_frame(given)))


def _is_frame(given: object) -> bool:
    """Whether it is a table of pandas, whose rows are not reached by their numbers."""
    return hasattr(given, "to_numpy") and hasattr(given, "columns")


def _pair(name: str, inputs: object, targets: object) -> Table:
    if any(isinstance(part, Dataset | DataLoader) for part in (inputs, targets)):
        raise TypeError(f"{name} is a tuple of data sets; give a list with one for each client")
    rows = Rows(_fields(f"inputs of {name}", inputs), _fields(f"targets of {name}", targets))
    (first, total), *others = ((field, len(v)) for field, v in rows.tensors())
    for field, length in others:
        if length != total:
            raise ValueError(
                f"{name} has {total} {first}, but {length} {field}; give one row for each sample"
            )
    if not total:
        raise ValueError(f"{name} has no samples; give some")
    table = Held(rows)
    if any(isinstance(array, np.memmap) for part in (inputs, targets) for array in _arrays(part)):
        known = all(not isinstance(array, np.memmap) for array in _arrays(targets))
        return Read(table.take, total, _numbered(name), rows.y if known else None)
    return table


def _arrays(given: object) -> list[object]:
    if isinstance(given, tuple):
        return list(given)
    return list(given.values()) if isinstance(given, Mapping) else [given]


def _fields(name: str, given: object) -> Fields:
    """What was given as tensors on the CPU, which share its memory where they can."""
    if isinstance(given, tuple) and given:
        return tuple(_tensor(f"{name}, [{k}],", part) for k, part in enumerate(given))
    if isinstance(given, Mapping) and given:
        return {str(key): _tensor(f"{name}, {key!r},", part) for key, part in given.items()}
    return _tensor(name, given)


def _tensor(name: str, given: object) -> Tensor:
    if not isinstance(given, Tensor):
        array = _array(name, given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # read-only memory: nobody writes to it here
            given = torch.from_numpy(array)
    if given.is_complex():
        raise TypeError(f"{name} are complex numbers; give torch.view_as_real of them")
    if given.layout != torch.strided or not given.dim():
        raise ValueError(f"{name} must be a dense tensor or array with one row for each sample")
    return given.detach().cpu()


def _array(name: str, given: object) -> np.ndarray:
    """What was given as an array that torch can share, if it holds numbers."""
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise TypeError(f"{name} are a masked array; fill it, or leave out those samples")
    try:
        array = np.asarray(given)
    except Exception as error:  # NumPy says so in many ways
        reason = f"{name} are not numbers: {brief(error)}"
        if isinstance(given, list | tuple):
            reason = f"{name} have rows of different lengths; pad them to one length"
        raise TypeError(reason) from None
    if array.dtype.kind in REMEDIES:
        kind, remedy = REMEDIES[array.dtype.kind]
        if any(isinstance(one, str) for one in (array.flat if array.dtype == object else ())):
            kind, remedy = REMEDIES["U"]
        raise TypeError(f"{name} are {kind}, not numbers; {remedy}")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # torch has no longer ones
        array = array.astype(np.float64)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array) if any(step < 0 for step in array.strides) else array


TEXTS = ("texts", "number them, as by np.unique(labels, return_inverse=True)[1] for classes")
REMEDIES = {
    "U": TEXTS,
    "S": TEXTS,
    "O": ("Python objects", "give an array of one type, as np.array(values, dtype=np.float32)"),
    "M": ("dates", "give numbers, such as the days since the first"),
    "m": ("spans of time", "give numbers, such as seconds"),
    "V": ("records", "give each of their columns as an array"),
}
"""What arrays of other kinds hold, by NumPy's letters, and what to do about it."""


def _read(name: str, dataset: _Dataset) -> Table:
    """A Dataset: in memory if it is small, else read again whenever it is used."""
    total, lock = len(dataset), threading.Lock()
    if not total:
        raise ValueError(f"{name} has no samples; give some")

    def sample(number: int) -> object:
        try:
            return dataset[number]
        except Exception as error:  # a Dataset may fail in any way
            raise ValueError(
                f"sample {number} of {name} cannot be read: {type(error).__name__}, "
                f"{brief(error)}; its Dataset must give each of its {total}"
            ) from error

    at_once = getattr(dataset, "__getitems__", None)

    def read(numbers: Sequence[int]) -> Rows:
        with lock:  # clients may train on several threads
            try:
                samples = at_once(list(numbers)) if at_once else None
            except Exception:  # one by one, to say which
                samples = None
            if samples is None:
                samples = [sample(number) for number in numbers]
        for number, found in zip(numbers, samples, strict=True):
            if not (isinstance(found, tuple | list) and len(found) == 2):
                kind = f"a {type(found).__name__}"
                if isinstance(found, tuple | list):
                    kind += f" of {len(found)}"
                remedy = "make it a pair (input, target)"
                if hasattr(dataset, "with_format"):
                    remedy = "give undrift.data.from_datasets(dataset, input=..., target=...)"
                raise TypeError(f"sample {number} of {name} is {kind}; {remedy}")
        try:
            return Rows(*map(_collated, collate(samples)))
        except Exception as error:  # a Dataset may give anything
            raise TypeError(
                f"the samples of {name} cannot be put into tensors: {brief(error)}; make inputs "
                "and targets tensors, arrays or numbers of the same shapes"
            ) from None

    def settled(numbers: Sequence[int]) -> Rows:
        found, drawn = watched(lambda: read(numbers))
        if any(drawn):
            raise ValueError(
                f"reading {name} draws random numbers, so that no run could be repeated; leave out "
                "random transforms, or give each sample a generator of its own, from its number"
            )
        return found

    first, again = settled([0]), read([0])
    for (_, a), (_, b) in zip(first.tensors(), again.tensors(), strict=True):
        if not torch.equal(a, b) and not a.isnan().any():
            raise ValueError(
                f"sample 0 of {name} is another one each time it is read, so that no run could be "
                "repeated; leave out random transforms"
            )
    size = total * sum(v.numel() * v.element_size() for _, v in first.tensors())
    if size <= SMALL:
        pieces = [range(k, min(k + 4096, total)) for k in range(0, total, 4096)]
        return Held(_cat([settled(piece) for piece in pieces]))
    return Read(lambda numbers: read(numbers.tolist()), total, _numbered(name))


def _numbered(name: str) -> Callable[[int], str]:
    return lambda number: f"sample {number} of {name}"


def _collated(fields: object) -> Fields:
    """What torch made of some samples: lists where they had tuples."""
    if isinstance(fields, Tensor):
        return fields
    several = isinstance(fields, list | tuple)
    found = tuple(fields) if several else fields  # type: ignore[arg-type]
    inside = found if isinstance(found, tuple) else getattr(found, "values", tuple)()
    if inside and all(isinstance(part, Tensor) for part in inside):
        return found  # type: ignore[return-value]
    raise TypeError(f"got a {type(fields).__name__}")
