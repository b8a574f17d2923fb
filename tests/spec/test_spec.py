"""Specs: what is accepted, everything that is refused and where, overrides, and the line scanner
against tomllib.
"""

import tomllib

import pytest

from undrift.spec.errors import BadSpec, Place
from undrift.spec.reader import load, parse

GOOD = """\
name = "first"
rounds = 20
steps = 3
seeds = [0, 1]
target = 1e-8
[problem]
name = "quadratic"
clients = 4
[[method]]
name = "scaffold"
label = "SCAFFOLD"
lr = "theory"
steps = 5
[[method]]
name = "FedAvg"
lr = 0.01
rounds = 7
"""


def complaints(text, *flags):
    with pytest.raises(BadSpec) as caught:
        parse(text, "s.toml", flags)
    return [str(complaint) for complaint in caught.value.complaints]


def test_a_good_spec_is_read():
    spec = parse(GOOD)
    scaffold, fedavg = spec.entries
    assert (spec.name, spec.rounds, spec.seeds, spec.target, spec.cohort) == (
        "first",
        20,
        [0, 1],
        1e-8,
        None,
    )
    assert (spec.engine, spec.dtype, spec.device, spec.every) == ("simulate", None, "cpu", 1)
    assert spec.problem.clients == 4
    assert (scaffold.label, scaffold.method.lr, scaffold.steps, scaffold.rounds) == (
        "SCAFFOLD",
        "theory",
        5,
        20,
    )
    assert (fedavg.label, fedavg.method.lr, fedavg.steps, fedavg.rounds) == ("FedAvg", 0.01, 3, 7)


def test_the_written_form_is_complete_and_means_the_same():
    spec = parse(GOOD)
    again = parse(spec.toml())
    assert again.document() == spec.document()
    assert [entry.method for entry in again.entries] == [entry.method for entry in spec.entries]
    written = tomllib.loads(spec.toml())
    assert (
        written["every"] == 1
        and written["problem"]["dim"] == 10
        and written["method"][0]["server_lr"] == 1.0
    )
    assert "rounds" not in written["method"][0] and written["method"][1]["rounds"] == 7


