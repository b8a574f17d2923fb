"""Methods from a user's file: in a spec, and by themselves."""

import sys

import pytest
from tests.spec.texts import MINE, OWN

from undrift.core.method import registry
from undrift.spec.errors import BadFile, BadSpec
from undrift.spec.reader import load
from undrift.spec.user_files import distrust, execute


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "s.toml").write_text(OWN)
    return tmp_path


def wrong(*flags):
    with pytest.raises(BadSpec) as caught:
        load("s.toml", flags)
    return [str(complaint) for complaint in caught.value.complaints]


def test_a_method_from_a_file(place):
    known = dict(registry)
    spec = load("s.toml", ["method.mu=3.0", "method.lr=0.5", "method.steps=2"])
    own = spec.entries[1]
    assert (own.label, own.method.mu) == ("Mine", 3.0)
    assert [(e.options.steps, e.method.lr) for e in spec.entries] == [(2, 0.5), (2, 0.5)]
    assert registry == known
    assert load("s.toml").document()["method"][1]["file"] == "mine.py"
    assert not (place / "__pycache__").exists()


def test_a_file_of_two_methods_is_executed_once(place):
    count = "\nwith open('ran', 'a') as ran:\n    ran.write('.')\n"
    (place / "mine.py").write_text(MINE + count)
    again = OWN[OWN.rindex("[[method]]") :] + 'label = "again"\n'
    (place / "s.toml").write_text(OWN + again)
    one, other = load("s.toml").entries[1:]
    assert type(one.method) is type(other.method) and (place / "ran").read_text() == "."


def test_what_the_file_says_is_part_of_the_run(place):
    before = load("s.toml").identity
    assert load("s.toml").identity == before
    (place / "mine.py").write_text(MINE.replace("1.0", "2.0"))
    assert load("s.toml").identity != before


@pytest.mark.parametrize(
    ("old", "new", "where", "words"),
    [
        ('"mine.py"', '"/etc/mine.py"', 11, "a Python file in the folder of the spec or below it"),
        ('"mine.py"', '"../mine.py"', 11, "in the folder of the spec"),
        ('"mine.py"', '"link.py"', 11, "in the folder of the spec"),
        ('"mine.py"', "3", 11, "a Python file"),
        ('"mine.py"', '"mne.py"', 11, "mne.py"),
        ('"mine"', '"mines"', 12, "unknown method of mine.py 'mines'; did you mean Mine?"),
        ('name = "mine"\n', "", 10, "a table with a name"),
        ("lr = 0.02", "lr = -1.0", 13, "lr = -1.0 is not allowed"),
        ("lr = 0.02", "lr = 0.02\nnu = 1", 14, "unknown parameter of Mine 'nu'; did you mean mu?"),
    ],
)
def test_one_problem_with_a_file(place, old, new, where, words):
    (place / "link.py").symlink_to("/etc/hostname")
    (place / "s.toml").write_text(OWN.replace(old, new))
    (found,) = wrong()
    assert found.startswith(f"s.toml:{where}: ") and words in found


def test_a_file_that_is_refused_is_not_executed(place):
    (place / "mine.py").write_text(MINE + "\nopen('ran', 'w')\n")
    with pytest.raises(BadSpec, match=r"s.toml:11: mine.py: Python code .* trust it: this"):
        load("s.toml", code=distrust("this"))
    assert not (place / "ran").exists()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (None, None, "No such file"),
        ("x = 1\ny = undefined\n", 2, "NameError"),
        ("x = 1\nimport sys; sys.exit(3)\n", 2, "SystemExit"),
        ("x = (\n", None, "line 1"),
        (f"from __future__ import annotations\n{MINE.replace(': float', ': flot')}", None, "flot"),
    ],
)
def test_a_bad_file_has_its_place_as_data(tmp_path, text, line, words):
    known, file = dict(registry), tmp_path / "a.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadFile) as caught:
        execute(file)
    assert (caught.value.file, caught.value.line) == (file, line) and words in caught.value.text
    assert registry == known


def test_only_the_classes_of_the_file_itself_are_its_methods(tmp_path):
    """In their order; neither what it imports nor what it calls abstract."""
    file = tmp_path / "two.py"
    file.write_text(MINE + "\nclass Base(Mine, abstract=True):\n    pass\n\nclass B(Base): pass\n")
    assert [*execute(file).methods] == ["Mine", "B"]


def test_a_module_of_the_same_folder_is_imported_and_said_not_to_be_recorded(place):
    (place / "nearby_steps.py").write_text("SHORTER = 0.5\n")
    (place / "mine.py").write_text("from nearby_steps import SHORTER\n" + MINE)
    with pytest.warns(UserWarning, match="nearby_steps.*not recorded"):
        spec = load("s.toml")
    assert spec.sources.keys() == {"mine.py"}
    sys.modules.pop("nearby_steps")
