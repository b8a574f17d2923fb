"""What a user gives as data: samples as rows of tables, and which of them each client holds."""

from __future__ import annotations

import dataclasses
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeGuard, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)
from torch.utils.data import default_collate as collate

from undrift.core.params import BadParameters, about, not_allowed
from undrift.data.files import brief
from undrift.data.partition import hold_out
from undrift.problems.ragged import positions

if TYPE_CHECKING:
    from undrift.data.images import ImageSet

CPU = torch.device("cpu")
Result = TypeVar("Result")
Fields = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""One tensor or several, whose rows are samples."""
Output = Any
"""What a network returns: whatever its loss and metrics take."""
SMALL = 2**30
"""A Dataset of up to so many bytes is read into memory once; a larger one whenever it is used."""
WANTED = (
    "a pair (inputs, targets) of tensors or arrays, a Dataset or DataLoader of such pairs, or a "
    "list with one of these for each client"
)


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


class SampleRows(NamedTuple):
    """Samples: their inputs and their targets."""

    x: Fields
    y: Fields

    def mapped(self, change: Callable[[Tensor], Tensor]) -> SampleRows:
        return SampleRows(mapped(change, self.x), mapped(change, self.y))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All of them, by name: ``inputs``, or ``inputs[1]`` and ``inputs['mask']``."""
        for name, fields in (("inputs", self.x), ("targets", self.y)):
            if isinstance(fields, Tensor):
                yield name, fields
                continue
            keyed = enumerate(fields) if isinstance(fields, tuple) else fields.items()
            yield from ((f"{name}[{key!r}]", field) for key, field in keyed)


def shown(value: object) -> str:
    """Type and shape of a tensor of samples, in words."""
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    sizes = ", ".join(["n", *map(str, value.shape[1:])])
    return f"{str(value.dtype).removeprefix('torch.')} [{sizes}]"


class InMemory:
    """Samples by number, all of them in memory on the device of the run."""

    held = True

    def __init__(self, rows: SampleRows, called: Callable[[int], str]):
        self.rows, self.called = rows, called
        self.x, self.y = rows

    def __len__(self) -> int:
        return count(self.x)

    def take(self, numbers: Tensor) -> SampleRows:
        if isinstance(self.x, Tensor) and isinstance(self.y, Tensor):
            return SampleRows(self.x.index_select(0, numbers), self.y.index_select(0, numbers))
        return self.rows.mapped(lambda v: v.index_select(0, numbers))

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        return type(self)(self.rows.mapped(lambda v: v.to(device)), self.called)


@dataclasses.dataclass(frozen=True)
class OnDemand:
    """Samples by number that stay where they are, and are checked as they are read."""

    read: Callable[[Tensor], SampleRows]
    """Some samples, on the CPU."""
    length: int
    called: Callable[[int], str]
    """What a sample is called in messages, by its number."""
    y: Fields | None = None
    """All targets, where they are known without reading every sample."""
    dtype: torch.dtype = torch.float32
    device: torch.device = CPU

    held: ClassVar[bool] = False

    def __len__(self) -> int:
        return self.length

    def take(self, numbers: Tensor) -> SampleRows:
        numbers = numbers.cpu()
        rows = self.read(numbers)
        refuse_unfinite(rows, self.dtype, lambda k: self.called(int(numbers[k])))
        return rows.mapped(lambda v: v.to(self.device))

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        return dataclasses.replace(self, dtype=dtype, device=device)


SampleTable = InMemory | OnDemand


class ClientData(NamedTuple):
    """All samples of a federation, and which client holds them."""

    train: SampleTable
    parts: list[np.ndarray]
    """The numbers of every client's training samples."""
    test: SampleTable | None
    test_parts: list[np.ndarray] | None
    """Of its test samples; ``None`` where those are nobody's."""

    def to(self, dtype: torch.dtype, device: torch.device) -> ClientData:
        train = self.train.to(dtype, device)
        test = self.test
        if test is not None:
            test = train if test is self.train else test.to(dtype, device)
        return self._replace(train=train, test=test)

    def refuse_overflow(self, dtype: torch.dtype) -> None:
        """Refuse NaN and numbers that are infinite in ``dtype`` among samples in memory."""
        for field, table in (("train", self.train), ("test", self.test)):
            if isinstance(table, InMemory):
                with about("Neural", field):
                    refuse_unfinite(table.rows, dtype, table.called)


