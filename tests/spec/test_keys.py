"""Every key a spec may have: cohorts, epochs, options, objectives, own files; and what is refused,
with its line.
"""

import dataclasses
import tomllib
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.core.cohort import Sampling
from undrift.core.method import registry
from undrift.core.params import hints
from undrift.core.options import LocalOptions as Options
from undrift.objectives import MOON, CrossEntropy, FedLC
from undrift.runs import api as runner
from undrift.spec.errors import BadSpec
from undrift.spec.reader import load, parse
from undrift.spec.schema import SETTINGS, TRAINING, Settings

IMAGES = """\
name = "net"
rounds = 5
epochs = 2
batch = 16
weight_decay = 1e-3
clip = 10.0
clip_scope = "reference"
decay = 0.998
weights = "samples"
target_accuracy = 0.5
objective = "fed-lc"
[cohort]
size = 3
dropout = 0.1
[problem]
name = "images"
clients = 6
[[method]]
name = "FedAvg"
lr = 0.1
[[method]]
name = "FedAvg"
label = "moon"
lr = 0.1
steps = 4
rounds = 7
clip = 1.0
decay = 1.0
objective = {name = "MOON", mu = 0.5}
"""
CONVEX = """\
name = "first"
rounds = 20
steps = 3
[problem]
name = "quadratic"
clients = 4
[[method]]
name = "FedAvg"
lr = 0.01
"""


def complaints(text, *flags):
    with pytest.raises(BadSpec) as caught:
        parse(text, "s.toml", flags)
    return [str(complaint) for complaint in caught.value.complaints]


def test_how_gradients_are_treated_comes_last():
    treated = ("weight_decay", "clip", "clip_scope", "decay")
    assert ("rounds", "steps", "epochs", "objective", *treated) == TRAINING
    assert (
        SETTINGS[:2] == ("rounds", "steps")
        and SETTINGS[-4:] == treated
        and len(set(SETTINGS)) == len(SETTINGS)
    )


def test_every_option_of_the_engine_is_a_setting():
    assert hints(Options).items() <= hints(Settings).items()
    defaults = {f.name: f.default for f in dataclasses.fields(Settings)}
    assert dataclasses.asdict(Options()).items() <= defaults.items()


def test_every_key_reaches_the_engine():
    spec = parse(IMAGES)
    first, moon = spec.entries
    assert (
        spec.cohort == Sampling(3, dropout=0.1)
        and spec.dtype is None
        and spec.target_accuracy == 0.5
    )
    assert first.objective == FedLC() and moon.objective == MOON(mu=0.5)
    common = {
        "cohort": spec.cohort,
        "batch": 16,
        "weights": "samples",
        "engine": "simulate",
        "dtype": None,
    }
    common |= {"device": "cpu", "weight_decay": 1e-3, "clip_scope": "reference"}
    assert spec.setting(first) == common | {"steps": 1, "epochs": 2, "clip": 10.0, "decay": 0.998}
    assert spec.setting(moon) == common | {"steps": 4, "epochs": None, "clip": 1.0, "decay": 1.0}
    assert (first.rounds, moon.rounds) == (5, 7)


