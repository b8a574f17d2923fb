"""Specs: what is accepted, and everything that is refused, with its line."""

import dataclasses
import tomllib
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spec.texts import CONVEX, GOOD, IMAGES, OWN, complaints, paths, refused

import undrift as ud
from undrift.core.aggregation import WeightedMean
from undrift.core.cohort import Sampling
from undrift.core.options import RunOptions as Options
from undrift.core.options import Training
from undrift.core.params import hints
from undrift.engines.options import StoreOptions
from undrift.objectives import MOON, FedLC
from undrift.runs import api as runner
from undrift.spec.errors import BadSpec
from undrift.spec.reader import load, parse
from undrift.spec.schema import Settings


def test_a_good_spec_is_read():
    spec = parse(GOOD)
    scaffold, fedavg = spec.entries
    assert (spec.name, spec.rounds, spec.seeds, spec.target) == ("first", 20, [0, 1], 1e-8)
    assert (spec.engine.name, spec.dtype, spec.device) == ("simulate", None, "cpu")
    assert spec.problem.clients == 4 and (scaffold.label, scaffold.rounds) == ("SCAFFOLD", 20)
    assert (scaffold.method.lr, scaffold.options.steps) == ("theory", 5)
    assert (fedavg.label, fedavg.method.lr, fedavg.rounds) == ("FedAvg", 0.01, 7)
    assert fedavg.options.steps == 3


def test_every_option_of_the_engine_is_a_setting():
    assert hints(Options).items() <= hints(Settings).items()
    defaults = {f.name: f.default for f in dataclasses.fields(Settings)}
    assert all(defaults[name] == value for name, value in vars(Options()).items())


def test_every_key_reaches_the_engine():
    spec = parse(IMAGES)
    first, moon = spec.entries
    assert spec.cohort == Sampling(3, dropout=0.1) and spec.target_accuracy == 0.5
    assert first.objective == FedLC() and moon.objective == MOON(mu=0.5)
    common = {
        "cohort": spec.cohort,
        "batch": 16,
        "aggregation": WeightedMean(),
        "engine": StoreOptions(),
        "dtype": None,
        "faults": None,
        "judge": None,
    }
    training = Training(weight_decay=1e-3, clip=10.0, clip_scope="reference")
    common |= {"device": "cpu", "schedule": ud.schedules.Exponential(rate=0.998)}
    assert spec.setting(first) == common | {"steps": 1, "epochs": 2, "training": training}
    assert spec.setting(moon) == common | {
        "steps": 4,
        "epochs": None,
        "schedule": ud.schedules.Exponential(rate=1.0),
        "training": dataclasses.replace(training, clip=1.0),
    }
    assert (first.rounds, moon.rounds) == (5, 7)