def refuse_unfinite(rows: SampleRows, dtype: torch.dtype, called: Callable[[int], str]) -> None:
    most = torch.finfo(dtype).max
    for name, v in rows.tensors():
        if not v.is_floating_point() or not v.numel():
            continue
        # The ends of the whole first: they are NaN if any number is, and no comparison holds.
        if all(-most <= float(end) <= most for end in v.aminmax()):
            continue
        largest = (float(row.abs().max()) for row in v)
        number, value = next((k, x) for k, x in enumerate(largest) if not x <= most)
        raise ValueError(
            f"{called(number)}: its {name} hold {value:.3g}, not a finite number in "
            f"{str(dtype).removeprefix('torch.')}; remove it, scale it, or run with dtype float64"
        )


def client_data(train: object, parts: Sequence[ArrayLike] | None, test: object) -> ClientData:
    """What was given as data, with every client's share of it; nothing is copied if it can stay."""
    if isinstance(train, list) is not (parts is None):
        text = (
            "parts says which samples each client holds, as undrift.data.iid(len(inputs), "
            "clients=10) does; leave it out where train is a list with the data of each client"
        )
        raise BadParameters("Neural", {"parts": text})
    with about("Neural", "train"):
        if isinstance(train, list):
            table, held = _joined("train", train)
            if not all(map(len, held)):
                raise ValueError("a client in the list has no samples; leave it out")
        else:
            table = _some("train", as_table("train", train))
    if parts is not None:
        with about("Neural", "parts"):
            held = positions(parts, len(table))
    with about("Neural", "test"):
        found = _with_test(table, held, test)
    found.refuse_overflow(torch.float64)
    return found


def is_image_set(given: object) -> TypeGuard[ImageSet]:
    fields = ("images", "labels", "test_images", "test_labels", "classes")
    return all(hasattr(given, name) for name in fields)


def as_table(name: str, given: object) -> SampleTable | None:
    """The samples of one client, or of all; ``None`` where there are none."""
    if given is None:
        return None
    if isinstance(given, DataLoader):
        if _chooses(given):
            raise ValueError(
                "a DataLoader whose sampler or collate_fn is not torch's own gives other samples "
                "than its Dataset has; give a Dataset of the samples that you mean"
            )
        given = given.dataset
    if isinstance(given, TensorDataset) and len(given.tensors) > 1:
        *inputs, targets = given.tensors
        given = (inputs[0] if len(inputs) == 1 else tuple(inputs)), targets
    if isinstance(given, tuple) and len(given) == 2 and not any(map(_is_dataset, given)):
        return _pair(name, *given)
    if _is_dataset(given):
        return _dataset(name, given)
    raise TypeError(f"{name} must be {WANTED}; got a {type(given).__name__}")


def _chooses(loader: DataLoader[object]) -> bool:
    """Whether a loader gives other samples than its Dataset has, or not all of them."""
    if not hasattr(loader.dataset, "__len__"):  # a stream, which is refused as what it is
        return False
    batches: object = loader.batch_sampler
    sampler = loader.sampler if type(batches) in (BatchSampler, type(None)) else batches
    if isinstance(sampler, RandomSampler):
        return sampler.replacement or sampler.num_samples != len(sampler.data_source)
    return loader.collate_fn is not collate or not isinstance(sampler, SequentialSampler)


def _some(name: str, table: SampleTable | None) -> SampleTable:
    if table is None:
        raise ValueError(f"{name} has no samples; give {WANTED}")
    return table