def test_the_engine_is_what_the_spec_says():
    spec = parse(IMAGES, flags=["problem.train=100", "problem.test=20", "problem.model=mlp"])
    problem = spec.problem.build(spec.entries[0].objective)
    engine = runner.prepare(spec.entries[0].method, problem, **spec.setting(spec.entries[0]))
    assert engine.options == Options(
        weight_decay=1e-3, clip=10.0, clip_scope="reference", decay=0.998, weights="samples"
    )
    assert engine.cohort == Sampling(3, dropout=0.1)
    assert engine.steps == [2 * -(-n // 16) for n in problem.samples]
    assert str(engine.x0.dtype) == "torch.float32"
    convex = parse(CONVEX)
    engine = runner.prepare(
        convex.entries[0].method, convex.problem.build(), **convex.setting(convex.entries[0])
    )
    assert str(engine.x0.dtype) == "torch.float64"


def test_the_written_form_means_the_same():
    spec = parse(IMAGES)
    again = parse(spec.toml())
    assert again.document() == spec.document() and again.identity == spec.identity
    written = tomllib.loads(spec.toml())
    assert written["cohort"] == {"size": 3, "sampling": "fixed", "renew": 1, "dropout": 0.1}
    assert (
        written["objective"] == {"name": "FedLC", "tau": 1.0}
        and "steps" not in written
        and "dtype" not in written
    )
    assert written["method"][1]["objective"] == {"name": "MOON", "mu": 0.5, "tau": 0.5}
    assert "clip" not in written["method"][0] and written["method"][1]["clip"] == 1.0
    assert parse(IMAGES, flags=["rounds=6"]).identity != spec.identity


def test_a_cohort_is_a_number_or_a_table():
    assert parse(CONVEX, flags=["cohort=2"]).cohort == Sampling(2)
    assert parse(
        CONVEX.replace("steps = 3", "cohort = 3"), flags=["cohort.dropout=0.5"]
    ).cohort == Sampling(3, dropout=0.5)
    table = parse(
        CONVEX,
        flags=["cohort.size=2", "cohort.pool=3", "cohort.renew=5", "cohort.sampling=bernoulli"],
    )
    assert table.cohort == Sampling(2, "bernoulli", 3, 5)


def test_flags_for_objectives_and_training():
    spec = parse(IMAGES, flags=["objective.tau=0.5", "method.weight_decay=0.0", "method.clip=2"])
    assert spec.objective == FedLC(tau=0.5)
    assert [entry.weight_decay for entry in spec.entries] == [0.0, 0.0]
    assert [entry.clip for entry in spec.entries] == [2, 2]
    assert (
        parse(IMAGES, flags=["method.objective=CrossEntropy"]).entries[1].objective
        == CrossEntropy()
    )


@pytest.mark.parametrize(
    ("text", "old", "new", "line", "words"),
    [
        (CONVEX, "steps = 3", "epochs = 2", 3, "epochs need mini-batches: add batch"),
        (IMAGES, "epochs = 2", "epochs = 2\nsteps = 3", 3, "give steps or epochs, not both"),
        (IMAGES, "steps = 4", "steps = 4\nepochs = 1", 26, "give steps or epochs, not both"),
        (CONVEX, "lr = 0.01", "lr = 0.01\nepochs = 1", 10, "epochs need mini-batches"),
        (CONVEX, "steps = 3", "cohort = 0", 3, "whole number >= 1, or a table of size, sampling, pool"),
        (CONVEX, "steps = 3", "cohort = '2'", 3, "cohort = '2' is not allowed"),
        (CONVEX, "steps = 3", "cohort = {size = 2, drop = 0.1}", 3, "unknown parameter of cohort 'drop'; did you mean"),
        (CONVEX, "steps = 3", "cohort = {dropout = 0.1}", 3, "size is missing"),
        (CONVEX, "steps = 3", "cohort = {size = 2, dropout = 1.0}", 3, "number >= 0 and < 1"),
        (CONVEX, "steps = 3", "cohort = {size = 2, pool = 9}", 3, "a pool of 9 is more than the 4"),
        (IMAGES, "size = 3", "size = 9", 13, "a cohort of 9 is more than the 6 clients"),
        (CONVEX, "steps = 3", "clip = 0.0", 3, "clip = 0.0 is not allowed: number > 0"),
        (CONVEX, "steps = 3", "decay = 1.5", 3, "decay = 1.5 is not allowed: number > 0 and <= 1"),
        (CONVEX, "steps = 3", "weights = 'size'", 3, "'uniform' or 'samples'"),
        (CONVEX, "lr = 0.01", "lr = 0.01\nweight_decay = -1", 10, "weight_decay = -1 is not allowed: number >= 0"),
        (CONVEX, "lr = 0.01", "lr = 0.01\nweights = 'samples'", 10, "unknown parameter of FedAvg 'weights'"),
        (CONVEX, "steps = 3", "objective = 'MOON'", 3, "leave out objective, or use the problem images"),
        (CONVEX, "lr = 0.01", "lr = 0.01\nobjective = 'MOON'", 10, "quadratic has a loss of its own"),
        (IMAGES, '"fed-lc"', '"FedCL"', 11, "unknown objective 'FedCL'; did you mean FedLC?"),
        (IMAGES, '"fed-lc"', "3", 11, "objective is a name"),
        (IMAGES, "mu = 0.5", "mu = -0.5", 29, "mu = -0.5 is not allowed: number >= 0"),
        (IMAGES, "mu = 0.5", "nu = 0.5", 29, "unknown parameter of MOON 'nu'; did you mean mu?"),
        (IMAGES, 'name = "MOON", mu = 0.5', "mu = 0.5", 29, "objective is a name"),
        (IMAGES, '"fed-lc"', '{name = "FedNTD", form = "mix", beta = 2.0}', 11, "beta is a share"),
        (IMAGES, "target_accuracy = 0.5", "target_accuracy = 80", 10, "80 % is 0.8"),
        (IMAGES, "target_accuracy = 0.5", "target_accuracy = 0.0", 10, "number > 0 and <= 1"),
        (IMAGES, "target_accuracy = 0.5", "target = 1e-3", 10, "use target_accuracy"),
        (CONVEX, "steps = 3", "target_accuracy = 0.5", 3, "quadratic measures no accuracy"),
        (CONVEX, "steps = 3", "smooth = 0", 3, "smooth = 0 is not allowed"),
    ],
)  # fmt: skip
def test_one_problem(text, old, new, line, words):
    assert text.count(old) == 1
    (found,) = complaints(text.replace(old, new))
    assert found.startswith(f"s.toml:{line}: ") and words in found


def test_the_methods_themselves_refuse():
    dane = CONVEX.replace('"FedAvg"\nlr = 0.01', '"DANE"\nlam = 1.0')
    (reason,) = registry["DANE"](lam=1.0).refuse_decay(0.9)
    assert complaints(dane.replace("steps = 3", "decay = 0.9")) == [f"s.toml:3: {reason.text}"]
    assert complaints(dane + "decay = 0.9\n") == [f"s.toml:10: {reason.text}"]
    unweighted = next(
        name for name, cls in registry.items() if not cls.weighted and "lr" in hints(cls)
    )
    text = CONVEX.replace('"FedAvg"', f'"{unweighted}"').replace("steps = 3", 'weights = "samples"')
    assert any(
        c.startswith("s.toml:3: ") and "is defined for uniform means" in c for c in complaints(text)
    )
    full = CONVEX.replace('"FedAvg"', '"FedRecu"').replace(
        "steps = 3", "cohort = {size = 4, dropout = 0.1}"
    )
    assert "FedRecu needs every client in every round" in complaints(full)[0]


def test_a_flag_is_blamed_for_what_it_says():
    assert complaints(IMAGES, "cohort.size=9") == [
        "-s cohort.size=9: a cohort of 9 is more than the 6 clients there are"
    ]
    assert complaints(IMAGES, "objective.tau=-1") == [
        "-s objective.tau=-1: tau = -1 is not allowed: number >= 0"
    ]
    assert complaints(CONVEX, "method.decay=2")[0].startswith(
        "-s method.decay=2: decay = 2 is not allowed"
    )
    assert "unknown key 'every.thing'" in complaints(CONVEX, "every.thing=2")[0]


MINE = """\
from undrift.methods.fedavg import FedAvg

class Mine(FedAvg):
    \"\"\"FedAvg.\"\"\"

    mu: float = 1.0
"""
OWN = CONVEX + '[[method]]\nfile = "mine.py"\nname = "mine"\nlr = 0.02\n'


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "s.toml").write_text(OWN)
    return tmp_path


def test_a_method_from_a_file(place):
    known = dict(registry)
    spec = load("s.toml", ["method.mu=3.0", "method.lr=0.5", "method.steps=2"])
    own = spec.entries[1]
    assert (type(own.method).__name__, own.method.mu, own.method.lr, own.label) == (
        "Mine",
        3.0,
        0.5,
        "Mine",
    )
    assert [entry.steps for entry in spec.entries] == [2, 2] and spec.entries[0].method.lr == 0.5
    assert registry == known
    assert load("s.toml").document()["method"][1]["file"] == "mine.py"
    assert not (place / "__pycache__").exists()


def test_what_the_file_says_is_part_of_the_run(place):
    before = load("s.toml").identity
    assert load("s.toml").identity == before
    (place / "mine.py").write_text(MINE.replace("1.0", "2.0"))
    assert load("s.toml").identity != before


def wrong(*flags):
    with pytest.raises(BadSpec) as caught:
        load("s.toml", flags)
    return [str(complaint) for complaint in caught.value.complaints]


@pytest.mark.parametrize(
    ("old", "new", "where", "words"),
    [
        ('"mine.py"', '"/etc/mine.py"', 11, "a Python file in the folder of the spec or below it"),
        ('"mine.py"', '"../mine.py"', 11, "in the folder of the spec"),
        ('"mine.py"', '"sub/../../mine.py"', 11, "in the folder of the spec"),
        ('"mine.py"', '"link.py"', 11, "in the folder of the spec"),
        ('"mine.py"', '"mine.txt"', 11, "a Python file"),
        ('"mine.py"', "3", 11, "a Python file"),
        ('"mine.py"', '"mne.py"', 11, "mne.py: there is no such file"),
        ('"mine"', '"mines"', 12, "unknown method of mine.py 'mines'; did you mean Mine?"),
        ('name = "mine"\n', "", 10, "name is missing"),
        ("lr = 0.02", "lr = -1.0", 13, "lr = -1.0 is not allowed"),
        ("lr = 0.02", "lr = 0.02\nnu = 1", 14, "unknown parameter of Mine 'nu'; did you mean mu?"),
        ("lr = 0.02", 'lr = "theory"', 13, "no theory prescribes lr of Mine"),
    ],
)
def test_one_problem_with_a_file(place, old, new, where, words):
    (place / "link.py").symlink_to("/etc/hostname")
    (place / "s.toml").write_text(OWN.replace(old, new))
    (found,) = wrong()
    assert found.startswith(f"s.toml:{where}: ") and words in found


def test_a_file_that_fails_is_told_with_its_line(place):
    (place / "mine.py").write_text("x = 1\ny = undefined\n")
    assert wrong() == ["s.toml:11: mine.py:2: NameError: name 'undefined' is not defined"]
    (place / "mine.py").write_text(MINE.replace("class Mine", "class Scaffold"))
    assert wrong() == [
        "s.toml:11: mine.py: Scaffold is a method of undrift already: choose another name"
    ]
    (place / "mine.py").write_text(
        "from __future__ import annotations\n" + MINE.replace("mu: float", "mu: flot")
    )
    assert wrong() == ["s.toml:11: mine.py: NameError: name 'flot' is not defined"]
    assert registry["Scaffold"].__module__ == "undrift.methods.scaffold"


def test_a_spec_that_is_wrong_runs_no_file(place):
    (place / "mine.py").write_text(MINE + "\nopen('ran', 'w')\n")
    (place / "s.toml").write_text(
        OWN.replace("rounds = 20", "rounds = 0").replace("lr = 0.02", "steps = 0")
    )
    found = wrong("method.lrr=1")
    assert [c.split(": ")[0] for c in found] == ["s.toml:2", "s.toml:13"]
    assert not (place / "ran").exists()
    (place / "s.toml").write_text(OWN)
    assert wrong("method.lrr=1") == [
        f"-s method.lrr=1: unknown parameter of the methods 'lrr'; did you mean lr? allowed: "
        f"{', '.join(['lr', 'server_lr', *TRAINING, 'mu'])}"
    ]
    assert (place / "ran").exists()


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[2] / "examples").glob("*.toml")), ids=lambda f: f.name
)
def test_the_examples_are_good_specs(file):
    spec = load(file)
    assert spec.name == file.stem and parse(spec.toml()).identity == spec.identity


def paths(value, at=()):
    """Every path of a document."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield (*at, key)
        yield from paths(inner, (*at, key))


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