def test_the_engine_is_what_the_spec_says():
    spec = parse(IMAGES, flags=["problem.train=100", "problem.test=20", "problem.model=mlp"])
    problem = spec.problem.build(spec.entries[0].objective)
    engine = runner.prepare(spec.entries[0].method, problem, **spec.setting(spec.entries[0]))
    assert engine.options.training == Training(weight_decay=1e-3, clip=10.0, clip_scope="reference")
    assert engine.options.schedule == ud.schedules.Exponential(rate=0.998)
    assert engine.options.aggregation == WeightedMean()
    assert engine.cohort == Sampling(3, dropout=0.1)
    assert engine.steps == [2 * -(-n // 16) for n in problem.samples]
    assert str(engine.x0.dtype) == "torch.float32"


def test_a_cohort_is_a_number_or_a_table():
    assert parse(CONVEX, flags=["cohort=2"]).cohort == Sampling(2)
    flags = ["cohort.size=2", "cohort.pool=3", "cohort.renew=5", "cohort.sampling=bernoulli"]
    assert parse(CONVEX, flags=flags).cohort == Sampling(2, "bernoulli", 3, 5)


def test_every_problem_is_listed_with_its_line():
    found = complaints(
        """\
name = "first"
rounds = 20
stepz = 3
cohort = 2
[problem]
name = "quadratic"
client = 4
[[method]]
name = "Scafold"
lr = 0.1
[[method]]
name = "FedRecu"
lr = -0.1
[[method]]
name = "FedAvg"
"""
    )
    assert [c.split(": ")[0] for c in found] == [f"s.toml:{line}" for line in (3, 7, 9, 13, 14)]
    near = [
        name for name in ("steps", "clients", "Scaffold") for c in found if f"mean {name}?" in c
    ]
    assert near == ["steps", "clients", "Scaffold"]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("rounds = 20", "rounds = 0", 2, "rounds = 0 is not allowed: whole number >= 1"),
        ("rounds = 20", "# no rounds", 1, "rounds is missing"),
        ("steps = 3", "steps = [1, 2]", 3, "2 numbers of local steps were given for 4 clients"),
        ("steps = 3", "batch = 0", 3, "batch = 0 is not allowed"),
        ("steps = 3", "cohort = 9", 3, "a cohort of 9 is more than the 4 clients there are"),
        ("steps = 3", "engine = 'simulat'", 3, "did you mean simulate?"),
        ("steps = 3", "device = 'gpu'", 3, "cuda"),
        ("seed = [0, 1]", "seed = [1, 1]", 4, "different"),
        ("target = 1e-8", "target = nan", 5, "number > 0"),
        ('name = "quadratic"', 'name = "quadratik"', 7, "did you mean quadratic?"),
        ("clients = 4", "clients = 0", 8, "whole number >= 1"),
        ('label = "SCAFFOLD"', 'label = "FedAvg"', 14, "two methods are called 'FedAvg'"),
        ('label = "SCAFFOLD"', 'label = "a\\u001b[31m"', 11, "'a\\x1b[31m' is not allowed"),
        ('label = "SCAFFOLD"', 'label = "  "', 11, "'  ' is not allowed: printable"),
        ('"FedAvg"', "3", 15, "a table with a name: one of "),
        ('name = "first"', 'name = "../first"', 1, "letters, digits"),
        ('name = "first"', 'name = "a\\u001b[2J"', 1, "'a\\x1b[2J'"),
        ('name = "first"', "name = ", 1, "not TOML"),
    ],
)
def test_one_problem(old, new, line, words):
    (found,) = complaints(GOOD.replace(old, new, 1))
    assert found.startswith(f"s.toml:{line}: ") and words in found
    assert found.isprintable()


@pytest.mark.parametrize(
    ("text", "old", "new", "line", "words"),
    [
        (CONVEX, "steps = 3", "epochs = 2", 3, "epochs need mini-batches: add batch"),
        (IMAGES, "epochs = 2", "epochs = 2\nsteps = 3", 3, "give steps or epochs, not both"),
        (IMAGES, "steps = 4", "steps = 4\nepochs = 1", 26, "give steps or epochs, not both"),
        (CONVEX, "steps = 3", "cohort = 0", 3, "or table of size, sampling, pool"),
        (CONVEX, "steps = 3", "cohort = {size = 2, drop = 0.1}", 3, "'drop'; did you mean"),
        (CONVEX, "steps = 3", "cohort = {size = 2, pool = 9}", 3, "a pool of 9 is more than the 4"),
        (IMAGES, "size = 3", "size = 9", 13, "a cohort of 9 is more than the 6 clients"),
        (CONVEX, "steps = 3", "schedule = 1.5", 3, "schedule = 1.5 is not allowed: number > 0"),
        (CONVEX, "steps = 3", "aggregation = 'size'", 3, "unknown aggregation 'size'"),
        (CONVEX, "lr = 0.01", "lr = 0.01\ntraining.weight_decay = -1", 10, "-1 is not allowed"),
        (CONVEX, "lr = 0.01", "lr = 0.01\naggregation = 'mean'", 10, "of FedAvg 'aggregation'"),
        (IMAGES, '"fed-lc"', '"FedCL"', 11, "unknown objective 'FedCL'; did you mean FedLC?"),
        (IMAGES, '"fed-lc"', "3", 11, "objective is a table with a name"),
        (IMAGES, "mu = 0.5", "mu = -0.5", 29, "mu = -0.5 is not allowed: number >= 0"),
        (IMAGES, 'name = "MOON", mu = 0.5', "mu = 0.5", 29, "objective is a table with a name"),
        (IMAGES, '"fed-lc"', '{name = "FedNTD", form = "mix", beta = 2.0}', 11, "beta is a share"),
        (IMAGES, "target_accuracy = 0.5", "target_accuracy = 80", 10, "80 % is 0.8"),
    ],
)  # fmt: skip
def test_one_problem_with_a_key(text, old, new, line, words):
    assert text.count(old) == 1
    (found,) = complaints(text.replace(old, new))
    assert found.startswith(f"s.toml:{line}: ") and words in found


