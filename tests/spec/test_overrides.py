"""Flags of the command line change a spec, and are blamed for what they say."""

import tomllib
from copy import deepcopy

import pytest
from tests.spec.texts import CONVEX, GOOD, IMAGES, complaints

import undrift as ud
from undrift.core.cohort import Sampling
from undrift.core.params import BadParameters
from undrift.objectives import CrossEntropy, FedLC
from undrift.spec.errors import BadSpec, Origin
from undrift.spec.reader import Reader, parse


def test_overrides():
    flags = [
        "rounds=5",
        "problem.clients=3",
        "method.lr=0.25",
        "device=cuda",
        "method.server_lr = 2.0",
        "seed=[3]",
    ]
    spec = parse(GOOD, flags=flags)
    assert (spec.rounds, spec.problem.clients, spec.device, spec.seeds) == (5, 3, "cuda", [3])
    assert [entry.method.lr for entry in spec.entries] == [0.25, 0.25]
    assert [entry.method.server_lr for entry in spec.entries] == [2.0, 2.0]
    assert [entry.rounds for entry in spec.entries] == [5, 7]


def test_an_override_goes_to_the_methods_that_have_the_field():
    spec = parse(GOOD, flags=["method.option=I", "method.steps=2"])
    assert spec.entries[0].method.option == "I"
    assert [entry.options.steps for entry in spec.entries] == [2, 2]


def test_flags_for_objectives_and_training():
    spec = parse(
        IMAGES,
        flags=["objective.tau=0.5", "method.training.weight_decay=0.0", "method.training.clip=2"],
    )
    assert spec.objective == FedLC(tau=0.5)
    assert [entry.options.training.weight_decay for entry in spec.entries] == [0.0, 0.0]
    assert [entry.options.training.clip for entry in spec.entries] == [2, 2]
    assert (
        parse(IMAGES, flags=["method.objective=CrossEntropy"]).entries[1].objective
        == CrossEntropy()
    )


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("roundz=5", "unknown key 'roundz'; did you mean rounds?"),
        ("rounds=-5", "rounds = -5 is not allowed"),
        ("method.lrr=1", "did you mean lr?"),
        ("method.lr=-1", "lr = -1 is not allowed: number > 0"),
        ("method.name=GD", "unknown parameter of the methods 'name'"),
        ("problem.client=2", "did you mean clients?"),
        ("problem=2", "a table with a name"),
        ("a.b.c=2", "unknown key 'a'"),
        ("lr=3", "unknown key 'lr'; did you mean method.lr?"),
        ("rounds=./5", "rounds = './5' is not allowed"),
        ("rounds", "not KEY=VALUE"),
        ("rounds=", "rounds = '' is not allowed"),
        ("rounds=5\nname='x'", "is not allowed"),
        ("cohort=2 3", "cohort = '2 3' is not allowed"),
    ],
)
def test_a_wrong_override_is_blamed_on_the_flag(flag, words):
    found = complaints(GOOD, flag)
    assert found[0].startswith(f"-s {flag}: ")
    assert any(words in c for c in found)


def test_a_flag_is_blamed_for_what_it_says():
    assert complaints(IMAGES, "cohort.size=9") == [
        "-s cohort.size=9: a cohort of 9 is more than the 6 clients there are"
    ]
    assert complaints(IMAGES, "objective.tau=-1") == [
        "-s objective.tau=-1: tau = -1 is not allowed: number >= 0"
    ]
    assert complaints(CONVEX, "method.schedule=2")[0].startswith(
        "-s method.schedule=2: schedule = 2 is not allowed"
    )
    assert complaints(CONVEX, "every.thing=2")[0].startswith("-s every.thing=2: every = ")


def test_a_flag_that_makes_a_table_is_blamed_for_what_that_lacks():
    """No line of the file has it; where the file has the table, that is the place."""
    for flag, words in {
        "schedule.rate=0.9": "schedule = {'rate': 0.9} is not allowed",
        "schedule=cosine": "rounds is missing",
        "stop.metric=score": "patience is missing",
        "aggregation.name=krum": "bad is missing",
        "network.name=Net": "file = None is not allowed",
    }.items():
        found = [text for text in complaints(CONVEX, flag) if words in text]
        assert len(found) == 1 and found[0].startswith(f"-s {flag}: "), (flag, found)
    stopped = "[stop]\nmetric = 'loss'\npatience = 3\n[problem]"
    text = CONVEX.replace("[problem]", stopped)
    line = text.split("\n").index("[stop]") + 1
    (found,) = complaints(text, "stop.metric=score")
    assert found.startswith(f"s.toml:{line}: mode is missing")


def test_what_a_kind_lacks_is_told_with_its_table():
    remedy = 'rounds is missing: whole number >= 1, as schedule = {name = "cosine", rounds = ...}'
    assert complaints(CONVEX, "schedule=cosine") == [f"-s schedule=cosine: {remedy}"]
    with pytest.raises(BadParameters) as caught:
        ud.run(ud.FedAvg(lr=0.1), "quadratic", rounds=3, schedule="cosine")
    assert str(caught.value) == f"run: {remedy}"


def test_what_an_override_of_a_dictionary_does_not_say_is_not_its_fault():
    spec = {"name": "a", "rounds": 3, "problem": {"name": "quadratic"}}
    spec["method"] = [{"name": "FedProx", "lr": 0.1}]
    with pytest.raises(BadSpec) as caught:
        Reader(spec, Origin("spec")).spec(["method.lr=0.2"])
    assert str(caught.value).startswith("spec['method'][0]['mu']: mu is missing")


def test_the_document_itself_is_left_alone():
    document = tomllib.loads(CONVEX) | {"cohort": 3}
    before = deepcopy(document)
    spec = Reader(document, Origin("s.toml")).spec(["cohort.dropout=0.5", "method.lr=2"])
    assert spec.cohort == Sampling(3, dropout=0.5) and spec.entries[0].method.lr == 2
    assert document == before