def test_every_problem_is_listed_with_its_line():
    found = complaints(
        """\
name = "first"
rounds = 20
stepz = 3
cohort = 2
[problem]
name = "quadratic"
clients = 4
dims = 3
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
    assert [c.split(": ")[0] for c in found] == [f"s.toml:{line}" for line in (3, 4, 8, 10, 14, 15)]
    assert "unknown key 'stepz'; did you mean steps?" in found[0] and "rounds" in found[0]
    assert "FedRecu needs every client in every round" in found[1]
    assert "did you mean dim?" in found[2]
    assert "unknown method 'Scafold'; did you mean Scaffold?" in found[3] and "FedAvg" in found[3]
    assert "lr = -0.1 is not allowed: number > 0" in found[4]
    assert "lr is missing: number > 0" in found[5]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("rounds = 20", "rounds = 0", 2, "rounds = 0 is not allowed: whole number >= 1"),
        ("rounds = 20", "rounds = 2.5", 2, "whole number"),
        ("rounds = 20", "# no rounds", 1, "rounds is missing"),
        ("steps = 3", "steps = [1, 2]", 3, "2 numbers of local steps were given for 4 clients"),
        ("steps = 3", "batch = 0", 3, "batch = 0 is not allowed"),
        ("steps = 3", "cohort = 9", 3, "a cohort of 9 is more than the 4 clients there are"),
        ("steps = 3", "engine = 'simulat'", 3, "'simulate' or 'wire'"),
        ("steps = 3", "device = 'gpu'", 3, "cuda"),
        ("seeds = [0, 1]", "seeds = [1, 1]", 4, "different"),
        ("seeds = [0, 1]", "seeds = []", 4, "one or more"),
        ("target = 1e-8", "target = nan", 5, "number > 0"),
        ('name = "quadratic"', 'name = "quadratik"', 7, "did you mean quadratic?"),
        ("clients = 4", "clients = 0", 8, "whole number >= 1"),
        ('label = "SCAFFOLD"', 'label = "FedAvg"', 14, "two methods are called 'FedAvg'"),
        ('label = "SCAFFOLD"', 'label = "a\\u001b[31m"', 11, "'a\\x1b[31m' is not allowed"),
        ('label = "SCAFFOLD"', 'label = "<b>"', 11, "none of < > &"),
        ('label = "SCAFFOLD"', "option = 'III'", 11, "'I' or 'II'"),
        (
            'label = "SCAFFOLD"',
            'server_lr = "theory"',
            11,
            "no theory prescribes server_lr of Scaffold",
        ),
        (
            '[[method]]\nname = "FedAvg"',
            '[[method]]\nlabel = "FedAvg"',
            14,
            "name is missing: one of ",
        ),
        ('name = "first"', 'name = "../first"', 1, "letters, digits"),
        ('name = "first"', 'name = ".."', 1, "letters, digits"),
        ('name = "first"', 'name = "a/b"', 1, "letters, digits"),
        ('name = "first"', 'name = "a\\u001b[2J"', 1, "'a\\x1b[2J'"),
        ('name = "first"', "name = ", 1, "not TOML"),
    ],
)
def test_one_problem(old, new, line, words):
    (found,) = complaints(GOOD.replace(old, new, 1))
    assert found.startswith(f"s.toml:{line}: ") and words in found
    assert found.isprintable()


def test_what_is_missing_altogether():
    with pytest.raises(BadSpec) as caught:
        parse("", "s.toml")
    found = caught.value.complaints
    assert {c.path for c in found} == {("name",), ("rounds",), ("problem",), ("method",)}
    assert {c.place for c in found} == {Place("s.toml", 1)}
    assert "s.toml:1: rounds is missing: whole number >= 1" in map(str, found)
    single = GOOD[: GOOD.index("[[method]]")] + '[method]\nname = "FedAvg"\nlr = 0.1\n'
    assert complaints(single) == ["s.toml:9: write [[method]], with two brackets"]


def test_conditions_of_a_method_are_complaints_too():
    """A step count that differs between clients is the method's own refusal, at the line that says
    so.
    """
    text = GOOD.replace("steps = 3", "steps = [3, 3, 3, 4]").replace(
        '"FedAvg"\nlr = 0.01', '"FedRecu"\nlr = 0.01'
    )
    assert complaints(text) == [
        "s.toml:3: FedRecu needs the same number of local steps on every client"
    ]


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "first.toml").write_text(GOOD)
    with pytest.raises(
        BadSpec, match=r"frst.toml: there is no such file; did you mean .*first.toml\?"
    ):
        load(tmp_path / "frst.toml")
    with pytest.raises(BadSpec, match=r"no such file$"):
        load(tmp_path / "nowhere" / "x.toml")
    with pytest.raises(BadSpec, match="is a directory"):
        load(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"name = \xff")
    with pytest.raises(BadSpec, match="not UTF-8"):
        load(tmp_path / "binary.toml")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(BadSpec, match="nested too deeply"):
        load(tmp_path / "deep.toml")
    assert load(tmp_path / "first.toml").document() == parse(GOOD).document()


def test_overrides():
    flags = [
        "rounds=5",
        "problem.clients=3",
        "method.lr=0.25",
        "device=cuda",
        "method.server_lr = 2.0",
        "seeds=[3]",
    ]
    spec = parse(GOOD, flags=flags)
    assert (spec.rounds, spec.problem.clients, spec.device, spec.seeds) == (5, 3, "cuda", [3])
    assert [entry.method.lr for entry in spec.entries] == [0.25, 0.25]
    assert [entry.method.server_lr for entry in spec.entries] == [2.0, 2.0]
    assert [entry.rounds for entry in spec.entries] == [5, 7]


def test_an_override_goes_to_the_methods_that_have_the_field():
    spec = parse(GOOD, flags=["method.option=I", "method.steps=2"])
    assert spec.entries[0].method.option == "I"
    assert [entry.steps for entry in spec.entries] == [2, 2]


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("roundz=5", "unknown key 'roundz'; did you mean rounds?"),
        ("rounds=-5", "rounds = -5 is not allowed"),
        ("method.lrr=1", "did you mean lr?"),
        ("method.lr=-1", "lr = -1 is not allowed: number > 0"),
        ("method.name=GD", "unknown parameter of the methods 'name'"),
        ("problem.client=2", "did you mean clients?"),
        ("problem=2", "unknown key 'problem'"),
        ("a.b.c=2", "unknown key 'a.b.c'"),
        ("rounds", "not KEY=VALUE"),
        ("rounds=", "not KEY=VALUE"),
        ("rounds=5\nname='x'", "not KEY=VALUE"),
        ("cohort=2 3", "not KEY=VALUE"),
    ],
)
def test_a_wrong_override_is_blamed_on_the_flag(flag, words):
    found = complaints(GOOD, flag)
    assert all(c.startswith(f"-s {flag}: ") for c in found)
    assert any(words in c for c in found)