def test_what_is_missing_altogether():
    found = refused("")
    assert {c.path[0] for c in found} == {"name", "rounds", "problem", "method"}
    assert {c.line for c in found} == {1}
    assert "s.toml:1: rounds is missing: whole number >= 1" in map(str, found)
    single = GOOD[: GOOD.index("[[method]]")] + '[method]\nname = "FedAvg"\nlr = 0.1\n'
    assert [c.line for c in refused(single)] == [9]


@pytest.mark.parametrize(
    ("method", "given", "field"),
    [("FedPD", "eta = 1.0\np = 1", "p"), ("FedSpeed", "lam = 1.0\nprox = false", "prox")],
)
def test_a_condition_between_parameters_has_the_line_of_one(method, given, field):
    (found,) = refused(CONVEX.replace('"FedAvg"', f'"{method}"') + f"{given}\n")
    assert (found.path, found.line) == (("method", 0, field), 11)


@pytest.mark.parametrize(
    ("method", "setting", "line"),
    [
        ('"FedRecu"\nlr = 0.01', "steps = [3, 3, 3, 4]", 3),
        ('"FedRecu"\nlr = 0.01', "cohort = {size = 4, dropout = 0.1}", 3),
        ('"FedRecu"\nlr = 0.01', 'aggregation = "weighted-mean"', 3),
        ('"DANE"\nlam = 1.0', "schedule = 0.9", 3),
        ('"DANE"\nlam = 1.0\nschedule = 0.9', "steps = 3", 10),
    ],
)
def test_what_a_method_refuses_has_the_line_that_says_it(method, setting, line):
    text = CONVEX.replace('"FedAvg"\nlr = 0.01', method).replace("steps = 3", setting)
    assert {c.line for c in refused(text)} == {line}


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "first.toml").write_text(GOOD)
    with pytest.raises(BadSpec, match=r"x.toml: No such file"):
        load(tmp_path / "nowhere" / "x.toml")
    with pytest.raises(BadSpec, match="a directory"):
        load(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"name = \xff")
    with pytest.raises(BadSpec, match="not UTF-8"):
        load(tmp_path / "binary.toml")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(BadSpec, match="not TOML"):
        load(tmp_path / "deep.toml")
    assert load(tmp_path / "first.toml").document() == parse(GOOD).document()


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[2] / "examples").glob("*.toml")), ids=lambda f: f.name
)
def test_the_examples_are_good_specs(file):
    spec = load(file)
    assert spec.name == file.stem and parse(spec.toml(), str(file)).identity == spec.identity


scalars = st.one_of(
    st.integers(-3, 200), st.floats(allow_nan=False), st.booleans(), st.text(max_size=4)
)
anything = st.one_of(
    scalars,
    st.lists(scalars, max_size=2),
    st.dictionaries(st.text(max_size=4), scalars, max_size=2),
)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_whatever_stands_in_a_spec_it_is_good_or_refused(data):
    document = tomllib.loads(data.draw(st.sampled_from([IMAGES, CONVEX, OWN])))
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from(list(paths(document))))
        table = document
        for part in parents:
            table = table[part]
        table[last] = data.draw(anything)
    try:
        spec = parse(tomli_w.dumps(document), "s.toml")
    except BadSpec as refusal:
        assert refusal.complaints and all(str(c).startswith("s.toml") for c in refusal.complaints)
    else:
        assert parse(spec.toml()).identity == spec.identity