def _with_test(table: SampleTable, parts: list[np.ndarray], test: object) -> ClientData:
    if test is None:
        return ClientData(table, parts, None, None)
    if isinstance(test, float | int | np.floating | np.integer):
        if not 0 < test < 1:
            allowed = "a share of every client's samples, > 0 and < 1, or test data"
            raise ValueError(not_allowed("test", test, allowed))
        left, taken = hold_out(parts, float(test))
        if np.bincount(np.concatenate(parts)).max() > 1 or not any(map(len, taken)):
            raise ValueError(
                "a share can be held out where no sample is held twice and some client has two; "
                "give test data of its own"
            )
        return ClientData(table, left, table, taken)
    owners: list[np.ndarray] | None = None
    if isinstance(test, list):
        if len(test) != len(parts):
            raise ValueError(
                f"test is a list, the data of each client, of length {len(test)}, but there are "
                f"{len(parts)} clients; a tuple (inputs, targets) is everyone's"
            )
        tested, owners = _joined("test", test)
    else:
        tested = _some("test", as_table("test", test))
    _refuse_other("test", tested, "train", table, shapes=False)
    return ClientData(table, parts, tested, owners)


def _joined(name: str, given: Sequence[object]) -> tuple[SampleTable, list[np.ndarray]]:
    """One table of several clients' data, and which samples are whose."""
    found = [as_table(f"{name}[{client}]", part) for client, part in enumerate(given)]
    tables = [table for table in found if table is not None]
    if not tables:
        raise ValueError(f"{name} has no samples; give {WANTED}")
    for client, table in enumerate(found):
        if table is not None:
            _refuse_other(f"{name}[{client}]", table, "the first of these", tables[0])
    sizes = np.array([0 if table is None else len(table) for table in found])
    ends = np.cumsum(sizes)

    def called(number: int) -> str:
        client = int(np.searchsorted(ends, number, side="right"))
        return f"sample {number - ends[client] + sizes[client]} of {name}[{client}]"

    def read(numbers: Tensor) -> SampleRows:
        """Those of each client together, then in the order they were asked for."""
        owners = np.searchsorted(ends, numbers.numpy(), side="right")
        order = torch.from_numpy(np.argsort(owners, kind="stable"))
        pieces = [
            _some(name, found[c]).take(numbers[owners == c] - int(ends[c] - sizes[c]))
            for c in np.unique(owners)
        ]
        back = torch.argsort(order)
        return _cat(pieces).mapped(lambda v: v.index_select(0, back))

    parts = np.split(np.arange(ends[-1]), ends[:-1])
    held = [table.rows for table in tables if isinstance(table, InMemory)]
    if len(held) == len(tables):
        return InMemory(_cat(held), called), parts
    return OnDemand(read, int(ends[-1]), called), parts


def _cat(pieces: Sequence[SampleRows]) -> SampleRows:
    """Samples one after another."""
    return SampleRows(*(tree_map(lambda *v: torch.cat(v), *part) for part in zip(*pieces)))  # noqa: B905


def _refuse_other(
    name: str, table: SampleTable, like_name: str, like: SampleTable, shapes: bool = True
) -> None:
    """Refuse samples of other fields, of which one alone are images, or of other ``shapes``."""

    def kinds(samples: SampleTable) -> dict[str, object]:
        tensors = samples.take(torch.tensor([0])).tensors()
        return {key: (v.dtype == torch.uint8, shapes and v.shape[1:]) for key, v in tensors}

    if kinds(table) != kinds(like):
        raise ValueError(
            f"the samples of {name} are of another kind than those of {like_name}; give the same "
            "inputs and targets everywhere, in the same shapes, and uint8 for images alone"
        )


def _pair(name: str, inputs: object, targets: object) -> SampleTable | None:
    rows = SampleRows(_fields(f"inputs of {name}", inputs), _fields(f"targets of {name}", targets))
    lengths = {field: len(v) for field, v in rows.tensors()}
    total = count(rows.x)
    if len({*lengths.values()}) > 1:
        raise ValueError(f"{name} must have one row of each for every sample; got {lengths}")
    table = InMemory(rows, _numbered(name))
    on_disk = [isinstance(v, np.memmap) for v in tree_leaves((inputs, targets))]
    if any(on_disk):
        known = not any(on_disk[-len(leaves(rows.y)) :])
        return OnDemand(table.take, total, table.called, rows.y if known else None)
    return table if total else None


def _numbered(name: str) -> Callable[[int], str]:
    return lambda number: f"sample {number} of {name}"


def _fields(name: str, given: object) -> Fields:
    """What was given as tensors on the CPU, which share its memory where they can."""
    if isinstance(given, tuple) and given:
        return tuple(_tensor(f"{name}, [{k}],", part) for k, part in enumerate(given))
    if isinstance(given, Mapping) and given:
        return {str(key): _tensor(f"{name}, {key!r},", part) for key, part in given.items()}
    return _tensor(name, given)


