"""Datasets by columns: a stand-in for the library, and the library itself where it is installed."""

import numpy as np
import pytest
from torch import nn

import undrift as ud
from undrift.core import BadParameters
from undrift.models.net import seeded

RNG = np.random.default_rng(0)
COLUMNS = {
    "x": RNG.normal(size=(60, 4)).astype(np.float32),
    "mask": RNG.random((60, 4)) < 0.5,
    "label": RNG.integers(0, 2, 60),
    "user": np.arange(60) % 3,
}


class Stored:
    """As much of a ``datasets.Dataset`` as is asked for, and what was read of it."""

    def __init__(self, columns, read=None):
        self.columns, self.read = columns, [] if read is None else read

    @property
    def column_names(self):
        return list(self.columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def with_format(self, type, columns):
        assert type == "numpy"
        return Stored({name: self.columns[name] for name in columns}, self.read)

    def __getitem__(self, key):
        self.read.append((key, set(self.columns)))
        return {name: column[key] for name, column in self.columns.items()}


class Partitioned:
    """As much of a partitioner as is asked for."""

    num_partitions = 3

    def load_partition(self, partition_id):
        mine = np.flatnonzero(COLUMNS["user"] == partition_id)
        return Stored({name: column[mine] for name, column in COLUMNS.items()})


def stored():
    return Stored(COLUMNS), [Stored({n: c[k::2] for n, c in COLUMNS.items()}) for k in (0, 1)]


def library():
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    whole = datasets.Dataset.from_dict({n: c.tolist() for n, c in COLUMNS.items()})
    whole = whole.cast_column("x", datasets.Sequence(datasets.Value("float32"), length=4))
    return whole, [whole.select(range(k, 60, 2)) for k in (0, 1)]


def net(inputs=4):
    with seeded(0):
        return nn.Linear(inputs, 2)


class Masked(nn.Linear):
    def forward(self, values, mask):
        return super().forward(values * mask)


@pytest.mark.parametrize("made", [stored, library])
def test_columns_are_the_arrays_they_hold(made):
    whole, halves = made()
    pair = COLUMNS["x"], COLUMNS["label"]
    parts = ud.data.by_group(COLUMNS["user"])
    plain = ud.Neural(net(), pair, parts)
    problem = ud.Neural(net(), ud.data.from_datasets(whole, input="x", target="label"), parts)
    x = plain.start()
    assert problem.metrics(x) == plain.metrics(x) and problem.class_names == ("0", "1")
    each = ud.Neural(net(), ud.data.from_datasets(halves, input="x", target="label"))
    rows = [(pair[0][k::2], pair[1][k::2]) for k in (0, 1)]
    assert each.metrics(x) == ud.Neural(net(), rows).metrics(x)


@pytest.mark.parametrize("made", [stored, library])
def test_several_columns(made):
    whole, _ = made()
    with seeded(0):
        module = Masked(4, 2)
    inputs = COLUMNS["x"], COLUMNS["mask"]
    plain = ud.Neural(module, (inputs, COLUMNS["label"]), [range(60)])
    x = plain.start()
    for names in (["x", "mask"], {"mask": "mask", "values": "x"}):
        data = ud.data.from_datasets(whole, input=names, target="label")
        assert ud.Neural(module, data, [range(60)]).metrics(x) == plain.metrics(x)


def test_only_what_is_asked_for_is_read_and_at_once():
    whole = Stored(COLUMNS)
    ud.Neural(net(), ud.data.from_datasets(whole, "x", "label"), [range(60)])
    assert all(columns == {"x", "label"} for _, columns in whole.read)
    assert [len(numbers) for numbers, _ in whole.read] == [60]


def test_a_partition_for_each_client():
    data = ud.data.from_datasets(Partitioned(), input="x", target="label")
    problem = ud.Neural(net(), data)
    assert problem.samples == [20, 20, 20]


def test_partitioners_of_flower():
    partitioners = pytest.importorskip(
        "flwr_datasets.partitioner", reason="flwr-datasets is not installed"
    )
    whole, _ = library()
    partitioner = partitioners.NaturalIdPartitioner(partition_by="user")
    partitioner.dataset = whole
    problem = ud.Neural(net(), ud.data.from_datasets(partitioner, input="x", target="label"))
    assert problem.samples == [20, 20, 20]
    plain = ud.Neural(net(), (COLUMNS["x"], COLUMNS["label"]), ud.data.by_group(COLUMNS["user"]))
    x = plain.start()
    assert problem.metrics(x) == pytest.approx(plain.metrics(x), rel=1e-12)


class Stream:
    def __iter__(self):
        return iter(())


REFUSED = {
    "a column that is not there": (lambda: (Stored(COLUMNS), "xx", "label"), "input"),
    "a target that is not there": (lambda: (Stored(COLUMNS), "x", "lable"), "target"),
    "splits": (lambda: ({"train": Stored(COLUMNS)}, "x", "label"), "given"),
    "a stream": (lambda: (Stream(), "x", "label"), "given"),
    "a number": (lambda: (3, "x", "label"), "given"),
    "a client's splits": (lambda: ([{"train": Stored(COLUMNS)}], "x", "label"), "given"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_by_field(what):
    arguments, field = REFUSED[what]
    with pytest.raises(BadParameters) as error:
        ud.data.from_datasets(*arguments())
    assert set(error.value.problems) == {field} and "\n" not in str(error.value)


def test_a_dataset_by_itself_is_told_where_to_go():
    class Rows(Stored):
        def __getitem__(self, key):
            return {name: column[key] for name, column in self.columns.items()}

    with pytest.raises(BadParameters) as error:
        ud.Neural(net(), Rows(COLUMNS), [range(60)])
    assert set(error.value.problems) == {"train"}
