"""Methods with several values of a number: what is run of them, and what is refused."""

from random import Random

import numpy as np
import pytest

from undrift.spec.errors import BadSpec
from undrift.spec.reader import parse
from undrift.spec.space import Several

TOP = 'name = "s"\nrounds = 3\n[problem]\nname = "quadratic"\n[[method]]\n'


def labels(text, *flags):
    return [entry.label for entry in parse(TOP + text, flags=flags).entries]


def test_a_list_is_several_methods():
    spec = parse(TOP + 'name = "FedProx"\nlr = [0.1, 0.05]\nmu = [1, 2]\nlabel = "P"')
    found = {entry.label: (entry.method.lr, entry.method.mu) for entry in spec.entries}
    assert found == {
        "P lr=0.05 mu=1": (0.05, 1),
        "P lr=0.05 mu=2": (0.05, 2),
        "P lr=0.1 mu=1": (0.1, 1),
        "P lr=0.1 mu=2": (0.1, 2),
    }


def test_what_is_written_of_them_is_read_as_the_same_methods():
    spec = parse(
        TOP + 'name = "FedAvg"\nlr = { log = [0.01, 1], n = 3 }\nsteps = { values = [1, 4] }'
    )
    again = parse(spec.toml())
    assert again.document() == spec.document() and len(again.entries) == 6
    assert [entry.options.steps for entry in again.entries] == [1, 4] * 3


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{ log = [0.01, 1], n = 3 }", [0.01, 0.1, 1]),
        ("{ linear = [0.1, 0.5], n = 5 }", [0.1, 0.2, 0.3, 0.4, 0.5]),
        ("{ values = [0.5, 0.1] }", [0.1, 0.5]),
    ],
)
def test_numbers_between_two_ends(text, values):
    spec = parse(f'{TOP}name = "FedAvg"\nlr = {text}')
    assert [entry.method.lr for entry in spec.entries] == pytest.approx(values)


def test_a_flag_gives_several_values_too():
    assert labels('name = "FedAvg"\nlr = 0.1', "method.lr=[0.1, 0.2]") == [
        "FedAvg lr=0.1",
        "FedAvg lr=0.2",
    ]


def test_a_list_of_steps_is_one_for_each_client():
    text = f'name = "FedAvg"\nlr = 0.1\nsteps = {[1, 2] * 10}'
    assert labels(text) == ["FedAvg"]


def test_cohorts_and_steps_of_one_method():
    spec = parse(TOP + 'name = "FedAvg"\nlr = 0.1\ncohort = { values = [5, 20] }')
    assert [entry.options.cohort.size for entry in spec.entries] == [5, 20]
    assert spec.cohort is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr = [0.1, -1]", "number > 0"),
        ("lr = [0.1, 0.1]", "different"),
        ("lr = { log = [0, 1], n = 2 }", "> 0"),
        ("lr = { log = [2, 1], n = 2 }", "smaller one first"),
        ("lr = { log = [1, 2], linear = [1, 2] }", "one of values"),
        ("lr = { values = [1, 2], n = 3 }", "n counts"),
        ("lr = { log = [1, 2] }", "give n"),
        ("lr = []", "different numbers"),
    ],
)
def test_what_is_wrong_is_told_once_with_its_line(text, words):
    with pytest.raises(BadSpec) as error:
        parse(f'{TOP}name = "FedAvg"\n{text}')
    (complaint,) = error.value.complaints
    assert words in complaint.text and complaint.line == 7


def test_draws_are_within_the_ends_and_even():
    rng = Random(0)
    drawn = [Several(log=[1e-4, 1.0]).at(rng.random()) for _ in range(4000)]
    assert min(drawn) >= 1e-4 and max(drawn) <= 1
    assert np.mean(np.log10(drawn)) == pytest.approx(-2, abs=0.1)
    even = [Several(linear=[0, 1]).at(rng.random()) for _ in range(4000)]
    assert np.mean(even) == pytest.approx(0.5, abs=0.03)
    listed = [Several(values=[3, 1, 2]).at(rng.random()) for _ in range(4000)]
    assert {value: round(listed.count(value) / 4000, 1) for value in listed} == {
        1: 0.3,
        2: 0.3,
        3: 0.3,
    }


def test_read_to_be_tuned_spaces_stay():
    from undrift.spec.errors import Origin
    from undrift.spec.reader import Reader

    document = {
        "name": "s",
        "rounds": 3,
        "problem": {"name": "quadratic"},
        "method": [{"name": "FedAvg", "lr": {"log": [0.01, 1]}}],
        "tune": {"samples": 4, "seed": [7, 8]},
    }
    spec = Reader(document, Origin("spec"), tune=True).spec()
    assert spec.entries[0].space["lr"].grid() is None and spec.entries[0].method.lr == 0.01
    assert spec.tune.seeds == [7, 8]
    with pytest.raises(BadSpec, match="sampler"):
        Reader(document | {"tune": {"sampler": "x"}}, Origin("spec"), tune=True).spec()