def _tensor(name: str, given: object) -> Tensor:
    try:
        if not isinstance(given, Tensor):
            if np.ma.is_masked(given):  # np.asarray would forget the mask
                raise TypeError("some are masked")
            given = _shared(np.asarray(given))
    except Exception as error:  # NumPy says in many ways that there are no numbers
        raise TypeError(
            f"{name} are not numbers that torch can hold: {brief(error)}; give an array of numbers "
            "with rows of one length, classes as np.unique(names, return_inverse=True)[1]"
        ) from None
    if given.is_complex() or given.layout != torch.strided or not given.dim():
        raise TypeError(f"{name} must be a dense tensor of real numbers, a row for each sample")
    return given.detach().cpu()


def _shared(array: np.ndarray) -> Tensor:
    """The same memory, but for what torch has not: other orders of bytes, rows backwards."""
    array = array.astype(array.dtype.newbyteorder("="), copy=any(n < 0 for n in array.strides))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # read-only memory: nobody writes to it here
        return torch.from_numpy(array)


class _Dataset(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, number: int) -> object: ...


def _is_dataset(given: object) -> TypeGuard[_Dataset]:
    """Whether it is torch's, or one that gives several samples at once as torch's do."""
    known = isinstance(given, Dataset) or hasattr(given, "__getitems__")
    return known and hasattr(given, "__len__")


def _dataset(name: str, dataset: _Dataset) -> SampleTable | None:
    """A Dataset: in memory if it is small, else read again whenever it is used."""
    total, lock = len(dataset), threading.Lock()
    if not total:
        return None
    at_once = getattr(dataset, "__getitems__", lambda numbers: [dataset[k] for k in numbers])

    def read(numbers: Sequence[int]) -> SampleRows:
        try:
            with lock:  # clients may train on several threads, and a Dataset need not be safe
                inputs, targets = collate(at_once(numbers))
            return SampleRows(_collated(inputs), _collated(targets))
        except Exception as error:  # a Dataset may fail in any way
            raise ValueError(
                f"samples {numbers[0]} to {numbers[-1]} of {name} are not pairs (input, target) of "
                f"tensors, arrays or numbers of one shape: {type(error).__name__}, {brief(error)}; "
                "undrift.data.from_datasets makes them of columns"
            ) from error

    def settled(numbers: Sequence[int]) -> SampleRows:
        found, *drawn = watched(lambda: read(numbers))
        if any(drawn):
            raise ValueError(
                f"{name} has other samples each time it is read, so that no run could be repeated; "
                "leave out random transforms, or give each sample a generator of its own"
            )
        return found

    first = settled([0])
    if total * sum(v.numel() * v.element_size() for _, v in first.tensors()) <= SMALL:
        pieces = [list(range(k, min(k + 4096, total))) for k in range(0, total, 4096)]
        return InMemory(_cat([settled(piece) for piece in pieces]), _numbered(name))
    return OnDemand(lambda numbers: read(numbers.tolist()), total, _numbered(name))


def _collated(fields: object) -> Fields:
    """What torch made of some samples: lists where they had tuples."""
    found = tuple(fields) if isinstance(fields, list) else fields
    if not tree_leaves(found) or not all(isinstance(v, Tensor) for v in tree_leaves(found)):
        raise TypeError(f"got a {type(fields).__name__}")
    return found  # type: ignore[return-value]


def watched(work: Callable[[], Result]) -> tuple[Result, bool, bool]:
    """What ``work`` gives, whether it draws from torch's generator, and whether from those of NumPy
    or Python; all are left as they were.
    """
    own, numpys = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torchs, others = torch.get_rng_state(), _generators()
        try:
            found = work()
            drawn = not torch.equal(torch.get_rng_state(), torchs)
            return found, drawn, _generators() != others
        finally:
            random.setstate(own)
            np.random.set_state(numpys)


def _generators() -> tuple[object, ...]:
    state = np.random.get_state(legacy=False)["state"]
    return random.getstate(), {name: np.asarray(part).tolist() for name, part in state.items()}
